// Package wire encodes and decodes the messages of the KV and Watch services, and those that grant and renew leases, by hand, because they are on the hot path.
// Requests are decoded directly into kv's types, and results of kv are encoded directly from their records, so that no
// message is built twice.
//
// The messages are those of etcdserverpb, and the package behaves as the generated code does:
//
//  1. Decode accepts and rejects the same encodings as the generated code. A field of an
//     unknown number, or of a known number with another wire type, is skipped. Of a field given
//     more than once the last value counts; an embedded message is merged; a oneof keeps the
//     last member.
//  2. The generated code decodes an encoding to an equal message. Fields of zero
//     value are left out, and fields are in the order of their numbers.
//  3. Size is exactly the number of bytes that AppendTo appends.
//  4. Decode allocates no memory for a length before it has the bytes.
//
// A decoded request aliases the buffer, which must not change as long as the request is in use. An empty byte field is nil.
//
// Nothing here is safe for concurrent use on the same message; nothing keeps state in between.
package wire

import "errors"

// The two ways in which a message can be malformed. Clients see their texts, which are those of
// the generated code.
var (
	// ErrInvalid: the bytes are not an encoding of the message.
	ErrInvalid = errors.New("proto: cannot parse invalid wire-format data")
	// ErrTooDeep: the message nests deeper than MaxDepth.
	ErrTooDeep = errors.New("proto: exceeded maximum recursion depth")
)

// MaxDepth is how deep messages may nest, the outermost being the first level.
const MaxDepth = 10000

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
