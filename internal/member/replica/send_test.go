package replica

import (
	"context"
	"testing"
)

// One transfer to a member, no more than the limit together, and the raft log is kept for them, within
// bounds.
func TestSending(t *testing.T) {
	var s sending
	s.init()
	defer s.end()
	let := map[uint64]chan error{}
	begin := func(to uint64) bool {
		c := make(chan error, 1)
		ok := s.begin(to, 2, func(context.Context) error { return <-c })
		if ok {
			let[to] = c
		}
		return ok
	}
	if !begin(1) || begin(1) || !begin(2) || begin(3) {
		t.Error("not one to each member, and two together")
	}
	if got := s.limit(100, 10, 5); got != 100 {
		t.Errorf("a snapshot that is not cut yet keeps the log from %d on", got)
	}
	s.cut(1, 70)
	s.cut(2, 50)
	if got := s.limit(100, 10, 5); got != 50 {
		t.Errorf("kept from %d on, want 50", got)
	}
	if got := s.limit(30, 10, 5); got != 30 {
		t.Errorf("kept from %d on, want 30", got)
	}
	if got := s.limit(100, 10, 11); got != 100 {
		t.Errorf("a log that is too large is kept from %d on", got)
	}
	close(let[2])
	await(t, "the end of a transfer", func() bool { return s.limit(100, 10, 5) == 70 })
	if !begin(3) {
		t.Error("there is room for another")
	}
	let[1] <- errCut
	await(t, "the end of another", func() bool { return s.limit(100, 10, 5) == 100 })
	if begin(1) {
		t.Error("an attempt that failed is repeated at once")
	}
	await(t, "the next attempt", func() bool { return begin(1) })
	close(let[1])
	close(let[3])
	s.end()
	if begin(4) {
		t.Error("one began after the end")
	}
}
