package diff

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// on makes the create request of a watcher.
func on(key, end string, change ...func(*pb.WatchCreateRequest)) *pb.WatchCreateRequest {
	r := &pb.WatchCreateRequest{Key: []byte(key), RangeEnd: []byte(end)}
	for _, c := range change {
		c(r)
	}
	return r
}

func from(rev int64) func(*pb.WatchCreateRequest) {
	return func(r *pb.WatchCreateRequest) { r.StartRevision = rev }
}

func named(id int64) func(*pb.WatchCreateRequest) {
	return func(r *pb.WatchCreateRequest) { r.WatchId = id }
}

func prevKV(r *pb.WatchCreateRequest) { r.PrevKv = true }

func fragments(r *pb.WatchCreateRequest) { r.Fragment = true }

func filters(f ...int32) func(*pb.WatchCreateRequest) {
	return func(r *pb.WatchCreateRequest) {
		for _, n := range f {
			r.Filters = append(r.Filters, pb.WatchCreateRequest_FilterType(n))
		}
	}
}

func TestWatchByHand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		run  func(*Watch)
	}{
		{"creates and ids", watchCreates},
		{"events", watchEvents},
		{"compaction", watchCompaction},
		{"progress", watchProgress},
		{"late progress", watchLateProgress},
		{"large", watchLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := NewPair(t)
			w := NewWatch(t, p)
			c.run(w)
			w.Do(put("the end", "1"))
			p.Finish(t, &tally)
		})
	}
}

func watchCreates(w *Watch) {
	w.Create(on("a", ""))
	w.Create(on("a", ""))
	w.Create(on("a", "", named(7)))
	w.Create(on("a", "", named(7)))
	w.Create(on("a", "", named(3)))
	w.Create(on("b", "")) // ids 2, then 4: those that are taken are passed over
	w.Create(on("b", ""))
	w.Create(on("b", "", named(math.MaxInt64)))
	w.Create(on("b", "", named(-9)))
	w.Create(on("b", "", named(-1)))
	w.Cancel(-1)
	w.Do(put("a", "1"))
	w.Do(put("b", "1"))
	w.Create(on("", ""))
	w.Create(on("", "\x00"))
	w.Create(on("", "b"))
	w.Create(on("b", "a"))
	w.Create(on("b", "b"))
	w.Create(on("b", "\x00"))
	w.Create(on("\x00", "\x00"))
	w.Create(on("b", "a", named(50)))
	w.Create(on("b", "a", named(7)))
	w.Create(on("a", "", named(7), from(-1)))
	w.Create(on("b", "a", from(-1)))
	for _, rev := range []int64{-1, math.MinInt64, 1, 2, 3, 4, 1000, math.MaxInt64} {
		w.Create(on("a", "c", from(rev)))
	}
	w.Do(put("a", "2"))
	w.Do(put("\x00", "zero"))
	w.Do(del("\x00", "\x00"))
	for _, id := range []int64{0, 0, 1, 7, 7, 99, -1, -9, math.MaxInt64, math.MinInt64} {
		w.Cancel(id)
	}
	w.Create(on("a", "", named(7))) // free again
	w.Create(on("a", "", named(1)))
	w.Create(on("a", ""))
	w.Do(put("a", "3"))
	// Requests with nothing or the wrong things in them are passed over.
	w.send(&pb.WatchRequest{})
	w.send(create(&pb.WatchCreateRequest{Key: []byte("a"),
		Filters: []pb.WatchCreateRequest_FilterType{5, -1}}))
	w.etcd.until(lateAfter, func(h []*pb.WatchResponse) bool { return len(h) == 1 })
	w.live[w.etcd.held[0].WatchId] = &watcher{req: on("a", ""), from: w.p.Rev + 1}
	w.settle("a create with unknown filters", 1)
	w.Do(put("a", "4"))
}

