package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
	"vigil/internal/store/watch"
	"vigil/internal/vfs/memfs"
)

// held is a publisher that can be held up: each Publish announces itself and waits to be let go.
type held struct {
	to    publisher
	on    atomic.Bool
	begun chan int64
	let   chan struct{}
	calls []string // owned by the apply goroutine
}

func (h *held) Publish(rev int64, events []kv.Event) {
	if h.on.Load() {
		h.begun <- rev
		<-h.let
	}
	h.calls = append(h.calls, fmt.Sprint("publish ", rev))
	h.to.Publish(rev, events)
}

func (h *held) Withhold() {
	h.calls = append(h.calls, "withhold")
	h.to.Withhold()
}

func (h *held) Reset(rev int64) { h.to.Reset(rev) }

// release lets everything go from now on.
func (h *held) release() {
	h.on.Store(false)
	close(h.let)
}

// startHeld starts a member in a synctest bubble whose publishing the test controls.
func startHeld(t *testing.T, change func(*Config)) (*Replica, *held) {
	t.Helper()
	c := config(memfs.New())
	c.TickInterval, c.RequestTimeout = 100*time.Millisecond, 0
	if change != nil {
		change(&c)
	}
	r, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	h := &held{to: r.hub, begun: make(chan int64, 100), let: make(chan struct{})}
	r.applier.SetSubscribers(r.subscribers(h))
	r.Start()
	<-r.Ready()
	return r, h
}

// goPut puts in a goroutine and hands over the error.
func goPut(ctx context.Context, r *Replica, key string) chan error {
	done := make(chan error, 1)
	go func() {
		_, err := r.Put(ctx, &kv.PutRequest{Key: []byte(key), Value: []byte("v")})
		done <- err
	}()
	return done
}

func pending(done chan error) bool {
	select {
	case err := <-done:
		done <- err
		return false
	default:
		return true
	}
}

// Commit, Publish, resolve, in this order: while a revision is being published it is readable, and
// neither has its write returned nor does a linearizable read show it.
func TestCommitThenPublishThenResolve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := startHeld(t, nil)
		defer r.Stop(context.Background())
		h.on.Store(true)
		put := goPut(t.Context(), r, "k")
		rev := <-h.begun
		synctest.Wait()

		// Published before it was committed?
		res, err := r.Range(t.Context(),
			&kv.RangeRequest{Key: []byte("k"), Revision: rev, Serializable: true})
		if err != nil || res.Count != 1 {
			t.Errorf("while revision %d is published it is not readable: %+v, %v", rev, res, err)
		}
		// Resolved before it was published?
		if !pending(put) {
			t.Errorf("the put returned before revision %d was published", rev)
		}
		// The applied position advanced before it was published?
		read := make(chan error, 1)
		go func() {
			_, err := r.Range(t.Context(), &kv.RangeRequest{Key: []byte("k")})
			read <- err
		}()
		synctest.Wait()
		if !pending(read) {
			t.Errorf("a linearizable read returned before revision %d was published", rev)
		}
		if st := r.Status(); st.Applied >= st.RaftIndex {
			t.Errorf("applied %d of %d before revision %d was published", st.Applied,
				st.RaftIndex, rev)
		}
		h.release()
		if err := <-put; err != nil {
			t.Error(err)
		}
		if err := <-read; err != nil {
			t.Error(err)
		}
	})
}

