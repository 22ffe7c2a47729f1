package ration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func newBudget(t testing.TB, limit int64) *Budget {
	t.Helper()
	b, err := New(limit)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// pieces takes n pieces one after another.
func pieces(l *Loan, n int, expect int64) (list []*[]byte, err error) {
	for range n {
		p, err := l.Piece(expect)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// take is pieces for an answer that does not have to wait.
func take(t testing.TB, l *Loan, n int) []*[]byte {
	t.Helper()
	list, err := pieces(l, n, int64(n)*PieceSize)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func wantHeld(t testing.TB, b *Budget, want int64) {
	t.Helper()
	if got := b.Stats().Held; got != want {
		t.Fatalf("%d bytes are held, want %d", got, want)
	}
}

func TestNew(t *testing.T) {
	for _, limit := range []int64{-1, 0, MinLimit - 1} {
		if _, err := New(limit); err == nil {
			t.Errorf("a limit of %d is accepted", limit)
		}
	}
}

// TestSmall: what is small is not counted, and passes a line of those who wait.
func TestSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(t, MinLimit)
		big := b.Borrow(t.Context())
		list := take(t, big, MinLimit/PieceSize)
		if !big.Finish() {
			t.Fatal("a large answer is not counted")
		}
		waiter := b.Borrow(t.Context())
		if _, err := pieces(waiter, 10, 0); err != ErrFull {
			t.Fatalf("error %v", err)
		}
		go func() {
			if err := waiter.Wait(context.Background()); err != nil {
				t.Error(err)
			}
			waiter.Abandon()
		}()
		synctest.Wait()
		if s := b.Stats(); s.Waiting != 1 || s.Held != MinLimit {
			t.Fatalf("%+v", s)
		}
		small := b.Borrow(t.Context())
		if err := small.Charge(FreeSize, 0); err != nil {
			t.Fatal(err)
		}
		if small.Finish() || small.Held() != 0 {
			t.Fatal("a small answer is counted")
		}
		wantHeld(t, b, MinLimit)
		for _, p := range list {
			big.Return(p)
		}
		synctest.Wait()
		wantHeld(t, b, 0)
		if s := b.Stats(); s.Waiting != 0 || s.Waits != 1 || s.GaveUp != 0 {
			t.Fatalf("%+v", s)
		}
	})
}

// TestLargerThanLimit: an answer above the limit waits until it is alone and is then made.
func TestLargerThanLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(t, MinLimit)
		first := b.Borrow(t.Context())
		list := take(t, first, 5)
		first.Finish()
		const n = 3 * MinLimit / PieceSize
		huge := b.Borrow(t.Context())
		if _, err := pieces(huge, n, 3*MinLimit); err != ErrFull {
			t.Fatalf("error %v", err)
		}
		alone := false
		go func() {
			if err := huge.Wait(context.Background()); err != nil {
				t.Error(err)
			}
			alone = true
		}()
		for _, p := range list {
			synctest.Wait()
			if alone {
				t.Fatal("admitted together with another")
			}
			first.Return(p)
		}
		synctest.Wait()
		list = take(t, huge, n)
		huge.Finish()
		wantHeld(t, b, 3*MinLimit)
		other := b.Borrow(t.Context())
		if _, err := pieces(other, 5, 0); err != ErrFull {
			t.Fatalf("next to one above the limit: %v", err)
		}
		for _, p := range list {
			huge.Return(p)
		}
		wantHeld(t, b, 0)
		take(t, other, 5)
		other.Abandon()
		wantHeld(t, b, 0)
	})
}

// TestOrder: those who wait are served in the order in which they came, also one who had to come back
// because it had asked for too little.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(t, MinLimit)
		first := b.Borrow(t.Context())
		list := take(t, first, MinLimit/PieceSize)
		first.Finish()
		var order []int
		var mu sync.Mutex
		for i := range 3 {
			go func() {
				l := b.Borrow(t.Context())
				if _, err := pieces(l, 10, 10*PieceSize); err != ErrFull {
					t.Errorf("%d: %v", i, err)
				}
				for n := range 2 {
					if err := l.Wait(context.Background()); err != nil {
						t.Error(err)
					}
					if i == 0 && n == 0 {
						// It turns out to need nearly everything.
						if _, err := pieces(l, 15, 0); err != ErrFull {
							t.Errorf("grown next to others: %v", err)
						}
						continue
					}
					break
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				l.Abandon()
			}()
			synctest.Wait()
		}
		for _, p := range list {
			first.Return(p)
			synctest.Wait()
		}
		if len(order) != 3 || order[0] != 0 || order[1] != 1 || order[2] != 2 {
			t.Fatalf("served as %v", order)
		}
		wantHeld(t, b, 0)
	})
}

