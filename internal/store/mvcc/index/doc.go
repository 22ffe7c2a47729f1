// Package index keeps the index of an mvcc store: from a key to its changes. It knows nothing of records, snapshots of a store
// or limits.
//
// An Index belongs to one writer at a time. Readers work on a keytree.Snapshot of its tree, at some revision, without a lock.
//
// # Invariants
//
//  1. A reader with a snapshot of the tree finds all changes of a key up to the revision that the snapshot was taken at, except
//     those that were trimmed since. What the writer does later does not concern it.
//  2. An append to a key that exists changes neither the tree nor a word that a reader looks at, but for a length or a
//     ref that is stored atomically.
//  3. The words that are not released in the pool are those of the entries of the tree and of their blocks.
//
// DESIGN.md of package mvcc describes it further.
package index
