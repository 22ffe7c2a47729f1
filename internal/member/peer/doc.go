// Package peer connects the members of a cluster: it carries raft messages, calls that are answered
// once, and bulk transfers such as snapshots, over TCP, TLS or a unix socket. What is in them is not
// its business.
//
// # Streams
//
// The member that has something to send dials. For each other member a Transport keeps one stream for raft
// messages open, dials one for calls when the first call is made, and one for each bulk transfer. A
// stream carries one direction's work; what comes back on it are acknowledgments, answers and signs
// of life. Every stream begins with a handshake in which both sides learn who the other one is, and
// the one that was dialed refuses what does not belong to it.
//
// # What a caller must do
//
//  1. New, then SetMembers, then Start with the receivers of what arrives; and again SetMembers each
//     time the membership that this member has applied changes. Nothing is sent or accepted before
//     Start.
//  2. Serve (or ServeTLS, ServeConn) the listeners of the peer URLs. Requests in HTTP/1 that arrive
//     there come out of HTTP.
//  3. When Removed is closed, stop the member: another one says that it was removed.
//  4. Close when raft has ended.
//
// All methods are safe for concurrent use.
//
// # Invariants
//
//  1. A stream belongs to one cluster and one pair of members: no message is delivered unless the
//     cluster id, the id of this member and a known sender were in the handshake.
//  2. Messages of one lane that are delivered are delivered in the order they were sent, without
//     repetition, also across reconnections. There are two lanes, see below.
//  3. Send never blocks. The queue of one member has at most MaxQueueBytes plus one message; a lost
//     MsgApp is reported by ReportUnreachable.
//  4. Every byte after the handshake is covered by a checksum: what was altered on the way ends the
//     stream and is never delivered.
//  5. A bulk transfer is whole or an error, on both sides: the reader returns io.EOF only after the
//     trailer with the right length and checksum, and the sender returns nil only after the receiver
//     has.
//  6. A stream that is silent for DeadAfter is closed: no read waits longer for the network, and no
//     write but that of a bulk transfer, which waits for a slow receiver up to BulkStall.
//  7. No memory is taken for a number that was read before the number was bounded; connections that
//     have not finished the handshake are at most MaxPending, and a member has at most one stream of
//     each kind in each direction.
//  8. A removed member learns of its removal, at its next dial at the latest.
//  9. After Close has returned no goroutine of this package is left, and every connection that was
//     not handed to HTTP is closed.
//
// # Lanes
//
// MsgApp and MsgProp travel in the log lane, everything else in the control lane, which goes first:
// a heartbeat, a vote or an acknowledgment waits for at most one fragment of 64 KiB. Raft allows
// any order of messages; these two never depend on each other, since a heartbeat carries no commit
// index above what its receiver has acknowledged. MsgApps must keep their order among themselves, or
// the receiver would refuse those that came too early and raft would fall back to probing.
package peer
