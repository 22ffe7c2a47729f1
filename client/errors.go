package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/client/internal/pool"
	"vigil/client/internal/request"
)

// Errors of the client itself, for errors.Is.
var (
	// ErrClosed: the client was closed, or a watcher while a goroutine waited for it.
	ErrClosed = pool.ErrClosed
	// ErrUnreachable: no member could be reached in time; see [UnreachableError].
	ErrUnreachable = errors.New("no member can be reached")
	// ErrUncertain: a write was sent and no answer received, so it may have been applied or may
	// still be. The client does not send it again. To find out, read the key, or write with a
	// condition.
	ErrUncertain = errors.New("outcome unknown: the write may have been applied")
	// ErrClusterChanged: a watch or a listing continued at a member of another cluster.
	ErrClusterChanged = errors.New("this is another cluster than before")
	// ErrRolledBack: the store's revision is lower than the revision of events that a watch has
	// already seen, for instance after a restore of an older snapshot.
	ErrRolledBack = errors.New("the store has gone back to an older revision")
	// ErrLagging: a watcher with [WithLagError] was not read fast enough; see [LagError].
	ErrLagging = errors.New("the watcher was not read fast enough")
	// ErrInvalid: an argument or a setting is invalid; nothing was sent.
	ErrInvalid = pool.ErrInvalid
)

// Error is the error of a call. errors.Is finds its meaning: one of the errors of this package, or
// context.Canceled and context.DeadlineExceeded if the caller's context ended.
type Error struct {
	// Op is the call, such as "put", and Key its key, name or user, if any.
	Op, Key string
	// Member is the endpoint of the last attempt; empty if there was none.
	Member string
	// Code and Text are the member's, or gRPC's.
	Code codes.Code
	Text string
	// Uncertain reports that the call is a write that may have been applied.
	Uncertain bool

	kind error // the meaning of Text, or nil
}

// Error names the call, the key, the member and the reason.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Key != "" {
		fmt.Fprintf(&b, " %q", e.Key)
	}
	if e.Member != "" {
		fmt.Fprintf(&b, " at %s", e.Member)
	}
	b.WriteString(": ")
	b.WriteString(e.Text)
	if e.Uncertain {
		b.WriteString(" (the write may have been applied)")
	}
	return b.String()
}

// Unwrap returns the meaning of the text.
func (e *Error) Unwrap() error { return e.kind }

// Is makes an uncertain write match [ErrUncertain], in addition to its reason.
func (e *Error) Is(target error) bool { return target == ErrUncertain && e.Uncertain }

// GRPCStatus makes status.FromError work.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Text) }

// CompactedError reports that requested revisions have been compacted. It matches [ErrCompacted].
type CompactedError struct {
	// Revision is the compact revision: later ones still exist. 0 if the server did not report it;
	// only the answer of a watch has it.
	Revision int64
}

// Error implements error.
func (e *CompactedError) Error() string {
	if e.Revision == 0 {
		return ErrCompacted.Error()
	}
	return fmt.Sprintf("%v: revisions up to %d are gone", ErrCompacted, e.Revision)
}

// Is makes it match [ErrCompacted].
func (e *CompactedError) Is(target error) bool { return target == ErrCompacted }

// UnreachableError reports that no member could be reached, and why. It matches [ErrUnreachable].
type UnreachableError struct {
	// Endpoints are the addresses that were tried, Errors the last error of each.
	Endpoints []string
	Errors    []error
}

// Error implements error.
func (e *UnreachableError) Error() string {
	var b strings.Builder
	b.WriteString(ErrUnreachable.Error())
	for i, ep := range e.Endpoints {
		fmt.Fprintf(&b, "; %s: %v", ep, e.Errors[i])
	}
	return b.String()
}

// Is makes it match [ErrUnreachable].
func (e *UnreachableError) Is(target error) bool { return target == ErrUnreachable }

// Unwrap returns the errors of the members.
func (e *UnreachableError) Unwrap() []error { return e.Errors }

// LagError reports that the buffer of a watcher with [WithLagError] was full. It matches
// [ErrLagging].
type LagError struct {
	// Revision is where a new watch must start so that it misses no event.
	Revision int64
}

// Error implements error.
func (e *LagError) Error() string {
	return fmt.Sprintf("%v: go on from revision %d", ErrLagging, e.Revision)
}

// Is makes it match [ErrLagging].
func (e *LagError) Is(target error) bool { return target == ErrLagging }

// CanceledError reports that the server ended a watch, and why. errors.Is finds the meaning of the
// reason, for instance [ErrPermissionDenied].
type CanceledError struct {
	// Reason is the server's text.
	Reason string
	// Created reports that the watch had been created before; otherwise it was refused.
	Created bool

	kind error
}

// Error implements error.
func (e *CanceledError) Error() string {
	what := "watch canceled by the server"
	if !e.Created {
		what = "watch refused by the server"
	}
	if e.Reason == "" {
		return what + " without a reason"
	}
	return what + ": " + e.Reason
}

// Unwrap returns the meaning of the reason.
func (e *CanceledError) Unwrap() error { return e.kind }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// kindOf returns the error of this package for the text of a server, or nil.
func kindOf(text string) error {
	k, ok := kinds[trimCode(text)]
	if !ok {
		return nil
	}
	if k == ErrCompacted {
		return &CompactedError{}
	}
	return k
}

// trimCode removes the code before the text, which the reason of a canceled watch may have.
func trimCode(text string) string {
	if _, rest, ok := strings.Cut(text, " desc = "); ok {
		return rest
	}
	return text
}

// explain converts an error of gRPC into an Error.
func explain(ctx context.Context, op, key, member string, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	st := status.Convert(err)
	e := &Error{Op: op, Key: key, Member: member, Code: st.Code(), Text: st.Message()}
	ended := context.Cause(ctx)
	switch e.kind = kindOf(e.Text); {
	case e.kind != nil && ended != nil &&
		(e.Code == codes.Canceled || e.Code == codes.DeadlineExceeded):
		e.kind = errors.Join(ended, e.kind)
	case e.kind != nil:
	case e.Code == codes.Internal && strings.HasSuffix(e.Text, request.ErrMalformed.Error()):
		e.kind = request.ErrMalformed // gRPC keeps the text of the codec only
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		e.kind, e.Text = err, err.Error()
	case ended != nil && (e.Code == codes.Canceled || e.Code == codes.DeadlineExceeded):
		e.kind = ended
	case e.Code == codes.DeadlineExceeded:
		// The member noticed the caller's deadline first.
		e.kind = context.DeadlineExceeded
	default:
		e.kind = unlessPlain(err)
	}
	return e
}

// unlessPlain returns err unless it is a plain gRPC status, which has only a code and a text.
func unlessPlain(err error) error {
	if _, ok := err.(interface{ GRPCStatus() *status.Status }); ok {
		return nil
	}
	return err
}
