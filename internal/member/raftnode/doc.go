// Package raftnode drives go.etcd.io/raft/v3 for one member: it owns the RawNode, writes its log,
// and hands out committed entries to be applied. It does not interpret entries.
//
// # Stages
//
// The node has three stages in the line of the member (package stage): append, turn and apply.
// Whoever holds the token of a stage carries it out: a goroutine of the line, or the caller of
// Propose.
//
// The RawNode is touched in turns only. A turn steps received messages, takes new proposals,
// requests read indexes, and carries out the Ready of raft. It does no I/O and does not wait.
//
// The append stage writes the Log. It takes all queued appends, writes them as one group with at
// most one sync, or as several if they have more than MaxGroup bytes of entries, and only then
// releases their responses, in order.
//
// The apply stage passes committed entries to Machine. Its queue is bounded by raft itself, which
// keeps at most MaxApplying bytes of entries handed out and not yet acknowledged by Applied.
//
// The node has two goroutines of its own. The clock begins a turn at each tick. The fetch goroutine
// reads the entries that the Log does not have in memory, for members that lag and for applying. A
// turn makes raft ask again when they are there.
//
// # What a caller must do
//
//  1. Machine applies the entries of a run in order, and returns the run with Applied. The state
//     machine's position advances with every entry, empty ones and configuration changes included.
//  2. A message of a run that carries a snapshot has no entries: Machine replaces the state machine
//     by the one that was kept for InstallSnapshot, and continues after the snapshot's position.
//  3. For a configuration change, Machine calls ApplyConfChange before Applied of the run that
//     holds it.
//  4. The log gives up no entry after Acknowledged.
//  5. Machine calls Advance during a run that takes long, whenever a part of it is applied.
//  6. When Failed is closed, the member is stopped: the node does nothing more. A failed write or
//     sync is never repeated.
//
// # Snapshots
//
// A snapshot has no data here. A snapshot that raft sends is passed to Snapshots, which sends the
// state of that moment and reports. A receiver keeps the state apart until it is complete, verified
// and durable, and only then calls InstallSnapshot. If raft accepts it, the append stage lets the
// log begin after its position, and this write decides: from then on the state that is kept apart
// is the member's. Machine installs it in its turn, or the next start does. Entries that were
// handed out before are applied before, to the state that is replaced.
//
// # Invariants
//
//  1. A response to an append leaves after the sync of that append and of all before it.
//  2. Appends, and entries to apply, are processed in the order raft gave them out.
//  3. A proposal is either handed to raft once, or reported by Proposals.FailOffered (FailRefused
//     if the leader refused it) and never proposed. After an entry of a later term than it was
//     proposed in was handed out, it never will be committed if it was not handed out before.
//  4. An index that ReadIndex returns is at least the newest index that was committed anywhere when
//     ReadIndex was called.
//  5. An entry is handed out for applying after it is durable here.
//  6. A snapshot is handed out for applying after the log's beginning after it is durable, after
//     all entries that were handed out before raft accepted it, and before all that follow it.
//  7. A configuration change has no effect here, and no message says that it is committed, before
//     the log on disk holds its commit.
//  8. A leader is replaced, unless it hands over, no earlier than QuietTime after a quorum has
//     answered it, also if it is reported as absent.
//  9. A leader that, for an election timeout, completes no append or applies nothing while a voter
//     that is fit is ahead of it in that hands leadership over, or falls silent, if the others are
//     a majority without it. A disk that only is slow moves no leadership.
package raftnode
