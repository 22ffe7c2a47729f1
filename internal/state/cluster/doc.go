// Package cluster is the membership of a cluster as data: who is a member, under which id and
// reachable where, and which ids are gone for good.
//
// It owns no file, clock or goroutine. A State is immutable: a change returns a new State together
// with the Record that makes the change durable, so a reader may hold one for as long as it likes
// while the apply loop moves on to the next. Changes depend on (State, Change) only, so every
// member that applies the same log holds the same State.
//
// Invariants (checked by State.valid in tests):
//
//  1. Members are sorted by id and an id occurs once.
//  2. An id that was removed never becomes a member again.
//  3. No peer URL belongs to two members.
//  4. The records of a State rebuild that State: Load(s.Records()) equals s.
//  5. A change never takes away the last voter.
//
// Ids are derived the way etcd derives them, so that a cluster that is configured alike has the
// same ids under both.
package cluster
