package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"vigil/sim/check"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/link"
	"vigil/test/proc"
)

const (
	members = 3
	// snapshotCount and catchUp let members need snapshots early.
	snapshotCount = 300
	catchUp       = 20
	// searching bounds the search for an order of the operations on one key.
	searching = time.Minute
)

// run is a cluster with its clients and watchers.
type run struct {
	*group
	began    time.Time
	rec      check.Recorder
	all      check.SharedHistory
	clients  []*client // that ask for linearizable reads and write
	readers  []*client // of serializable reads
	last     *client   // of the run itself
	ids      int       // of clients so far
	watchers []*watcher
	ended    []check.Record     // of watchers that have ended
	at       map[*slot]*watcher // watchers of all keys that stay at a member
	acks     atomic.Int64
	// pending are writes of unknown outcome of former rounds that may still take effect.
	pending []check.Op
	// compacted is the highest revision that was asked to be compacted.
	compacted atomic.Int64
	failed    struct {
		sync.Mutex
		v check.Violations
	}
	figures map[string]*figures
	counts  map[string]int
	faults  int
	// skipped is set by a fault that cannot be injected here.
	skipped bool
	// soak adds disturbances to the faults.
	soak bool
}

// figures are those of all rounds of a fault.
type figures struct {
	rounds, ops int
	lost        int           // packets
	took, gap   time.Duration // the longest ones
}

// newRun runs a cluster whose members are connected by a switch, or through proxies if that is nil.
func newRun(t *testing.T, seed uint64, wire *link.Switch) *run {
	rng := rand.New(rand.NewPCG(seed, 0))
	r := &run{began: time.Now(), at: map[*slot]*watcher{}, figures: map[string]*figures{},
		counts: map[string]int{}}
	r.group = newGroup(t, rng, wire, fmt.Sprintf("--snapshot-count=%d", snapshotCount),
		fmt.Sprintf("--snapshot-catchup-entries=%d", catchUp),
		"--watch-progress-notify-interval=1s")
	everybody := append(slices.Clone(r.slots), r.spare)
	var endpoints []string
	for _, s := range everybody {
		endpoints = append(endpoints, s.endpoint())
	}

	r.last = r.newClient(nil, endpoints...)
	first := r.last.do(t.Context(), check.Put, keys[0])
	if first.Outcome != check.Acked {
		t.Fatalf("the first write: %s", first.Err)
	}
	r.rec.Take()
	r.all.H = &check.History{Base: first.Rev,
		Start: map[string]check.Item{keys[0]: {Key: keys[0], Value: first.Value, Create: first.Rev,
			Mod: first.Rev, Version: 1}}}

	for _, s := range everybody {
		r.clients = append(r.clients, r.newClient(s, s.endpoint()), r.newClient(s, s.endpoint()))
		r.readers = append(r.readers, r.newClient(s, s.endpoint()))
	}
	for _, s := range r.slots {
		r.opens(s)
	}
	r.clients = append(r.clients, r.newClient(nil, endpoints...))
	r.addWatcher(&watcher{all: &r.all}, "all keys at one member after the other", "",
		"", endpoints...)
	slices.Reverse(endpoints)
	r.clients = append(r.clients, r.newClient(nil, endpoints...))
	r.addWatcher(&watcher{}, "some keys at one member after the other", "k/b", "k/e", endpoints...)
	t.Cleanup(func() {
		for _, w := range r.watchers {
			w.stop()
			<-w.done
		}
	})
	return r
}

func (r *run) clock() time.Duration { return time.Since(r.began) }

func (r *run) fork() *rand.Rand { return rand.New(rand.NewPCG(r.rng.Uint64(), r.rng.Uint64())) }

