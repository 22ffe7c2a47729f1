// Package diff runs the same API calls against the server under test and against a stock etcd and
// compares the answers field by field.
//
//  1. Both sides start empty, under the same name, advertised addresses and flags, and see the same
//     calls in the same order, each call finished on both before the next.
//  2. Everything in an answer or an error is compared (also unset fields, nested headers, unknown
//     fields) except the fields in Side.norm: ids are replaced by a mark if they are the side's
//     own, the raft term and figures of size and log position by a mark if they are not zero.
//  3. A deviation is accepted only by an entry of Allowed, which has a reason.
//
// A difference found by a generated list is saved as a script that can be replayed.
package diff
