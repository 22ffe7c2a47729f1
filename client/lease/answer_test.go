package lease

import (
	"testing"
	"time"

	"vigil/client"
)

// TestLateAnswer: the answer to an earlier keep-alive does not count from the time of a later one.
func TestLateAnswer(t *testing.T) {
	k := &Keeper{wake: make(chan struct{}, 1), need: make(chan struct{}, 1)}
	k.mu.leases = map[client.LeaseID]*Lease{}
	x := &stream{wake: make(chan struct{}, 1)}
	k.mu.stream = x
	began := time.Now()
	after := func(seconds time.Duration) time.Time { return began.Add(seconds * time.Second) }
	l, err := k.addLease(1, 9*time.Second, after(0))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(at time.Time) {
		k.requestKeepAlive(x, l, at)
		x.sent, x.out = append(x.sent, x.out...), nil
	}
	answer := func(what string, want time.Time) {
		t.Helper()
		if k.handleAnswer(x, client.KeepAlive{ID: 1, TTL: 9 * time.Second}); l.confirmed != want {
			t.Errorf("%s: confirmed after %v, want %v", what, l.confirmed.Sub(began),
				want.Sub(began))
		}
	}
	ask(after(3))
	if _, err := k.addLease(1, 9*time.Second, after(4)); err != nil { // by Keep
		t.Fatal(err)
	}
	ask(after(7))
	answer("to the first", after(4))
	answer("to the second", after(7))
	answer("to none", after(7))
	ask(after(10))
	ask(after(11))
	answer("to the first of two", after(10))
	if l.asked != after(11) {
		t.Error("the last one counts as answered")
	}
	answer("to the last one", after(11))
}

// TestAnswerToFormerLease: the answer to a keep-alive of a lease that has ended says nothing about
// a later one with its id.
func TestAnswerToFormerLease(t *testing.T) {
	k := &Keeper{wake: make(chan struct{}, 1), need: make(chan struct{}, 1)}
	k.mu.leases = map[client.LeaseID]*Lease{}
	x := &stream{wake: make(chan struct{}, 1), cancel: func() {}}
	k.mu.stream = x
	began := time.Now()
	former, err := k.addLease(1, 9*time.Second, began)
	if err != nil {
		t.Fatal(err)
	}
	k.requestKeepAlive(x, former, began.Add(3*time.Second))
	x.sent, x.out = x.out, nil
	former.Release()
	later, err := k.addLease(1, 9*time.Second, began.Add(4*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	k.handleAnswer(x, client.KeepAlive{ID: 1})
	if later.err != nil || len(x.sent) != 0 {
		t.Errorf("%v, %d requests wait", later.err, len(x.sent))
	}
	k.requestKeepAlive(x, later, began.Add(7*time.Second))
	x.sent, x.out = x.out, nil
	k.isolateFirst(x, ErrGone)
	if !later.alone {
		t.Error("the lease that ended the stream is not isolated")
	}
}
