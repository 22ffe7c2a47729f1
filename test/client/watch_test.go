package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/mirror"

	"vigil/test/proc"
)

// within bounds the wait for something that must come.
const within = 60 * time.Second

// next receives from a watch.
func next(t *testing.T, ch clientv3.WatchChan) clientv3.WatchResponse {
	t.Helper()
	select {
	case r, ok := <-ch:
		if !ok {
			t.Fatal("the watch has ended")
		}
		return r
	case <-time.After(within):
		t.Fatalf("nothing came in %s", within)
	}
	return clientv3.WatchResponse{}
}

// events receives n events, whatever responses they come in.
func events(t *testing.T, ch clientv3.WatchChan, n int) []*clientv3.Event {
	t.Helper()
	var out []*clientv3.Event
	for len(out) < n {
		r := next(t, ch)
		if err := r.Err(); err != nil {
			t.Fatal(err)
		}
		out = append(out, r.Events...)
	}
	if len(out) > n {
		t.Fatalf("%d events, want %d", len(out), n)
	}
	return out
}

// show writes events one a word: the key, and the value after =, or a - before a deleted key.
func show(list []*clientv3.Event) string {
	var words []string
	for _, e := range list {
		w := string(e.Kv.Key) + "=" + string(e.Kv.Value)
		if e.Type == clientv3.EventTypeDelete {
			w = "-" + string(e.Kv.Key)
		}
		if e.PrevKv != nil {
			w += "(" + string(e.PrevKv.Value) + ")"
		}
		if e.IsCreate() {
			w += "*"
		}
		words = append(words, w)
	}
	return strings.Join(words, " ")
}

func expect(t *testing.T, ch clientv3.WatchChan, want string) {
	t.Helper()
	if got := show(events(t, ch, len(strings.Fields(want)))); got != want {
		t.Errorf("events %s, want %s", got, want)
	}
}

func write(t *testing.T, c *clientv3.Client) int64 {
	t.Helper()
	ctx := proc.Context(t)
	var rev int64
	for _, op := range []clientv3.Op{
		clientv3.OpPut("a", "1"), clientv3.OpPut("b", "1"), clientv3.OpPut("a", "2"),
		clientv3.OpDelete("a"),
		clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("a", "3"), clientv3.OpPut("c", "3"),
			clientv3.OpDelete("b")}, nil),
	} {
		r, err := c.Do(ctx, op)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case r.Put() != nil:
			rev = r.Put().Header.Revision
		case r.Txn() != nil:
			rev = r.Txn().Header.Revision
		}
	}
	return rev
}

func TestWatchOptions(t *testing.T) {
	t.Parallel()
	c := proc.Start(t, proc.Config{Memory: true}).Client()
	ctx, cancel := context.WithCancel(proc.Context(t))
	defer cancel()
	type watch struct {
		name, want string
		ch         clientv3.WatchChan
	}
	open := func(startRev int64) []watch {
		var out []watch
		for _, w := range []struct {
			name, key, want string
			opts            []clientv3.OpOption
		}{
			{"one key", "a", "a=1* a=2 -a a=3*", nil},
			{"another", "c", "c=3*", nil},
			{"prefix", "a", "a=1* a=2 -a a=3*", []clientv3.OpOption{clientv3.WithPrefix()}},
			{"range", "a", "a=1* b=1* a=2 -a a=3* -b",
				[]clientv3.OpOption{clientv3.WithRange("c")}},
			{"all", "", "a=1* b=1* a=2 -a a=3* c=3* -b",
				[]clientv3.OpOption{clientv3.WithFromKey()}},
			{"previous", "", "a=1* b=1* a=2(1) -a(2) a=3* c=3* -b(1)",
				[]clientv3.OpOption{clientv3.WithFromKey(), clientv3.WithPrevKV()}},
			{"puts", "a", "a=1* a=2 a=3*", []clientv3.OpOption{clientv3.WithFilterDelete()}},
			{"deletes", "", "-a(2) -b(1)",
				[]clientv3.OpOption{clientv3.WithFromKey(), clientv3.WithFilterPut(),
					clientv3.WithPrevKV()}},
			{"fragments", "", "a=1* b=1* a=2 -a a=3* c=3* -b",
				[]clientv3.OpOption{clientv3.WithFromKey(), clientv3.WithFragment()}},
		} {
			opts := append(w.opts, clientv3.WithRev(startRev), clientv3.WithCreatedNotify())
			ch := c.Watch(ctx, w.key, opts...)
			if r := next(t, ch); !r.Created {
				t.Fatalf("%s: %v", w.name, r)
			}
			out = append(out, watch{w.name, w.want, ch})
		}
		return out
	}
	future, live := open(7), open(0)
	first := write(t, c)
	past := open(first - 4)
	for _, w := range append(live, past...) {
		t.Run(w.name, func(t *testing.T) { expect(t, w.ch, w.want) })
	}
	if first != 6 {
		t.Fatalf("the last write is revision %d", first)
	}
	// Now c exists, and the watchers of the future begin.
	if _, err := c.Delete(ctx, "", clientv3.WithFromKey()); err != nil {
		t.Fatal(err)
	}
	expect(t, future[0].ch, "-a")
	expect(t, future[1].ch, "-c")
	expect(t, future[5].ch, "-a(3) -c(3)")
	expect(t, live[5].ch, "-a(3) -c(3)")
	expect(t, past[7].ch, "-a(3) -c(3)")

	// A canceled watch ends; its neighbours go on.
	sub, end := context.WithCancel(ctx)
	ended := c.Watch(sub, "z", clientv3.WithCreatedNotify())
	next(t, ended)
	end()
	select {
	case _, ok := <-ended:
		if ok {
			t.Error("a canceled watch still delivers")
		}
	case <-time.After(within):
		t.Error("a canceled watch does not end")
	}
	if _, err := c.Put(ctx, "a", "4"); err != nil {
		t.Fatal(err)
	}
	expect(t, live[0].ch, "-a a=4*")
}