func (r *run) dial(endpoints ...string) *clientv3.Client {
	c, err := r.group.dial(endpoints...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (r *run) newClient(s *slot, endpoints ...string) *client {
	return r.clientOn(r.dial(endpoints...), s)
}

func (r *run) clientOn(conn *clientv3.Client, s *slot) *client {
	r.ids++
	c := &client{Client: conn, id: r.ids, member: -1, slot: s, clock: r.clock, rng: r.fork(),
		rec: &r.rec, acks: &r.acks, seen: map[string]int64{}}
	if s != nil {
		c.member = s.n
	}
	return c
}

// probe sends a member reads that were not called before now, and returns a function that waits for
// their end.
func (r *run) probe(s *slot) (wait func()) {
	var reading sync.WaitGroup
	for n := range 2 * len(keys) {
		c := r.clientOn(s.client, s)
		reading.Go(func() { c.do(r.t.Context(), check.Get, keys[n%len(keys)]) })
	}
	return reading.Wait
}

// opens begins to ask a member that has come to an empty slot.
func (r *run) opens(s *slot) {
	s.voter.Store(true)
	r.at[s] = r.addWatcher(&watcher{all: &r.all}, "all keys at "+s.node, "", "", s.endpoint())
}

// closes undoes opens before the slot becomes empty.
func (r *run) closes(s *slot) {
	s.voter.Store(false)
	w := r.at[s]
	w.stop()
	<-w.done
	w.R.Partial = true
	r.ended = append(r.ended, w.R)
	r.watchers = slices.DeleteFunc(r.watchers, func(o *watcher) bool { return o == w })
}

func (r *run) addWatcher(w *watcher, name, from, to string, endpoints ...string) *watcher {
	w.R = check.Record{Name: name, From: from, To: to, Next: r.all.Last() + 1}
	w.clock, w.rng, w.done = r.clock, r.fork(), make(chan struct{})
	for _, e := range endpoints {
		w.clients = append(w.clients, r.dial(e))
	}
	w.failed = func(format string, args ...any) {
		r.failed.Lock()
		defer r.failed.Unlock()
		r.failed.v.Add(format, args...)
	}
	ctx, stop := context.WithCancel(r.t.Context())
	w.stop = stop
	r.watchers = append(r.watchers, w)
	go w.run(ctx)
	return w
}

// hold lets the clients run for some time.
func (r *run) hold(d time.Duration) { time.Sleep(d) }

// progress waits for n more acknowledged writes.
func (r *run) progress(n int64) {
	r.t.Helper()
	from := r.acks.Load()
	r.until("acknowledged writes",
		func() (bool, any) { return r.acks.Load() >= from+n, r.acks.Load() - from })
}

// recover waits until new writes succeed.
func (r *run) recover() {
	r.t.Helper()
	r.progress(int64(len(r.clients)) + 20)
}

// round lets clients run, injects a fault, heals it, lets the clients end, and checks everything.
func (r *run) round(f fault) {
	r.t.Helper()
	began := r.clock()
	ctx, stop := context.WithCancel(r.t.Context())
	defer stop()
	var working sync.WaitGroup
	for _, c := range r.clients {
		working.Go(func() { c.work(ctx, check.Strong) })
	}
	for _, c := range r.readers {
		working.Go(func() { c.work(ctx, check.Weak) })
	}
	r.progress(50)
	also := ""
	if r.soak {
		also = r.disturb(ctx, &working)
	}
	injected := r.clock()
	r.skipped = false
	lost := r.lost()
	f.inject(r)
	lost = r.lost() - lost
	r.heal()
	r.progress(50)
	over := r.clock()
	stop()
	working.Wait()
	end := r.settle()
	ops, h := r.rec.Take(), r.all.Take(end)
	r.sum(f, also, ops, lost, began, injected, over)
	if v := r.check(h, ops); len(v) > 0 {
		r.t.Fatalf("%s%s: %d violations:\n%s", f.name, also, len(v), strings.Join(v, "\n"))
	}
}

// settle makes a last write, and waits until all members and watchers have it. It returns its
// revision. A write whose client has timed out may follow it: it belongs to the next round.
func (r *run) settle() int64 {
	r.t.Helper()
	var end check.Op
	r.until("a last write", func() (bool, any) {
		end = r.last.do(r.t.Context(), check.Put, keys[r.rng.IntN(len(keys))])
		return end.Outcome == check.Acked, end.Err
	})
	r.agree(end.Rev)
	r.until("the watchers have everything", func() (bool, any) {
		if r.all.Last() < end.Rev {
			return false, fmt.Sprintf("all are at %d or below, not at %d", r.all.Last(), end.Rev)
		}
		for _, w := range r.watchers {
			if last := r.all.Newest(&w.SharedRecord, end.Rev); !w.Has(last) {
				return false, fmt.Sprintf("%s is at %d, not at %d", w.R.Name, w.Resume()-1, last)
			}
		}
		return true, nil
	})
	return end.Rev
}

// check checks a round.
func (r *run) check(h *check.History, ops []check.Op) check.Violations {
	late := r.clock() - time.Minute
	all := append(slices.Clone(r.pending), ops...)
	v := check.Check(h, all, searching)
	r.pending = slices.DeleteFunc(slices.Clone(all), func(o check.Op) bool {
		return !o.Writes() || o.Outcome != check.Unknown || o.Call < late || happened(h, &o)
	})
	v = append(v, check.CheckLocal(ops)...)
	t := h.Timeline()
	records := r.ended
	r.ended = nil
	for _, w := range r.watchers {
		records = append(records, w.Take(h.Last()))
	}
	for n := range records {
		for _, m := range records[n].Messages {
			r.counts["events received"] += len(m.Events)
			if len(m.Events) == 0 {
				r.counts["notifications of progress and compaction"]++
			}
		}
		v = append(v, check.CheckWatch(h, t, &records[n],
			check.Compactions{{Rev: r.compacted.Load()}})...)
	}
	r.failed.Lock()
	defer r.failed.Unlock()
	if v = append(v, r.failed.v...); len(v) > 0 {
		r.save("history.json", h)
		r.save("operations.json", all)
		r.save("watchers.json", records)
	}
	return v
}

// save keeps a record of a round that failed.
func (r *run) save(name string, what any) {
	dir, err := r.kept()
	if err == nil {
		var b []byte
		if b, err = json.MarshalIndent(what, "", " "); err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
	}
	if err != nil {
		r.t.Log(err)
	}
}

// happened reports whether a write of unknown outcome is in the history.
func happened(h *check.History, o *check.Op) bool {
	return o.Kind != check.Del && slices.ContainsFunc(h.Revs, func(r check.Revision) bool {
		return slices.ContainsFunc(r.Events, func(e check.Event) bool { return e.Value == o.Value })
	})
}

// sum adds a round to the figures.
func (r *run) sum(f fault, also string, ops []check.Op, lost int, began, injected,
	over time.Duration) {
	if r.skipped {
		r.t.Logf("%s: not here", f.name)
		return
	}
	s := r.figures[f.name]
	if s == nil {
		s = &figures{}
		r.figures[f.name] = s
	}
	var acks []time.Duration
	for _, o := range ops {
		r.counts[string(o.Kind)+", "+string(o.Outcome)]++
		if o.Writes() && o.Outcome == check.Acked && o.Ret >= injected && o.Ret <= over {
			acks = append(acks, o.Ret)
		}
	}
	slices.Sort(acks)
	gap, before := time.Duration(0), injected
	for _, at := range append(acks, over) {
		gap, before = max(gap, at-before), at
	}
	r.faults++
	s.rounds, s.ops, s.lost = s.rounds+1, s.ops+len(ops), s.lost+lost
	s.took, s.gap = max(s.took, r.clock()-began), max(s.gap, gap)
	r.t.Logf("%-42s %6d operations in %5.1fs, longest time without a write %5.2fs, revision %d%s",
		f.name, len(ops), (r.clock() - began).Seconds(), gap.Seconds(), r.all.H.Base, also)
}

// report logs the figures.
func (r *run) report() {
	r.t.Logf("%s: %d faults in %v, %d snapshots installed, no violation", proc.Subject(), r.faults,
		r.clock().Round(time.Second), r.count(installed()))
	for _, k := range slices.Sorted(maps.Keys(r.counts)) {
		r.t.Logf("%9d %s", r.counts[k], k)
	}
	for _, f := range slices.Concat(faults, packetFaults) {
		if s := r.figures[f.name]; s != nil {
			lost := ""
			if r.wire != nil {
				lost = fmt.Sprintf(", %6d packets lost", s.lost)
			}
			r.t.Logf("%-42s %3d times, %7d operations, longest time without a write %5.2fs%s",
				f.name, s.rounds, s.ops, s.gap.Seconds(), lost)
		}
	}
	for _, f := range packetFaults {
		if s := r.figures[f.name]; s != nil && s.lost == 0 {
			r.t.Errorf("%s: no packet was lost", f.name)
		}
	}
}
