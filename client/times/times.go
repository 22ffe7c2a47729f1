// Package times knows when the revisions of a cluster were made, and which revision was the newest at a time.
//
// The leader records its clock about once a second while keys are written. Old times are kept more coarsely: a minute apart
// after an hour, an hour after a week, a day after a year. Revisions that are compacted cannot be read, whatever their
// time.
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
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"

	"vigil/client"
)

const (
	revisionAt = "/vigil.Times/RevisionAt"
	spans      = "/vigil.Times/Spans"
)

// ErrUnknown reports that the time is before the first one that the cluster has recorded, or that it has recorded none.
var ErrUnknown = errors.New("no revision is known for the time")

// errMalformed is the error of an answer that is not one of the call.
var errMalformed = errors.New("malformed answer about times of revisions")

// RevisionAt returns the newest revision that is known to be made at or before a time, by the clock of the leader of that
// time. The error matches client.ErrCompacted if the revision has been compacted, client.ErrFutureRevision if the time is in
// the future, and ErrUnknown if it is before the first known one; its text has both times.
func RevisionAt(ctx context.Context, c *client.Client, t time.Time) (int64, error) {
	req := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(max(t.UnixMilli(), 0)))
	b, err := invoke(ctx, c, revisionAt, req)
	if err != nil {
		return 0, err
	}
	var rev int64
	err = fields(b, func(n protowire.Number, v uint64, _ []byte) error {
		if n == 1 {
			rev = int64(v)
		}
		return nil
	})
	if err == nil && rev <= 0 {
		err = errMalformed
	}
	return rev, err
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

// Of returns when revisions were made, in their order. The error matches those of calls that read.
func Of(ctx context.Context, c *client.Client, revisions ...int64) ([]Span, error) {
	out := make([]Span, 0, len(revisions))
	for part := range slices.Chunk(revisions, maxSpans) {
		var list []byte
		for _, rev := range part {
			list = protowire.AppendVarint(list, uint64(rev))
		}
		b, err := invoke(ctx, c, spans, protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), list))
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
	err = fields(b, func(n protowire.Number, _ uint64, data []byte) error {
		if n != 1 || data == nil {
			return nil
		}
		var s Span
		err := fields(data, func(n protowire.Number, v uint64, _ []byte) error {
			switch {
			case v == 0:
			case n == 1:
				s.After = time.UnixMilli(int64(v))
			case n == 2:
				s.At = time.UnixMilli(int64(v))
			}
			return nil
		})
		out = append(out, s)
		return err
	})
	return out, err
}

// invoke makes a call. The messages have no generated code: they are the unknown fields of an empty one.
func invoke(ctx context.Context, c *client.Client, method string, req []byte) ([]byte, error) {
	var in, out emptypb.Empty
	in.ProtoReflect().SetUnknown(req)
	if err := c.Conn().Invoke(ctx, method, &in, &out); err != nil {
		return nil, explain(err)
	}
	return out.ProtoReflect().GetUnknown(), nil
}

// fields calls found with each field of a message: a varint or, not nil, bytes.
func fields(b []byte, found func(n protowire.Number, v uint64, data []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errMalformed
		}
		b = b[n:]
		var v uint64
		var data []byte
		switch typ {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			if data, n = protowire.ConsumeBytes(b); data == nil {
				data = []byte{}
			}
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return errMalformed
		}
		b = b[n:]
		if err := found(num, v, data); err != nil {
			return err
		}
	}
	return nil
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
