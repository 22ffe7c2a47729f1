// Package wal is the raft log on disk: entries, hard state and the position after which the log
// begins, in preallocated segments that are used again and again.
//
// One goroutine appends; any goroutine may read or truncate concurrently. The batches of one call
// of Append are one group: it is written with one write and, if a batch asks for it, made durable
// with one fdatasync, and after a crash all of it is there or none.
//
// What holds at any time, whatever crashes when (DESIGN.md has the argument, docs/formats/wal.md
// the bytes):
//
//  1. When an Append with Sync has returned nil, its group and every group before it survive.
//  2. What Open finds is the state after one of the calls of Append, never a state between two and
//     never one that leaves out an earlier call.
//  3. Nothing is written to a segment before its header is durable, and no header is written before
//     everything in the segment before it is durable. So only the tail of the last segment can be
//     torn.
//  4. A record counts only at the offset and in the segment it was written for: a record from an
//     earlier use of a file never counts, whatever clients have written there.
//  5. A bad record below a place known to be synced is corruption, reported with file and offset.
//     Only a bad record above it is a torn tail, and is cut.
//  6. Segments leave the directory oldest first, each durably before the next, and only when a
//     later one has the term of the entry before the first that is kept.
//  7. After a write or sync failed, the log accepts nothing more: the content of the disk is
//     unknown until it is opened again.
//  8. Every index between FirstIndex and LastIndex has exactly one entry; terms never fall.
package wal
