// Package peer connects the members of a cluster: it carries raft messages, calls that are answered
// once, and bulk transfers such as snapshots, over TCP, TLS or a unix socket. It does not
// interpret their content.
//
// # Streams
//
// The sender dials. If it cannot, it invites the other member to dial. For each other member a
// Transport keeps one stream open for raft messages, dials one for calls at the first call, and one
// for each bulk transfer. A stream carries messages in one direction, and acknowledgments, answers
// and heartbeats in the other. Every stream begins with a handshake in which both sides identify
// each other, and the dialed side rejects streams that are not for it.
//
// # What a caller must do
//
//  1. New, then SetMembers, then Start with the receivers; and SetMembers again each time this
//     member has applied a change of the membership. Nothing is sent or accepted before Start.
//  2. Serve (or ServeTLS, ServeConn) the listeners of the peer URLs. Method HTTP returns a
//     listener for the requests in HTTP/1 there.
//  3. When Removed receives something, stop the member: another member reports its removal.
//  4. Close when raft has ended.
//
// All methods are safe for concurrent use.
//
// # Invariants
//
//  1. A stream belongs to one cluster and one pair of members: no message is delivered unless the
//     cluster id, the id of this member and a known sender were in the handshake.
//  2. Within a lane, messages arrive in the order they were sent and at most once, also across
//     reconnections. There are two lanes, see below.
//  3. Send never blocks. The queue of one member has at most MaxQueueBytes plus one message;
//     ReportUnreachable reports a lost MsgApp.
//  4. Checksums cover every byte after the handshake: altered bytes end the stream and are never
//     delivered.
//  5. A bulk transfer is whole or an error, on both sides: the reader returns io.EOF only after the
//     trailer with the right length and checksum, and the sender returns nil only after the
//     receiver has.
//  6. A stream that is silent for DeadAfter is closed: no read waits longer for the network, and no
//     write but that of a bulk transfer, which waits for a slow receiver up to BulkStall.
//  7. The package checks every length it reads before it allocates memory for it. At most
//     MaxPending connections are in the handshake, and a member has at most one stream of each kind
//     in each direction.
//  8. A removed member learns of its removal, at its next dial at the latest.
//  9. After Close has returned no goroutine of this package is left, and every connection that was
//     not handed to HTTP is closed.
//
// # Lanes
//
// MsgApp and MsgProp travel in the log lane, everything else in the control lane, which is sent
// first: a heartbeat, a vote or an acknowledgment waits for at most one fragment of 64 KiB. Raft
// allows any order of messages; these two never depend on each other, since a heartbeat carries no
// commit index above what its receiver has acknowledged. MsgApps must keep their order among
// themselves, or the receiver would reject early ones and raft would fall back to probing. A MsgApp
// that contains all entries of the newest waiting one replaces it.
package peer