func watchEvents(w *Watch) {
	w.Create(on("k", "l"))
	w.Create(on("k", "l", prevKV))
	w.Create(on("k", "l", filters(0)))
	w.Create(on("k", "l", filters(1)))
	w.Create(on("k", "l", filters(0, 1)))
	w.Create(on("k", "l", filters(1, 1), prevKV))
	w.Create(on("k1", "", prevKV))
	w.Create(on("k2", ""))
	w.Create(on("", "\x00", prevKV, fragments))
	w.Create(on("k1", "", from(4)))
	write := func() {
		w.Do(put("k1", "1"))
		w.Do(put("k1", ""))
		w.Do(put("k2", "1"))
		w.Do(put("x", "1"))
		w.Do(del("k1", ""))
		w.Do(del("k1", ""))
		w.Do(then(put("k1", "2"), put("k3", "2"), del("k2", "")))
		w.Do(then(put("k4", "1"), put("x", "2"), then(put("k5", "1"), put("k0", "1"))))
		w.Do(then(get("k1")))
		w.Do(then(del("none", "")))
		w.Do(&pb.PutRequest{Key: []byte("k1"), IgnoreValue: true})
		w.Do(&pb.PutRequest{Key: []byte("gone"), IgnoreValue: true})
		w.Do(then(del("k5", "k6"), put("k1", "3"), del("k3", "")))
		// One key more than once in a transaction.
		w.Do(then(put("k6", "1"), then(del("none", ""))))
		w.Do(then(del("k6", ""), del("k6", "")))
		w.Do(del("k", "l"))
		w.Do(put("k1", "born again"))
	}
	write()
	w.Do(put("k", "edge"))
	w.Do(put("l", "edge"))
	// The same seen from the past.
	for rev := range w.p.Rev + 3 {
		w.Create(on("k", "l", from(rev), prevKV))
		w.Create(on("k1", "", from(rev)))
		if rev%5 == 0 {
			w.Create(on("", "\x00", from(rev), filters(0), prevKV))
			w.Create(on("k", "l", from(rev), filters(1), fragments))
		}
	}
	write()
}

func watchCompaction(w *Watch) {
	for i := range 10 {
		w.Do(put("k"+fmt.Sprint(i%3), fmt.Sprint(i)))
	}
	w.Do(del("k1", ""))
	w.Create(on("k", "l", prevKV))
	w.Do(&pb.CompactionRequest{Revision: 6})
	for rev := range w.p.Rev + 2 {
		w.Create(on("k", "l", from(rev), prevKV))
	}
	w.Create(on("k", "l", from(5), named(77)))
	w.Create(on("k", "l", from(5), named(77)))
	w.Cancel(77)
	w.Cancel(77)
	w.Create(on("k", "l", from(6), named(77)))
	w.Create(on("l", "k", from(1)))
	w.Do(&pb.CompactionRequest{Revision: w.p.Rev, Physical: true})
	w.Do(put("k0", "after"))
	w.Do(del("k2", ""))
	w.Create(on("k", "l", from(w.p.Rev-2), prevKV))
	w.Create(on("k", "l", from(w.p.Rev-1), prevKV))
	w.Create(on("k", "l", from(w.p.Rev), prevKV))
	w.Do(&pb.CompactionRequest{Revision: w.p.Rev})
	w.Create(on("k", "l", from(w.p.Rev), prevKV)) // its events are there, what was before is not
	w.Create(on("k", "l", from(w.p.Rev-1), prevKV))
	w.Create(on("k", "l", from(1), prevKV, filters(0)))
	w.Do(put("k0", "more"))
}

func watchProgress(w *Watch) {
	w.Progress() // without a watcher there is no answer
	w.Create(on("k", ""))
	w.Progress()
	w.Do(put("other", "1"))
	w.Progress()
	w.Do(put("k", "1"))
	w.Progress()
	w.Create(on("k", "l", from(1)))
	w.Create(on("none", "", from(1)))
	w.Progress()
	w.Create(on("k", "", from(w.p.Rev+2)))
	w.Progress() // one of them waits for the future
	w.Do(put("k", "2"))
	w.Progress()
	w.Do(put("k", "3"))
	w.Progress()
	w.Cancel(0)
	w.Cancel(1)
	w.Cancel(2)
	w.Progress()
	w.Cancel(3)
	w.Progress() // none is left
	w.Create(on("b", "a"))
	w.Progress() // a refused one does not count
	w.Create(on("k", ""))
	w.Progress()
}

// watchLateProgress has requests for progress that etcd reads after they were believed to have no
// answer, and that it would answer then.
func watchLateProgress(w *Watch) {
	w.Create(on("k", ""))
	w.Create(on("k", "", from(w.p.Rev+1)))
	w.p.Etcd.Server.Pause()
	// Not in Progress, nor at its end: it must not depend on when this happens.
	time.AfterFunc(3*quiet, w.p.Etcd.Server.Resume)
	w.Progress()
	w.Do(put("k", "1"))
	for range 3 {
		w.Progress()
		w.Do(put("k", "2"))
	}
}