// Events of the batch that takes a right away reach no watcher before the watchers were reviewed.
// The batch has the end of a lease, which the member proposes in its own name: a put by a user
// would be rejected, because users and roles have changed.
func TestEventsAfterALostRightAreWithheld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := startHeld(t, func(c *Config) { c.BcryptCost = 4 })
		defer r.Stop(context.Background())
		secure(t, r)
		root := withToken(t, login(t, r, "root"))
		if _, err := r.Leases.GrantLease(root, kv.LeaseGrantRequest{ID: 7, TTL: 1000}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Put(root, &kv.PutRequest{Key: []byte("k"), Lease: 7}); err != nil {
			t.Fatal(err)
		}
		l, _ := r.LeaseState().Lookup(7)
		s := r.Hub().NewStream(watch.StreamInfo{})
		defer s.Close()
		s.NotifyReady(watch.NewReady(), nil)
		s.Create(watch.CreateRequest{Key: []byte("k"), Withheld: r.Hub().Withheld()})
		events := func() (n int) {
			t.Helper()
			synctest.Wait()
			list, err := s.Take(nil, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range list {
				n += len(r.Events)
			}
			return n
		}
		h.on.Store(true)
		first := goPut(root, r, "other")
		rev := <-h.begun
		change, second := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := r.Access.ChangeAuth(root,
				&kv.AuthRequest{Op: kv.UserRevokeRole, User: "alice", Role: "r"})
			change <- err
		}()
		synctest.Wait()
		go func() {
			_, err := r.Propose(t.Context(),
				&fsm.Request{LeaseExpire: &kv.LeaseExpireRequest{Term: r.Header().Term,
					Leases: []kv.LeaseRef{l.LeaseRef}}})
			second <- err
		}()
		synctest.Wait()
		h.calls = nil
		h.release()
		for _, done := range []chan error{first, change, second} {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if n := events(); n != 0 {
			t.Errorf("%d events before the review", n)
		}
		if want := []string{fmt.Sprint("publish ", rev), "withhold",
			fmt.Sprint("publish ", rev+1)}; !slices.Equal(h.calls, want) {
			t.Errorf("apply called %q, want %q", h.calls, want)
		}
		r.Hub().Release(r.Hub().Withheld())
		if n := events(); n != 1 {
			t.Errorf("%d events after the review, want the event of the end of the lease", n)
		}
	})
}

func TestRequestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := startHeld(t, nil)
		defer r.Stop(context.Background())
		time.Sleep(time.Minute) // away from the election
		h.on.Store(true)
		start := time.Now()
		put := goPut(t.Context(), r, "k")
		<-h.begun
		read := make(chan error, 1)
		go func() { read <- r.Linearize(t.Context()) }()
		waits := goPut(t.Context(), r, "behind it")
		if err := <-waits; !errors.Is(err, kv.ErrTimeout) {
			t.Errorf("the put behind: %v", err)
		}
		if got := time.Since(start); got < 7*time.Second || got > 8*time.Second {
			t.Errorf("it took %v, want 5 s and two election timeouts", got)
		}
		if err := <-read; !errors.Is(err, kv.ErrTimeoutWaitApplied) {
			t.Errorf("the read: %v", err)
		}
		h.release()
		if err := <-put; err != nil {
			t.Errorf("the put that was being published: %v", err)
		}
		// What timed out had an outcome all the same.
		synctest.Wait()
		if got := mustRange(t, r, &kv.RangeRequest{Key: []byte("behind it")}).Count; got != 1 {
			t.Errorf("%d keys", got)
		}
	})
}

func TestBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := startHeld(t, func(c *Config) { c.MaxPendingBytes, c.MaxApplyLag = 500, 1<<40 })
		defer r.Stop(context.Background())
		h.on.Store(true)
		first := goPut(t.Context(), r, "a")
		<-h.begun
		var done []chan error
		for range 100 {
			done = append(done, goPut(t.Context(), r, "0123456789"))
			synctest.Wait()
		}
		refused := 0
		for _, d := range done {
			if !pending(d) {
				refused++
				if err := <-d; !errors.Is(err, kv.ErrTooManyRequests) {
					t.Errorf("refused with %v", err)
				}
				d <- nil
			}
		}
		if refused < 50 || refused > 90 {
			t.Errorf("%d of 100 puts of about 30 bytes were refused at a bound of 500", refused)
		}
		h.release()
		for _, d := range append(done, first) {
			if err := <-d; err != nil {
				t.Errorf("an admitted put: %v", err)
			}
		}
		if err := <-goPut(t.Context(), r, "after"); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

func TestWritesAreRefusedWhileApplyLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := startHeld(t, func(c *Config) { c.MaxApplyLag = 3 })
		defer r.Stop(context.Background())
		h.on.Store(true)
		var done []chan error
		var last error
		for i := range 20 {
			done = append(done, goPut(t.Context(), r, strconv.Itoa(i)))
			synctest.Wait()
			if !pending(done[i]) {
				last = <-done[i]
				done = done[:i]
				break
			}
		}
		if !errors.Is(last, kv.ErrTooManyRequests) || len(done) < 4 || len(done) > 5 {
			t.Errorf("put %d was refused with %v", len(done), last)
		}
		h.release()
		for _, d := range done {
			if err := <-d; err != nil {
				t.Error(err)
			}
		}
	})
}

