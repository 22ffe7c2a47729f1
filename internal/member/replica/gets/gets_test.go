package gets

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/replica/proposal"
)

// posts is a stage that does nothing.
type posts struct{}

func (posts) Post() {}

// results takes n results and counts them by their error.
func results(t *testing.T, q *proposal.Queue, n int) map[error]int {
	t.Helper()
	out := map[error]int{}
	for got := 0; got < n; {
		synctest.Wait()
		list := q.TakeResults(nil)
		if got += len(list); len(list) == 0 || got > n {
			t.Fatalf("%d of %d results", got, n)
		}
		for _, p := range list {
			if p.Read == nil {
				t.Fatalf("%+v is no read", p)
			}
			out[p.Result.Err]++
		}
		q.Recycle(list...)
	}
	return out
}

// TestGets: reads that come while others are made ready wait for a read index of their own, and all
// get the result of theirs.
func TestGets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := proposal.New(proposal.Options{Member: 1, Answers: posts{}})
		failed := errors.New("failed")
		ready := make(chan error)
		g := New(Options{Queue: q,
			Ready: func(context.Context, time.Time) error { return <-ready }})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { g.Run(ctx); close(ended) }()
		add := func() bool { return g.Add(&kv.RangeRequest{}, kv.Completion{}, time.Now()) }

		if !add() {
			t.Fatal("declined")
		}
		synctest.Wait() // it is asked for
		for range 3 {
			if !add() {
				t.Fatal("declined")
			}
		}
		ready <- failed
		if got := results(t, q, 1); got[failed] != 1 {
			t.Errorf("%v: the first read has the result of another one", got)
		}
		ready <- nil
		if got := results(t, q, 3); got[nil] != 3 {
			t.Errorf("%v, want three reads that are ready", got)
		}

		// Bounds, of number and of age.
		if !add() {
			t.Fatal("declined")
		}
		synctest.Wait()
		n := 0
		for ; n <= maxWaiting && add(); n++ {
		}
		if n != maxWaiting {
			t.Errorf("%d reads wait, at most %d may", n, maxWaiting)
		}
		ready <- nil
		results(t, q, 1)
		ready <- nil
		results(t, q, n)
		if !add() {
			t.Fatal("declined although none waits")
		}
		synctest.Wait()
		time.Sleep(maxAge + 1)
		if add() {
			t.Error("a read is started behind one that has waited for long")
		}

		// What waits at the end has a result, and nothing is started after it.
		cancel()
		ready <- kv.ErrStopped
		<-ended
		if got := results(t, q, 1); got[kv.ErrStopped] != 1 {
			t.Errorf("%v", got)
		}
		if add() {
			t.Error("a read is started after the end")
		}
	})
}
