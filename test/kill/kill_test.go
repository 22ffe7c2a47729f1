// Package kill runs clients against a server that is killed repeatedly.
package kill

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
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/test/proc"
)

const (
	writers = 4
	// opTimeout is how long a writer waits before it gives an operation up as unknown.
	opTimeout = 5 * time.Second
	// within bounds the wait for what must come once the server is up.
	within = 60 * time.Second
)

// acked is an answered write: every key of it got the value at the revision.
type acked struct {
	rev   int64
	keys  []string
	value string
}

// state is what the writers share.
type state struct {
	// answers counts acknowledged writes; unknown those without an answer.
	answers, unknown atomic.Int64
	mu               struct {
		sync.Mutex
		acked []acked
	}
}

// TestKill lets writers and watchers work while the server is killed VIGIL_KILLS times, each time
// at another moment, and restarted on the same ports and data. In the end every acknowledged write
// is in history at its revision, no transaction is there by half, no write is there twice, the
// revisions have no gap, and each watcher saw every event once and in order.
func TestKill(t *testing.T) {
	kills := 5
	if s := os.Getenv("VIGIL_KILLS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("VIGIL_KILLS: %v", err)
		}
		kills = n
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("%d kills, seed %d", kills, seed)
	rng := rand.New(rand.NewPCG(seed, 0))

	s := proc.Start(t, proc.Config{})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var st state
	var writing sync.WaitGroup
	done := make(chan struct{})
	for w := range writers {
		c := dial(t, s)
		writing.Go(func() { write(ctx, c, &st, w, done) })
	}
	// One watcher that leaves resuming to the client library, one that is cut off and resumes by
	// itself at the revision after the last event.
	auto, manual := newWatcher(t, s), newWatcher(t, s)
	watchCtx, endWatch := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { auto.run(watchCtx, 0) })
	watching.Go(func() { manual.run(watchCtx, 50*time.Millisecond) })

	var restarts time.Duration
	for range kills {
		// Wait for progress, then kill at some moment of the next writes.
		target := st.answers.Load() + 20 + rng.Int64N(400)
		await(t, "writes go on", func() bool { return st.answers.Load() >= target })
		s.Kill()
		start := time.Now()
		s.Restart()
		restarts += time.Since(start)
	}
	target := st.answers.Load() + 100
	await(t, "writes go on after the last kill", func() bool { return st.answers.Load() >= target })
	close(done)
	writing.Wait()

	c := dial(t, s)
	opCtx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	end, err := c.Put(opCtx, "k/end", "end")
	if err != nil {
		t.Fatal(err)
	}
	last := end.Header.Revision
	await(t, "the watchers have everything",
		func() bool { return auto.rev.Load() >= last && manual.rev.Load() >= last })
	endWatch()
	watching.Wait()

	history := readHistory(t, c, last)
	checkHistory(t, history, st.mu.acked, last)
	for name, w := range map[string]*watcher{"the client's own resuming": auto,
		"resuming by hand": manual} {
		if w.err != nil {
			t.Errorf("%s: %v", name, w.err)
		}
		if err := same(history, w.events); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Logf("%d kills, %d acknowledged writes, %d of unknown outcome, %d events for each watcher (%d resumed by hand), mean restart %s",
		kills, st.answers.Load(), st.unknown.Load(), len(history), manual.resumed,
		restarts/time.Duration(max(kills, 1)))
}

// dial makes a client that reconnects quickly.
func dial(t testing.TB, s *proc.Server) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{s.Addr()},
		Logger:    zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.3,
				MaxDelay: 200 * time.Millisecond},
			MinConnectTimeout: 2 * time.Second,
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// await polls for a condition of another process.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(within); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, within)
		}
	}
}

// write puts and transacts values that no other write has, until done.
func write(ctx context.Context, c *clientv3.Client, st *state, w int, done <-chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-done:
			return
		default:
		}
		a := acked{value: fmt.Sprintf("%d-%d", w, i),
			keys: []string{fmt.Sprintf("k/%d/%d", w, i%20)}}
		opCtx, cancel := context.WithTimeout(ctx, opTimeout)
		var err error
		if i%4 == 0 {
			a.keys = append(a.keys, fmt.Sprintf("k/both/%d", i%5))
			var r *clientv3.TxnResponse
			r, err = c.Txn(opCtx).Then(clientv3.OpPut(a.keys[0], a.value),
				clientv3.OpPut(a.keys[1], a.value)).Commit()
			if err == nil {
				a.rev = r.Header.Revision
			}
		} else {
			var r *clientv3.PutResponse
			r, err = c.Put(opCtx, a.keys[0], a.value)
			if err == nil {
				a.rev = r.Header.Revision
			}
		}
		cancel()
		if err != nil {
			st.unknown.Add(1)
			continue
		}
		st.mu.Lock()
		st.mu.acked = append(st.mu.acked, a)
		st.mu.Unlock()
		st.answers.Add(1)
	}
}

