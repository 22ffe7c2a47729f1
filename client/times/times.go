// Package times knows when the revisions of a cluster were made, and which revision was the newest
// at a time.
//
// A revision is made when the leader adds it to its log, by the clock of that leader, in
// milliseconds. Revisions that are compacted cannot be read, whatever their time.
//
// To read the store as it was at a time, and to watch from there:
//
//	rev, err := times.RevisionAt(ctx, c, time.Now().Add(-5*time.Minute))
//	...
//	resp, err := c.Get(ctx, "config", client.WithRevision(rev))
//	w := c.Watch(ctx, "config", client.FromRevision(rev+1))
//
// Only Vigil has these calls: the error of an etcd server has the code Unimplemented.
package times

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"vigil/client"
	"vigil/client/pbfield"
)

const (
	revisionAt = "/vigil.Times/RevisionAt"
	spans      = "/vigil.Times/Spans"
)

// ErrUnknown reports that the time is before the first one that the cluster has recorded, or that
// it has recorded none.
var ErrUnknown = errors.New("no revision is known for the time")

// errMalformed is the error of an answer that is not one of the call.
var errMalformed = errors.New("malformed answer about times of revisions")

// RevisionAt returns the newest revision that is known to be made at or before a time, by the clock
// of the leader of that time. The error matches [client.ErrCompacted] if the revision has been
// compacted, [client.ErrFutureRevision] if the time is in the future, and [ErrUnknown] if it is
// before the first known one; its text has both times.
func RevisionAt(ctx context.Context, c *client.Client, t time.Time) (int64, error) {
	b, err := invoke(ctx, c, revisionAt, pbfield.AppendInt(nil, 1, max(t.UnixMilli(), 0)))
	if err != nil {
		return 0, err
	}
	var rev int64
	r := pbfield.Read(b)
	for r.Next() {
		pbfield.Int(&r, 1, &rev)
	}
	if r.Err() != nil || rev <= 0 {
		return 0, errMalformed
	}
	return rev, nil
}

// Span is when a revision was made, by the clock of the leader of that time.
type Span struct {
	// After is a time at which it was not made yet; zero if none is known.
	After time.Time
	// At is a time at which it was made; zero if none is known yet.
	At time.Time
}

// maxSpans is how many revisions are asked for at once; servers accept 10,000.
const maxSpans = 1000

// Of returns when revisions were made, in their order. The errors are the same as the errors of
// other reads.
func Of(ctx context.Context, c *client.Client, revisions ...int64) ([]Span, error) {
	out := make([]Span, 0, len(revisions))
	for part := range slices.Chunk(revisions, maxSpans) {
		var list []byte
		for _, rev := range part {
			list = binary.AppendUvarint(list, uint64(rev))
		}
		b, err := invoke(ctx, c, spans, pbfield.AppendBytes(nil, 1, list))
		if err != nil {
			return nil, err
		}
		got, err := parseSpans(b)
		if err == nil && len(got) != len(part) {
			err = errMalformed
		}
		if err != nil {
			return nil, err
		}
		out = append(out, got...)
	}
	return out, nil
}

func parseSpans(b []byte) (out []Span, err error) {
	r := pbfield.Read(b)
	var body []byte
	for r.Next() {
		for r.Message(1, &body) {
			var after, at int64
			span := pbfield.Read(body)
			for span.Next() {
				pbfield.Int(&span, 1, &after)
				pbfield.Int(&span, 2, &at)
			}
			r.Check(span.Err())
			out = append(out, Span{timeOf(after), timeOf(at)})
		}
	}
	if r.Err() != nil {
		return nil, errMalformed
	}
	return out, nil
}

// timeOf returns a time in milliseconds, the zero time if there is none.
func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// invoke makes a call. The messages have no generated code: they are the unknown fields of an empty
// one.
func invoke(ctx context.Context, c *client.Client, method string, req []byte) ([]byte, error) {
	var in, out emptypb.Empty
	in.ProtoReflect().SetUnknown(req)
	if err := c.Conn().Invoke(ctx, method, &in, &out); err != nil {
		return nil, explain(err)
	}
	return out.ProtoReflect().GetUnknown(), nil
}

// explain adds to the error of a call what it means: the text says it.
func explain(err error) error {
	text := status.Convert(err).Message()
	for prefix, kind := range map[string]error{
		client.ErrCompacted.Error() + ": ":      client.ErrCompacted,
		client.ErrFutureRevision.Error() + ": ": client.ErrFutureRevision,
		"vigil: the state at ":                  ErrUnknown,
		"vigil: the cluster has no times":       ErrUnknown,
	} {
		if strings.HasPrefix(text, prefix) {
			return &Error{err, kind}
		}
	}
	return fmt.Errorf("times of revisions: %w", err)
}

// Error is the error of a time that has no revision that can be read. errors.Is finds its meaning.
type Error struct {
	err, kind error
}

// Error is the text of the member.
func (e *Error) Error() string { return status.Convert(e.err).Message() }

// Unwrap returns the meaning of the text, and the error of gRPC.
func (e *Error) Unwrap() []error { return []error{e.kind, e.err} }

// GRPCStatus makes status.FromError work.
func (e *Error) GRPCStatus() *status.Status { return status.Convert(e.err) }
