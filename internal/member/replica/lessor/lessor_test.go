package lessor

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/raftnode"
	"vigil/internal/state/auth"
	"vigil/internal/state/fsm"
	"vigil/internal/state/lease"
)

const term = 7

// fake is the pipeline and the raft node of a member that leads in one term.
type fake struct {
	mu     sync.Mutex
	l      *Lessor
	leases *lease.State
	// members and users are those as of the applied position.
	users *auth.State
	index uint64
	// alone is set if renewals need no confirmation.
	alone bool
	// handed is the term in which another member was asked to take over.
	handed atomic.Uint64
	// led is the leader; stalled is since when this one does not get on with its work.
	led     atomic.Pointer[leading]
	stalled atomic.Pointer[time.Time]
	// linearize, if set, runs in Linearize.
	linearize func()
	// wait makes Linearize wait for the end of its context.
	wait atomic.Bool
}

type leading struct {
	lead  uint64
	while context.Context
	end   context.CancelFunc
}

// lead makes a member the leader.
func (f *fake) lead(id uint64) {
	while, end := context.WithCancel(context.Background())
	if was := f.led.Swap(&leading{id, while, end}); was != nil {
		was.end()
	}
}

func (f *fake) Leader() (uint64, context.Context) {
	led := f.led.Load()
	return led.lead, led.while
}

func (f *fake) LeaseState() *lease.State     { return f.leases }
func (f *fake) AuthState() *auth.State       { return f.users }
func (f *fake) Applied() uint64              { f.mu.Lock(); defer f.mu.Unlock(); return f.index }
func (f *fake) TimeoutCause(time.Time) error { return kv.ErrTimeout }
func (f *fake) Linearize(ctx context.Context) error {
	if f.linearize != nil {
		f.linearize()
	}
	if f.wait.Load() {
		<-ctx.Done()
	}
	return ctx.Err()
}
func (f *fake) Status() raftnode.Status {
	return raftnode.Status{Lead: f.led.Load().lead, Term: term, HandedOver: f.handed.Load(),
		Current: f.current()}
}
func (f *fake) current() time.Time {
	if since := f.stalled.Load(); since != nil {
		return *since
	}
	return time.Now()
}
func (f *fake) LeadTerm() uint64                      { return term }
func (f *fake) TryReadIndex() (index uint64, ok bool) { return 0, f.alone }

// Propose applies a request at once.
func (f *fake) Propose(_ context.Context, req *fsm.Request) (res fsm.Result, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.index++
	switch {
	case req.LeaseExpire != nil:
		res.Lease = &kv.LeaseResult{}
		for _, ref := range req.LeaseExpire.Leases {
			if f.leases.Has(ref) {
				f.leases.Remove(ref.ID)
				res.Lease.Ended++
			}
		}
	case req.LeaseCheckpoint != nil:
		for _, c := range req.LeaseCheckpoint.Checkpoints {
			f.leases.Checkpoint(c, f.index)
		}
	}
	f.l.Follow(f.leases, term)
	return res, nil
}

func (f *fake) grant(t *testing.T, id, ttl int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.index++
	if _, err := f.leases.Grant(kv.LeaseGrantRequest{ID: id, TTL: ttl}, f.index); err != nil {
		t.Fatal(err)
	}
	f.l.Follow(f.leases, term)
}

// start returns a lessor whose clock runs if run is set.
func start(t *testing.T, run bool) (*Lessor, *fake) {
	f := &fake{leases: lease.New(), users: auth.New(), alone: true}
	f.lead(1)
	f.l = New(Options{MemberID: 1, Pipeline: f, Raft: f, Stopping: make(chan struct{}),
		TickInterval:    5 * time.Millisecond,
		ElectionTimeout: 50 * time.Millisecond, CheckpointInterval: time.Hour,
		RequestTimeout: 10 * time.Second,
		Logger:         slog.New(slog.DiscardHandler)})
	f.l.Follow(f.leases, term)
	if run {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.l.Run(ctx)
		}()
		t.Cleanup(func() { cancel(); <-done })
	}
	return f.l, f
}

// advance makes the clock count more time than has passed.
func (l *Lessor) advance(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.clock += d
}

// awaitTicks waits until the clock has advanced n times.
func (l *Lessor) awaitTicks(n int) {
	var last time.Time
	for seen := 0; seen <= n; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		if l.mu.last != last {
			last = l.mu.last
			seen++
		}
		l.mu.Unlock()
	}
}