func watchLarge(w *Watch) {
	w.Create(on("big", "bih", prevKV))
	w.Create(on("big", "bih", prevKV, fragments))
	big := strings.Repeat("v", 1<<20)
	for i := range 4 {
		w.Do(put(fmt.Sprint("big", i), big))
	}
	// One revision of several MiB, live and from the past.
	w.Do(del("big", "bih"))
	w.Create(on("big", "bih", from(2), fragments))
	w.Create(on("big", "bih", from(2), prevKV))
	// A catch-up over more revisions than etcd puts in one response.
	for i := range 1200 {
		w.p.Do(put("small", fmt.Sprint(i)))
	}
	w.follow()
	w.settle("many puts", 0)
	w.Create(on("small", "", from(2)))
	w.Create(on("small", "", from(2), prevKV, fragments))
}

// TestWatchGenerated runs a random script on one stream: VIGIL_DIFF_STEPS of it, from VIGIL_SEED.
func TestWatchGenerated(t *testing.T) {
	t.Parallel()
	steps := int(setting(t, "VIGIL_DIFF_STEPS", 1000))
	p := NewPair(t)
	w := NewWatch(t, p)
	g := narrow(seed(t), 1, p.Rev)
	for range steps {
		switch n := g.rng.IntN(100); {
		case n < 35:
			w.Do(g.put())
		case n < 45:
			w.Do(g.del())
		case n < 65:
			w.Do(g.txn(2, nil))
		case n < 67:
			w.Do(&pb.CompactionRequest{Revision: g.revision(), Physical: g.one(2)})
			g.compacted = w.compactAt
		case n < 86:
			w.Create(g.watch())
		case n < 97:
			w.Cancel(g.watchID(w))
		default:
			// One that is not answered takes long to believe; those are in the list by hand.
			if w.answersProgress() {
				w.Progress()
			}
		}
		g.rev = p.Rev
		if w.broken || slices.ContainsFunc(p.Differences,
			func(d Difference) bool { return d.Why == "" }) {
			t.Errorf("step %d differs", w.steps)
			break
		}
	}
	t.Logf("%d events, %d watchers live at the end", len(w.journal), len(w.live))
	p.Finish(t, &tally)
}

func (g *generator) watch() *pb.WatchCreateRequest {
	r := &pb.WatchCreateRequest{Key: g.key(), RangeEnd: g.end(), PrevKv: g.one(2),
		Fragment: g.one(3), ProgressNotify: g.one(3)}
	if g.one(2) {
		r.StartRevision = g.revision()
	}
	if g.one(4) {
		r.WatchId = g.rng.Int64N(30)
	}
	for range g.rng.IntN(6) - 3 {
		r.Filters = append(r.Filters, pb.WatchCreateRequest_FilterType(g.rng.IntN(2)))
	}
	return r
}

// watchID is mostly that of a watcher.
func (g *generator) watchID(w *Watch) int64 {
	var known []int64
	for id := range w.live {
		known = append(known, id)
	}
	for id := range w.compacted {
		known = append(known, id)
	}
	if len(known) == 0 || g.one(10) {
		return g.rng.Int64N(30) - 2
	}
	slices.Sort(known) // the script depends on the seed alone
	return pick(g, known)
}

// A watcher that begins in the past gets the newest revision of the store with every response,
// however far the events of the response have come: clients compute from it how far behind they
// are.
func TestWatchBehindHeader(t *testing.T) {
	t.Parallel()
	p := NewPair(t)
	for i := range 1100 {
		p.Do(put("a", fmt.Sprint(i)))
	}
	for _, s := range []*Side{p.Etcd, p.Subject} {
		w, err := pb.NewWatchClient(s.Conn).Watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		create := &pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 1}
		if err := w.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
			t.Fatal(err)
		}
		responses := 0
		for last := int64(0); last < p.Rev; responses++ {
			r, err := w.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if n := len(r.Events); n > 0 {
				last = r.Events[n-1].Kv.ModRevision
			}
			if r.Header.Revision != p.Rev {
				t.Errorf("subject %v: a response with events up to %d has the revision %d, the store is at %d", s == p.Subject, last, r.Header.Revision, p.Rev)
			}
		}
		if responses < 3 {
			t.Errorf("the events came in %d responses, which shows nothing", responses-1)
		}
	}
	p.Finish(t, &tally)
}
