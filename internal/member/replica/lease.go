package replica

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/auth"
	"vigil/internal/state/fsm"
	"vigil/internal/state/lease"
)

// Caller asks other members.
type Caller interface {
	Call(ctx context.Context, to uint64, kind uint8, payload []byte) ([]byte, error)
}

// CallLease is the kind of the call that AnswerLease answers.
const CallLease uint8 = 4

// minLeaseTTL is the least TTL that is granted: a lease must outlive an election. In seconds.
func (r *Replica) minLeaseTTL() int64 {
	d := time.Duration(3*r.cfg.ElectionTicks/2) * r.cfg.TickInterval
	return int64((d + time.Second - 1) / time.Second)
}

// GrantLease makes a lease; for the id 0 it chooses one. Errors: kv.ErrLeaseExists, kv.ErrLeaseTTLTooLarge,
// and as Put.
func (r *Replica) GrantLease(ctx context.Context, req kv.LeaseGrantRequest) (kv.LeaseResult, error) {
	if err := r.RequireUser(ctx); err != nil {
		return kv.LeaseResult{}, err
	}
	choose := req.ID == 0
	req.TTL = max(req.TTL, r.minLeaseTTL())
	for {
		for choose && req.ID == 0 {
			req.ID = rand.Int64()
		}
		res, err := r.do(ctx, &fsm.Request{LeaseGrant: &req})
		if choose && errors.Is(err, kv.ErrLeaseExists) {
			req.ID = 0
			continue
		}
		if err != nil {
			return kv.LeaseResult{}, err
		}
		return *res.Lease, nil
	}
}

// RevokeLease ends a lease and deletes its keys, as one revision. Errors: kv.ErrLeaseNotFound, and as Put.
func (r *Replica) RevokeLease(ctx context.Context, id int64) (kv.LeaseResult, error) {
	if err := r.RequireUser(ctx); err != nil {
		return kv.LeaseResult{}, err
	}
	res, err := r.do(ctx, &fsm.Request{LeaseRevoke: &kv.LeaseRevokeRequest{ID: id}})
	if err != nil {
		return kv.LeaseResult{}, err
	}
	return *res.Lease, nil
}

// KeepAlive gives a lease its whole TTL again, and returns it in seconds. Errors: kv.ErrLeaseNotFound,
// kv.ErrNoLeader, and as Range.
func (r *Replica) KeepAlive(ctx context.Context, id int64) (int64, error) {
	if r.AuthEnabled() {
		err := r.secure(ctx, somebody(func(s *auth.State, who auth.Identity) error {
			return s.WriteLease(who, id, r.now().leases.Each)
		}))
		if err != nil {
			return 0, err
		}
	}
	a, err := r.askLease(ctx, leaseRenew, id)
	return a.ttl, err
}

// TimeToLive says how long a lease has left, and which keys are attached to it if they are wanted. Errors:
// as KeepAlive.
func (r *Replica) TimeToLive(ctx context.Context, id int64, keys bool) (kv.LeaseStatus, error) {
	if err := r.RequireUser(ctx); err != nil {
		return kv.LeaseStatus{}, err
	}
	a, err := r.askLease(ctx, leaseLeft, id)
	if err != nil {
		return kv.LeaseStatus{}, err
	}
	s := kv.LeaseStatus{ID: id, TTL: a.ttl, Granted: a.granted}
	if keys {
		// The keys are here, as soon as this member is as far as the leader was.
		if r.applied.Load() < a.index {
			if err := r.waitApplied(ctx, a.index); err != nil {
				return s, err
			}
		}
		s.Keys = r.now().leases.Keys(id)
		err := r.secure(ctx, somebody(func(state *auth.State, who auth.Identity) error {
			return state.ReadLease(who, id, func(int64) iter.Seq[string] { return slices.Values(s.Keys) })
		}))
		if err != nil {
			return kv.LeaseStatus{}, err
		}
	}
	return s, nil
}

// LeaseIDs returns the ids of all leases that this member knows of: on the leader those that end first
// come first. Whoever asks must be allowed to read the keys of all of them. Errors: those of
// auth.State.ReadLease, kv.ErrInvalidAuthToken, and as Range.
func (r *Replica) LeaseIDs(ctx context.Context) ([]int64, error) {
	leases := r.now().leases
	all := leases.All()
	err := r.secure(ctx, somebody(func(s *auth.State, who auth.Identity) error {
		for i := range all {
			if err := s.ReadLease(who, all[i].ID, leases.Each); err != nil {
				return err
			}
		}
		return nil
	}))
	if err != nil {
		return nil, err
	}
	l := &r.lessor
	l.mu.Lock()
	if t := l.mu.timers; t != nil {
		ends := make(map[int64]time.Duration, len(all))
		for i := range all {
			ends[all[i].ID], _, _ = t.Get(all[i].ID)
		}
		l.mu.Unlock()
		slices.SortStableFunc(all, func(a, b lease.Lease) int { return cmp.Compare(ends[a.ID], ends[b.ID]) })
	} else {
		l.mu.Unlock()
	}
	ids := make([]int64, len(all))
	for i := range all {
		ids[i] = all[i].ID
	}
	return ids, nil
}

