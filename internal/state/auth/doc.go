// Package auth is who may do what: users, roles, the permissions of roles, and the one authorizer that
// decides about every request.
//
// A State is replicated: it follows from the log alone and is the same on every member. It is immutable; a
// change makes another one and says which records it wrote. There is no clock, goroutine or file here, and
// no password: a user has a bcrypt hash, which somebody else made and compares.
//
// # What a caller must do
//
//   - Whoever applies the log keeps the State, stores the records of each change in the same batch, and
//     asks Authorize before it carries out a request.
//   - Whoever reads without the log asks the State that it sees, and asks again afterwards whether the
//     revision is still the same.
//   - Names and hashes come in bounded by the size of a request; nothing else bounds them.
//
// # Invariants
//
//  1. While auth is enabled nothing is allowed that no rule here allows: nobody, an unknown user, an
//     unknown kind of request, an unknown type of permission are all refused.
//  2. A transaction is allowed only if every part of it is, on both branches and at any depth: what it
//     compares, reads, writes and deletes, the previous values that it asks for, and the leases that it
//     attaches keys to.
//  3. The revision grows with every change but enabling. An identity that was checked at an older one is
//     refused.
//  4. While auth is enabled there is a user root with the role root.
//  5. One state has one set of records: what is loaded, is stored as the same bytes.
//
// The rules, their order and the errors are those of etcd 3.7. In two things they differ: a user who may
// not change users is told so before a new password is looked at; and permissions for one key keep the order
// in which they were granted, which etcd mixes up where a role has more than twelve.
package auth
