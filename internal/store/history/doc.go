// Package history is the store on disk: a log of records in the order of their revisions.
//
// A Log is a directory of segments. One segment is open and grows by batches; the others are sealed
// and never change, until a merged segment with the records that are still needed replaces them. A
// batch holds key-value records, each at its revision (main, sub), and meta records (bucket and key
// to value, the last one wins). It is the outcome of the raft log up to a position, which it
// records. Revisions only grow, so records arrive sorted and a lookup is arithmetic: revision to
// segment to offset.
//
// # What a caller must do
//
//   - One goroutine, the writer, calls AppendKV, AppendMeta, Commit, WriterView and Meta.
//   - Everything else may be called from any goroutine, concurrently with the writer.
//   - An error of AppendKV, AppendMeta or Commit other than a kv.Shortage, and a closed Failed
//     channel, end the Log: reads continue, nothing more is written. The member must stop.
//   - Close is the last call except for reads; a read in progress when Close is called finishes or
//     fails, and never touches unmapped memory.
//
// # Invariants
//
//  1. A batch is atomic: after a crash the log holds all of its records or none.
//  2. After a crash, the log holds a prefix of the batches that were committed.
//  3. That prefix holds at least every batch up to the position that Sync or Synced returned.
//  4. Segments become durable in order: nothing of segment n+1 is synced before segment n is.
//  5. A View shows the batches that were committed when it was taken, whole. It never changes,
//     except that records that were passed to Dead may go.
//  6. Bytes that fail their checksum are never returned. The error wraps kv.ErrCorrupt and names
//     the file and the offset.
//  7. A Sync of a file that failed is not repeated: the Log fails instead.
//  8. A record is dropped only after it was passed to Dead and everything committed by then is
//     durable. A dead tombstone stays while an older segment has a dead record.
//
// DESIGN.md describes how they are kept, docs/formats/history.md the bytes.
package history