// A checkpoint that was measured before a keep-alive and is applied after it does not take back
// what the keep-alive has promised.
func TestCheckpointAfterKeepAlive(t *testing.T) {
	const ttl = 1_000_000
	l, f := start(t, false)
	f.grant(t, 1, ttl)
	l.advance(time.Hour + time.Second)
	late := l.takeDue(true)
	if len(late.checkpoints) != 1 || len(late.expired) != 0 {
		t.Fatalf("due: %+v", late)
	}
	if a, err := l.Ask(t.Context(), auth.Identity{}, Renew, 1); err != nil || a.TTL != ttl {
		t.Fatalf("keep-alive: %+v, %v", a, err)
	}
	l.proposeDue(t.Context(), &late)
	rec, _ := f.leases.Lookup(1)
	if rec.Left() != ttl {
		t.Errorf("%d s were promised and are stored as %+v", ttl, rec)
	}
	// A checkpoint that was measured after the keep-alive counts.
	l.proposeDue(t.Context(),
		&due{term: term, checkpoints: []kv.LeaseCheckpoint{{LeaseRef: rec.LeaseRef, Remaining: 600,
			Since: rec.Since}}})
	if got, _ := f.leases.Lookup(1); got.Remaining != 600 {
		t.Errorf("after a checkpoint of 600 s %+v is stored", got)
	}
}

// A process that was suspended does not count that time: its clients could not keep a lease alive.
func TestPauseDoesNotCount(t *testing.T) {
	l, f := start(t, true)
	f.grant(t, 1, 50)
	l.mu.Lock()
	l.mu.last = l.mu.last.Add(-time.Hour)
	l.mu.Unlock()
	l.awaitTicks(3)
	if a, err := l.Ask(t.Context(), auth.Identity{}, TimeLeft, 1); err != nil || a.TTL < 45 {
		t.Errorf("after a pause: %+v, %v", a, err)
	}
}

// A keep-alive of a lease whose expiry is proposed waits for the result.
func TestKeepAliveWaitsForExpiry(t *testing.T) {
	l, f := start(t, true)
	for id, survives := range map[int64]bool{1: false, 2: true} {
		f.grant(t, id, 50)
		l.mu.Lock()
		ended, _, _ := l.mu.timers.Due(l.now()+51*time.Second,
			func(kv.LeaseRef) bool { return false })
		l.mu.Unlock()
		if len(ended) != 1 || ended[0].ID != id {
			t.Fatalf("due: %+v", ended)
		}
		type answer struct {
			a   Answer
			err error
		}
		got := make(chan answer, 1)
		go func() {
			a, err := l.Ask(t.Context(), auth.Identity{}, Renew, id)
			got <- answer{a, err}
		}()
		l.awaitTicks(5)
		select {
		case a := <-got:
			t.Fatalf("an answer before the result: %+v", a)
		default:
		}
		if survives {
			l.mu.Lock()
			l.mu.timers.Retry(ended[0], l.now()+time.Hour, true)
			l.wakeWaiters()
			l.mu.Unlock()
		} else {
			l.proposeDue(t.Context(), &due{term: term, expired: ended})
		}
		if a := <-got; survives && (a.err != nil || a.a.TTL != 50) ||
			!survives && !errors.Is(a.err, kv.ErrLeaseNotFound) {
			t.Errorf("lease %d: %+v", id, a)
		}
		f.Propose(t.Context(),
			&fsm.Request{LeaseExpire: &kv.LeaseExpireRequest{Term: term, Leases: ended}})
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, answerSize))
	f.Add(append([]byte{outcomeNotLeader}, make([]byte, answerSize-1)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := decodeAnswer(b); err == nil && (len(b) != answerSize || b[0] != outcomeOK) ||
			err != nil && a != (Answer{}) {
			t.Errorf("%x is %+v, %v", b, a, err)
		}
	})
}

