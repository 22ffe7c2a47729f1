// Package mvcc is the key space in time: which keys exist at which revision, and what a put, a
// delete, a transaction and a compaction do to that. Its semantics are those of etcd 3.7.
//
// A Store keeps an index in memory, from key to the revisions at which it changed, over a
// history.Log that keeps the records. The Writer changes both; readers work on a snapshot of both.
// The log stays the caller's: it is opened before the Store and closed after it.
//
// # What a caller must do
//
//   - One goroutine, the one that applies, uses the Writer. It makes any number of requests and
//     then calls Commit, which makes them readable all at once. Requests of one batch see the ones
//     before them.
//   - Everything else may be called from any goroutine, concurrently with the writer. Readers take no lock that
//     the writer holds.
//   - An error of the Writer that is a *FatalError ends the life of the Store: the member must stop.
//     Every other error is the request's and left the state as it was.
//   - Requests are not kept: what the Store needs of them it copies. Results belong to the caller.
//
// # Invariants
//
//  1. The first revision is 1, that of an empty store. A request or transaction that changes
//     something is one revision, the next one; what changes nothing moves nothing.
//  2. Events and records of one revision are numbered from 0 in the order of their making.
//  3. Compares and checks of a transaction, nested ones included, see the state before it; its
//     operations see what the operations before them did. A transaction that fails a check changes
//     nothing.
//  4. A snapshot shows exactly the changes up to its revision, whatever the writer does meanwhile.
//  5. A read at revision r that succeeds saw no trace of a compaction above r: readers look at the
//     compact revision again after they have read the index.
//  6. The index holds, for the compact revision c, each key's newest change at or below c unless
//     that is a deletion, and every change above c. It may hold more for a while.
//  7. The compact revision is -1 until the first compaction, as in etcd.
//  8. A request that exceeds the Limits has a *kv.LimitError and changes nothing. Whether it does depends
//     on the state and the request only, not on whether its results are discarded.
//  9. A hash depends on the logical history, the revision and the compact revision, and on nothing that
//     trimming, reclaiming or a restart changes; see HashKV.
//
// DESIGN.md describes how they are kept.
package mvcc