// leaseOp is what can be asked of the leader about a lease.
type leaseOp uint8

const (
	leaseRenew leaseOp = 1
	leaseLeft  leaseOp = 2
)

// leaseAnswer is what the leader says: how long the lease has, what was granted, both in seconds, and how
// far its state was.
type leaseAnswer struct {
	ttl, granted int64
	index        uint64
}

// askLease asks the leader, which may be this member, until there is an answer.
func (r *Replica) askLease(ctx context.Context, op leaseOp, id int64) (leaseAnswer, error) {
	if op == leaseRenew {
		if ttl, ok := r.renewNow(id); ok {
			return leaseAnswer{ttl: ttl}, nil
		}
	}
	begun := time.Now()
	limited, cancel := context.WithTimeout(ctx, r.cfg.RequestTimeout)
	defer cancel()
	for {
		select {
		case <-r.stopping:
			return leaseAnswer{}, kv.ErrStopped
		default:
		}
		var a leaseAnswer
		err := kv.ErrNotLeader
		lead := r.node.Status().Lead
		switch {
		case lead == r.memberID:
			a, err = r.leaseHere(limited, op, id)
		case lead != 0 && r.cfg.Calls != nil:
			a, err = r.leaseThere(limited, lead, op, id)
		}
		if err == nil || errors.Is(err, kv.ErrLeaseNotFound) || errors.Is(err, kv.ErrStopped) || limited.Err() == nil && definite(err) {
			return a, err
		}
		select {
		case <-time.After(r.cfg.TickInterval):
		case <-limited.Done():
			switch {
			case ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
				return leaseAnswer{}, ctx.Err()
			case r.node.Status().Lead == 0:
				// Also if there was one when it was asked: it may be this member, cut off.
				return leaseAnswer{}, kv.ErrNoLeader
			}
			return leaseAnswer{}, r.timeout(begun)
		}
	}
}

// definite tells errors that asking again does not change.
func definite(err error) bool {
	return errors.Is(err, kv.ErrNoSpace) || errors.Is(err, kv.ErrTooManyRequests) || errors.Is(err, kv.ErrCorrupt)
}

// renewNow renews a lease if nothing has to be asked or waited for: this member leads alone, or a quorum
// has just said that it leads, and it has applied everything that is committed.
func (r *Replica) renewNow(id int64) (ttl int64, ok bool) {
	index, alone := r.node.TryReadIndex()
	if !alone {
		// Nobody can have applied, and told a client of, more than the leader knows to be committed.
		index = r.node.Status().Committed
	}
	if r.applied.Load() < index {
		return 0, false
	}
	l := &r.lessor
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.term == 0 || l.mu.term != r.leads() || !alone && l.now() >= l.mu.sure {
		return 0, false
	}
	if _, mark := l.mu.timers.Marked(id); mark != 0 || !l.mu.timers.Renew(id, l.now()) {
		return 0, false
	}
	rec, ok := r.now().leases.Lookup(id)
	if ok {
		l.renewed.Add(1)
	}
	return rec.TTL, ok
}

