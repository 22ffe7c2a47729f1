// Package watch delivers the changes of the store to those who watch them.
//
// A Hub takes every change once, from Publish, and brings it to the watchers whose range holds the
// key. Watchers live on streams: a Stream is one client's ordered queue of responses, filled by the
// hub and drained by one sender through Next. Nothing that a client does or fails to do delays
// Publish.
//
// # States
//
// A watcher is live or behind. The live ones are in an index by key and range, and the matcher, a
// single goroutine, appends what concerns them to their streams' queues. A watcher is behind if it
// started in the past, if its stream had no room for it, or if the hub itself had to drop what was
// published; then the hub keeps only its next revision. Catch-up workers read the Source in bounded
// batches, one scan for all watchers whose next is near, and make the watchers live again.
//
// # What a caller must do
//
//   - Call Publish from one goroutine, in the order of revisions, after the revisions can be read
//     from the Source and before their writers are told of success.
//   - Call Next from one goroutine a stream. What Next returned counts against the stream's budget
//     until the next call. When sending fails or the client is gone, call Stream.Close.
//   - Call Create, Cancel, Refuse and Progress of one stream from one goroutine: their order is the
//     order of the answers. They wait while very many answers are unsent.
//   - Call Revoke from anywhere when the rights of a client have changed; a create that is decided on
//     at the same time is the caller's to keep apart from it.
//   - Treat the bytes of Response.Events as immutable; they are shared between streams.
//
// # Invariants
//
// Below, next is the first revision that a watcher has not seen, published the newest revision
// given to Publish, claimed the newest one that the matcher has taken to distribute and matched the
// newest one that it has distributed; matched <= claimed <= published.
//
//	W1. Order. The responses of a watcher are queued in the order of revisions, because at any time
//	    exactly one goroutine may queue events for it: the matcher if it is live, the worker that
//	    runs its scan if it is behind.
//	W2. Hand-over. A watcher turns live, or is created live, only while Hub.mu is held and
//	    next > claimed. So everything from its next on is still to be distributed by the matcher,
//	    which skips revisions below next: no gap and no repeat.
//	W3. Creation. A watcher that starts at revision 0 gets exactly what is above the revision of its
//	    created response, which is the newest that can be read at that moment, published or not; the
//	    response is queued before the watcher can be found by the matcher or a worker.
//	W4. Falling behind. A live watcher turns behind with next the first revision that it was not
//	    given: the one that did not fit, or matched+1 when the ring overflowed or a snapshot was
//	    installed.
//	W5. Atomicity. All events of one revision for one watcher are in one response, unless the
//	    watcher asked for fragments and they are larger than the fragment limit; then the responses
//	    but the last are marked, and nothing of that watcher is between them.
//	W6. Progress. A progress notification at revision R for a watcher is queued only when the watcher
//	    is live and everything up to R that concerns it is queued before it. For a whole stream this
//	    holds for every watcher of the stream, and R is no older than what could be read when it was
//	    asked for.
//	W7. No stuck stream. If watchers wait for room in a stream's queue, then there is something that
//	    its sender has not sent yet, and the sender's next call of Next lets them go on.
//	W8. Bounds. What the queue of a stream holds is at most its budget, or one response (a revision
//	    larger than the budget goes alone). What all queues hold together stays below the member's
//	    budget, give or take one response a stream. The ring holds at most its budget, or nothing.
//	W9. A watcher whose next is compacted before it could be read is canceled with the compact
//	    revision: it is never silently moved on.
//	W10. Fairness. The scans that serve one stream alone have together no more turns, by their cost,
//	    than any scan that serves others. Of equal ones the scan that has waited longest is next.
//
// # Locks
//
// Hub.mu guards the index, the watchers' places and all that decides between live and behind. Under
// it, Stream.mu guards one queue. The ring has its own lock, the only one that Publish takes; it is
// held for an append. The Source's history is never read under any of them.
package watch
