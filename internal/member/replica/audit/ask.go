package audit

import (
	"context"
	"errors"
	"slices"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/calls"
	"vigil/internal/store/mvcc"
)

const (
	// callTimeout limits how long a member may take to read its store.
	callTimeout = 10 * time.Minute
	// lagTimeout limits how long a member waits until it has applied the index of a question. A
	// member that lags more is left out.
	lagTimeout = 5 * time.Second
	// maxAttempts limits how often the auditor chooses a common point: the point moves whenever a
	// member was compacted since the last question.
	maxAttempts = 5
)

// ServeCall answers a member that compares (calls.Hashes). It may read the whole store,
// concurrently with everything else. Errors: from ctx and the disk.
func (a *Auditor) ServeCall(ctx context.Context, payload []byte) ([]byte, error) {
	if len(payload) == 1 && payload[0] == askCompactions {
		return encodeCompactions(a.o.Pipeline.Store().CompactionHashes()), nil
	}
	q, err := decodeQuestion(payload)
	if err != nil {
		return nil, err
	}
	ans, err := a.answerHere(ctx, q)
	if err != nil {
		return nil, err
	}
	revision := a.o.Pipeline.Store().Revision() // before the index
	return ans.encode(position{a.o.Raft.Status().Committed, revision}), nil
}

// answerHere answers a question for this member. It ends when the member stops.
func (a *Auditor) answerHere(ctx context.Context, q question) (ans answer, err error) {
	ctx, cancel := a.untilStop(ctx)
	defer cancel()
	waiting, done := context.WithTimeout(ctx, lagTimeout)
	defer done()
	if err := a.o.Pipeline.WaitApplied(waiting, q.index); err != nil {
		return answer{kind: kindLags}, ctx.Err()
	}
	if q.revisionOnly {
		if rev := a.o.Pipeline.Store().Revision(); rev < q.revision {
			return answer{kind: kindShort, revision: rev}, nil
		}
		return answer{kind: kindHash, revision: q.revision, compact: q.compact}, nil
	}
	began := time.Now()
	defer func() { a.reading.Add(int64(time.Since(began))) }()
	err = a.o.Pipeline.ReadStore(ctx, func(s *mvcc.Store) error {
		hash, err := s.HashAt(ctx, q.revision, q.compact)
		switch {
		case errors.Is(err, kv.ErrCompacted):
			ans = answer{kind: kindCompacted, compact: s.CompactRevision()}
			return nil
		case errors.Is(err, kv.ErrFutureRev):
			ans = answer{kind: kindShort, revision: s.Revision()}
			return nil
		}
		ans = answer{kindHash, q.revision, q.compact, hash}
		return err
	})
	return ans, err
}

// finding is the answer of one member.
type finding struct {
	id uint64
	answer
}

// askAll asks all members, including this one, for their hashes at one point, or only whether they
// have its revision. It leaves out members that lag or do not answer, and returns early when enough
// reports true.
//
// The point is this member's newest revision, which others have when they have applied all entries
// that are committed now, and the newest compact revision of all members: none has dropped anything
// at or above it. If this member lacks a revision that another one had at an index that this one
// has applied, the point is that revision: the data of this member may be the beginning of the
// others' data, and may be empty.
func (a *Auditor) askAll(ctx context.Context, revisionOnly bool,
	enough func([]finding) bool) (q question, found []finding, err error) {
	q.revisionOnly = revisionOnly
	var missed position
	for range maxAttempts {
		store := a.o.Pipeline.Store()
		q.compact = max(q.compact, store.CompactRevision(), 0)
		q.revision = max(store.Revision(), missed.revision) // before the index
		q.index = max(a.o.Raft.Status().Committed, missed.index)
		if q.compact > q.revision {
			// This member lags: entries that others have applied are committed.
			if err := a.o.Pipeline.Linearize(ctx); err != nil {
				return q, nil, err
			}
			continue
		}
		all, newest, err := a.askOnce(ctx, q, enough)
		if err != nil {
			return q, nil, err
		}
		found = slices.DeleteFunc(slices.Clone(all),
			func(f finding) bool { return !f.comparable() })
		again := false
		if newest.revision > q.revision && a.lacks(ctx, newest) {
			missed, again = newest, true
		}
		for _, f := range all {
			if f.kind == kindCompacted && f.compact > q.compact {
				q.compact, again = f.compact, true
			}
		}
		if !again || missed == (position{}) && enough(found) {
			return q, found, nil
		}
	}
	return q, found, nil
}

// lacks reports whether this member has applied an index without the revision that belongs to it.
func (a *Auditor) lacks(ctx context.Context, at position) bool {
	ctx, cancel := context.WithTimeout(ctx, lagTimeout)
	defer cancel()
	return a.o.Pipeline.WaitApplied(ctx, at.index) == nil &&
		a.o.Pipeline.Store().Revision() < at.revision
}

// askOnce asks all members at one point. newest is the newest revision of the members that
// answered.
func (a *Auditor) askOnce(ctx context.Context, q question,
	enough func([]finding) bool) (all []finding, newest position, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	members := a.o.Pipeline.Membership().Members()
	type reply struct {
		finding
		at position
	}
	answers := make(chan reply, len(members))
	payload := q.encode()
	failed := make(chan error, 1)
	for _, m := range members {
		go func() {
			var ans answer
			var at position
			var err error
			if m.ID == a.o.MemberID {
				if ans, err = a.answerHere(ctx, q); err != nil {
					failed <- err
				}
			} else if b, e := a.o.Calls.Call(ctx, m.ID, calls.Hashes, payload); e == nil {
				ans, at, err = decodeAnswer(b)
			} else {
				err = e
			}
			if err != nil {
				ans, at = answer{}, position{}
				a.o.Logger.Debug("a member is not compared", memberAttr(m.ID), "error", err)
			}
			answers <- reply{finding{m.ID, ans}, at}
		}()
	}
	for range members {
		f := <-answers
		all = append(all, f.finding)
		if f.at.revision > newest.revision {
			newest = f.at
		}
		select {
		case err = <-failed:
		default:
		}
		if err != nil || enough(all) {
			cancel() // and wait for the other goroutines: they use this member's store
		}
	}
	return all, newest, err
}
