package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/client/internal/pool"
)

// Errors of the client itself, for errors.Is.
var (
	// ErrClosed: the client was closed, or the watcher while somebody waited for it.
	ErrClosed = pool.ErrClosed
	// ErrUnreachable: no member could be reached in time; see UnreachableError.
	ErrUnreachable = errors.New("no member can be reached")
	// ErrUncertain: a write was sent and no answer came, so it may have been applied or may still be. It is
	// never sent again by itself. Whoever needs to know reads the key, or writes with a condition.
	ErrUncertain = errors.New("outcome unknown: the write may have been applied")
	// ErrClusterChanged: the member that a watch went on with belongs to another cluster.
	ErrClusterChanged = errors.New("this is another cluster than before")
	// ErrRolledBack: the store's revision is lower than what a watch has already seen, as after a restore
	// of an older snapshot.
	ErrRolledBack = errors.New("the store has gone back to an older revision")
	// ErrLagging: a watcher with WithLagError was not read fast enough; see LagError.
	ErrLagging = errors.New("the watcher was not read fast enough")
	// ErrInvalid: an argument or a setting makes no sense; nothing was sent.
	ErrInvalid = pool.ErrInvalid
)

// Error is a call that failed. errors.Is finds what it means: one of the errors of this package, or
// context.Canceled and context.DeadlineExceeded if the caller's context ended.
type Error struct {
	// Op is the call, such as "put", and Key what it was about, if anything.
	Op, Key string
	// Member is the endpoint that answered or should have; empty if none was asked.
	Member string
	// Code and Text are what the member, or gRPC, said.
	Code codes.Code
	Text string
	// Uncertain tells that the call was a write which may have been applied.
	Uncertain bool

	kind error // what Text means, or nil
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

// Unwrap returns what the text means.
func (e *Error) Unwrap() error { return e.kind }

// Is makes an uncertain write match ErrUncertain beside its reason.
func (e *Error) Is(target error) bool { return target == ErrUncertain && e.Uncertain }

// GRPCStatus makes status.FromError work.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Text) }

// CompactedError says that revisions that were asked for are gone. It matches ErrCompacted.
type CompactedError struct {
	// Revision is the compact revision: what is above it is still there. 0 if the server did not say,
	// which only a watch's does.
	Revision int64
}

// Error implements error.
func (e *CompactedError) Error() string {
	if e.Revision == 0 {
		return ErrCompacted.Error()
	}
	return fmt.Sprintf("%v: revisions up to %d are gone", ErrCompacted, e.Revision)
}

// Is makes it match ErrCompacted.
func (e *CompactedError) Is(target error) bool { return target == ErrCompacted }

// UnreachableError says that no member could be reached, and why for each. It matches ErrUnreachable.
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

// Is makes it match ErrUnreachable.
func (e *UnreachableError) Is(target error) bool { return target == ErrUnreachable }

// Unwrap returns the errors of the members.
func (e *UnreachableError) Unwrap() []error { return e.Errors }

// LagError says that a watcher with WithLagError had more waiting than its buffer takes. It matches ErrLagging.
type LagError struct {
	// Revision is where a new watch must start to miss nothing.
	Revision int64
}

// Error implements error.
func (e *LagError) Error() string {
	return fmt.Sprintf("%v: go on from revision %d", ErrLagging, e.Revision)
}

// Is makes it match ErrLagging.
func (e *LagError) Is(target error) bool { return target == ErrLagging }

// CanceledError says that the server ended a watch, and its words for why; what they mean is found with
// errors.Is, for instance ErrPermissionDenied.
type CanceledError struct {
	// Reason is the server's text.
	Reason string
	// Created tells that the watch had been created before; a refused one had not.
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

// Unwrap returns what the reason means.
func (e *CanceledError) Unwrap() error { return e.kind }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// meaning returns the error of this package that a server's words stand for, or nil.
func meaning(text string) error {
	k, ok := kinds[words(text)]
	if !ok {
		return nil
	}
	if k == ErrCompacted {
		return &CompactedError{}
	}
	return k
}

// words removes the code that a reason for which a watch was canceled may carry in front.
func words(text string) string {
	if _, rest, ok := strings.Cut(text, " desc = "); ok {
		return rest
	}
	return text
}

// explain turns what gRPC returned into an Error.
func explain(ctx context.Context, op, key, member string, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	st := status.Convert(err)
	e := &Error{Op: op, Key: key, Member: member, Code: st.Code(), Text: st.Message()}
	ended := context.Cause(ctx)
	switch e.kind = meaning(e.Text); {
	case e.kind != nil && ended != nil && (e.Code == codes.Canceled || e.Code == codes.DeadlineExceeded):
		e.kind = errors.Join(ended, e.kind)
	case e.kind != nil:
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		e.kind, e.Text = err, err.Error()
	case ended != nil && (e.Code == codes.Canceled || e.Code == codes.DeadlineExceeded):
		e.kind = ended
	case e.Code == codes.DeadlineExceeded:
		// The member noticed the deadline, which is the caller's, first.
		e.kind = context.DeadlineExceeded
	default:
		e.kind = plain(err)
	}
	return e
}

// plain returns err unless it is a bare gRPC status, which has nothing to say beyond code and text.
func plain(err error) error {
	if _, ok := err.(interface{ GRPCStatus() *status.Status }); ok {
		return nil
	}
	return err
}
