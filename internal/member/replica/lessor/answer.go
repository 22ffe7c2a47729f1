package lessor

import (
	"context"
	"errors"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/calls"
	"vigil/internal/member/raftnode"
	"vigil/internal/state/auth"
	"vigil/internal/state/fsm"
)

// Ask asks the leader about a lease in the name of who, and repeats the question until it has an
// answer. The leader may be this member. The leader decides whether who may ask. Errors:
// kv.ErrLeaseNotFound, kv.ErrNoLeader, kv.ErrStopped, and from auth.State.CheckEndLease, ctx, a
// rejected request, and Pipeline.TimeoutCause.
func (l *Lessor) Ask(ctx context.Context, who auth.Identity, op Op, id int64) (Answer, error) {
	if op == Renew {
		if ttl, ok := l.RenewNow(who, id); ok {
			return Answer{TTL: ttl}, nil
		}
	}
	begun := time.Now()
	limited, cancel := context.WithTimeout(ctx, l.o.RequestTimeout)
	defer cancel()
	for {
		select {
		case <-l.o.Stopping:
			return Answer{}, kv.ErrStopped
		default:
		}
		var a Answer
		err := kv.ErrNotLeader
		// A leader whose disk hangs does not answer, and a question to it must not last longer than
		// its leadership.
		leader, while := l.o.Raft.Leader()
		attempt, end := context.WithCancel(limited)
		free := context.AfterFunc(while, end)
		switch {
		case leader == l.o.MemberID:
			a, err = l.answerAsLeader(attempt, who, op, id)
		case leader != 0 && l.o.Calls != nil:
			a, err = l.askLeader(attempt, leader, who, op, id)
		}
		free()
		end()
		if err == nil || errors.Is(err, kv.ErrLeaseNotFound) || errors.Is(err, kv.ErrStopped) ||
			denied(err) || limited.Err() == nil && rejected(err) {
			return a, err
		}
		select {
		case <-time.After(l.o.TickInterval):
		case <-limited.Done():
			switch {
			case ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
				return Answer{}, ctx.Err()
			case l.o.Raft.Status().Lead == 0:
				// This also holds if this member knew a leader when it asked: that leader may be
				// this member itself, disconnected.
				return Answer{}, kv.ErrNoLeader
			}
			return Answer{}, l.o.Pipeline.TimeoutCause(begun)
		}
	}
}

func (l *Lessor) askLeader(ctx context.Context, leader uint64, who auth.Identity, op Op,
	id int64) (Answer, error) {
	question := encodeCall(op, id)
	if who != (auth.Identity{}) {
		question = fsm.AppendIdentity(question, who)
	}
	b, err := l.o.Calls.Call(ctx, leader, calls.Lease, question)
	if err != nil {
		return Answer{}, err
	}
	return decodeAnswer(b)
}

// ServeCall answers another member that takes this one for the leader (calls.Lease).
func (l *Lessor) ServeCall(ctx context.Context, payload []byte) ([]byte, error) {
	who, op, id, err := decodeCall(payload)
	if err != nil {
		return nil, err
	}
	var a Answer
	done := false
	if op == Renew {
		a.TTL, done = l.RenewNow(who, id)
	}
	if !done {
		a, err = l.answerAsLeader(ctx, who, op, id)
	}
	return encodeAnswer(a, err), nil
}

