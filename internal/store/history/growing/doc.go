// Package growing is a segment that is not sealed: its file, which grows by batches, and its
// records in memory.
//
// A Segment is created with its header, or opened and loaded after a restart. The writer appends
// batches to it. When it is full, WriteTables adds what a sealed segment has. The package never
// syncs or renames a file.
//
// One goroutine at a time owns a Segment. Other goroutines may read a copy of Memory, the fields
// that never change, Synced, and, in a Copy, the batches that were appended before the copy of
// Memory was made.
package growing
