// Package fsm is the deterministic state machine: it turns committed entries of the raft log into
// changes of the store, and it defines what such an entry holds.
//
// An entry holds a group: the requests that one member had queued when it proposed, in canonical
// form. The proposer has decided everything that the outcome of a request depends on besides the
// state (an identity, an id, a time): it is a field of the request. encode.go describes the bytes.
//
// # What a caller must do
//
// One goroutine owns the Machine and applies the committed entries in order. For each entry it
// calls Open, then Next until Next returns nil, and takes the Outcome of each step:
//
//   - An Outcome with BatchFull: the caller calls Commit at the position of the entry before, then
//     Next again.
//   - An Outcome with a configuration change: the caller gives the change to raft before Commit.
//
// A run of entries ends with Commit at the position of the last one. Before Commit nothing is
// visible to readers and nothing survives a crash. An error of Open, Next or Commit is fatal: the
// member must stop, because it can neither skip the entry nor know which part of it took effect.
// Only a Commit that fails with a kv.Shortage may be repeated.
//
// # Invariants
//
//  1. The state after an entry depends on the state before it and the entry, on nothing else: no
//     clock, no map order, no configuration, no disk.
//  2. The error of one request affects no other request of its group and leaves no change.
//  3. Records, membership, raft's configuration and the applied position are one batch of history.
//     A batch that ends in the middle of an entry has the position of the entry before and a record
//     of how many requests of the entry it contains: each request is applied once.
//  4. One request has one encoding: decoded bytes encode to the same bytes.
//  5. What AppendRequest accepts, Next decodes.
//  6. A request that exceeds a limit of the store is rejected like any other error: see
//     mvcc.Limits. No request, and no number of them in an entry, makes Next or Commit fail.
//     refuse.go lists what rejects which requests.
//  7. The same entries have the same outcome in every version of the program, because members of
//     two versions apply them at the same time during an upgrade. New kinds of requests and fields
//     are proposed, and changed outcomes take effect, only when cluster.State.Level has reached the
//     level of the version that introduced them: the level is part of the state, so all members
//     change at the same entry. testdata/logs holds entries of each level with their outcomes, and
//     a test replays them. testdata/agreed.txt lists every number on which members agree, with its
//     level, and a test fails when one changes.
package fsm