// TestForce: an answer that did not ask counts, and others wait for it.
func TestForce(t *testing.T) {
	b := newBudget(t, MinLimit)
	f, err := b.Force(t.Context(), 3*MinLimit)
	if err != nil {
		t.Fatal(err)
	}
	wantHeld(t, b, 3*MinLimit)
	l := b.Borrow(t.Context())
	if _, err := pieces(l, 5, 0); err != ErrFull {
		t.Fatal(err)
	}
	f.Sent(MinLimit)
	wantHeld(t, b, 2*MinLimit)
	// No more than twice the limit, and who was refused counts as one who waits.
	if _, err := b.Force(t.Context(), 1); err != ErrFull {
		t.Errorf("more than twice the limit: %v", err)
	}
	if !b.Waiting() {
		t.Error("who was refused does not count")
	}
	f.Abandon()
	f.Sent(MinLimit)
	f.Abandon()
	wantHeld(t, b, 0)
}

// TestRandom runs many answers at once, of which some are given up while they wait, are built or are
// sent. All end, the limit holds, and nothing stays counted.
func TestRandom(t *testing.T) {
	seed := rand.Uint64()
	if env := os.Getenv("VIGIL_SEED"); env != "" {
		var err error
		if seed, err = strconv.ParseUint(env, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("VIGIL_SEED=%d", seed)
	const limit = 8 << 20
	for round := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			b := newBudget(t, limit)
			var wg sync.WaitGroup
			var settled, gaveUp atomic.Int64
			for i := range uint64(60) {
				rng := rand.New(rand.NewPCG(seed+round, i))
				wg.Go(func() {
					for range 4 {
						if answer(t, b, rng) {
							settled.Add(1)
						} else {
							gaveUp.Add(1)
						}
					}
				})
			}
			done := make(chan struct{})
			go func() { wg.Wait(); close(done) }()
			for running := true; running; {
				select {
				case <-done:
					running = false
				case <-time.After(time.Millisecond):
					b.mu.Lock()
					held, queue := b.mu.held, len(b.mu.queue)
					b.mu.Unlock()
					if held > 12<<20 {
						t.Errorf("%d bytes are held", held)
					}
					if queue > 0 && held == 0 {
						t.Error("somebody waits for nothing")
					}
				}
			}
			if settled.Load() == 0 || gaveUp.Load() == 0 {
				t.Errorf("%d answers, %d given up", settled.Load(), gaveUp.Load())
			}
			if s := b.Stats(); s.Held != 0 || s.Waiting != 0 {
				t.Errorf("at the end: %+v", s)
			}
		})
	}
}

// answer makes and sends one answer of up to 12 MiB with more or less of an idea how large it will be.
func answer(t *testing.T, b *Budget, rng *rand.Rand) bool {
	n := 1 + rng.IntN(48)
	if rng.IntN(2) == 0 {
		n = 1 + rng.IntN(8)
	}
	expect := [...]int64{0, int64(n) * PieceSize, int64(n) * PieceSize / 2, int64(n) * PieceSize * 3}[rng.IntN(4)]
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+rng.IntN(400))*time.Millisecond)
	defer cancel()
	l := b.Borrow(t.Context())
	var list []*[]byte
	for tries := 0; ; tries++ {
		var err error
		if list, err = pieces(l, n, expect); err == nil {
			break
		}
		if err != ErrFull {
			t.Error(err)
		}
		if tries > 20 {
			t.Errorf("began %d times to make %d pieces", tries, n)
		}
		if err := l.Wait(ctx); err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if l.Held() != 0 {
				t.Error("who gave up holds something")
			}
			return false
		}
		time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
	}
	if rng.IntN(8) == 0 { // the read fails
		l.Drop()
		l.Abandon()
		return false
	}
	if counted := l.Finish(); counted != (l.Held() > 0) || counted != (n*PieceSize > FreeSize) {
		t.Errorf("%d pieces, counted %v, held %d", n, counted, l.Held())
	}
	seen := map[*[]byte]bool{}
	lost := rng.IntN(6) == 0
	for i, p := range list {
		if seen[p] || len(*p) != PieceSize {
			t.Error("a piece is lent twice or cut")
		}
		seen[p] = true
		if lost && i >= n/2 { // the connection ends
			l.Abandon()
		}
		l.Return(p)
		time.Sleep(time.Duration(rng.IntN(2)) * time.Millisecond)
	}
	if l.Held() != 0 {
		t.Error("sent and still held")
	}
	return true
}

