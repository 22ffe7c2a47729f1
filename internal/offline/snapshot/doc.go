// Package snapshot writes and reads the state of a store as etcd 3.7 keeps it on disk: a database file
// that stock tools check, restore and serve, and that those of etcd 3.4 to 3.7 are read from.
//
// It knows the schema, which bucket holds what in which form, and nothing of where a state comes from
// or goes to; boltfile knows the pages. docs/formats/etcd-snapshot.md has the facts that both rely on.
//
// # Invariants
//
//  1. A file is written from front to back, in memory that does not grow with it. Its size is known
//     before its first byte.
//  2. What was written is read back as it was told: Open and Records of a file return the State and the
//     records that Write was given.
//  3. Nothing of a file that is read is believed before it was checked. What is damaged is named by the
//     offset of its page, or by bucket and key.
package snapshot
