package proposal

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
)

// disk is a Space that admits everything until it has a shortage or refuses.
type disk struct{ shortage, refusal error }

// nobody is a Receiver and a Stage that do nothing.
type nobody struct{}

func (nobody) Receive([]kv.Outcome) {}
func (nobody) Post()                {}

func (d *disk) Shortage() error                          { return d.shortage }
func (d *disk) Admit(int64, Applying, []int64) error     { return d.refusal }
func (d *disk) Measure(context.Context) ([]int64, error) { return nil, nil }

// Requests that were added while there was room are not proposed when there is none: those that add
// to the store get the reason, and the others are proposed.
func TestQueueRejectsWithoutRoom(t *testing.T) {
	var space disk
	q := New(Options{Member: 1, MaxGroupBytes: 1 << 20, MaxGroupRequests: 2,
		MaxPendingBytes: 1 << 20, MaxRequestBytes: 1 << 20, Space: &space, Answers: nobody{}})
	put := &fsm.Request{Put: &kv.PutRequest{Key: []byte("k")}}
	del := &fsm.Request{DeleteRange: &kv.DeleteRangeRequest{Key: []byte("k")}}
	var calls []*Call
	for _, r := range []*fsm.Request{put, del, del, del, put} {
		c, err := q.StartWaited(t.Context(), *r, r.Cost(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, c)
	}
	space.shortage = kv.ErrNoSpace
	for _, want := range []int{1, 2, 0} {
		b, n := q.NextGroup(1), 0
		if b == nil {
			if want > 0 {
				t.Fatal("deletions do not go on")
			}
			continue
		}
		var d fsm.Decoder
		h, err := d.Reset(b)
		if err != nil {
			t.Fatal(err)
		}
		for ; ; n++ {
			if r, err := d.Next(); err != nil {
				t.Fatal(err)
			} else if r == nil {
				break
			} else if r.DeleteRange == nil {
				t.Error("a put goes on")
			}
		}
		if n != want || h.Count != want {
			t.Errorf("a group of %d requests, its header says %d, want %d", n, h.Count, want)
		}
	}
	for i, refused := range []bool{true, false, false, false, true} {
		select {
		case <-calls[i].ready:
			if err := calls[i].Result.Err; !refused || !errors.Is(err, kv.ErrNoSpace) {
				t.Errorf("request %d: %v", i, err)
			}
		default:
			if refused {
				t.Errorf("request %d waits", i)
			}
		}
	}
	if n := q.Pending(); n != 3 || q.mu.cost != 0 {
		t.Errorf("%d requests of %d bytes are counted, want 3 of 0", n, q.mu.cost)
	}
}

// A request for which the store and the queue have no room gets the reason that does not pass on
// its own.
func TestNoSpaceBeforeFullQueue(t *testing.T) {
	var space disk
	q := New(Options{Member: 1, MaxGroupBytes: 1 << 20, MaxGroupRequests: 2,
		MaxRequestBytes: 1 << 20, Space: &space, Answers: nobody{}})
	put := &fsm.Request{Put: &kv.PutRequest{Key: []byte("k")}}
	del := &fsm.Request{DeleteRange: &kv.DeleteRangeRequest{Key: []byte("k")}}
	if _, err := q.StartWaited(t.Context(), *put, put.Cost(),
		time.Now()); err != kv.ErrTooManyRequests {
		t.Errorf("a full queue: %v", err)
	}
	space.refusal = kv.ErrNoSpace
	if _, err := q.StartWaited(t.Context(), *put, put.Cost(), time.Now()); err != kv.ErrNoSpace {
		t.Errorf("a full queue and a full store: %v", err)
	}
	if _, err := q.StartWaited(t.Context(), *del, del.Cost(),
		time.Now()); err != kv.ErrTooManyRequests {
		t.Errorf("a deletion: %v", err)
	}
}

// Large requests leave room for small ones.
func TestQueueRoomForSmall(t *testing.T) {
	q := New(Options{Member: 1, MaxGroupBytes: 1 << 10, MaxGroupRequests: 1,
		MaxPendingBytes: 100 << 10, MaxRequestBytes: 1 << 20, Space: &disk{}, Answers: nobody{}})
	add := func(size int) error {
		_, err := q.StartWaited(t.Context(),
			fsm.Request{Put: &kv.PutRequest{Key: []byte("k"), Value: make([]byte, size)}}, 0,
			time.Now())
		return err
	}
	for n := 0; ; n++ {
		if err := add(2 << 10); err == kv.ErrTooManyRequests && n > 0 {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	small := 0
	for ; add(512) == nil; small++ {
	}
	if small < 10 {
		t.Errorf("%d small requests were accepted next to large ones", small)
	}
	if q.mu.bytes > q.o.MaxPendingBytes {
		t.Errorf("%d bytes are under way, more than %d", q.mu.bytes, q.o.MaxPendingBytes)
	}
}

// A group that the leader has refused fails, and no other one; a refusal of one that is proposed
// again is about the time before.
func TestQueueRefused(t *testing.T) {
	q := New(Options{Member: 1, MaxGroupBytes: 1 << 20, MaxGroupRequests: 1,
		MaxPendingBytes: 1 << 20, MaxRequestBytes: 1 << 20, Space: &disk{}, Answers: nobody{}})
	var calls []*Call
	for range 3 {
		c, err := q.StartWaited(t.Context(),
			fsm.Request{Put: &kv.PutRequest{Key: []byte("k"), Value: make([]byte, 100)}},
			100, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, c)
	}
	if _, err := q.Register(); err != nil {
		t.Fatal(err)
	}
	head := func() []byte { return bytes.Clone(q.NextGroup(1)[:fsm.HeaderSize+8]) }
	_, second, third := head(), head(), head()
	for _, b := range [][]byte{nil, second[:fsm.HeaderSize-1],
		bytes.Repeat([]byte{0}, fsm.HeaderSize), second, second} {
		q.FailRefused(b)
	}
	for i, c := range calls {
		select {
		case <-c.ready:
			if err := c.Result.Err; i != 1 || err != kv.ErrTooManyRequests {
				t.Errorf("request %d: %v", i, err)
			}
		default:
			if i == 1 {
				t.Error("the refused request waits")
			}
		}
	}
	if n := q.Outstanding(1); n != 2 || q.mu.cost != 200 || q.applying.Load() != 0 {
		t.Errorf("%d groups of %d bytes are outstanding, %d being applied; want 2 of 200, and 0", n,
			q.mu.cost, q.applying.Load())
	}
	q.Requeue(2)
	q.FailRefused(third)
	again := [2][]byte{q.NextGroup(2), q.NextGroup(2)}
	q.FailRefused(third)
	if n := q.Outstanding(2); n != 2 || again[1] == nil {
		t.Errorf("%d groups are outstanding", n)
	}
}

// A refused group never counts as being applied: a batch that is committed just then would take it
// out of the count a second time.
func TestRefusedIsNotApplied(t *testing.T) {
	q := New(Options{Member: 1, MaxGroupBytes: 1 << 20, MaxGroupRequests: 1,
		MaxPendingBytes: 1 << 20, MaxRequestBytes: 1 << 20, Space: &disk{}, Answers: nobody{}})
	stop := make(chan struct{})
	var apply sync.WaitGroup
	apply.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if n := q.Applying(); n != 0 {
				t.Errorf("%d bytes are being applied", n)
				return
			}
			q.NoteCommitted()
		}
	})
	defer apply.Wait()
	defer close(stop)
	for range 5_000 {
		c, err := q.StartWaited(t.Context(), fsm.Request{Put: &kv.PutRequest{Key: []byte("k")}},
			100, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		q.FailRefused(q.NextGroup(1))
		if c.Wait(t.Context()); c.Result.Err != kv.ErrTooManyRequests {
			t.Fatal(c.Result.Err)
		}
	}
}

// Results of a burst keep no memory after they were taken.
func TestResultsOfBurst(t *testing.T) {
	q := New(Options{Member: 1, MaxGroupBytes: 1 << 20, MaxGroupRequests: 1000,
		MaxPendingBytes: 1 << 30, MaxRequestBytes: 1 << 20, Space: &disk{}, Answers: nobody{}})
	const requests = 3 * mostKept
	for i := range requests {
		if err := q.Start(t.Context(), fsm.Request{Put: &kv.PutRequest{Key: []byte("k")}}, 1,
			kv.Completion{To: nobody{}, Tag: i}, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	q.Abandon(kv.ErrStopped)
	list := q.TakeResults(nil)
	if len(list) != requests {
		t.Errorf("%d results, want %d", len(list), requests)
	}
	q.Recycle(list...)
	if n := cap(q.results.mu.list); n > mostKept {
		t.Errorf("there is memory for %d results", n)
	}
}

// TestFreeGroups: groups are used again, and forgotten when they are not needed any more.
func TestFreeGroups(t *testing.T) {
	q := New(Options{Member: 1, MaxGroupBytes: 1 << 20, MaxGroupRequests: 1000,
		MaxPendingBytes: 1 << 30, MaxRequestBytes: 4 << 20, Space: &disk{}, Answers: nobody{}})
	// serve adds a request, and proposes its group.
	serve := func(size int) *Group {
		t.Helper()
		if err := q.Start(t.Context(),
			fsm.Request{Put: &kv.PutRequest{Key: []byte("k"), Value: make([]byte, size)}}, 1,
			kv.Completion{To: nobody{}}, time.Now()); err != nil {
			t.Fatal(err)
		}
		b := q.NextGroup(1)
		h, err := fsm.ParseHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		return q.Claim(h.Sequence)
	}
	end := func(g *Group) {
		g.AddResult(fsm.Result{Put: &kv.PutResult{}})
		q.Deliver(g.Resolve(nil))
		q.Release(g)
		q.Recycle(q.TakeResults(nil)...)
	}
	expire := func() {
		for range trimEvery {
			q.Expire(time.Time{})
		}
	}
	first := serve(1000)
	end(first)
	if again := serve(900); again != first {
		t.Error("a group is not used again")
	} else {
		end(again)
	}
	var list []*Group
	for range 2 * mostFree {
		list = append(list, serve(1000))
	}
	for _, g := range list {
		end(g)
	}
	if n := len(q.mu.free); n != mostFree {
		t.Errorf("%d groups are free, want %d", n, mostFree)
	}
	expire()
	for range 100 {
		end(serve(10))
	}
	if expire(); len(q.mu.free) != 1 {
		t.Errorf("%d groups are free while one is needed at a time", len(q.mu.free))
	}
	if expire(); len(q.mu.free) != 0 {
		t.Errorf("%d groups are free while none is needed", len(q.mu.free))
	}
	end(serve(keepGroup - 100))
	if len(q.mu.free) != 1 {
		t.Error("a large group is not kept")
	}
	if b := serve(10).buf; cap(b) < keepGroup/2 {
		t.Errorf("the next group has room for %d bytes", cap(b))
	}
}
