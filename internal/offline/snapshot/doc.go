// Package snapshot writes and reads the state of a store in etcd's format: it writes database files
// of etcd 3.7, which stock tools check, restore and serve, and reads the files of etcd 3.4 to 3.7.
//
// It defines the schema, the content of each bucket; package boltfile defines the pages.
// internal/offline/snapshot/DESIGN.md describes both.
//
// # Invariants
//
//  1. A file is written sequentially, with memory that does not depend on its size. Its size is
//     known before its first byte is written.
//  2. Open and Records of a file return the Contents and the records that were passed to Write.
//  3. No data of a file are used before they are checked. Damage is reported with the offset of its
//     page, or with bucket and key.
package snapshot
