package watch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
)

// TestRandom lets clients with random watchers, speeds, cancels and reconnects follow a random
// history with compactions and snapshots, under random budgets, and compares every response with
// the history. VIGIL_WATCH_RUNS is the number of histories, VIGIL_WATCH_SEED the seed of the first.
func TestRandom(t *testing.T) {
	runs, seed := 25, uint64(time.Now().UnixNano())
	if s := os.Getenv("VIGIL_WATCH_RUNS"); s != "" {
		runs, _ = strconv.Atoi(s)
	}
	if s := os.Getenv("VIGIL_WATCH_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	var total tally
	for i := range runs {
		seed := seed + uint64(i)
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomRun(t, seed, &total) })
		}) {
			break
		}
	}
	t.Logf("%d responses, %d events, %d fragments, %d prev_kv, %d progress, %d compacted, %d reconnects, %d fell behind, %d gaps, %d in cohorts",
		total.responses.Load(), total.events.Load(), total.fragments.Load(), total.prev.Load(), total.progress.Load(),
		total.compacted.Load(), total.reconnects.Load(), total.behind.Load(), total.gaps.Load(), total.cohorts.Load())
}

type tally struct {
	responses, events, fragments, prev, progress, compacted, reconnects, behind, gaps, cohorts atomic.Int64
}

func between(rng *rand.Rand, lo, hi int64) int64 { return lo + rng.Int64N(hi-lo+1) }

func randomOptions(rng *rand.Rand) Options {
	return Options{
		RingBytes:         between(rng, 1_000, 50_000),
		StreamBytes:       between(rng, 500, 20_000),
		MemberBytes:       between(rng, 5_000, 500_000),
		ResponseBytes:     between(rng, 100, 3_000),
		ResponseRevisions: int(between(rng, 1, 20)),
		FragmentBytes:     between(rng, 200, 2_000),
		NextBytes:         between(rng, 100, 5_000),
		CatchUpWorkers:    int(between(rng, 1, 4)),
		CatchUpBytes:      int(between(rng, 100, 5_000)),
		CatchUpReadRate:   between(rng, 100_000, 1<<30),
		CatchUpSendRate:   between(rng, 100_000, 1<<30),
		CatchUpScans:      int(between(rng, 1, 8)),
		CatchUpNear:       between(rng, 1, 50),
		slice:             int(between(rng, 1, 20)),
		ResponseTime:      time.Duration(between(rng, 0, 3_000)) * time.Microsecond,
		GatherTime:        time.Duration(between(rng, 1, 50)) * time.Millisecond,
		ProgressInterval:  time.Duration(between(rng, 100, 1_000)) * time.Millisecond,
	}
}

const randomKeys = "abcdefghijklmnop"

func randomRun(t *testing.T, seed uint64, total *tally) {
	rng := rand.New(rand.NewPCG(seed, 0))
	src := newMemSource()
	o := randomOptions(rng)
	h := New(src, o)
	defer h.Close()
	var wrote atomic.Bool
	var held atomic.Pointer[hold]
	var wg sync.WaitGroup
	for i := range between(rng, 1, 8) {
		c := &client{t: t, rng: rand.New(rand.NewPCG(seed, uint64(i)+1)), src: src, hub: h, wrote: &wrote, held: &held, total: total}
		wg.Go(c.run)
	}
	writeRandom(rng, src, h, &held)
	wrote.Store(true)
	wg.Wait()
	synctest.Wait()
	checkValid(t, h)
	m := h.Metrics()
	total.behind.Add(m.FellBehindTotal)
	total.gaps.Add(m.GapsTotal)
	if m.Watchers != 0 || m.Streams != 0 || m.QueuedBytes != 0 {
		t.Errorf("left behind: %+v", m)
	}
}

