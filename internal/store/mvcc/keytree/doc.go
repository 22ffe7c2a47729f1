// Package keytree is an ordered map of items (a key with words, see package slab) in which every
// key is either live or dead. Readers work on immutable snapshots without a lock, and count the
// live keys of a range without visiting them.
//
// A Tree belongs to one writer. Snapshot returns the current state in constant time; the tree then
// copies the nodes on the way to a change, each node once between two snapshots, and never writes a
// node that a snapshot can see. A Snapshot is a value that any number of goroutines may read and
// keep; it keeps its nodes and the slabs of their items in memory.
//
// The tree does not own the items: its user allocates them in the pool, and releases them after
// Delete or Replace.
//
// Dead keys stay in the map until they are deleted: iterations see them with Live false, counts do
// not include them.
//
// Invariants, checked by valid in the tests:
//
//  1. All leaves have the same depth; keys ascend strictly across the leaves.
//  2. seps[i] of an inner node is at most every key below kids[i] and above every key below
//     kids[i-1]; nothing reads seps[0].
//  3. lives[i] of an inner node is the number of live keys below kids[i].
//  4. heads[i] is the eight bytes of the key of refs[i] (or of seps[i]) that follow the first skip
//     bytes, which all keys of the node share, read as a big-endian number and filled with zeros.
//  5. The tree never writes a node whose gen is not its own.
//  6. A leaf holds no pointer, and no string of the tree aliases an item.
package keytree
