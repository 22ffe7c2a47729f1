package client

import (
	"context"
	"slices"
	"time"

	"vigil/client/internal/wire"
)

var (
	revisionAtMethod             = method{name: "/vigil.Times/RevisionAt", op: "revision at a time", leader: true}
	serializableRevisionAtMethod = revisionAtMethod.anyMember()
	spansMethod                  = method{name: "/vigil.Times/Spans", op: "times of revisions", leader: true}
)

// TimeOption is what WithTime returns.
type TimeOption interface {
	GetOption
	WatchOption
}

type timeOption int64

func (o timeOption) applyGet(r *wire.RangeRequest) { r.At = int64(o) }
func (o timeOption) applyWatch(s *watchSpec)       { s.at = int64(o) }

// WithTime reads the store as it was at a time: at the newest revision that is known to be made at or before it. With Watch
// the events after that revision are the first. See RevisionAt, which it calls first. It replaces WithRevision and
// FromRevision, and is no option of OpGet.
func WithTime(t time.Time) TimeOption { return timeOption(max(t.UnixMilli(), 1)) }

// RevisionAt returns the newest revision that is known to be made at or before a time, by the clock of the leader of that
// time. Times are recorded about once a second, and more coarsely when they are old. The error matches ErrCompacted if the
// revision has been compacted, ErrFutureRevision if the time is in the future, and ErrTimeUnknown if it is before the first
// known one. Only Vigil has this call: the error of an etcd server has the code Unimplemented.
func (c *Client) RevisionAt(ctx context.Context, t time.Time) (int64, error) {
	return c.revisionAt(ctx, t.UnixMilli(), false)
}

func (c *Client) revisionAt(ctx context.Context, ms int64, serializable bool) (int64, error) {
	m := &revisionAtMethod
	if serializable {
		m = &serializableRevisionAtMethod
	}
	resp, err := call[revisionAtResponse](ctx, c, m, "", &wire.RevisionAtRequest{Time: ms, Serializable: serializable})
	if err != nil {
		return 0, err
	}
	return resp.revision, nil
}

// resolve replaces the time of a request by its revision.
func (c *Client) resolve(ctx context.Context, r *wire.RangeRequest) error {
	if r.At == 0 {
		return nil
	}
	rev, err := c.revisionAt(ctx, r.At, r.Serializable)
	r.Revision, r.At = rev, 0
	return err
}

// TimeSpan is when a revision was made, by the clock of the leader of that time.
type TimeSpan struct {
	// After is a time before which it was not made yet; zero if none is known.
	After time.Time
	// At is a time at which it was made; zero if none is known yet.
	At time.Time
}

// maxSpans is how many revisions are asked for at once; servers accept 10,000.
const maxSpans = 1000

// TimesOf returns when revisions were made, in their order. Revisions from before times were recorded, and compacted ones,
// have spans that begin or end nowhere. See RevisionAt.
func (c *Client) TimesOf(ctx context.Context, revisions ...int64) ([]TimeSpan, error) {
	out := make([]TimeSpan, 0, len(revisions))
	for part := range slices.Chunk(revisions, maxSpans) {
		resp, err := call[spansResponse](ctx, c, &spansMethod, "", &wire.SpansRequest{Revisions: part})
		if err != nil {
			return nil, err
		}
		if len(resp.spans) != len(part) {
			return nil, wire.ErrMalformed
		}
		out = append(out, resp.spans...)
	}
	return out, nil
}

type revisionAtResponse struct{ revision int64 }

func (*revisionAtResponse) keeps() bool { return false }

func (r *revisionAtResponse) decode(b []byte) error {
	f := wire.Read(b)
	for f.Next() {
		if f.Is(1, wire.TypeVarint) {
			r.revision = int64(f.Varint)
		}
	}
	return f.Err()
}

type spansResponse struct{ spans []TimeSpan }

func (*spansResponse) keeps() bool { return false }

func (r *spansResponse) decode(b []byte) error {
	f := wire.Read(b)
	for f.Next() {
		if f.Is(1, wire.TypeBytes) {
			var s TimeSpan
			f.Check(s.decode(f.Bytes))
			r.spans = append(r.spans, s)
		}
	}
	return f.Err()
}

func (s *TimeSpan) decode(b []byte) error {
	f := wire.Read(b)
	for f.Next() {
		switch {
		case f.Is(1, wire.TypeVarint) && f.Varint != 0:
			s.After = time.UnixMilli(int64(f.Varint))
		case f.Is(2, wire.TypeVarint) && f.Varint != 0:
			s.At = time.UnixMilli(int64(f.Varint))
		}
	}
	return f.Err()
}