// Callers that leave at any moment neither disturb those who stay nor each other.
func TestCanceledWaitersLeave(t *testing.T) {
	r := start(t, config(memfs.New()))
	var wg sync.WaitGroup
	var acked, canceled atomic.Int64
	for w := range 16 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			for i := range 300 {
				ctx, cancel := context.WithCancel(t.Context())
				if rng.IntN(2) == 0 {
					time.AfterFunc(time.Duration(rng.IntN(300))*time.Microsecond, cancel)
				}
				text := fmt.Sprintf("%d/%d", w, i)
				res, err := r.Txn(ctx, &kv.TxnRequest{Success: []kv.Op{
					{Put: &kv.PutRequest{Key: fmt.Append(nil, w), Value: []byte(text)}},
					{Range: &kv.RangeRequest{Key: fmt.Append(nil, w)}},
				}})
				switch {
				case err == nil:
					acked.Add(1)
					var pair mvccpb.KeyValue
					if err := proto.Unmarshal(res.Responses[1].Range.KVs.At(0),
						&pair); err != nil || string(pair.Value) != text {
						t.Errorf("%s got the outcome of %s, %v", text, pair.Value, err)
					}
				case errors.Is(err, context.Canceled):
					canceled.Add(1)
				default:
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	t.Logf("%d acknowledged, %d canceled", acked.Load(), canceled.Load())
	if n := r.queue.Pending(); n > 0 {
		r.Stop(context.Background())
		if n := r.queue.Pending(); n != 0 {
			t.Errorf("%d requests are under way for ever", n)
		}
	}
}

// A linearizable read shows every write that was acknowledged before it began. How raftnode asks a
// cluster of several is tested there.
func TestLinearizableReadsAreNotStale(t *testing.T) {
	r := start(t, config(memfs.New()))
	ctx, cancel := context.WithCancel(t.Context())
	var newest, reads atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		defer cancel()
		for i := int64(1); i <= 300 || reads.Load() == 0; i++ {
			mustPut(t, r, "k", strconv.FormatInt(i, 10))
			newest.Store(i)
		}
	})
	for range 3 {
		wg.Go(func() {
			for ctx.Err() == nil {
				floor := newest.Load()
				res := mustRange(t, r, &kv.RangeRequest{Key: []byte("k")})
				var pair mvccpb.KeyValue
				if res.KVs.Len() > 0 {
					if err := proto.Unmarshal(res.KVs.At(0), &pair); err != nil {
						t.Error(err)
					}
				}
				if got, _ := strconv.ParseInt(string(pair.Value), 10, 64); got < floor {
					t.Errorf("read %d, and %d had been acknowledged", got, floor)
					return
				}
				reads.Add(1)
			}
		})
	}
	wg.Wait()
}

// Half of a cluster of two: no leader. Nothing is acknowledged, nothing hangs for ever, and
// serializable reads are served.
func TestWithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(memfs.New())
		c.TickInterval, c.RequestTimeout = 100*time.Millisecond, 0
		c.InitialMembers = append(c.InitialMembers,
			cluster.Member{Name: "other", PeerURLs: []string{"http://other:2380"}})
		r, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		r.Start()
		start := time.Now()
		put := goPut(t.Context(), r, "k")
		read := make(chan error, 1)
		go func() { read <- r.Linearize(t.Context()) }()
		if _, err := r.Range(t.Context(),
			&kv.RangeRequest{Key: []byte("k"), Serializable: true}); err != nil {
			t.Errorf("serializable read: %v", err)
		}
		// It was never proposed.
		if err := <-put; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("put: %v", err)
		}
		if err := <-read; !errors.Is(err, kv.ErrTimeout) {
			t.Errorf("read: %v", err)
		}
		if got := time.Since(start); got < 6*time.Second || got > 8*time.Second {
			t.Errorf("it took %v", got)
		}
		select {
		case <-r.Ready():
			t.Error("ready without a leader")
		default:
		}
		late := goPut(t.Context(), r, "k")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if err := r.Stop(ctx); err != nil {
			t.Error(err)
		}
		if err := <-late; !errors.Is(err, kv.ErrStopped) {
			t.Errorf("a put under way at the stop: %v", err)
		}
	})
}