// event is one event, for comparison.
type event struct {
	rev        int64
	key, value string
	version    int64
}

// watcher follows the written keys from the first revision.
type watcher struct {
	c *clientv3.Client
	// rev is the revision of the last event.
	rev atomic.Int64
	// The rest is run's until it has returned.
	events  []event
	resumed int
	err     error
}

func newWatcher(t testing.TB, s *proc.Server) *watcher { return &watcher{c: dial(t, s)} }

// run watches until the context ends. If every is not 0 the watch is cut that often, and also
// when it fails, and begun again.
func (w *watcher) run(ctx context.Context, every time.Duration) {
	for ctx.Err() == nil && w.err == nil {
		sub, cancel := context.WithCancel(ctx)
		if every > 0 {
			sub, cancel = context.WithTimeout(ctx, every)
		}
		ch := w.c.Watch(clientv3.WithRequireLeader(sub), "k/", clientv3.WithPrefix(),
			clientv3.WithRev(w.rev.Load()+1))
		for r := range ch {
			if err := r.Err(); err != nil && ctx.Err() == nil && !passing(err) {
				w.err = err
				break
			}
			for _, e := range r.Events {
				w.events = append(w.events,
					event{e.Kv.ModRevision, string(e.Kv.Key), string(e.Kv.Value), e.Kv.Version})
			}
			if n := len(r.Events); n > 0 {
				w.rev.Store(r.Events[n-1].Kv.ModRevision)
			}
		}
		cancel()
		w.resumed++
	}
}

// passing reports whether an error is one of a server that goes away or has just come back.
func passing(err error) bool {
	return errors.Is(err, rpctypes.ErrNoLeader) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Canceled) || status.Code(err) == codes.Unavailable
}

// readHistory returns every event up to a revision, from a watch of the undisturbed server.
func readHistory(t *testing.T, c *clientv3.Client, last int64) []event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var out []event
	for r := range c.Watch(ctx, "", clientv3.WithFromKey(), clientv3.WithRev(1)) {
		if err := r.Err(); err != nil {
			t.Fatal(err)
		}
		for _, e := range r.Events {
			out = append(out, event{e.Kv.ModRevision, string(e.Kv.Key),
				string(e.Kv.Value), e.Kv.Version})
		}
		if len(out) > 0 && out[len(out)-1].rev >= last {
			return out
		}
	}
	t.Fatalf("the history ends at %d events, before revision %d", len(out), last)
	return nil
}

func checkHistory(t *testing.T, history []event, writes []acked, last int64) {
	t.Helper()
	type place struct {
		rev int64
		key string
	}
	at := map[place]string{}
	wrote := map[string]int64{} // value -> the revision that wrote it
	versions := map[string]int64{}
	rev := int64(1)
	for _, e := range history {
		if e.rev != rev && e.rev != rev+1 {
			t.Fatalf("revision %d follows %d", e.rev, rev)
		}
		rev = e.rev
		at[place{e.rev, e.key}] = e.value
		if r, ok := wrote[e.value]; ok && r != e.rev {
			t.Errorf("%s was written at revisions %d and %d", e.value, r, e.rev)
		}
		wrote[e.value] = e.rev
		if versions[e.key]++; versions[e.key] != e.version {
			t.Errorf("%s at revision %d has version %d, want %d", e.key, e.rev, e.version,
				versions[e.key])
		}
	}
	if rev != last {
		t.Errorf("history ends at revision %d, want %d", rev, last)
	}
	seen := map[int64]string{}
	for _, a := range writes {
		if v, ok := seen[a.rev]; ok {
			t.Errorf("revision %d was acknowledged for %s and for %s", a.rev, v, a.value)
		}
		seen[a.rev] = a.value
		for _, k := range a.keys {
			if got := at[place{a.rev, k}]; got != a.value {
				t.Errorf("acknowledged at revision %d: %s = %s; history has %q", a.rev,
					k, a.value, got)
			}
		}
	}
	// A transaction of two keys with an unknown outcome is there whole or not at all.
	byValue := map[string]int{}
	for _, e := range history {
		byValue[e.value]++
	}
	for v, n := range byValue {
		var w, i int
		if _, err := fmt.Sscanf(v, "%d-%d", &w, &i); err != nil {
			continue
		}
		want := 1
		if i%4 == 0 {
			want = 2
		}
		if n != want {
			t.Errorf("%s is there %d times, want %d", v, n, want)
		}
	}
}

func same(want, got []event) error {
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			return fmt.Errorf("event %d is %v, want %v", i, got[i], want[i])
		}
	}
	if len(want) != len(got) {
		return fmt.Errorf("%d events, want %d", len(got), len(want))
	}
	return nil
}
