// Package raftnode drives go.etcd.io/raft/v3 for one member: it owns the RawNode, writes its log,
// and hands out committed entries to be applied. It does not interpret entries.
//
// # Goroutines
//
// The RawNode is touched in turns only, one at a time. A turn steps received messages, takes new proposals, requests
// read indexes, and carries out the Ready of raft. It does no I/O and does not block. The raft goroutine
// does a turn when it is woken and at each tick; for a single request the goroutine of the caller does it.
//
// The fetch goroutine reads the entries that the Log does not have in memory, for members that lag and for
// applying. The raft goroutine makes raft ask again when they are there.
//
// The append goroutine writes the Log. It takes all queued appends,
// writes them as one group with at most one sync, or as several if they have more than MaxGroup bytes
// of entries, and only then releases their responses, in order.
//
// Entries to apply wait in a queue that Committed takes from. The queue is bounded by raft itself,
// which keeps at most MaxApplying bytes of entries handed out and not yet acknowledged by Applied.
//
// A small append that waits alone may be written by a caller of Single instead, who also gets
// what is to be applied then. So each queue has two takers; a taker keeps the other one out until it is done.
//
// # What a caller must do
//
//  1. Call Committed in a loop from one goroutine, apply its entries in order, and return
//     the run with Applied. For a run of Single, call its Done after that. The state machine's position advances with
//     every entry, empty ones and configuration changes included.
//  2. A message of Committed that carries a snapshot has no entries: replace the state machine by the
//     one that was kept for InstallSnapshot, and continue after the snapshot's position.
//  3. For a configuration change, call ApplyConfChange before Applied of the run that holds it.
//  4. Let the log give up no entry after Acknowledged.
//  5. Call Advance during a run that takes long, whenever a part of it is applied.
//  6. When Failed is closed, stop the member: the node does nothing more. A failed write or sync
//     is never repeated.
//
// # Snapshots
//
// A snapshot has no data here. A snapshot that raft sends is passed to Snapshots, which sends the
// state of that moment and reports. A receiver keeps the state apart until it is complete, verified and
// durable, and only then calls InstallSnapshot. If raft accepts it, the append goroutine lets the log
// begin after its position, and this write decides: from then on the state that is kept apart is the
// member's; the caller of Committed installs it in its turn, or the next start does. Entries that
// were returned before are applied before, to the state that is replaced.
//
// # Invariants
//
//  1. A response to an append leaves after the sync of that append and of all before it.
//  2. Appends, and entries to apply, are processed in the order raft gave them out.
//  3. A proposal is either handed to raft once, or reported by Dropped and never proposed. After an
//     entry of a later term than it was proposed in was handed out, it never will be committed if it was
//     not handed out before.
//  4. An index that ReadIndex returns is at least the newest index that was committed anywhere when
//     ReadIndex was called.
//  5. An entry is handed out for applying after it is durable here.
//  6. A snapshot is handed out for applying after the log's beginning after it is durable, after all
//     entries that were handed out before raft accepted it, and before all that follow it.
//  7. A configuration change has no effect here, and no message says that it is committed, before the log on disk holds its commit.
//  8. A leader is replaced, unless it hands over, no earlier than QuietTime after a quorum has answered it, also if it is reported
//     as absent.
//  8. A leader that, for an election timeout, completes no append or applies nothing while a voter that is fit is ahead of it in that
//     hands leadership over, or falls silent, if the others are a majority without it. A disk that only is slow moves no leadership.
package raftnode
