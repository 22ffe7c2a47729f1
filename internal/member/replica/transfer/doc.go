// Package transfer brings the state of a leader to members that lag too much for the raft log.
//
// A Sender cuts the state and sends it; a Receiver builds it in a directory next to the store and
// gives it to raft, and Place swaps the directories. A snapshot is defined by content, not by
// files: all records and meta records, or, if the receiver's history is the beginning of the
// sender's, the records after it and all meta records. DESIGN.md of package replica explains the
// sequence; docs/formats/snapshot.md has the bytes.
//
// # Invariants
//
//  1. A directory with the name of a whole state holds a whole state, whenever a crash happens.
//  2. Place replaces the store only with a state that raft has accepted: the raft log then begins
//     after it.
//  3. A member receives at most one snapshot at a time, and sends at most one to each member.
//  4. The log keeps the entries after a snapshot that is being sent, within a limit, so that the
//     receiver needs no second snapshot.
package transfer
