// Package restore builds the data directory of a member from a backup: a database file of etcd, the
// data directory of a stopped etcd member, or a checkpoint. It is for a new cluster, with the
// members of the caller and everything else from the backup: all revisions, leases, users and
// roles.
//
// # Invariants
//
//  1. A directory that is not empty is not changed. After an error nothing of the new directory is
//     left.
//  2. The store gets its name when it is complete and durable. Before that it has another name,
//     which exists from the first step on: a member does not start next to it, and the next attempt
//     starts over.
//  3. All members of a cluster build the same state at the same position from one backup. The id of
//     the cluster is derived from the backup: members with different initial data reject each
//     other.
//  4. Nothing is built from a damaged backup.
package restore