// RenewNow renews a lease if that needs neither a call nor a wait: this member leads alone, or a
// quorum has just confirmed that it leads, and it has applied everything that is committed.
func (l *Lessor) RenewNow(who auth.Identity, id int64) (ttl int64, ok bool) {
	index, alone := l.o.Raft.TryReadIndex()
	if !alone {
		// No member can have applied, and reported to a client, more than the leader knows to be
		// committed.
		index = l.o.Raft.Status().Committed
	}
	if l.o.Pipeline.Applied() < index || l.judge(who, Renew, id) != nil {
		return 0, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.term == 0 || l.mu.term != l.o.Raft.LeadTerm() {
		return 0, false
	}
	now := time.Now()
	if !alone && (!now.Before(l.mu.confirmedUntil) || l.o.Raft.Status().HandedOver == l.mu.term) {
		return 0, false
	}
	// Leases that have ended since Follow, at a revision that may be readable already, still have
	// timers.
	if l.o.Pipeline.LeaseState().Removals() != l.mu.removals {
		return 0, false
	}
	if ttl, ok = l.mu.timers.Renew(id, l.at(now)); ok {
		l.renewed.Add(1)
	}
	return ttl, ok
}

// judge returns why who may not ask this member as the leader. It decides with the applied state:
// the leader has confirmed that it leads, so the applied state is the state of the cluster.
func (l *Lessor) judge(who auth.Identity, op Op, id int64) error {
	state := l.o.Pipeline.AuthState()
	switch {
	case !state.Enabled():
		return nil
	case op == Renew:
		return state.CheckEndLease(who, id, l.o.Pipeline.LeaseState().Each)
	}
	return state.CheckUser(who)
}

// answerAsLeader answers a question as the leader. kv.ErrNotLeader means that this member does not
// lead, or cannot answer yet.
func (l *Lessor) answerAsLeader(ctx context.Context, who auth.Identity, op Op,
	id int64) (Answer, error) {
	for {
		l.mu.Lock()
		term := l.mu.term
		l.mu.Unlock()
		asked := time.Now()
		if term == 0 {
			return Answer{}, kv.ErrNotLeader
		}
		// A quorum has to confirm that this member leads, and every lease that was granted before
		// has to be applied. If another member has become the leader, this member learns it here.
		if err := l.o.Pipeline.Linearize(ctx); err != nil {
			return Answer{}, err
		}
		if err := l.judge(who, op, id); err != nil {
			return Answer{}, err
		}
		s, err := l.tryAnswer(op, id, term, asked)
		switch {
		case err != nil:
			return Answer{}, err
		case s.done:
			return s.answer, nil
		case s.stale:
			continue
		case s.settled != nil:
			select {
			case <-s.settled:
			case <-s.demoted:
			case <-ctx.Done():
				return Answer{}, ctx.Err()
			case <-l.o.Stopping:
				return Answer{}, kv.ErrStopped
			}
			continue
		}
		if err := l.resetCheckpoint(ctx, term, &s); err != nil {
			return Answer{}, err
		}
	}
}

// step is the outcome of one attempt to answer. If it is not done, answerAsLeader repeats the
// attempt: at once if it is stale, after settled if the lease is being revoked, and otherwise after
// it has reset the checkpoint of the lease.
type step struct {
	answer           Answer
	done, stale      bool
	settled, demoted <-chan struct{}
	ref              kv.LeaseRef
	mark             uint64
}

// tryAnswer answers from the timers. A quorum has confirmed, after the time asked, that this member
// led in term.
func (l *Lessor) tryAnswer(op Op, id int64, term uint64, asked time.Time) (s step, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.term != term || l.o.Raft.LeadTerm() != term {
		return s, kv.ErrNotLeader
	}
	t := time.Now()
	now := l.at(t)
	if until := asked.Add(raftnode.QuietTime(l.o.TickInterval)); until.After(l.mu.confirmedUntil) {
		l.mu.confirmedUntil = until
	}
	rec, _ := l.o.Pipeline.LeaseState().Lookup(id)
	deadline, ending, ok := l.mu.timers.Get(id)
	s.ref, s.mark = l.mu.timers.Marked(id)
	s.demoted = l.mu.demoted
	s.answer = Answer{TTL: rec.TTL, Granted: rec.TTL, Index: l.o.Pipeline.Applied()}
	switch {
	case !ok || rec.ID == 0:
		return s, kv.ErrLeaseNotFound
	case t.Sub(asked) >= l.o.ElectionTimeout, rec.LeaseRef != s.ref:
		// The confirmation is too old to promise anything, or the timers have an earlier life of
		// the lease.
		s.stale = true
	case op == TimeLeft:
		s.answer.TTL = int64((deadline - now) / time.Second)
		s.done = true
	case ending:
		s.settled = l.mu.settled
	case s.mark == 0:
		l.mu.timers.Renew(id, now)
		l.renewed.Add(1)
		s.done = true
	}
	return s, nil
}

// resetCheckpoint removes the replicated remaining TTL of a lease, so that the next leader does not
// count from the TTL before a renewal.
func (l *Lessor) resetCheckpoint(ctx context.Context, term uint64, s *step) error {
	reset := &kv.LeaseCheckpointRequest{Term: term,
		Checkpoints: []kv.LeaseCheckpoint{{LeaseRef: s.ref}}}
	_, err := l.o.Pipeline.Propose(ctx, &fsm.Request{LeaseCheckpoint: reset})
	if errors.Is(err, kv.ErrLeaderChanged) {
		return kv.ErrNotLeader
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.term == term {
		l.mu.timers.Unmark(s.ref, s.mark)
	}
	return nil
}
