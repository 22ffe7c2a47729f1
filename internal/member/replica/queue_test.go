package replica

import (
	"errors"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
)

// Requests that came while there was room are not proposed when there is none: those that add to the store are
// refused by name, and the others go on.
func TestQueueTurnsAwayWithoutRoom(t *testing.T) {
	c := Config{MaxGroupBytes: 1 << 20, MaxGroupRequests: 2, MaxPendingBytes: 1 << 20, MaxRequestBytes: 1 << 20}
	q := newQueue(&c, 1)
	full := error(nil)
	q.room = func() error { return full }
	put := &fsm.Request{Put: &kv.PutRequest{Key: []byte("k")}}
	del := &fsm.Request{DeleteRange: &kv.DeleteRangeRequest{Key: []byte("k")}}
	var waiters []*waiter
	for _, r := range []*fsm.Request{put, del, del, del, put} {
		w := &waiter{done: make(chan struct{}, 1)}
		if _, err := q.add(t.Context(), r, w, r.Cost(), func(int64) error { return nil }); err != nil {
			t.Fatal(err)
		}
		waiters = append(waiters, w)
	}
	full = kv.ErrNoSpace
	for _, want := range []int{1, 2, 0} {
		b, n := q.Next(1), 0
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
		case <-waiters[i].done:
			if err := waiters[i].take().Err; !refused || !errors.Is(err, kv.ErrNoSpace) {
				t.Errorf("request %d: %v", i, err)
			}
		default:
			if refused {
				t.Errorf("request %d waits", i)
			}
		}
	}
	if n := q.pending(); n != 3 || q.mu.cost != 0 {
		t.Errorf("%d requests of %d bytes are counted, want 3 of 0", n, q.mu.cost)
	}
}