func TestCallsAreChecked(t *testing.T) {
	l, f := start(t, false)
	f.grant(t, 1, 50)
	good := encodeCall(Renew, 1)
	for name, b := range map[string][]byte{"empty": nil, "short": good[:8],
		"long":             append(slices.Clone(good), 0, 0),
		"half an identity": append(slices.Clone(good), 1, 5, 'a'),
		"two identities":   append(slices.Clone(good), 3), "unknown": encodeCall(9, 1)} {
		if answer, err := l.ServeCall(t.Context(), b); err == nil {
			t.Errorf("%s: %x", name, answer)
		}
	}
	for _, op := range []Op{Renew, TimeLeft} {
		for id, want := range map[int64]error{1: nil, 2: kv.ErrLeaseNotFound} {
			b, err := l.ServeCall(t.Context(), encodeCall(op, id))
			if err != nil {
				t.Fatal(err)
			}
			if a, err := decodeAnswer(b); err != want || want == nil && a.TTL < 49 {
				t.Errorf("call %d about %d: %+v, %v", op, id, a, err)
			}
		}
	}
}

// A lease that has ended in the state is not renewed by its timer, which is removed later: the
// revision of its end may be readable. Nor is one whose id was granted again.
func TestRenewBeforeFollow(t *testing.T) {
	l, f := start(t, false)
	f.grant(t, 1, 50)
	f.grant(t, 2, 60)
	renew := func(id, want int64) {
		t.Helper()
		if ttl, ok := l.RenewNow(auth.Identity{}, id); ttl != want || ok != (want > 0) {
			t.Errorf("lease %d renewed: %d, %v, want %d", id, ttl, ok, want)
		}
	}
	renew(1, 50)
	f.leases.Remove(1)
	renew(1, 0)
	l.Follow(f.leases, term)
	renew(1, 0)
	renew(2, 60)
	f.leases.Remove(2)
	if _, err := f.leases.Grant(kv.LeaseGrantRequest{ID: 2, TTL: 90}, 9); err != nil {
		t.Fatal(err)
	}
	renew(2, 0)
	l.Follow(f.leases, term)
	renew(2, 90)
}

// An answer is of one life of a lease, also if the id is granted again and the timers do not have
// that yet.
func TestAnswerOfOneLife(t *testing.T) {
	for _, op := range []Op{Renew, TimeLeft} {
		l, f := start(t, false)
		f.grant(t, 1, 600)
		f.leases.Remove(1)
		if _, err := f.leases.Grant(kv.LeaseGrantRequest{ID: 1, TTL: 10}, 9); err != nil {
			t.Fatal(err)
		}
		calls := 0
		f.linearize = func() {
			if calls++; calls == 2 {
				l.Follow(f.leases, term)
			}
		}
		if a, err := l.Ask(t.Context(), auth.Identity{}, op, 1); err != nil || a.TTL > 10 ||
			a.Granted != 10 {
			t.Errorf("question %d: %+v, %v", op, a, err)
		}
	}
}

// A confirmation that this member leads is used for no longer than no other member can be elected.
func TestConfirmationEndsBeforeAnElection(t *testing.T) {
	l, f := start(t, false)
	f.grant(t, 1, 50)
	f.alone = false
	if _, err := l.Ask(t.Context(), auth.Identity{}, Renew, 1); err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	left := time.Until(l.mu.confirmedUntil)
	l.mu.confirmedUntil = l.mu.confirmedUntil.Add(-raftnode.QuietTime(l.o.TickInterval))
	l.mu.Unlock()
	if left > raftnode.QuietTime(l.o.TickInterval) {
		t.Errorf("confirmed for %v, a leader may be replaced after %v of silence", left,
			raftnode.QuietTime(l.o.TickInterval))
	}
	if _, ok := l.RenewNow(auth.Identity{}, 1); ok {
		t.Error("renewed without a confirmation")
	}
}

// Time in which nothing was counted, because the process was suspended or short of processors,
// makes a confirmation older as any time.
func TestConfirmationAgesWithoutTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, f := start(t, false)
		f.grant(t, 1, 50)
		f.alone = false
		time.Sleep(2 * l.o.ElectionTimeout)
		if _, err := l.Ask(t.Context(), auth.Identity{}, Renew, 1); err != nil {
			t.Fatal(err)
		}
		if _, ok := l.RenewNow(auth.Identity{}, 1); !ok {
			t.Error("the confirmation is not used")
		}
		time.Sleep(raftnode.QuietTime(l.o.TickInterval))
		if _, ok := l.RenewNow(auth.Identity{}, 1); ok {
			t.Error("renewed without a confirmation")
		}
		time.Sleep(l.o.TickInterval)
		calls := 0
		f.linearize = func() {
			if calls++; calls == 1 {
				time.Sleep(l.o.ElectionTimeout)
			}
		}
		if _, err := l.Ask(t.Context(), auth.Identity{}, Renew, 1); err != nil || calls != 2 {
			t.Errorf("renewed after %d confirmations, the first an election timeout ago: %v", calls,
				err)
		}
	})
}

