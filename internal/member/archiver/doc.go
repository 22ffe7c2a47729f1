// Package archiver sends a cluster's committed entries and base states to its archive, from one
// member at a time. DESIGN.md has the states and the reasons; docs/formats/archive.md has the
// objects.
//
// Every member runs an Archiver. Four times a second the leader's Archiver appoints a member with
// an archive, which then archives for 5 s. It also tells all members the archived index, so that
// each keeps the later entries in its raft log.
//
// # What a caller must do
//
// Call Run once, after the member's pipeline has started; wait for its return before the pipeline
// stops. Handle answers the calls of other members (calls.Archive). Hold limits the truncation of
// the raft log.
//
// # Invariants
//
//  1. A member sends only entries that it has applied: they are committed.
//  2. Every index up to the one in Hold is in a log object of the archive, at or below one of its
//     bases, or lost; lost indexes are counted and reported as a gap.
//  3. A sender lists the archive before it sends, at least the objects after the index that the
//     cluster knows to be archived. It continues with the first missing index that its log has.
//     Objects of two senders overlap and never contradict each other.
//  4. After a gap comes a base at or after its end.
//  5. Nothing is written to a bucket before its identity names this incarnation of this cluster,
//     and only the identity before its newest objects prove to be of this history. An archive of
//     another history stays refused.
//  6. The manifest of a base is written after all of its parts.
//  7. No request waits for the archiver. It abandons an operation on the bucket that does not
//     return, at most five at a time, and Run returns within a few seconds after its context has
//     ended.
//  8. Memory is bounded: a log object of about 8 MiB and a part of about 32 MiB before compression,
//     and the objects of hanging operations.
package archiver
