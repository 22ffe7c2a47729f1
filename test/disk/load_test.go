package disk

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// within bounds the wait for what must come.
const within = 60 * time.Second

// write is an acknowledged put, or an event.
type write struct {
	rev        int64
	key, value string
}

// load is writers and a watcher that record answers and events.
type load struct {
	t     *testing.T
	value atomic.Int64 // the size of values
	keys  atomic.Int64 // how many keys each writer goes round
	// Counts of answers: acknowledged, refused for want of space, and no answer because the server
	// was gone.
	acked, refused, unknown atomic.Int64
	seen                    atomic.Int64 // the revision of the watcher's last event

	mu struct {
		sync.Mutex
		writes []write
		other  []string // answers that no client should get
	}
	events []write // the watcher's until it is done

	// The writers end first, so that the watcher can have everything.
	stopWriting, stopWatching context.CancelFunc
	writing, watching         sync.WaitGroup
}

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

func startLoad(t *testing.T, s *proc.Server, writers int) *load {
	ctx, stopWriting := context.WithCancel(t.Context())
	watchCtx, stopWatching := context.WithCancel(t.Context())
	l := &load{t: t, stopWriting: stopWriting, stopWatching: stopWatching}
	l.value.Store(4 << 10)
	l.keys.Store(50)
	for w := range writers {
		c := dial(t, s)
		l.writing.Go(func() { l.write(ctx, c, w) })
	}
	c := dial(t, s)
	l.watching.Go(func() { l.watch(watchCtx, c) })
	return l
}

// gone reports whether an error is one of a server that is not there.
func gone(err error) bool {
	return status.Code(err) == codes.Unavailable || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Canceled) ||
		errors.Is(err, rpctypes.ErrNoLeader)
}

func (l *load) write(ctx context.Context, c *clientv3.Client, w int) {
	for i := 0; ctx.Err() == nil; i++ {
		a := write{key: fmt.Sprintf("k/%d/%05d", w, i%int(l.keys.Load()))}
		a.value = fmt.Sprintf("%d-%d ", w, i)
		a.value += strings.Repeat("v", max(int(l.value.Load())-len(a.value), 0))
		opCtx, cancel := context.WithTimeout(ctx, 20*time.Second)
		r, err := c.Put(opCtx, a.key, a.value)
		cancel()
		switch {
		case err == nil:
			a.rev = r.Header.Revision
			l.mu.Lock()
			l.mu.writes = append(l.mu.writes, a)
			l.mu.Unlock()
			l.acked.Add(1)
		case errors.Is(err, rpctypes.ErrNoSpace):
			l.refused.Add(1)
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond): // as a client that has been refused does
			}
		case gone(err):
			l.unknown.Add(1)
		default:
			l.mu.Lock()
			l.mu.other = append(l.mu.other, err.Error())
			l.mu.Unlock()
		}
	}
}

func (l *load) watch(ctx context.Context, c *clientv3.Client) {
	for ctx.Err() == nil {
		ch := c.Watch(clientv3.WithRequireLeader(ctx), "", clientv3.WithFromKey(),
			clientv3.WithRev(l.seen.Load()+1))
		for r := range ch {
			if err := r.Err(); err != nil && ctx.Err() == nil && !gone(err) {
				l.mu.Lock()
				l.mu.other = append(l.mu.other, "watch: "+err.Error())
				l.mu.Unlock()
				return
			}
			for _, e := range r.Events {
				l.events = append(l.events,
					write{e.Kv.ModRevision, string(e.Kv.Key), string(e.Kv.Value)})
			}
			if n := len(r.Events); n > 0 {
				l.seen.Store(r.Events[n-1].Kv.ModRevision)
			}
		}
	}
}

// await polls for a condition of another process.
func await(t testing.TB, what string, ok func() bool) time.Duration {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	begin := time.Now()
	for ; !ok(); <-tick.C {
		if time.Since(begin) > within {
			t.Fatalf("%s: not within %s", what, within)
		}
	}
	return time.Since(begin)
}

// awaitRefusals waits until n more writes are refused, and none is taken on between the last of
// them.
func (l *load) awaitRefusals(what string, n int64) time.Duration {
	l.t.Helper()
	acked, from := l.acked.Load(), l.refused.Load()
	return await(l.t, what, func() bool {
		if now := l.acked.Load(); now != acked {
			acked, from = now, l.refused.Load()
		}
		return l.refused.Load() >= from+n
	})
}

func (l *load) awaitAcks(what string, n int64) time.Duration {
	l.t.Helper()
	target := l.acked.Load() + n
	return await(l.t, what, func() bool { return l.acked.Load() >= target })
}

// finish ends the load and checks what was recorded: every acknowledged write is an event at its
// revision, revisions have no gap, and the store holds what the events say.
func (l *load) finish(c *clientv3.Client) {
	t := l.t
	t.Helper()
	l.stopWriting()
	l.writing.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	end, err := c.Put(ctx, "end", "end")
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the watcher has everything",
		func() bool { return l.seen.Load() >= end.Header.Revision })
	l.stopWatching()
	l.watching.Wait()
	for i, text := range l.mu.other {
		if i < 10 {
			t.Errorf("an answer that no client should get: %s", text)
		}
	}
	if n := len(l.mu.other); n > 10 {
		t.Errorf("and %d more", n-10)
	}
	type place struct {
		rev int64
		key string
	}
	at := map[place]string{}
	newest := map[string]write{}
	rev := int64(1)
	for _, e := range l.events {
		if e.rev != rev && e.rev != rev+1 {
			t.Fatalf("the watcher saw revision %d after %d", e.rev, rev)
		}
		if _, twice := at[place{e.rev, e.key}]; twice {
			t.Fatalf("the watcher saw %s at revision %d twice", e.key, e.rev)
		}
		rev = e.rev
		at[place{e.rev, e.key}] = e.value
		newest[e.key] = e
	}
	lost := 0
	for _, a := range l.mu.writes {
		if at[place{a.rev, a.key}] != a.value {
			if lost++; lost < 10 {
				t.Errorf("%s was acknowledged at revision %d and is lost", a.key, a.rev)
			}
		}
	}
	for key, e := range newest {
		r, err := c.Get(ctx, key, clientv3.WithRev(rev))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case e.value == "" && len(r.Kvs) > 0:
			t.Errorf("%s was deleted at revision %d and is there", key, e.rev)
		case e.value != "" &&
			(len(r.Kvs) != 1 || string(r.Kvs[0].Value) != e.value || r.Kvs[0].ModRevision != e.rev):
			t.Errorf("%s is not what was written at revision %d", key, e.rev)
		}
	}
	t.Logf("%d writes acknowledged and found, %d lost; %d refused by name; %d without an answer at kills; %d events, %d keys compared",
		len(l.mu.writes)-lost, lost, l.refused.Load(), l.unknown.Load(), len(l.events), len(newest))
}
