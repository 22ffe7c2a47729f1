// Package proposal collects the requests of a member into groups, each of which becomes one entry
// of the raft log, and gives each request its result.
//
// A caller starts its request (Queue.Start): that adds it to the group that is being filled. Then
// the caller asks whether the group must be proposed (TakeUnproposed). A turn of raft takes the
// oldest group (NextGroup). The apply goroutine claims the group of an entry by its sequence
// (Claim), adds the results, and resolves the calls. TakeResults returns them, and reads that
// are made ready elsewhere (StartRead, Deliver); a caller that waits gets its own (StartWaited,
// Call.Wait). Groups without a result in time are removed (Expire), and the caller fails them.
//
// # Invariants
//
//  1. A request gets one answer: its result, or an error.
//  2. A group is proposed again only after an entry of a later term was applied and the group was
//     not.
//  3. Groups take effect in the order in which they were begun: one that is lost is proposed before
//     later ones, or fails.
//  4. The encodings of requests under way have at most MaxPendingBytes.
//  5. The memory of a group is used again only after its result: raft may still read the bytes of a
//     group that expired.
package proposal
