// Package archiver sends a cluster's committed entries and base states to its archive, from one
// member at a time. DESIGN.md has the states and the reasons; docs/formats/archive.md has the
// objects.
//
// Every member runs an Archiver. The one of the leader appoints a member with an archive four times
// a second, which archives for 5 s from then on, and says to all what is archived already, so that
// each keeps the entries of its raft log that are not.
//
// # What a caller must do
//
// Run is called once, after the member's pipeline has started, and must have returned before it
// stops. Handle answers the calls of other members (calls.Archive). Hold limits the truncation of
// the raft log.
//
// # Invariants
//
//  1. Only entries that this member has applied are sent, so that they are committed.
//  2. An index at or below the one that Hold has is in a log object of the archive, at or below a
//     base of it, or lost, and then counted and reported as a gap.
//  3. A sender lists what is there before it sends, at least what follows the index that the
//     cluster knows to be archived, and continues with the first index that is missing and that its
//     log has. Objects of two senders overlap and never contradict each other.
//  4. A gap is followed by a base at or after its end.
//  5. Nothing is written to a bucket before its identity names this incarnation of this cluster,
//     and nothing but the identity before its newest objects were found to be of this history. An
//     archive that is not stays refused.
//  6. The manifest of a base is written after all of its parts.
//  7. Nothing here is waited for by a request. An operation on the bucket that does not return is
//     left alone, at most five of them, and Run returns within a few seconds after its context has
//     ended.
//  8. Memory is bounded: a log object of about 8 MiB, a part of about 32 MiB, before compression,
//     and what a hanging operation has.
package archiver
