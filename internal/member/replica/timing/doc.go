// Package timing measures how long the requests of a member and their steps take: it counts
// durations in the buckets of etcd's metrics, logs slow requests, and exports their steps as spans.
//
// Safe for concurrent use, except for the request whose steps are recorded: that belongs to the
// caller.
package timing