func TestWatchCompacted(t *testing.T) {
	t.Parallel()
	c := proc.Start(t, proc.Config{Memory: true}).Client()
	ctx := proc.Context(t)
	rev := write(t, c)
	live := c.Watch(ctx, "", clientv3.WithFromKey(), clientv3.WithCreatedNotify())
	next(t, live)
	if _, err := c.Compact(ctx, rev); err != nil {
		t.Fatal(err)
	}
	r := next(t, c.Watch(ctx, "a", clientv3.WithRev(rev-1)))
	if !r.Canceled || r.CompactRevision != rev || !errors.Is(r.Err(), rpctypes.ErrCompacted) {
		t.Errorf("watch of the compacted: %v, %v", r, r.Err())
	}
	expect(t, c.Watch(ctx, "", clientv3.WithFromKey(), clientv3.WithRev(rev),
		clientv3.WithPrevKV()), "a=3* c=3* -b")
	if _, err := c.Put(ctx, "a", "5"); err != nil {
		t.Fatal(err)
	}
	expect(t, live, "a=5")
	if _, err := c.Get(ctx, "a", clientv3.WithRev(rev-1)); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("get of the compacted: %v", err)
	}
}

// TestRequestProgress asks for progress while events flow: no answer may overtake an event.
func TestRequestProgress(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Memory: true})
	c, writer := s.Client(), s.Client()
	ctx, cancel := context.WithCancel(proc.Context(t))
	defer cancel()
	const puts = 500
	ch := c.Watch(ctx, "k", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	next(t, ch)
	asked := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < puts && err == nil; i++ {
			if _, err = writer.Put(ctx, fmt.Sprint("k", i%7),
				fmt.Sprint(i)); err == nil && i%10 == 0 {
				err = c.RequestProgress(ctx)
			}
		}
		asked <- err
	}()
	var seen, known int64
	n, answers := 0, 0
	take := func(r clientv3.WatchResponse) {
		if r.IsProgressNotify() {
			answers++
			known = max(known, r.Header.Revision)
			return
		}
		for _, e := range r.Events {
			n++
			if e.Kv.ModRevision <= seen || e.Kv.ModRevision <= known {
				t.Fatalf("event at revision %d after %d and progress at %d",
					e.Kv.ModRevision, seen, known)
			}
			seen = e.Kv.ModRevision
		}
	}
	for n < puts {
		take(next(t, ch))
	}
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
	// With everything delivered, a request is answered with the newest revision.
	for known < seen {
		if err := c.RequestProgress(ctx); err != nil {
			t.Fatal(err)
		}
		take(next(t, ch))
	}
	t.Logf("%d answers and %d events", answers, n)
}

// TestProgressNotify needs a server that notifies every second.
func TestProgressNotify(t *testing.T) {
	t.Parallel()
	flag := "--watch-progress-notify-interval=1s"
	c := proc.Start(t, proc.Config{Memory: true, Args: []string{flag}}).Client()
	ctx := proc.Context(t)
	ch := c.Watch(ctx, "k", clientv3.WithProgressNotify(), clientv3.WithCreatedNotify())
	silent := c.Watch(ctx, "k", clientv3.WithCreatedNotify())
	next(t, ch)
	next(t, silent)
	put, err := c.Put(ctx, "other", "1")
	if err != nil {
		t.Fatal(err)
	}
	for {
		r := next(t, ch)
		if !r.IsProgressNotify() {
			t.Fatalf("not a progress notification: %v", r)
		}
		if r.Header.Revision >= put.Header.Revision {
			break
		}
	}
	if _, err := c.Put(ctx, "k", "1"); err != nil {
		t.Fatal(err)
	}
	expect(t, silent, "k=1*")
}

