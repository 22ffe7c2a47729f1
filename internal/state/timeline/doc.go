// Package timeline holds when revisions were made, as a sparse and bounded list of marks: a mark is a time and the newest
// revision at that time.
//
// Revisions up to that of a mark were made at or before its time, and later ones after it. So the list answers which
// revision was the newest at a time, and between which two times a revision was made. The times are data: this package has
// no clock.
//
// Marks are stored in blocks, each of which is one record. A new mark changes the last block only. When a block is full,
// older blocks are thinned: see thin.go. Marks of compacted revisions are dropped.
//
// # Invariants
//
//  1. The times of the marks ascend strictly, and their revisions do not descend.
//  2. The records of a State rebuild that State: Load of them equals it.
//  3. There are at most MaxBlocks blocks of at most BlockMarks marks each.
//  4. The next State and the records that differ depend on the State and the arguments of Add only.
//  5. Thinning and trimming drop marks and change none: what the remaining marks say stays true.
package timeline
