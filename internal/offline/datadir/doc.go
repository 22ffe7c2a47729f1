// Package datadir defines the layout of a data directory, and checks one without changing it.
//
//	DIR/LOCK       taken by the process that has the directory open
//	DIR/wal/       the raft log, unless it is in another directory
//	DIR/history/   the store
//
// A checkpoint is a data directory with a store, without LOCK and without raft log.
//
// Open and Check promise:
//
//  1. Nothing is written, created, removed or locked.
//  2. Every byte that a member would read as data is read and compared with its checksum.
//  3. Damage is reported with the file, the offset of the first damaged part, and the reason. So
//     are files that are missing, duplicated, swapped or from another member.
//  4. Data that a member would open and serve in full are not reported as damaged: a tail that a
//     crash has torn is reported as such, with the number of bytes that the next start cuts.
package datadir
