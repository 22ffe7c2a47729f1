// Package boltfile writes and reads the files of go.etcd.io/bbolt, the database that etcd keeps its data
// in, as a stream and from untrusted bytes.
//
// The library itself can do neither: it builds a file by changing it in place, which needs the space and
// the disk twice over, and it trusts what it maps. A Builder lays a file out from front to back while its
// content is told to it in order, so that a backup needs no file at all; it holds one page for each level
// of a tree. A File checks every number before it uses it and names the page that is damaged.
//
// The layout is in docs/formats/etcd-snapshot.md. Tests hold both sides against the library.
//
// # Invariants
//
//  1. What a Builder is told twice, once to count and once to write, comes to the same pages.
//  2. A file that a Builder wrote has no free page, and passes the library's own check.
//  3. A File never reads beyond the pages that the file says it has, never twice the same, and yields the
//     keys of a bucket in strictly ascending order, or else says what is wrong.
package boltfile
