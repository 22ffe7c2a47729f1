package lessor

import (
	"encoding/binary"
	"errors"
	"fmt"

	"vigil/internal/kv"
	"vigil/internal/state/auth"
	"vigil/internal/state/fsm"
)

// Op is a question about a lease to the leader.
type Op uint8

const (
	// Renew gives the lease its whole TTL again.
	Renew Op = 1
	// TimeLeft asks how long the lease has left.
	TimeLeft Op = 2
)

// Answer is the answer of the leader.
type Answer struct {
	// TTL is the remaining TTL of the lease, Granted the TTL that it was granted with, in seconds.
	TTL, Granted int64
	// Index is the position that the leader had applied.
	Index uint64
}

// The call: op u8 | id i64 | the identity of the client as fsm.AppendIdentity writes it, or nothing
// if it has none. The answer: outcome u8 | TTL i64 | granted i64 | index u64. Little endian.
const (
	callSize   = 1 + 8
	answerSize = 1 + 3*8
)

// The outcomes. Their numbers are part of the protocol.
const (
	outcomeOK uint8 = iota
	outcomeUnknownLease
	outcomeNotLeader
	outcomeFailed
	outcomeUserEmpty
	outcomeUserNotFound
	outcomeOldRevision
	outcomeDenied
)

// denials lists the errors of auth with their outcomes.
var denials = [...]struct {
	outcome uint8
	err     error
}{
	{outcomeUserEmpty, kv.ErrUserEmpty}, {outcomeUserNotFound, kv.ErrUserNotFound},
	{outcomeOldRevision, kv.ErrAuthOldRevision}, {outcomeDenied, kv.ErrPermissionDenied},
}

// denied reports whether err says that the client may not ask.
func denied(err error) bool {
	for _, d := range denials {
		if errors.Is(err, d.err) {
			return true
		}
	}
	return false
}

var le = binary.LittleEndian

func encodeCall(op Op, id int64) []byte { return le.AppendUint64([]byte{byte(op)}, uint64(id)) }

func decodeCall(b []byte) (who auth.Identity, op Op, id int64, err error) {
	if len(b) < callSize || Op(b[0]) != Renew && Op(b[0]) != TimeLeft {
		return who, 0, 0, fmt.Errorf("lessor: malformed call about a lease of %d bytes", len(b))
	}
	op, id = Op(b[0]), int64(le.Uint64(b[1:]))
	if b = b[callSize:]; len(b) > 0 {
		if who, b, err = fsm.ParseIdentity(b); err == nil && len(b) > 0 {
			err = fmt.Errorf("lessor: a call about a lease has %d bytes too many", len(b))
		}
	}
	return who, op, id, err
}

func encodeAnswer(a Answer, err error) []byte {
	outcome := outcomeOK
	switch {
	case errors.Is(err, kv.ErrLeaseNotFound):
		outcome = outcomeUnknownLease
	case errors.Is(err, kv.ErrNotLeader):
		outcome = outcomeNotLeader
	case err != nil:
		outcome = outcomeFailed
		for _, d := range denials {
			if errors.Is(err, d.err) {
				outcome = d.outcome
			}
		}
	}
	b := append(make([]byte, 0, answerSize), outcome)
	b = le.AppendUint64(b, uint64(a.TTL))
	b = le.AppendUint64(b, uint64(a.Granted))
	return le.AppendUint64(b, a.Index)
}

func decodeAnswer(b []byte) (a Answer, err error) {
	if len(b) != answerSize {
		return a, fmt.Errorf("lessor: the leader's answer about a lease has %d bytes, not %d",
			len(b), answerSize)
	}
	switch b[0] {
	case outcomeOK:
	case outcomeUnknownLease:
		return a, kv.ErrLeaseNotFound
	case outcomeNotLeader:
		return a, kv.ErrNotLeader
	default:
		for _, d := range denials {
			if b[0] == d.outcome {
				return a, d.err
			}
		}
		return a, errors.New("lessor: the leader could not answer about a lease")
	}
	return Answer{TTL: int64(le.Uint64(b[1:])), Granted: int64(le.Uint64(b[9:])),
		Index: le.Uint64(b[17:])}, nil
}
