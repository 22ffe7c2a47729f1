// Package watch delivers the changes of the store to its watchers.
//
// A Hub takes every change once, through Publish, and delivers it to the watchers whose range holds
// the key. Each watcher belongs to a Stream: one client's ordered queue of responses. The hub fills
// it and one sender drains it through Next or Take. No client can delay Publish.
//
// # States
//
// A watcher is live or behind. Live watchers are in an index by key and range, and the matcher, a
// single goroutine, appends events to the queues of their streams. A watcher is behind if it
// started in the past, if its stream had no room for it, or if the hub itself had to drop published
// events; then the hub keeps only its next revision. Catch-up workers read the Source in bounded
// batches, one scan for all watchers whose next is near, and make the watchers live again.
//
// # What a caller must do
//
//   - Call Publish from one goroutine, in the order of revisions, after the revisions can be read
//     from the Source and before the writers are notified of success.
//   - Call Next from one goroutine per stream, or call NotifyReady first and then Take from one
//     goroutine at a time. The responses that a call returned count against the stream's budget
//     until the next call. When sending fails or the client has disconnected, call Stream.Close.
//   - Call Create, Cancel, Refuse and Progress of one stream from one goroutine: their order is the
//     order of the answers. They wait while very many answers are unsent.
//   - When rights of clients have changed, call Withhold before publishing the events that came
//     after the change. Then read Withheld, call Revoke for all streams, from any goroutine, and
//     Release with the result of Withheld. Read Withheld before checking the right to the range of
//     a Create, and do both again if Create returns false.
//   - Treat the bytes of Response.Events as immutable; streams share them.
//
// # Invariants
//
// next is the first revision that a watcher has not seen. published is the newest revision given to
// Publish, claimed the newest one that the matcher has taken, and matched the newest one that it
// has distributed: matched <= claimed <= published. While there are no streams, only published
// moves, and Publish wakes no goroutine; the first stream begins at published.
//
//	W1. Order. The responses of a watcher are queued in the order of revisions, because at any
//	    time exactly one goroutine may queue events for it: the matcher if it is live, the worker
//	    that runs its scan if it is behind.
//	W2. Hand-over. A watcher becomes live, or is created live, only with next > claimed and while
//	    Hub.mu is held. So the matcher still has to distribute everything from its next on, and it
//	    skips revisions below next: no gap and no repeat.
//	W3. Creation. A watcher that starts at revision 0 gets exactly the events above the revision
//	    of its created response, which is the newest that can be read at that moment, published or
//	    not; the response is queued before the matcher or a worker can find the watcher.
//	W4. Falling behind. When a live watcher falls behind, its next is the first revision that was
//	    not queued for it: the revision that did not fit, or matched+1 when the ring overflowed or
//	    a snapshot was installed.
//	W5. Atomicity. All events of one revision for one watcher are in one response, unless the
//	    watcher asked for fragments and they are larger than the fragment limit; then all
//	    responses but the last are marked as fragments, and no other response of that watcher is
//	    between them.
//	W6. Progress. A progress notification at revision R for a watcher is queued only when the
//	    watcher is live and all its events up to R are queued before it. For a whole stream this
//	    holds for every watcher of the stream, and R is at least the newest revision that could be
//	    read when the client asked for it.
//	W7. No stuck stream. If watchers wait for room in a stream's queue, then its sender has
//	    responses to send, or catch-up workers have watchers of its round (rounds.go). After
//	    these, the sender's next call of Next or Take lets the others continue.
//	W8. Bounds. The queue of a stream holds at most its budget, or one response (a revision larger
//	    than the budget goes alone). All queues together stay below the member's budget, give or
//	    take one response per stream. The ring holds at most its budget, or nothing.
//	W9. If the next revision of a watcher is compacted before it could be read, the hub cancels
//	    the watcher with the compact revision: a watcher never skips revisions silently.
//	W10. Fairness. The scans that serve only one stream together get no more turns, by cost, than
//	    any other scan. Among scans of equal cost the scan that has waited longest is next.
//	W11. Rights. The hub queues an event that was published after Withhold only after Release, and
//	    only for watchers that Revoke has not canceled or whose right was checked after Withhold.
//	W12. Every watcher is served. A watcher that had no room gets its next response after at most
//	    two rounds of its stream. A round serves each waiting watcher once, whatever events the
//	    other watchers of the stream have, and even if the client never drains the queue.
//
// # Locks
//
// Hub.mu guards the index, the watchers' places and the decision between live and behind.
// Stream.mu, taken after it, guards one queue. The ring has its own lock, the only one that Publish
// takes, just to append. The hub never reads the Source's history under any of them.
package watch