// TestGiveUp: when the head of the queue gives up, loans that fit are admitted at once.
func TestGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(t, MinLimit)
		first := b.Borrow(t.Context())
		take(t, first, 9)
		ctx, cancel := context.WithCancel(context.Background())
		admitted := false
		for i, n := range []int{10, 5} {
			go func() {
				l := b.Borrow(t.Context())
				if _, err := pieces(l, n, int64(n)*PieceSize); err != ErrFull {
					t.Errorf("%d pieces: %v", n, err)
				}
				if i == 0 {
					if err := l.Wait(ctx); !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					return
				}
				if err := l.Wait(context.Background()); err != nil {
					t.Error(err)
				}
				admitted = true
				l.Abandon()
			}()
			synctest.Wait()
		}
		if admitted {
			t.Fatal("somebody passed the head of the line")
		}
		cancel()
		synctest.Wait()
		if !admitted {
			t.Fatal("one that fits is not admitted")
		}
		first.Abandon()
		if s := b.Stats(); s.Held != 0 || s.Waiting != 0 || s.Waits != 2 || s.GaveUp != 1 {
			t.Fatalf("%+v", s)
		}
	})
}

// holder has loans.
type holder struct {
	name string
	part int64
}

func (h holder) Holders(context.Context) []Holder { return []Holder{{h.name, h.part}} }

// TestShare: loans of one holder wait for each other and delay no other loan, and a part is kept for those that
// are small.
func TestShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 256 << 20
		b := newBudget(t, limit)
		begin := func(name string, bytes int64) (*Loan, bool) {
			l := b.Borrow(WithHolders(t.Context(), holder{name, 4}))
			if err := l.Charge(bytes, bytes); err != nil {
				go func() {
					_ = l.Wait(t.Context())
				}()
				synctest.Wait()
				return l, l.Held() > 0
			}
			return l, true
		}
		want := func(what string, got, want bool) {
			t.Helper()
			if got != want {
				t.Fatalf("%s: admitted %v, want %v (%+v)", what, got, want, b.Stats())
			}
		}
		a1, ok := begin("a", 100<<20)
		want("a single one above the share", ok, true)
		a2, ok := begin("a", 2<<20)
		want("another of the same holder", ok, false)
		if b.Waiting() || !b.Waiting("a") || b.Waiting("b") {
			t.Error("it waits for others than its holder")
		}
		b1, ok := begin("b", 60<<20)
		want("one of another holder", ok, true)
		c1, ok := begin("c", 60<<20)
		want("one of a third", ok, true)
		d1, ok := begin("d", 20<<20)
		want("a large one that would use the reserve", ok, false)
		if !b.Waiting() {
			t.Error("it waits without a reason")
		}
		e1, ok := begin("e", 4<<20)
		want("a small one", ok, true)
		var small []*Loan
		for range 6 { // of holders of their own
			l, ok := begin(fmt.Sprint("small", len(small)), 4<<20)
			want("one more small one", ok, true)
			small = append(small, l)
		}
		last, ok := begin("f", 4<<20)
		want("a small one for which there is no room in the reserve but", ok, true)
		more, ok := begin("g", 4<<20)
		want("a small one beyond the reserve while a large one waits", ok, false)
		b1.Abandon()
		synctest.Wait()
		want("the large one", d1.Held() > 0, true)
		want("the small one", more.Held() > 0, true)
		want("the one of the first holder, still", a2.Held() > 0, false)
		a1.Abandon()
		synctest.Wait()
		want("the one of the first holder", a2.Held() > 0, true)
		for _, l := range append(small, a2, c1, d1, e1, last, more) {
			l.took = true // as Wait sets it
			l.Abandon()
		}
		wantHeld(t, b, 0)
		if len(b.mu.holders) > 0 || b.mu.small != 0 {
			t.Errorf("%d holders and %d bytes of small loans are left", len(b.mu.holders), b.mu.small)
		}
	})
}

