// Package mvcc is the key space in time: it knows which keys exist at which revision, and executes
// puts, deletions, transactions and compactions. It has the semantics of etcd 3.7.
//
// A Store keeps an index in memory, from key to the revisions at which it changed, over a
// history.Log that keeps the records. The Writer changes both; readers work on a snapshot of both.
// The caller owns the log: it opens the log before the Store and closes it after the Store.
//
// # What a caller must do
//   - Only the goroutine that applies entries uses the Writer. It makes any number of requests and
//     then calls Commit, which makes them readable all at once. Requests of one batch see the
//     requests before them.
//   - Any goroutine may call everything else, concurrently with the writer. Readers take no lock
//     that the writer holds.
//   - A *FatalError of the Writer ends the life of the Store: the member must stop. Every other
//     error concerns the request, which then has not changed the state.
//   - The Store keeps no requests: it copies what it needs. Results belong to the caller.
//
// # Invariants
//
//  1. The first revision is 1, the revision of an empty store. A request or transaction that
//     changes something makes one revision, the next one; a request that changes nothing makes
//     none.
//  2. Events and records of one revision are numbered from 0 in the order in which they were made.
//  3. Compares and checks of a transaction, nested ones included, see the state before it; its
//     operations see the effects of the operations before them. A transaction that fails a check
//     changes nothing.
//  4. A snapshot shows exactly the changes up to its revision, whatever the writer does later.
//  5. A read at revision r that succeeds saw no trace of a compaction above r: readers check the
//     compact revision again after they have read the index.
//  6. For the compact revision c, the index holds each key's newest change at or below c unless
//     that change is a deletion, and every change above c. It may hold more for a while.
//  7. The compact revision is -1 until the first compaction, as in etcd.
//  8. A request that exceeds the Limits has a *kv.LimitError and changes nothing. Whether a request
//     exceeds them depends only on the state and the request, not on whether the writer discards
//     its results.
//  9. A hash depends on the logical history, the revision and the compact revision, but on nothing
//     that trimming, reclaiming or a restart changes; see HashKV.
//
// DESIGN.md describes how the package keeps them.
package mvcc
