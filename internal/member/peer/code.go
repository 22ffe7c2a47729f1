package peer

import (
	"errors"
	"fmt"
)

// Code is the reason why a member refused a connection, ended a stream or failed a call. It crosses
// the wire and is an error, so that errors.Is finds it in what this package returns.
type Code uint16

// The codes. Their numbers are part of the protocol.
const (
	// CodeFailed carries the text of the receiver's own error.
	CodeFailed Code = 1
	// CodeVersion: the two sides have no version of the protocol in common.
	CodeVersion Code = 2
	// CodeCluster: the other side belongs to another cluster.
	CodeCluster Code = 3
	// CodeMember: the other side is not the member that was meant.
	CodeMember Code = 4
	// CodeUnknown: the other side does not know the sender as a member. That may change when the
	// other side learns of it.
	CodeUnknown Code = 5
	// CodeRemoved: the sender was removed from the cluster. That never changes.
	CodeRemoved Code = 6
	// CodeBusy: the limit of calls or transfers under way is reached.
	CodeBusy Code = 7
	// CodeMalformed: the received bytes violate the protocol.
	CodeMalformed Code = 8
	// CodeCorrupt: a checksum does not match.
	CodeCorrupt Code = 9
	// CodeUnsupported: the other side does not do this.
	CodeUnsupported Code = 10
	// CodeTooLarge: a message, call or answer exceeds its limit.
	CodeTooLarge Code = 11
	// CodeAborted: the sender of a bulk transfer gave up.
	CodeAborted Code = 12
	// CodeReplaced: the same member has opened a newer stream of this kind.
	CodeReplaced Code = 13
	// CodeClosing: the other side is shutting down.
	CodeClosing Code = 14
)

var codeNames = map[Code]string{
	CodeFailed: "failed", CodeVersion: "incompatible version", CodeCluster: "wrong cluster",
	CodeMember:  "wrong member",
	CodeUnknown: "unknown member", CodeRemoved: "removed member", CodeBusy: "busy",
	CodeMalformed: "malformed",
	CodeCorrupt:   "corrupt", CodeUnsupported: "unsupported", CodeTooLarge: "too large",
	CodeAborted:  "aborted",
	CodeReplaced: "replaced", CodeClosing: "shutting down",
}

// Error returns the name of the code.
func (c Code) Error() string {
	if s := codeNames[c]; s != "" {
		return s
	}
	return fmt.Sprintf("code %d", uint16(c))
}

// Error is a reason that crossed the wire, or will. A CallServer or BulkReceiver that returns one
// decides the code.
type Error struct {
	Code Code
	Text string
	// remote reports that the other side sent it.
	remote bool
	// cluster and member are the ids that the answering side of a dial gave; 0 if none answered.
	cluster, member uint64
}

// Error returns the code and the text.
func (e *Error) Error() string {
	switch {
	case e.Text == "":
		return e.Code.Error()
	case e.Code == CodeFailed:
		return e.Text
	}
	return e.Code.Error() + ": " + e.Text
}

// Unwrap returns the code.
func (e *Error) Unwrap() error { return e.Code }

func refuse(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Text: fmt.Sprintf(format, args...)}
}

// asError makes an error fit to cross the wire.
func asError(err error) *Error {
	if e := (*Error)(nil); errors.As(err, &e) {
		if e.remote {
			return &Error{Code: e.Code, Text: e.Text}
		}
		return e
	}
	return &Error{Code: CodeFailed, Text: err.Error()}
}

var (
	// ErrClosed: the Transport was closed, or not started yet.
	ErrClosed = errors.New("peer: closed")
	// ErrNotMember: the addressed member is not in the cluster.
	ErrNotMember = errors.New("peer: not a member of the cluster")
	// ErrStalled: a bulk transfer made no progress for BulkStall.
	ErrStalled = errors.New("peer: the transfer makes no progress")
	// ErrDisconnected: a stream ended while an answer was awaited.
	ErrDisconnected = errors.New("peer: disconnected")
)