// TestManyWatchers puts a thousand watchers on one stream and checks that each gets exactly what
// it asked for.
func TestManyWatchers(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Memory: true})
	c, writer := s.Client(), s.Client()
	ctx, cancel := context.WithCancel(proc.Context(t))
	defer cancel()
	const watchers, keys, puts = 1000, 50, 300
	var list []clientv3.WatchChan
	for i := range watchers {
		opts := []clientv3.OpOption{clientv3.WithCreatedNotify()}
		if i%2 == 0 {
			opts = append(opts, clientv3.WithPrevKV())
		}
		list = append(list, c.Watch(ctx, fmt.Sprintf("k%02d", i%keys), opts...))
	}
	for _, ch := range list {
		next(t, ch)
	}
	start := time.Now()
	for i := range puts {
		if _, err := writer.Put(ctx, fmt.Sprintf("k%02d", i%keys), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i, ch := range list {
		for j, e := range events(t, ch, puts/keys) {
			if want := fmt.Sprint(j*keys + i%keys); string(e.Kv.Value) != want {
				t.Fatalf("watcher %d: event %d is %s, want %s", i, j, e.Kv.Value, want)
			}
			if (e.PrevKv != nil) != (i%2 == 0 && j > 0) {
				t.Fatalf("watcher %d: event %d has previous %v", i, j, e.PrevKv)
			}
		}
	}
	t.Logf("%d events in %s", watchers*puts/keys, time.Since(start))
}

// TestWatchUnderLoad lets watchers begin at any time and any revision while clients write, and
// compares what each saw with the whole history.
func TestWatchUnderLoad(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Memory: true})
	ctx := proc.Context(t)
	const writers, each, watchers = 4, 300, 40
	done := make(chan error, writers)
	for w := range writers {
		c := s.Client()
		go func() {
			var err error
			for i := 0; i < each && err == nil; i++ {
				key := fmt.Sprint("k", (i+w)%5)
				switch i % 10 {
				case 3:
					_, err = c.Delete(ctx, key)
				case 7:
					_, err = c.Txn(ctx).Then(clientv3.OpPut(key, fmt.Sprint(w, i)),
						clientv3.OpPut("k9", fmt.Sprint(w, i)), clientv3.OpDelete("k8")).Commit()
				default:
					_, err = c.Put(ctx, key, fmt.Sprint(w, i))
				}
			}
			done <- err
		}()
	}
	c := s.Client()
	type watch struct {
		from int64
		ch   clientv3.WatchChan
	}
	var list []watch
	for i := range watchers {
		head, err := c.Get(ctx, "k0", clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		from := max(1, head.Header.Revision*int64(i%4)/3)
		list = append(list, watch{from,
			c.Watch(ctx, "k", clientv3.WithPrefix(), clientv3.WithRev(from))})
	}
	for range writers {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	end, err := c.Put(ctx, "k-end", "")
	if err != nil {
		t.Fatal(err)
	}
	until := func(ch clientv3.WatchChan) []*clientv3.Event {
		var out []*clientv3.Event
		for len(out) == 0 || out[len(out)-1].Kv.ModRevision < end.Header.Revision {
			r := next(t, ch)
			if err := r.Err(); err != nil {
				t.Fatal(err)
			}
			if n := len(out); n > 0 && len(r.Events) > 0 &&
				out[n-1].Kv.ModRevision == r.Events[0].Kv.ModRevision {
				t.Fatalf("revision %d is cut in two", out[n-1].Kv.ModRevision)
			}
			out = append(out, r.Events...)
		}
		return out
	}
	all := until(c.Watch(ctx, "k", clientv3.WithPrefix(), clientv3.WithRev(1)))
	for i, w := range list {
		want := all
		for len(want) > 0 && want[0].Kv.ModRevision < w.from {
			want = want[1:]
		}
		got := until(w.ch)
		if g, w := show(got), show(want); g != w {
			t.Errorf("watcher %d: %d events, want %d: %.300s ... want %.300s", i, len(got),
				len(want), g, w)
		}
	}
	t.Logf("%d events for each of %d watchers", len(all), watchers)
}

// TestMirror copies a prefix with the client's own syncer: a list at one revision, then a watch.
func TestMirror(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Memory: true})
	c, writer := s.Client(), s.Client()
	ctx, cancel := context.WithCancel(proc.Context(t))
	defer cancel()
	for i := range 200 {
		if _, err := writer.Put(ctx, fmt.Sprintf("m/%03d", i), "old"); err != nil {
			t.Fatal(err)
		}
	}
	syncer := mirror.NewSyncer(c, "m/", 0)
	base, errs := syncer.SyncBase(ctx)
	copied := map[string]string{}
	for r := range base {
		for _, kv := range r.Kvs {
			copied[string(kv.Key)] = string(kv.Value)
		}
	}
	if err := <-errs; err != nil {
		t.Fatal(err)
	}
	if len(copied) != 200 {
		t.Fatalf("%d keys copied", len(copied))
	}
	// Written between the list and the watch.
	if _, err := writer.Put(ctx, "m/000", "new"); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Delete(ctx, "m/001"); err != nil {
		t.Fatal(err)
	}
	updates := syncer.SyncUpdates(ctx)
	if _, err := writer.Put(ctx, "m/end", ""); err != nil {
		t.Fatal(err)
	}
	expect(t, updates, "m/000=new -m/001 m/end=*")
}