// TestEveryLoanIsServed: while other answers come without end, of the same holders and of others, each answer is served after a bounded
// number of them: large and small ones, and those that are larger than the limit or than the share of their holder.
func TestEveryLoanIsServed(t *testing.T) {
	const (
		limit = 64 << 20
		most  = 600 // answers that began later and were served before
	)
	for _, c := range []struct {
		name          string
		holder        string // of the answer that waits; the others have "a" and "b"
		bytes         int64
		others, large int64 // sizes of the others, of which some are large
		kept          int64 // size of another one, which is there all the time
	}{
		{"above the share of its holder", "a", 20 << 20, 300 << 10, 2 << 20, 0},
		{"just within the share of its holder", "a", 15 << 20, 900 << 10, 2 << 20, 0},
		{"larger than what small answers leave", "c", 58 << 20, 300 << 10, 0, 0},
		{"larger than the limit", "c", 100 << 20, 900 << 10, 0, 0},
		{"larger than the limit, between large ones", "c", 100 << 20, 900 << 10, 8 << 20, 0},
		{"large, between large ones", "c", 40 << 20, 900 << 10, 8 << 20, 0},
		{"large, beside one that stays", "c", 50 << 20, 900 << 10, 0, 5 << 20},
		{"small, between smaller ones", "c", 1 << 20, 100 << 10, 30 << 20, 0},
		{"small, of a holder of smaller ones", "a", 1 << 20, 100 << 10, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBudget(t, limit)
				ctx, stop := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				var began, served atomic.Int64
				// Some hundred answers are always in progress.
				workers := int(limit/4/c.others) * 2
				for i := range workers {
					rng := rand.New(rand.NewPCG(1, uint64(i)))
					who := holder{[]string{"a", "b"}[i%2], 4}
					if c.holder == "c" {
						who = holder{fmt.Sprint(i), 4}
					}
					wg.Go(func() {
						for ctx.Err() == nil {
							n := c.others
							if c.large > 0 && i%8 == 7 {
								n = c.large
							}
							began.Add(1)
							l, err := b.Take(WithHolders(ctx, who), n)
							if err != nil {
								return
							}
							served.Add(1)
							time.Sleep(time.Duration(500+rng.IntN(1000)) * time.Microsecond) // it is sent
							l.Abandon()
						}
					})
				}
				if c.kept > 0 {
					l, err := b.Force(ctx, c.kept)
					if err != nil {
						t.Fatal(err)
					}
					defer l.Abandon()
				}
				time.Sleep(20 * time.Millisecond)
				done := make(chan struct{})
				before := served.Load()
				wg.Go(func() {
					l := b.Borrow(WithHolders(ctx, holder{c.holder, 4}))
					for l.Charge(c.bytes, c.bytes) == ErrFull {
						if l.Wait(ctx) != nil {
							return
						}
					}
					l.Abandon()
					close(done)
				})
				for limit, tick := before+most+int64(workers), time.NewTicker(time.Millisecond); ; {
					select {
					case <-done:
						t.Logf("served after %d others of %d", served.Load()-before, workers)
					case <-tick.C:
						if served.Load() < limit {
							continue
						}
						t.Errorf("%d answers were served while one of %d bytes waits: %+v", served.Load()-before, c.bytes, b.Stats())
					}
					break
				}
				stop()
				wg.Wait()
				if s := b.Stats(); s.Held != c.kept || s.Waiting != 0 {
					t.Errorf("at the end: %+v", s)
				}
			})
		})
	}
}
