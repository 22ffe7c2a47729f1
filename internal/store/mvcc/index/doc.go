// Package index keeps the index of an mvcc store: from a key to its changes. It knows nothing of
// records, snapshots of a store or limits.
//
// An Index belongs to one writer at a time. Readers work on a keytree.Snapshot of its tree, at some
// revision, without a lock.
//
// # Invariants
//
//  1. A reader with a snapshot of the tree finds all changes of a key up to the revision of the
//     snapshot, except the changes trimmed since then. What the writer does later does not affect
//     it.
//  2. An append to an existing key changes neither the tree nor a word that a reader reads, except
//     a length or a ref, which it stores atomically.
//  3. The words that are not released in the pool are exactly the words of the tree's entries and
//     of their blocks.
//
// DESIGN.md of package mvcc describes it further.
package index
