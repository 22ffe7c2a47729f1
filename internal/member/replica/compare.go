package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/calls"
)

const (
	// hashCallTimeout bounds how long one member may take to read its store.
	hashCallTimeout = 10 * time.Minute
	// behindTimeout bounds how long a member that is asked waits until it has applied what it is to be
	// compared at. One that lags more is left out this time.
	behindTimeout = 5 * time.Second
	// compareAttempts is how often a common point is looked for: each time members have been compacted
	// in between it moves.
	compareAttempts = 5
)

// What members ask each other, first byte of the call:
//
//	1  index u64, revision i64, compact i64: the hash at a revision, with a compact revision, once
//	   the index is applied; answered by answerKind u8, revision i64, compact i64, hash u32, and where
//	   the member is: index u64, newest revision i64
//	2  the hashes that compactions have left; answered by revision i64, compact i64, hash u32 of each
//	3  as 1 without the hash, which is 0: whether the member has the revision at all
//
// All numbers are little endian.
const (
	askAt          byte = 1
	askCompactions byte = 2
	askStanding    byte = 3

	askAtSize      = 1 + 3*8
	hashAnswerSize = 1 + 8 + 8 + 4 + 8 + 8
	compactionSize = 8 + 8 + 4
	// maxCompactions bounds the hashes that are taken from an answer.
	maxCompactions = 64
)

// hashQuestion names a point at which every member can say its hash.
type hashQuestion struct {
	// index is a position of the raft log at or behind the revision.
	index             uint64
	revision, compact int64
	// cheap: the hash is left out, only revisions are compared.
	cheap bool
}

func (q hashQuestion) encode() []byte {
	b := append(make([]byte, 0, askAtSize), askAt)
	if q.cheap {
		b[0] = askStanding
	}
	b = le.AppendUint64(b, q.index)
	b = le.AppendUint64(b, uint64(q.revision))
	return le.AppendUint64(b, uint64(q.compact))
}

// answerKind says what a member has at a point.
type answerKind byte

const (
	// hashIs: the hash at the revision and the compact revision of the question.
	hashIs answerKind = 1
	// hashBehind: the member has not come to the index yet.
	hashBehind answerKind = 2
	// hashShort: it has, and yet its newest revision is below the one asked for.
	hashShort answerKind = 3
	// hashCompacted: it has been compacted at compact, above the one asked for.
	hashCompacted answerKind = 4
)

// standing says that a member has had a revision when it had applied no more than an index. Every member that has applied
// the index has it too.
type standing struct {
	index    uint64
	revision int64
}

// hashAnswer is what a member has. Two members that have the same give equal ones.
type hashAnswer struct {
	kind              answerKind
	revision, compact int64
	hash              uint32
}

func (a hashAnswer) encode(at standing) []byte {
	b := append(make([]byte, 0, hashAnswerSize), byte(a.kind))
	b = le.AppendUint64(b, uint64(a.revision))
	b = le.AppendUint64(b, uint64(a.compact))
	b = le.AppendUint32(b, a.hash)
	b = le.AppendUint64(b, at.index)
	return le.AppendUint64(b, uint64(at.revision))
}

// comparable says whether the answer tells anything of the state.
func (a hashAnswer) comparable() bool { return a.kind == hashIs || a.kind == hashShort }

func (a hashAnswer) String() string {
	if a.kind == hashShort {
		return fmt.Sprintf("none, its newest revision is %d", a.revision)
	}
	return fmt.Sprintf("%08x", a.hash)
}

var errHashCall = errors.New("replica: malformed question or answer about hashes")

func decodeHashAnswer(b []byte) (hashAnswer, standing, error) {
	if len(b) != hashAnswerSize || b[0] < byte(hashIs) || b[0] > byte(hashCompacted) {
		return hashAnswer{}, standing{}, errHashCall
	}
	return hashAnswer{answerKind(b[0]), int64(le.Uint64(b[1:])), int64(le.Uint64(b[9:])), le.Uint32(b[17:])},
		standing{le.Uint64(b[21:]), int64(le.Uint64(b[29:]))}, nil
}

func encodeCompactions(list []kv.HashResult) []byte {
	var b []byte
	for _, h := range list {
		b = le.AppendUint64(b, uint64(h.HashRevision))
		b = le.AppendUint64(b, uint64(h.CompactRevision))
		b = le.AppendUint32(b, h.Hash)
	}
	return b
}

func decodeCompactions(b []byte) ([]kv.HashResult, error) {
	if len(b)%compactionSize != 0 || len(b) > maxCompactions*compactionSize {
		return nil, errHashCall
	}
	var list []kv.HashResult
	for ; len(b) > 0; b = b[compactionSize:] {
		list = append(list, kv.HashResult{HashRevision: int64(le.Uint64(b)), CompactRevision: int64(le.Uint64(b[8:])), Hash: le.Uint32(b[16:])})
	}
	return list, nil
}

// AnswerHash answers a member that compares (calls.Hashes). It may read the whole store, beside everything
// else. Errors: kv.ErrStopped, those of ctx, and of the disk.
func (r *Replica) AnswerHash(ctx context.Context, payload []byte) ([]byte, error) {
	switch {
	case len(payload) == 1 && payload[0] == askCompactions:
		return encodeCompactions(r.now().store.CompactionHashes()), nil
	case len(payload) == askAtSize && (payload[0] == askAt || payload[0] == askStanding):
	default:
		return nil, errHashCall
	}
	if !r.errands.begin() {
		return nil, kv.ErrStopped
	}
	defer r.errands.running.Done()
	a, err := r.hashAt(ctx, hashQuestion{le.Uint64(payload[1:]), int64(le.Uint64(payload[9:])), int64(le.Uint64(payload[17:])), payload[0] == askStanding})
	if err != nil {
		return nil, err
	}
	return a.encode(r.standing()), nil
}

