// Package replica is one member's pipeline: it turns requests into entries of the raft log, applies
// committed entries, and answers.
//
// # A write
//
// The caller's goroutine encodes the request into the group that is being filled. The stages of the
// member's line (package stage) do the rest. A turn of raft proposes the group when there is room
// in flight: at once if nothing is under way, so that a lone request does not wait, and otherwise
// together with all requests that have come since. Append makes it durable. Apply carries it out:
// it opens each committed entry (fsm.Machine.Open), takes the outcome of each of its requests
// (fsm.Entry.Next), and emits one Commit for the subscribers (package apply, subscribers.go): the
// hub publishes, and then the groups get their results. Answer passes the outcomes on.
//
// Whoever holds the token of a stage carries it out. A busy member has a goroutine for each stage.
// A request that is alone passes through all of them on one goroutine: on its caller's if the log
// is quick (ProposeStarted).
//
// A write is started with a completion that gets the outcome (StartWrite), or its caller waits for
// the result (Do, Propose).
//
// # A read
//
// A serializable read reads the store. A linearizable one first asks raft for the commit index of
// the cluster and waits until this member has applied it (package position).
//
// # Goroutines
//
//	line           carry out the stages; comments call the one that applies the apply goroutine
//	clock, fetch   of raftnode
//	gets           asks for read indexes for gets that were started (package gets)
//	keeper         request timeouts, failures of the parts
//	lessor         proposes lease revocations and checkpoints while this member leads (package lessor)
//	auditor        compares the data of members while this member leads (package audit)
//	space monitor  raises and clears the member's alarms, keeps room in the raft log
//	scrubber       reads the store repeatedly to find damage
//	truncator      syncs the store and truncates the part of the raft log that it covers
//	senders        one for each snapshot that is being sent (package transfer)
//	backups        one for each backup under way: releases segments that it keeps in memory
//
// duties (replica.go) lists the goroutines that start and stop with the member. A snapshot is
// received on the goroutine of its stream (ReceiveBulk), and installed by apply.
//
// # Invariants
//
//  1. An event is readable when a watcher sees it, and a write that returned has been published:
//     commit, publish, answer, in that order. The applied position advances after the publication
//     too, so a linearizable read that waited sees nothing that is not published.
//  2. A request gets exactly one answer: its outcome, or an error that says whether it may still
//     take effect. It is proposed again only when it is known to have had no effect: an entry of a
//     later term was applied and it was not.
//  3. Every request of a group has the same fate up to apply, and its own outcome in it.
//  4. Memory for requests under way is bounded by MaxPendingBytes, and by MaxApplyLag entries that
//     are committed and not applied.
//  5. The raft log keeps every entry that the store has not made durable.
//  6. An error of the log, the store or apply stops the member: nothing is acknowledged after it.
//     While the files of the member are not in their places, nothing is acknowledged either.
//  7. While auth is enabled no read is answered by permissions that are older than the data:
//     new ones are in force before the batch that brought them can be read, and a read during which
//     they changed fails. The events of that batch, and later ones, are kept back from watchers
//     until the services have reviewed these and called Release of the hub.
//  8. A snapshot replaces the store whole or not at all, whenever the member crashes. For readers
//     and watchers it is one step forward, as if the entries had been applied.
package replica
