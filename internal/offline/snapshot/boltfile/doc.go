// Package boltfile writes the files of go.etcd.io/bbolt, etcd's database, as a stream, and reads
// them from untrusted bytes.
//
// The library can do neither: it builds a file by changing it in place, which needs the space and
// the disk twice, and it trusts the file. A Builder receives the content in order and lays the file
// out sequentially, so that a backup needs no file at all; it holds one page for each level of a
// tree. A Reader checks every number before it uses it and reports the damaged page.
//
// The layout is in internal/offline/snapshot/DESIGN.md. Tests compare both sides with the library.
//
// # Invariants
//
//  1. A Builder that counts and one that writes the same content produce the same pages.
//  2. A file of a Builder has no free page, and passes the check of the library.
//  3. A Reader never reads beyond the pages in the header of the file, reads no page twice, and
//     yields the keys of a bucket in strictly ascending order, or returns an error.
package boltfile
