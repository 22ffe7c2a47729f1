// Package calls lists what members ask each other: one table of the kinds of calls, and the
// interface to make one.
//
// The numbers are part of the protocol between members. docs/formats/peer.md describes the frames
// that carry them.
package calls

import "context"

// The kinds of calls. Kinds from FirstOpen on are answered to programs that are not members of the
// cluster, too.
const (
	// SnapshotOffer asks which part of a snapshot the receiver has already; see package transfer.
	SnapshotOffer uint8 = 1
	// Promote asks the leader to promote a learner: its id as u64, answered by a refusal.
	Promote uint8 = 2
	// Hashes asks for hashes of the store; see package audit.
	Hashes uint8 = 3
	// Lease asks the leader to renew a lease, or how long it has left; see package lessor.
	Lease uint8 = 4
	// Sample asks for the measurements of a member, for the console: answered as JSON; see package
	// console.
	Sample uint8 = 5
	// Archive is the leader's order about the archive: who sends, and what is archived; see package
	// archiver.
	Archive uint8 = 6
	// Watchers asks for the watchers of a member, for the console: question and answer are JSON;
	// see package console.
	Watchers uint8 = 7
	// Compare asks for the hash of the data up to a revision, for the console: question and answer
	// are JSON; see package console.
	Compare uint8 = 8

	// FirstOpen is the first kind that does not require membership.
	FirstOpen uint8 = 0x80
	// Membership asks for the members of the cluster.
	Membership = FirstOpen
)

// Caller calls other members.
type Caller interface {
	// Call sends a payload to a member and returns its answer.
	Call(ctx context.Context, to uint64, kind uint8, payload []byte) ([]byte, error)
}
