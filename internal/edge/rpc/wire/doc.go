// Package wire encodes and decodes the messages of the KV and Watch services, and those that grant
// and renew leases: the calls under load. It decodes requests directly into the types of kv, and
// encodes results of kv directly from their records, so no message is built twice. The fields
// themselves are read and appended with client/pbfield.
//
// The messages are those of etcdserverpb, and the package behaves as the generated code does:
//
//  1. Decode accepts and rejects the same encodings as the generated code. It skips a field of an
//     unknown number, or of a known number with another wire type. Of a field given more than once
//     the last value counts; an embedded message is merged; a oneof keeps the last member.
//  2. The generated code decodes an encoding to an equal message. Fields of zero value are left
//     out, and fields are in the order of their numbers.
//  3. Size is exactly the number of bytes that AppendTo appends.
//  4. Decode allocates no memory for a length before it has the bytes.
//
// A decoded request aliases the buffer, which must not change while the request is in use. An empty
// byte field is nil.
//
// A message is for one goroutine at a time. The package keeps no state between calls.
package wire

// Decoder is a message that can be received.
type Decoder interface {
	// Decode fills the zero value of the message. After an error the content is undefined.
	Decode(b []byte) error
}

// Encoder is a message that can be sent.
type Encoder interface {
	// Size returns the length of the encoding in bytes.
	Size() int
	// AppendTo appends the encoding to b.
	AppendTo(b []byte) []byte
}