// writeRandom commits and publishes like the apply goroutine: several revisions at once, and sometimes it skips some, as
// after a snapshot. held is the oldest hold that is not released.
func writeRandom(rng *rand.Rand, src *memSource, h *Hub, held *atomic.Pointer[hold]) {
	published := int64(1)
	var holds []hold
	release := func(n int) {
		number := holds[n-1].number
		if holds = holds[n:]; len(holds) > 0 {
			held.Store(&holds[0])
		} else {
			held.Store(nil)
		}
		h.Release(number)
	}
	defer func() {
		if len(holds) > 0 {
			release(len(holds))
		}
	}()
	for range between(rng, 50, 400) {
		var events []kv.Event
		var rev int64
		group := between(rng, 1, 3)
		snapshot := rng.IntN(60) == 0
		if snapshot {
			group = between(rng, 1, 30)
		}
		for range group {
			var ops []op
			used := map[string]bool{}
			n := between(rng, 1, 4)
			if rng.IntN(30) == 0 {
				n = between(rng, 5, 16)
			}
			for range n {
				key := randomKeys[rng.IntN(len(randomKeys)):][:1]
				if used[key] {
					continue
				}
				used[key] = true
				size := between(rng, 0, 40)
				if rng.IntN(20) == 0 {
					size = between(rng, 100, 4_000)
				}
				ops = append(ops, op{key: key, value: strings.Repeat("v", int(size)), del: rng.IntN(4) == 0})
			}
			r, ev := src.commit(ops...)
			rev, events = r, append(events, ev...)
		}
		switch {
		case rng.IntN(15) == 0:
			h.Withhold()
			holds = append(holds, hold{h.Withheld(), published})
			held.Store(&holds[0])
		case len(holds) > 0 && rng.IntN(6) == 0:
			release(1 + rng.IntN(len(holds)))
		}
		published = max(published, rev)
		if snapshot {
			h.Reset(rev)
		} else {
			h.Publish(rev, events)
		}
		if rng.IntN(20) == 0 {
			cur := src.Revision()
			src.compact(max(src.CompactRevision(), cur-rng.Int64N(min(cur, 60))))
		}
		if rng.IntN(3) == 0 {
			time.Sleep(time.Duration(between(rng, 0, 40)) * time.Millisecond)
		}
	}
}

// client is one client with one stream at a time.
type client struct {
	t     *testing.T
	rng   *rand.Rand
	src   *memSource
	hub   *Hub
	wrote *atomic.Bool
	held  *atomic.Pointer[hold]
	total *tally

	stream   *Stream
	ready    *Ready // reports the stream; nil if it is read by Next
	watches  map[int64]*watch
	asked    []*watch // creates without an answer
	taken    map[int64]bool
	progress int64 // newest revision that all watchers are known to have reached
	whole    int64 // the watcher whose last fragment is still to come; InvalidID if there is none
}

// watch is the client's state of one watcher.
type watch struct {
	req      CreateRequest
	refused  string
	pos      int64 // everything below was seen
	pieces   []*mvccpb.Event
	tolerate bool // a cancel is under way
	ended    bool // the hub canceled it
}

func (c *client) run() {
	c.connect()
	for !c.wrote.Load() {
		switch n := c.rng.IntN(100); {
		case n < 12:
			r := c.randomRequest()
			c.create(r)
			for r.ID = 0; c.rng.IntN(3) == 0; { // others that get the same
				c.create(r)
			}
		case n < 16:
			c.cancelOne()
		case n < 26:
			c.stream.Progress()
		case n < 28:
			c.reconnect()
		case n < 30:
			c.stream.Cancel(between(c.rng, 500, 600))
		case n < 32:
			time.Sleep(time.Duration(between(c.rng, 50, 1000)) * time.Millisecond)
		default:
			c.read(time.Duration(between(c.rng, 0, 20)) * time.Millisecond)
		}
	}
	c.finish()
	c.countCohorts()
	c.stream.Close()
}

// countCohorts counts the events that were queued for whole cohorts.
func (c *client) countCohorts() {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	c.stream.mu.Lock()
	defer c.stream.mu.Unlock()
	for w := range c.stream.watchers.all() {
		if w.sums != nil {
			c.total.cohorts.Add(w.sums.events)
		}
	}
}

