package revtime

import (
	"context"
	"time"

	"vigil/internal/kv"
	"vigil/internal/store/mvcc"
)

// Pipeline is the pipeline of the member.
type Pipeline interface {
	// Linearize waits until the member has applied everything that any member had applied at the
	// time of the call.
	Linearize(context.Context) error
	// ReadStore calls read with the store, and again if a snapshot replaces the store during the
	// call.
	ReadStore(ctx context.Context, read func(*mvcc.Store) error) error
}

// Access identifies clients.
type Access interface {
	// CheckUser returns the error of a client that is not a user, while authentication is enabled
	// as far as this member knows.
	CheckUser(context.Context) error
}

// Times answers when revisions were made.
type Times struct {
	pipeline Pipeline
	access   Access
	clock    func() time.Time
}

// New returns the Times of a member.
func New(p Pipeline, a Access, clock func() time.Time) *Times {
	return &Times{pipeline: p, access: a, clock: clock}
}

// futureSlack is how far the clock of a client may be ahead of that of the member.
const futureSlack = 5 * time.Second

// RevisionAt returns the newest revision that was made at or before a time, in milliseconds since
// 1970. It can be read unless it is compacted by then. Errors: *kv.TimeError, errors of auth and of
// the store, and unless serializable, errors of a linearizable read.
func (t *Times) RevisionAt(ctx context.Context, ms int64,
	serializable bool) (revision int64, err error) {
	if err := t.awaitReadable(ctx, serializable); err != nil {
		return 0, err
	}
	if now := t.clock(); ms > now.Add(futureSlack).UnixMilli() {
		return 0, &kv.TimeError{Reason: kv.TimeInFuture, Time: ms, Bound: now.UnixMilli()}
	}
	err = t.pipeline.ReadStore(ctx, func(s *mvcc.Store) (err error) {
		revision, err = s.RevisionAt(ms)
		return err
	})
	return revision, err
}

// Spans returns when revisions were made. Errors: of auth, of the store, and of a
// linearizable read.
func (t *Times) Spans(ctx context.Context, revisions []int64) ([]kv.TimeSpan, error) {
	if err := t.awaitReadable(ctx, false); err != nil {
		return nil, err
	}
	out := make([]kv.TimeSpan, len(revisions))
	err := t.pipeline.ReadStore(ctx, func(s *mvcc.Store) (err error) {
		for i, rev := range revisions {
			if err = ctx.Err(); err == nil {
				out[i], err = s.TimeSpan(rev)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// awaitReadable waits until the times may be read, and returns why the caller may not read them.
func (t *Times) awaitReadable(ctx context.Context, serializable bool) error {
	err := ctx.Err()
	if !serializable {
		err = t.pipeline.Linearize(ctx)
	}
	if err != nil {
		return err
	}
	return t.access.CheckUser(ctx)
}
