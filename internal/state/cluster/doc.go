// Package cluster holds the membership of a cluster as data: the members with their ids and URLs,
// and the ids of removed members.
//
// It owns no file, clock or goroutine. A State is immutable: a change returns a new State and the
// Record that makes the change durable, so a reader may keep a State while the apply loop
// continues. Changes depend on (State, Change) only, so every member that applies the same log has
// the same State.
//
// Invariants (checked by State.valid in tests):
//
//  1. Members are sorted by id and an id occurs once.
//  2. An id that was removed never becomes a member again.
//  3. No peer URL belongs to two members.
//  4. The records of a State rebuild that State: Load(s.Records()) equals s.
//  5. A change never removes the last voter.
//
// Ids are derived as in etcd, so that a cluster with the same configuration has the same ids in
// both.
package cluster
