// Package pbfield reads and appends the fields of messages of protocol buffers. Vigil's server, its
// client library and its load generator use it for the messages of hot calls, whose generated code
// costs several times the allocations. It is public only because these are separate modules: it may
// change in any version.
//
// A message is a list of its fields, each a line, in the order of their numbers:
//
//	r := pbfield.Read(b)
//	for r.Next() {
//		r.Bytes(1, &m.Key)
//		r.Bytes(2, &m.Value)
//		pbfield.Int(&r, 3, &m.Lease)
//	}
//	return r.Err()
//
// One pass of the loop reads a message whose fields are in order, and every encoder writes them so.
// Each method takes the current field if it has the number and the type, and does nothing
// otherwise; another pass takes what was out of order.
//
//  1. Reading accepts and rejects the same bytes as the generated code, except that a text need not
//     be UTF-8. A field of an unknown number, or of a known number with another type, is skipped.
//     Of a field that is given more than once the last one counts.
//  2. Fields are taken in the order of the message, so of a oneof the last member counts.
//  3. Bytes and texts are parts of the message, which must not change while they are used.
//     Appending to one does not change another.
//  4. Reading allocates no memory, and Append only what append does.
//
// Why there is no generator: its table would have the same lines as the lists, which the compiler
// checks. The tests of the three users compare every list with the generated code of etcd's API.
package pbfield