// standing returns where this member is.
func (r *Replica) standing() standing {
	revision := r.now().store.Revision() // before the index
	return standing{r.node.Status().Committed, revision}
}

// hashAt says what this member has at a point. It ends when the member stops.
func (r *Replica) hashAt(ctx context.Context, q hashQuestion) (hashAnswer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer r.onStop(cancel)()
	waiting, done := context.WithTimeout(ctx, behindTimeout)
	defer done()
	if err := r.waitApplied(waiting, q.index); err != nil {
		return hashAnswer{kind: hashBehind}, ctx.Err()
	}
	if q.cheap {
		if rev := r.now().store.Revision(); rev < q.revision {
			return hashAnswer{kind: hashShort, revision: rev}, nil
		}
		return hashAnswer{kind: hashIs, revision: q.revision, compact: q.compact}, nil
	}
	began := time.Now()
	defer func() { r.consistency.reading.Add(int64(time.Since(began))) }()
	a, err := onHome(ctx, r, func(h *home) (hashAnswer, error) {
		hash, err := h.store.HashAt(ctx, q.revision, q.compact)
		switch {
		case errors.Is(err, kv.ErrCompacted):
			return hashAnswer{kind: hashCompacted, compact: h.store.CompactRevision()}, nil
		case errors.Is(err, kv.ErrFutureRev):
			return hashAnswer{kind: hashShort, revision: h.store.Revision()}, nil
		}
		return hashAnswer{hashIs, q.revision, q.compact, hash}, err
	})
	return a, err
}

// onStop calls f when the member stops, unless the function it returns is called before.
func (r *Replica) onStop(f func()) (forget func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-r.stopping:
			f()
		case <-done:
		}
	}()
	return func() { close(done) }
}

// finding is what one member has.
type finding struct {
	id uint64
	hashAnswer
}

// askHashes asks all members, this one among them, for their hashes at one point, or, if cheap, only whether they have its
// revision. Those that do not answer, or lag, are left out. It returns early when enough says so.
//
// The point is this member's newest revision, which others have reached when they have applied what is
// committed now, and the newest compact revision of all: what is above or at it nobody has dropped. If this member lacks a
// revision that another one has had at an index that this one has applied, the point is that revision: what this
// member has may be the beginning of what the others have, and it may be nothing.
func (r *Replica) askHashes(ctx context.Context, cheap bool, enough func([]finding) bool) (q hashQuestion, found []finding, err error) {
	q.cheap = cheap
	var missed standing
	for range compareAttempts {
		store := r.now().store
		q.compact = max(q.compact, store.CompactRevision(), 0)
		q.revision = max(store.Revision(), missed.revision) // before the index
		q.index = max(r.node.Status().Committed, missed.index)
		if q.compact > q.revision {
			// Others are ahead. What they have applied is committed.
			if err := r.Linearize(ctx); err != nil {
				return q, nil, err
			}
			continue
		}
		all, most, err := r.askHashesAt(ctx, q, enough)
		if err != nil {
			return q, nil, err
		}
		found = slices.DeleteFunc(slices.Clone(all), func(f finding) bool { return !f.comparable() })
		again := false
		if most.revision > q.revision && r.lacks(ctx, most) {
			missed, again = most, true
		}
		for _, f := range all {
			if f.kind == hashCompacted && f.compact > q.compact {
				q.compact, again = f.compact, true
			}
		}
		if !again || missed == (standing{}) && enough(found) {
			return q, found, nil
		}
	}
	return q, found, nil
}

// lacks reports whether this member has applied an index and not the revision that belongs to it.
func (r *Replica) lacks(ctx context.Context, at standing) bool {
	ctx, cancel := context.WithTimeout(ctx, behindTimeout)
	defer cancel()
	return r.waitApplied(ctx, at.index) == nil && r.now().store.Revision() < at.revision
}

// askHashesAt asks once. most is the newest revision of those that answered.
func (r *Replica) askHashesAt(ctx context.Context, q hashQuestion, enough func([]finding) bool) (all []finding, most standing, err error) {
	ctx, cancel := context.WithTimeout(ctx, hashCallTimeout)
	defer cancel()
	members := r.members.Load().Members()
	type reply struct {
		finding
		at standing
	}
	answers := make(chan reply, len(members))
	question := q.encode()
	failed := make(chan error, 1)
	for _, m := range members {
		go func() {
			var a hashAnswer
			var at standing
			var err error
			if m.ID == r.memberID {
				if a, err = r.hashAt(ctx, q); err != nil {
					failed <- err
				}
			} else if b, e := r.cfg.SnapshotTransport.Call(ctx, m.ID, calls.Hashes, question); e == nil {
				a, at, err = decodeHashAnswer(b)
			} else {
				err = e
			}
			if err != nil {
				a, at = hashAnswer{}, standing{}
				r.cfg.Logger.Debug("a member is not compared", memberAttr(m.ID), "error", err)
			}
			answers <- reply{finding{m.ID, a}, at}
		}()
	}
	for range members {
		f := <-answers
		all = append(all, f.finding)
		if f.at.revision > most.revision {
			most = f.at
		}
		select {
		case err = <-failed:
		default:
		}
		if err != nil || enough(all) {
			cancel() // and wait for the others: they use this member's store
		}
	}
	return all, most, err
}