// A confirmation is not used once another member was asked to take over: it may lead by now, and
// may have revoked the lease.
func TestConfirmationEndsWithHandOver(t *testing.T) {
	l, f := start(t, false)
	f.grant(t, 1, 50)
	f.alone = false
	if _, err := l.Ask(t.Context(), auth.Identity{}, Renew, 1); err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	l.mu.confirmedUntil = time.Now().Add(time.Hour)
	l.mu.Unlock()
	if _, ok := l.RenewNow(auth.Identity{}, 1); !ok {
		t.Error("the confirmation is not used")
	}
	f.handed.Store(term)
	if _, ok := l.RenewNow(auth.Identity{}, 1); ok {
		t.Error("renewed without a confirmation after another member was asked to take over")
	}
	if _, err := l.Ask(t.Context(), auth.Identity{}, Renew, 1); err != nil {
		t.Error(err)
	}
}

// No lease ends while this member does not get on with what keep-alives wait for. Little of that
// time counts afterwards.
func TestNoTimeWhileStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, f := start(t, true)
		f.grant(t, 1, 1)
		f.grant(t, 2, 10)
		time.Sleep(500 * time.Millisecond)
		f.stalled.Store(new(time.Now()))
		time.Sleep(30 * time.Second)
		if !f.has(1) || !f.has(2) {
			t.Error("a lease has ended during a stall")
		}
		f.stalled.Store(nil)
		time.Sleep(300 * time.Millisecond)
		if !f.has(1) {
			t.Error("a lease has ended early after a stall")
		}
		time.Sleep(500 * time.Millisecond)
		if f.has(1) {
			t.Error("a lease has not ended after a stall")
		}
		if a, err := l.Ask(t.Context(), auth.Identity{}, TimeLeft, 2); err != nil || a.TTL < 8 {
			t.Errorf("after a stall: %+v, %v", a, err)
		}
	})
}

func (f *fake) has(id int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.leases.Lookup(id)
	return ok
}

// hanging is a member whose calls are not answered.
type hanging struct{ asked atomic.Uint64 }

func (h *hanging) Call(ctx context.Context, _ uint64, _ uint8, _ []byte) ([]byte, error) {
	h.asked.Add(1)
	<-ctx.Done()
	return nil, ctx.Err()
}

// A question to a leader that does not answer ends with its leadership, whether that is another
// member or this one.
func TestQuestionEndsWithLeadership(t *testing.T) {
	for _, local := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l, f := start(t, false)
			f.grant(t, 1, 50)
			h := &hanging{}
			l.o.Calls, f.alone = h, false
			next := uint64(1)
			if local {
				next = 2
				f.linearize = func() { h.asked.Add(1) }
				f.wait.Store(true)
			} else {
				f.lead(2)
			}
			begun := time.Now()
			var moves sync.WaitGroup
			moves.Go(func() {
				time.Sleep(time.Second)
				f.lead(next)
				time.Sleep(time.Second)
				f.lead(1)
				f.wait.Store(false)
			})
			defer moves.Wait()
			if a, err := l.Ask(t.Context(), auth.Identity{}, Renew, 1); err != nil || a.TTL != 50 ||
				h.asked.Load() < 1 {
				t.Errorf("%+v, %v, after %d questions", a, err, h.asked.Load())
			}
			if took := time.Since(begun); took > 2100*time.Millisecond {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// A question takes no goroutine beside that of the client.
func TestQuestionsTakeNoGoroutines(t *testing.T) {
	const clients = 100
	l, f := start(t, false)
	h := &hanging{}
	l.o.Calls = h
	f.lead(2)
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			if _, err := l.Ask(ctx, auth.Identity{}, TimeLeft, 1); !errors.Is(err,
				context.Canceled) {
				t.Errorf("a canceled question: %v", err)
			}
		})
	}
	for h.asked.Load() < clients {
		time.Sleep(time.Millisecond)
	}
	if n := runtime.NumGoroutine() - before; n > clients+clients/10 {
		t.Errorf("%d goroutines for %d questions", n, clients)
	}
	cancel()
	wg.Wait()
}
