// Package replica is one member's pipeline: it turns requests into entries of the raft log, applies
// what is committed, and answers.
//
// # A write
//
// The caller's goroutine encodes the request into the group that is being filled and waits. The
// raft goroutine takes the group when there is room in flight: at once if nothing is under way, so
// that a lone request does not wait, and otherwise together with all requests that came meanwhile.
// The append goroutine makes it durable. The apply goroutine carries it out: for each run of
// committed entries fsm.Apply, then one Commit for the subscribers (subscribers.go): the hub
// publishes, waiters get their results. A request that is alone under way is served by one
// goroutine instead, which the services lend (Starter.Apply), or by that of its caller
// (Starter.Propose).
//
// # A read
//
// A serializable one reads the store. A linearizable one first asks raft how far the cluster is and
// waits until this member has applied that.
//
// # Goroutines
//
//	raft, append   of raftnode
//	apply          uses the state machine, unless Starter does
//	keeper         request timeouts, failures of the parts
//	lessor         proposes lease revocations and checkpoints while this member leads (package lessor)
//	auditor        compares the data of members while this member leads (package audit)
//	space monitor  raises and clears the member's alarms, keeps room in the raft log
//	scrubber       reads the store repeatedly to find damage
//	truncator      syncs the store and truncates the part of the raft log that it covers
//	senders        one for each snapshot that is being sent (package transfer)
//	backups        one for each backup under way: releases segments that it keeps in memory
//
// duties (replica.go) is the list of those that start and stop with the member. A snapshot is
// received on the goroutine of its stream (ReceiveBulk), and installed by apply.
//
// # Invariants
//
//  1. An event is readable when a watcher sees it, and a write that returned has been published:
//     Commit, Publish, resolve, in that order. The applied position advances after Publish too, so
//     a linearizable read that waited sees nothing that is not published.
//  2. A request gets exactly one answer: its outcome, or an error that says whether it may still
//     take effect. It is proposed again only when it is known to have had no effect: an entry of a
//     later term was applied and it was not.
//  3. Every request of a group has the same fate up to apply, and its own outcome in it.
//  4. Memory for requests under way is bounded by MaxPendingBytes, and by MaxApplyLag entries that
//     are committed and not applied.
//  5. The raft log keeps every entry that the store has not made durable.
//  6. An error of the log, the store or apply stops the member: nothing is acknowledged after it.
//     While the files of the member are not in their places, nothing is acknowledged either.
//  7. While auth is enabled no read is answered by permissions that are older than what was read:
//     new ones are in force before the batch that brought them can be read, and a read during which
//     they changed fails. The events of that batch, and later ones, are kept back from watchers
//     until the services have reviewed these and called Release of the hub.
//  8. A snapshot replaces the store whole or not at all, whenever the member crashes. For those who
//     read and watch it is one step forward, as if the entries had been applied.
package replica
