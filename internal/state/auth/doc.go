// Package auth holds users, roles and the permissions of roles, and authorizes every request.
//
// A State is replicated: it depends on the log only and is the same on every member. It is
// immutable; a change returns another State and the records that it writes. There is no clock,
// goroutine or file here, and no password: a user has a bcrypt hash, which package password
// computes and compares.
//
// # What a caller must do
//
//   - The state machine keeps the State, stores the records of each change in the same batch, and
//     calls the Check methods before it applies a request.
//   - A reader without the log calls them on the State that it sees, and checks after the read that
//     the revision is still the same.
//   - The caller limits names and hashes by the size of a request.
//
// # Invariants
//
//  1. While auth is enabled nothing is allowed without a rule: a request without a user, an unknown
//     user, an unknown kind of request and an unknown type of permission are rejected.
//  2. A transaction is allowed only if every part of it is, in both branches and at any depth:
//     compared, read, written and deleted keys, requested previous values, and the leases of its
//     puts.
//  3. Every change but enabling increases the revision. An identity of an older revision is
//     rejected.
//  4. While auth is enabled there is a user root with the role root.
//  5. One state has one set of records: loaded records are stored as the same bytes.
//
// The rules, their order and the errors match etcd 3.7, with three differences: a request of a user
// who may not change users is rejected before its new password is examined; permissions for one key
// keep the order in which they were granted, which etcd changes if a role has more than twelve; and
// an inverted range, which has no keys, is allowed if its first key is, whereas etcd denies some
// because of the shape of its tree of permissions.
package auth
