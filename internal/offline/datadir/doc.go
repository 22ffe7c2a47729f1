// Package datadir says how a data directory is laid out, and checks one without changing it.
//
//	DIR/LOCK       taken by the process that has the directory open
//	DIR/wal/       the raft log, unless it was put elsewhere
//	DIR/history/   the store
//
// A checkpoint is a data directory with a store and neither LOCK nor raft log.
//
// Open and Check promise:
//
//  1. Nothing is written, created, removed or locked.
//  2. Every byte that a member would ever read as data is read and compared with its checksum.
//  3. What is damaged is named: the file, the offset where the first damaged piece of it begins, and
//     what is wrong. So is what is missing, doubled, swapped or from another member.
//  4. What a member would open and serve in full is not called damaged: a tail that a crash tore is
//     reported as such, with the number of bytes that the next start cuts.
package datadir
