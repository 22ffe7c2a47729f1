// Package restore builds the data directory of a member out of a backup: a file of etcd's, the data
// directory of an etcd member that is not running, or a checkpoint. The cluster that begins there is a new
// one, with the members that the caller lists and everything else from the backup: every revision that it
// has, leases, users and roles.
//
// # Invariants
//
//  1. A directory that has anything in it is not touched. After an error nothing is left of what was made.
//  2. The store gets its name when it is whole and durable. Before that it has another name, which is there from the
//     first step on: a member does not start next to it, and the next attempt begins anew.
//  3. What members of one cluster build out of one backup is the same state at the same position. The id of the
//     cluster is derived from the backup: members that do not begin alike refuse each other.
//  4. Of a backup that is damaged nothing is built.
package restore