// finish reads until all watchers have reached the end of history.
func (c *client) finish() {
	end := c.src.Revision()
	for len(c.asked) > 0 && c.read(200*time.Millisecond) {
	}
	for id, w := range c.watches {
		if w.req.StartRev > end {
			c.cancel(id)
		}
	}
	c.create(CreateRequest{Key: []byte("a"), End: []byte{0}})
	inStep := func() bool {
		for _, w := range c.watches {
			if w.ended || w.pos <= end {
				return false
			}
		}
		return len(c.asked) == 0 && c.progress >= end
	}
	for tries := 0; !inStep(); tries++ {
		if tries > 10_000 {
			c.t.Errorf("not in step with revision %d: progress %d, %d creates unanswered", end, c.progress, len(c.asked))
			for id, w := range c.watches {
				c.t.Errorf("watch %d is at %d", id, w.pos)
			}
			return
		}
		c.stream.Progress()
		c.read(50 * time.Millisecond)
	}
}

func (c *client) connect() {
	c.stream, c.ready = c.hub.NewStream(StreamInfo{Client: "test"}), nil
	if c.rng.IntN(2) == 0 {
		c.ready = NewReady()
		c.stream.NotifyReady(c.ready, c)
	}
	c.watches, c.taken, c.asked = map[int64]*watch{}, map[int64]bool{}, nil
	c.progress, c.whole = 0, InvalidID
}

// reconnect opens another stream and resumes there.
func (c *client) reconnect() {
	old := c.watches
	c.stream.Close()
	c.connect()
	for _, w := range old {
		w.req.StartRev, w.req.ID = max(w.pos, 1), 0
		c.create(w.req)
	}
	c.total.reconnects.Add(1)
}

func (c *client) randomRequest() CreateRequest {
	rng := c.rng
	r := CreateRequest{
		NoPut: rng.IntN(8) == 0, NoDelete: rng.IntN(8) == 0, PrevKV: rng.IntN(3) == 0,
		ProgressNotify: rng.IntN(3) == 0, Fragment: rng.IntN(4) == 0,
	}
	key := func() []byte { return []byte{randomKeys[rng.IntN(len(randomKeys))]} }
	r.Key = key()
	switch rng.IntN(4) {
	case 0:
		r.End = []byte{0}
		if rng.IntN(2) == 0 {
			r.Key = nil
		}
	case 1:
		r.End = key()
	}
	cur := c.src.Revision()
	switch rng.IntN(10) {
	case 0, 1, 2:
		r.StartRev = between(rng, 1, cur)
	case 3, 4:
		r.StartRev = max(1, cur-between(rng, 0, 30))
	case 5:
		r.StartRev = cur + between(rng, 1, 30)
	case 6:
		r.StartRev = cur + 1_000_000
	case 7:
		r.StartRev = c.src.CompactRevision()
	}
	if rng.IntN(5) == 0 {
		r.ID = between(rng, 1000, 1020)
	}
	if rng.IntN(30) == 0 {
		r.StartRev = -1
	}
	return r
}

func (c *client) create(r CreateRequest) {
	w := &watch{req: r, pos: r.StartRev}
	switch {
	case r.StartRev < 0:
		w.refused = ReasonCompacted
	case len(r.End) > 0 && r.End[0] != 0 && bytes.Compare(r.Key, r.End) >= 0:
		w.refused = ReasonEmptyRange
	case c.taken[r.ID]:
		w.refused = ReasonDuplicateID
	case r.ID != 0:
		c.taken[r.ID] = true
	}
	c.asked = append(c.asked, w)
	for done := false; !done; done = c.stream.Create(w.req) {
		w.req.Withheld = c.hub.Withheld()
	}
}

func (c *client) cancelOne() {
	for id := range c.watches {
		c.cancel(id)
		return
	}
}

