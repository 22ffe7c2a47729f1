// Package history is the store on disk: a log of records in the order of their revisions.
//
// A Log is a directory of segments. One segment is open and grows by batches; the others are
// sealed and never change, until they are replaced by one that holds what is still needed of them. A
// batch holds key-value records, each at its revision (main, sub), and meta records (bucket and key to
// value, the last one wins), and says up to which position of the raft log it is the outcome. Revisions only grow, so records arrive sorted and a lookup is
// arithmetic: revision to segment to offset.
//
// # What a caller must do
//
//   - One goroutine, the writer, calls AppendKV, AppendMeta, Commit, WriterView and Meta.
//   - Everything else may be called from any goroutine, beside the writer.
//   - An error of AppendKV, AppendMeta or Commit that is no kv.Shortage, and a closed Failed channel,
//     end the life of the Log: reads go on, nothing more is written. The member must stop.
//   - Close comes after the last call of anything else but reads; a read that is under way when
//     Close is called finishes or fails, and never touches memory that is gone.
//
// # Invariants
//
//  1. A batch is atomic: after a crash either all of its records are there or none.
//  2. What is there after a crash is a prefix of the batches that were committed.
//  3. That prefix holds at least every batch up to the position that Sync or Synced returned.
//  4. Segments become durable in order: nothing of segment n+1 is synced before n is.
//  5. A View never changes, but for records that Dead was told of: it shows the batches that were
//     committed when it was taken, whole.
//  6. Bytes that fail their checksum are never returned. The error wraps kv.ErrCorrupt and names the
//     file and the offset.
//  7. A Sync of a file that failed is not repeated: the Log fails instead.
//  8. A record is dropped only after Dead was told of it and everything that was committed by then is
//     durable. A dead tombstone stays while a segment in front of it has a dead record.
//
// DESIGN.md says how these are kept, docs/formats/history.md what the bytes are.
package history