// leaseHere answers as the leader. kv.ErrNotLeader: this member is not, or cannot say yet.
func (r *Replica) leaseHere(ctx context.Context, op leaseOp, id int64) (leaseAnswer, error) {
	l := &r.lessor
	for {
		l.mu.Lock()
		term, asked := l.mu.term, l.now()
		l.mu.Unlock()
		if term == 0 {
			return leaseAnswer{}, kv.ErrNotLeader
		}
		// A quorum has to say that this member leads, and every lease that was granted before has to
		// be known. If another one has become leader, that one answers; but then it is known here.
		if err := r.Linearize(ctx); err != nil {
			return leaseAnswer{}, err
		}
		l.mu.Lock()
		if l.mu.term != term || r.leads() != term {
			l.mu.Unlock()
			return leaseAnswer{}, kv.ErrNotLeader
		}
		now := l.now()
		l.mu.sure = max(l.mu.sure, asked+r.cfg.TickInterval)
		rec, _ := r.now().leases.Lookup(id)
		deadline, ending, ok := l.mu.timers.Get(id)
		ref, mark := l.mu.timers.Marked(id)
		a := leaseAnswer{ttl: rec.TTL, granted: rec.TTL, index: r.applied.Load()}
		var wait <-chan struct{}
		switch {
		case !ok || rec.ID == 0:
			l.mu.Unlock()
			return leaseAnswer{}, kv.ErrLeaseNotFound
		case now-asked >= l.pause:
			// Too long ago to promise anything by it.
			l.mu.Unlock()
			continue
		case op == leaseLeft:
			l.mu.Unlock()
			a.ttl = int64((deadline - now) / time.Second)
			return a, nil
		case ending:
			wait = l.mu.settled
		case mark == 0:
			l.mu.timers.Renew(id, now)
			l.mu.Unlock()
			l.renewed.Add(1)
			return a, nil
		}
		demoted := l.mu.demoted
		l.mu.Unlock()
		if wait != nil {
			select {
			case <-wait:
			case <-demoted:
			case <-ctx.Done():
				return leaseAnswer{}, ctx.Err()
			case <-r.stopping:
				return leaseAnswer{}, kv.ErrStopped
			}
			continue
		}
		// The next leader must not count from what was left before this renewal.
		reset := kv.LeaseCheckpoint{LeaseRef: ref}
		_, err := r.do(ctx, &fsm.Request{LeaseCheckpoint: &kv.LeaseCheckpointRequest{Term: term, Checkpoints: []kv.LeaseCheckpoint{reset}}})
		if errors.Is(err, kv.ErrLeaderChanged) {
			return leaseAnswer{}, kv.ErrNotLeader
		}
		if err != nil {
			return leaseAnswer{}, err
		}
		l.mu.Lock()
		if l.mu.term == term {
			l.mu.timers.Unmark(ref, mark)
		}
		l.mu.Unlock()
	}
}

// What members say to each other about leases. The call: op u8 | id i64. The answer: outcome u8 | TTL
// i64 | granted i64 | index u64. Little endian.
const (
	leaseCallSize   = 1 + 8
	leaseAnswerSize = 1 + 3*8
)

const (
	leaseOK uint8 = iota
	leaseUnknown
	leaseNotLeader
	leaseFailed
)

func encodeLeaseCall(op leaseOp, id int64) []byte {
	return binary.LittleEndian.AppendUint64([]byte{byte(op)}, uint64(id))
}

// AnswerLease answers another member that takes this one for the leader (CallLease).
func (r *Replica) AnswerLease(ctx context.Context, payload []byte) ([]byte, error) {
	if len(payload) != leaseCallSize || payload[0] != byte(leaseRenew) && payload[0] != byte(leaseLeft) {
		return nil, fmt.Errorf("replica: malformed call about a lease of %d bytes", len(payload))
	}
	op, id := leaseOp(payload[0]), int64(binary.LittleEndian.Uint64(payload[1:]))
	var a leaseAnswer
	var err error
	done := false
	if op == leaseRenew {
		a.ttl, done = r.renewNow(id)
	}
	if !done {
		a, err = r.leaseHere(ctx, op, id)
	}
	outcome := leaseOK
	switch {
	case errors.Is(err, kv.ErrLeaseNotFound):
		outcome = leaseUnknown
	case errors.Is(err, kv.ErrNotLeader):
		outcome = leaseNotLeader
	case err != nil:
		outcome = leaseFailed
	}
	b := append(make([]byte, 0, leaseAnswerSize), outcome)
	b = binary.LittleEndian.AppendUint64(b, uint64(a.ttl))
	b = binary.LittleEndian.AppendUint64(b, uint64(a.granted))
	return binary.LittleEndian.AppendUint64(b, a.index), nil
}

func decodeLeaseAnswer(b []byte) (a leaseAnswer, err error) {
	if len(b) != leaseAnswerSize {
		return a, fmt.Errorf("replica: answer about a lease of %d bytes", len(b))
	}
	switch b[0] {
	case leaseOK:
	case leaseUnknown:
		return a, kv.ErrLeaseNotFound
	case leaseNotLeader:
		return a, kv.ErrNotLeader
	default:
		return a, errors.New("replica: the leader cannot say anything about a lease")
	}
	a.ttl = int64(binary.LittleEndian.Uint64(b[1:]))
	a.granted = int64(binary.LittleEndian.Uint64(b[9:]))
	a.index = binary.LittleEndian.Uint64(b[17:])
	return a, nil
}

func (r *Replica) leaseThere(ctx context.Context, leader uint64, op leaseOp, id int64) (leaseAnswer, error) {
	b, err := r.cfg.Calls.Call(ctx, leader, CallLease, encodeLeaseCall(op, id))
	if err != nil {
		return leaseAnswer{}, err
	}
	return decodeLeaseAnswer(b)
}