func (c *client) cancel(id int64) {
	c.stream.Cancel(id)
	delete(c.taken, id)
	c.watches[id].tolerate = true
	for c.watches[id] != nil { // until its answer: the id may be used again
		if !c.read(time.Second) {
			c.t.Errorf("no answer to the cancel of %d", id)
			return
		}
	}
}

// read reads for at most d, and reports whether there was something.
func (c *client) read(d time.Duration) bool {
	ctx, cancel := context.WithTimeout(c.t.Context(), d)
	defer cancel()
	rs, err := c.next(ctx)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		c.t.Errorf("Next: %v", err)
	}
	for _, r := range rs {
		for _, one := range r.each(nil) {
			c.handle(one)
		}
	}
	return err == nil
}

// next is Next, or the same by Take.
func (c *client) next(ctx context.Context) ([]Response, error) {
	if c.ready == nil {
		return c.stream.Next(ctx, nil)
	}
	for {
		if rs, err := c.stream.Take(nil, 1<<uint(c.rng.IntN(20))); err != nil || len(rs) > 0 {
			return rs, err
		}
		owners, ok := c.ready.Wait(ctx.Done(), nil)
		if !ok {
			return nil, ctx.Err()
		}
		for _, o := range owners { // more than one after a Wait that has timed out
			if o != c {
				c.t.Errorf("reported as %v", o)
			}
		}
	}
}

func (c *client) handle(r Response) {
	c.total.responses.Add(1)
	fail := func(format string, args ...any) {
		c.t.Helper()
		c.t.Errorf("%s\n%s", fmt.Sprintf(format, args...), show(c.t, r))
	}
	// clientv3 joins fragments that follow each other on the stream.
	if c.whole != InvalidID && r.WatchID != c.whole {
		fail("inside the fragments of watch %d", c.whole)
	}
	if c.whole = InvalidID; r.Fragment {
		c.whole = r.WatchID
	}
	if r.Created {
		w := c.asked[0]
		c.asked = c.asked[1:]
		switch {
		case r.Canceled:
			if r.Reason != w.refused || r.WatchID != InvalidID {
				fail("refused, expected %q", w.refused)
			}
			return
		case w.refused != "":
			fail("expected to be refused with %q", w.refused)
		case w.req.ID != 0 && r.WatchID != w.req.ID:
			fail("asked for id %d", w.req.ID)
		case c.watches[r.WatchID] != nil:
			fail("id in use")
		case w.req.StartRev == 0:
			w.pos = r.Revision + 1
		}
		c.watches[r.WatchID] = w
		return
	}
	if r.WatchID == InvalidID {
		c.total.progress.Add(1)
		if len(c.watches) == 0 {
			fail("progress of a stream without watchers")
		}
		for id, w := range c.watches {
			if w.ended {
				continue
			}
			if w.req.StartRev > r.Revision {
				fail("progress while watch %d waits for revision %d", id, w.req.StartRev)
			}
			c.reached(r, w)
		}
		c.progress = max(c.progress, r.Revision)
		return
	}
	w := c.watches[r.WatchID]
	if w == nil {
		fail("response to an unknown watcher")
		return
	}
	if r.Canceled {
		if len(w.pieces) > 0 {
			fail("canceled inside fragments")
		}
		if r.CompactRevision != 0 {
			c.total.compacted.Add(1)
			w.ended = true
			if r.CompactRevision > c.src.CompactRevision() || w.pos >= r.CompactRevision {
				fail("canceled at %d, compacted is %d", w.pos, c.src.CompactRevision())
			}
			if !w.tolerate { // else the answer to our cancel follows
				c.stream.Cancel(r.WatchID)
				delete(c.taken, r.WatchID)
				w.tolerate = true
				again := w.req
				again.StartRev, again.ID = r.CompactRevision, 0
				c.create(again)
			}
			return
		}
		if !w.tolerate || r.Reason != "" {
			fail("canceled without being asked")
		}
		delete(c.watches, r.WatchID)
		return
	}
	held := c.held.Load()
	for _, e := range r.Events {
		w.pieces = append(w.pieces, decode(c.t, e))
		if rev := w.pieces[len(w.pieces)-1].Kv.ModRevision; held != nil && w.req.Withheld < held.number && rev > held.rev {
			fail("an event that is kept back")
		}
	}
	if r.Fragment {
		c.total.fragments.Add(1)
		if !w.req.Fragment {
			fail("a fragment that was not requested")
		}
		return
	}
	events := w.pieces
	w.pieces = nil
	c.total.events.Add(int64(len(events)))
	if len(events) == 0 {
		c.total.progress.Add(1)
		if !w.req.ProgressNotify {
			fail("progress that was not requested")
		}
		c.reached(r, w)
		return
	}
	// Ordered, unique, reliable and atomic: exactly the events of the history up to the last one's
	// revision that were not seen before.
	last := events[len(events)-1].Kv.ModRevision
	if newest := c.src.Revision(); r.Revision < last || r.Revision > newest {
		fail("header revision %d with an event of %d, the newest is %d", r.Revision, last, newest)
	}
	want := c.expected(w, w.pos, last)
	if len(want) != len(events) {
		fail("%d events for [%d, %d], want %d", len(events), w.pos, last, len(want))
		return
	}
	for i := range want {
		prev := events[i].PrevKv
		events[i].PrevKv = nil
		if !proto.Equal(events[i], want[i]) {
			fail("event %d is %v, want %v", i, events[i], want[i])
		}
		c.checkPrev(r, w, want[i], prev)
	}
	w.pos = last + 1
}

