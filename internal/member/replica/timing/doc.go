// Package timing measures how long the requests of a member and their steps take: it counts
// durations in the buckets of etcd's metrics, logs slow requests, and exports their steps as spans.
//
// It is safe for concurrent use, except for the request whose steps it records: that request
// belongs to the caller.
package timing
