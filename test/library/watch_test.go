package library

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/client"
	"vigil/test/link"
	"vigil/test/proc"
)

// TestFaults: a watch sees every event once and in order while its connections are reset, stalled
// and half closed, and its members are killed and stopped.
func TestFaults(t *testing.T) {
	on(t, func(t *testing.T, p proc.Program) {
		t.Parallel()
		c := start(t, p, 3)
		k := c.open()
		w := k.Watch(ctx(t), "f/", client.WithPrefix())
		h, err := w.Created(ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		write := func(times int) {
			for range times {
				n++
				c.put(fmt.Sprintf("f/%d", n%7), strconv.Itoa(n))
			}
		}
		// seen waits until the watcher has everything that was written.
		var got []string
		seen := func(what string) {
			t.Helper()
			n++
			got = append(got, readTo(t, w, c.put("f/end", what))...)
		}
		write(5)
		seen("before")
		for range 3 {
			c.net.Reset(me, c.names[c.at(k)])
			write(3)
			seen("reset")
		}
		if c.net.HalfClose(c.names[c.at(k)], me) == 0 {
			t.Error("nothing was closed")
		}
		write(3)
		seen("half closed")
		// A partition: nothing comes any more, and nothing says so but the missing signs of life.
		away := c.at(k)
		c.net.Set(me, c.names[away], link.Rule{Stall: true})
		c.net.Set(c.names[away], me, link.Rule{Stall: true})
		write(3)
		seen("partition")
		if c.at(k) == away {
			t.Error("the client is still where nothing comes from")
		}
		c.net.Heal()
		away = c.at(k)
		c.members[away].Kill()
		write(3)
		seen("killed")
		if c.at(k) == away {
			t.Error("the client is still at a member that was killed")
		}
		c.members[away].Restart()
		away = c.at(k)
		c.members[away].Stop()
		write(3)
		seen("stopped")
		c.members[away].Restart()

		var last int64
		if _, err := fmt.Sscanf(got[len(got)-1][strings.LastIndex(got[len(got)-1], "@"):], "@%d",
			&last); err != nil {
			t.Fatal(err)
		}
		if want := c.history("f/", h.Revision+1, last); !slices.Equal(got, want) {
			t.Errorf("%d events, want %d\n%v\n%v", len(got), len(want), got, want)
		}
	})
}

// TestNoQuorum: a member that lost its peers is left by calls and watchers, though it answers.
func TestNoQuorum(t *testing.T) {
	on(t, func(t *testing.T, p proc.Program) {
		t.Parallel()
		c := start(t, p, 3)
		k := c.open()
		w := k.Watch(ctx(t), "k")
		if _, err := w.Created(ctx(t)); err != nil {
			t.Fatal(err)
		}
		// All others stop: there is no leader. A write is either rejected or uncertain, and none is
		// made twice.
		stay := c.at(k)
		for i, m := range c.members {
			if i != stay {
				m.Kill()
			}
		}
		if _, err := k.Put(ctx(t), "k", []byte("1")); err == nil {
			t.Error("a write without a quorum")
		} else if !errors.Is(err, client.ErrUncertain) && !errors.Is(err, client.ErrNoLeader) {
			t.Error(err)
		}
		for i, m := range c.members {
			if i != stay {
				m.Launch()
			}
		}
		for i, m := range c.members {
			if i != stay {
				m.Ready()
			}
		}
		if _, err := k.Put(ctx(t), "k", []byte("2")); err != nil &&
			!errors.Is(err, client.ErrUncertain) {
			t.Fatal(err)
		}
		readTo(t, w, c.put("k", "3"))
	})
}

// TestCompactedAway: what was compacted while a watcher was not connected is not passed over in
// silence.
func TestCompactedAway(t *testing.T) {
	on(t, func(t *testing.T, p proc.Program) {
		t.Parallel()
		c := start(t, p, 1)
		k := c.open()
		w := k.Watch(ctx(t), "k")
		if _, err := w.Created(ctx(t)); err != nil {
			t.Fatal(err)
		}
		readTo(t, w, c.put("k", "1"))
		c.net.Set(me, c.names[0], link.Rule{Stall: true})
		c.net.Reset(me, c.names[0])
		c.put("k", "2")
		rev := c.put("k", "3")
		if _, err := c.direct.Compact(ctx(t), rev); err != nil {
			t.Fatal(err)
		}
		c.net.Heal()
		for ev, err := range w.Events() {
			gone, ok := errors.AsType[*client.CompactedError](err)
			if !ok || gone.Revision != rev {
				t.Errorf("%+v, %v", ev, err)
			}
		}
		if _, err := k.Get(ctx(t), "k", client.WithRevision(rev-1)); !errors.Is(err,
			client.ErrCompacted) {
			t.Error(err)
		}
	})
}

// TestSlowReader: a million events for a reader that does not read take no memory, others on its
// stream do not wait for it, and when it reads it gets them all.
func TestSlowReader(t *testing.T) {
	const txns, per, buffer = 7813, 128, 1 << 20 // a million events
	s := proc.Start(t, proc.Config{Memory: true,
		Args: []string{"--quota-backend-bytes=8589934592"}})
	k, err := client.Connect(ctx(t),
		client.Config{Endpoints: []string{s.Addr()}, WatchBuffer: buffer})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	slow := k.Watch(t.Context(), "s/", client.WithPrefix())
	fast := k.Watch(t.Context(), "s/", client.WithPrefix())
	lag := k.Watch(t.Context(), "s/", client.WithPrefix(), client.WithLagError())
	h, err := fast.Created(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []*client.Watcher{slow, lag} {
		if x, err := w.Created(ctx(t)); err != nil || x.Revision != h.Revision {
			t.Fatal(x, err)
		}
	}
	value := []byte(strings.Repeat("v", 64))
	var writers sync.WaitGroup
	work := make(chan int, 16)
	for range 16 {
		writers.Go(func() {
			for i := range work {
				ops := make([]client.Op, per)
				for j := range ops {
					ops[j] = client.OpPut(fmt.Sprintf("s/%d/%d", i%10, j), value)
				}
				if _, err := k.Txn(t.Context()).Then(ops...).Commit(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var readers sync.WaitGroup
	all := func(w *client.Watcher) {
		events, revision := 0, h.Revision
		for b, err := range w.Batches() {
			if err != nil {
				t.Errorf("after %d events: %v", events, err)
				return
			}
			for _, ev := range b.Events {
				// Each transaction is a revision with all its events together.
				if at := h.Revision + 1 + int64(events/per); ev.KV.ModRevision != at {
					t.Errorf("event %d is of revision %d, want %d", events, ev.KV.ModRevision, at)
					return
				}
				events++
			}
			if events%per != 0 {
				t.Errorf("a batch ends after %d events, in a revision", events)
				return
			}
			if revision = b.Revision; revision == h.Revision+txns {
				break
			}
		}
		if events != txns*per {
			t.Errorf("%d events", events)
		}
	}
	readers.Go(func() { all(fast) })
	before := heap()
	var most uint64
	for i := range txns {
		work <- i
		if i%500 == 0 {
			most = max(most, heap())
		}
	}
	close(work)
	writers.Wait()
	readers.Wait()
	most = max(most, heap())
	t.Logf("heap %d KiB before, at most %d KiB with a million events unread by one of the watchers",
		before>>10, most>>10)
	if most > before+64<<20 {
		t.Errorf("the heap grew from %d to %d MiB", before>>20, most>>20)
	}
	if st := slow.Status(); !st.SetAside || st.Queued > buffer {
		t.Errorf("%+v", st)
	}
	all(slow)
	// The third received the revision to continue from instead, after the contents of its buffer.
	last := h.Revision
	for b, err := range lag.Batches() {
		if err == nil {
			last = b.Revision
			continue
		}
		if e, ok := errors.AsType[*client.LagError](err); !ok || e.Revision != last+1 {
			t.Errorf("read up to %d, %v", last, err)
		}
	}
}

// heap is the memory in use after a collection.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestManyWatchers: thousands of watchers share one stream. It counts goroutines, so it is alone.
func TestManyWatchers(t *testing.T) {
	on(t, func(t *testing.T, p proc.Program) {
		const n = 3000
		var streams int
		var mu sync.Mutex
		c := start(t, p, 1)
		k := c.open(func(cfg *client.Config) {
			// the only connection that fails is the one that is reset
			cfg.KeepAliveTimeout = patience
			cfg.Hooks.Watch = func(ch client.WatchChange) {
				if ch.Kind == client.WatchConnected {
					mu.Lock()
					defer mu.Unlock()
					streams++
				}
			}
		})
		goroutines := runtime.NumGoroutine()
		list := make([]*client.Watcher, n)
		for i := range list {
			list[i] = k.Watch(t.Context(), fmt.Sprintf("w/%d", i))
		}
		for _, w := range list {
			if _, err := w.Created(ctx(t)); err != nil {
				t.Fatal(err)
			}
		}
		if more := runtime.NumGoroutine() - goroutines; more > 20 {
			t.Errorf("%d goroutines for %d watchers", more, n)
		}
		for i := 0; i < n; i += 100 {
			readTo(t, list[i], c.put(fmt.Sprintf("w/%d", i), "x"))
		}
		c.net.Reset(me, c.names[0])
		for i := 1; i < n; i += 100 {
			readTo(t, list[i], c.put(fmt.Sprintf("w/%d", i), "x"))
		}
		mu.Lock()
		defer mu.Unlock()
		if streams != 2 {
			t.Errorf("%d streams, want one, and one after the reset", streams)
		}
	})
}

// TestPermissionLost: with authentication on, a watch or read without permission is refused by
// name, and a token that is no longer good is renewed without the caller.
func TestPermissionLost(t *testing.T) {
	on(t, func(t *testing.T, p proc.Program) {
		t.Parallel()
		c := start(t, p, 1)
		d := c.direct
		steps := []error{}
		step := func(_ any, err error) { steps = append(steps, err) }
		step(d.UserAdd(ctx(t), "root", "r"))
		step(d.UserGrantRole(ctx(t), "root", "root"))
		step(d.RoleAdd(ctx(t), "reader"))
		step(d.RoleGrantPermission(ctx(t), "reader", "open/", "open0",
			clientv3.PermissionType(clientv3.PermReadWrite)))
		step(d.UserAdd(ctx(t), "ann", "a"))
		step(d.UserGrantRole(ctx(t), "ann", "reader"))
		step(d.AuthEnable(ctx(t)))
		if err := errors.Join(steps...); err != nil {
			t.Fatal(err)
		}
		k := c.open(func(cfg *client.Config) { cfg.Username, cfg.Password = "ann", "a" })
		root := c.open(func(cfg *client.Config) { cfg.Username, cfg.Password = "root", "r" })
		if _, err := k.Put(ctx(t), "open/k", nil); err != nil {
			t.Fatal(err)
		}
		if _, err := k.Get(ctx(t), "closed"); !errors.Is(err, client.ErrPermissionDenied) {
			t.Error(err)
		}
		for _, err := range k.Watch(ctx(t), "closed").Events() {
			if !errors.Is(err, client.ErrPermissionDenied) {
				t.Error(err)
			}
		}
		w := k.Watch(ctx(t), "open/", client.WithPrefix())
		if _, err := w.Created(ctx(t)); err != nil {
			t.Fatal(err)
		}
		r, err := k.Put(ctx(t), "open/k", []byte("1"))
		if err != nil {
			t.Fatal(err)
		}
		readTo(t, w, r.Header.Revision)
		// The member forgets simple tokens when it is started again: calls and watchers get
		// another.
		c.members[0].Stop()
		c.members[0].Restart()
		if r, err = k.Put(ctx(t), "open/k", []byte("2")); err != nil {
			t.Fatal(err)
		}
		readTo(t, w, r.Header.Revision)
		// Another role, another revision of the rights: earlier tokens are outdated, without an
		// effect on clients.
		if _, err := root.Auth().RoleAdd(ctx(t), "other"); err != nil {
			t.Fatal(err)
		}
		if _, err := k.Get(ctx(t), "open/k"); err != nil {
			t.Error(err)
		}
		// Permission is lost: calls are refused, and so is the watch at the latest when it is
		// resumed.
		if _, err := root.Auth().UserRevokeRole(ctx(t), "ann", "reader"); err != nil {
			t.Fatal(err)
		}
		if _, err := k.Get(ctx(t), "open/k"); !errors.Is(err, client.ErrPermissionDenied) {
			t.Error(err)
		}
		c.net.Reset(me, c.names[0])
		for ev, err := range w.Events() {
			if !errors.Is(err, client.ErrPermissionDenied) {
				t.Errorf("%+v, %v", ev, err)
			}
		}
	})
}