// reached checks that nothing at or below the response's revision is missing.
func (c *client) reached(r Response, w *watch) {
	if missing := c.expected(w, w.pos, r.Revision); len(missing) > 0 || len(w.pieces) > 0 {
		c.t.Errorf("at %d with %d events and %d pieces to come\n%s", w.pos, len(missing), len(w.pieces), show(c.t, r))
	}
	w.pos = max(w.pos, r.Revision+1)
}

func (c *client) checkPrev(r Response, w *watch, e *mvccpb.Event, prev *mvccpb.KeyValue) {
	c.src.mu.Lock()
	defer c.src.mu.Unlock()
	want := c.src.at(string(e.Kv.Key), e.Kv.ModRevision-1)
	switch {
	case prev == nil && w.req.PrevKV && want != nil && e.Kv.ModRevision-1 >= c.src.mu.compact:
		c.t.Errorf("prev_kv of %v is missing\n%s", e, show(c.t, r))
	case prev != nil && (!w.req.PrevKV || !proto.Equal(prev, want)):
		c.t.Errorf("prev_kv of %v is %v, want %v\n%s", e, prev, want, show(c.t, r))
	case prev != nil:
		c.total.prev.Add(1)
	}
}

// expected returns the events of the revisions from..to that the watcher should receive.
func (c *client) expected(w *watch, from, to int64) []*mvccpb.Event {
	c.src.mu.Lock()
	defer c.src.mu.Unlock()
	var out []*mvccpb.Event
	for rev := max(from, 2); rev <= to; rev++ {
		for _, e := range c.src.mu.revs[rev-2] {
			if e.Delete && w.req.NoDelete || !e.Delete && w.req.NoPut || !w.contains(e.Key) {
				continue
			}
			ev := &mvccpb.Event{Kv: &mvccpb.KeyValue{}}
			if e.Delete {
				ev.Type = mvccpb.Event_DELETE
			}
			if err := proto.Unmarshal(e.KV, ev.Kv); err != nil {
				c.t.Error(err)
			}
			out = append(out, ev)
		}
	}
	return out
}

func (w *watch) contains(key []byte) bool {
	switch end := w.req.End; {
	case len(end) == 0:
		return bytes.Equal(key, w.req.Key)
	case len(end) == 1 && end[0] == 0:
		return bytes.Compare(key, w.req.Key) >= 0
	default:
		return bytes.Compare(key, w.req.Key) >= 0 && bytes.Compare(key, end) < 0
	}
}
