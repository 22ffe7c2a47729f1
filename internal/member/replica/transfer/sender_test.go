package transfer

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"
)

// One transfer to a member, no more than the limit together, and the raft log is kept for them,
// within bounds.
func TestSending(t *testing.T) {
	s := NewSender(Options{MaxSending: 2, Logger: slog.New(slog.DiscardHandler)})
	defer s.Close()
	let := map[uint64]chan error{}
	begin := func(to uint64) bool {
		c := make(chan error, 1)
		ok := s.beginTransfer(to, func(context.Context) error { return <-c })
		if ok {
			let[to] = c
		}
		return ok
	}
	if !begin(1) || begin(1) || !begin(2) || begin(3) {
		t.Error("not one to each member, and two together")
	}
	if got := s.LimitTruncation(100, Log{Bytes: 5, Most: 10}); got != 100 {
		t.Errorf("a snapshot that is not cut yet keeps the log from %d on", got)
	}
	s.noteCut(1, 70)
	s.noteCut(2, 50)
	if got := s.LimitTruncation(100, Log{Bytes: 5, Most: 10}); got != 50 {
		t.Errorf("kept from %d on, want 50", got)
	}
	if got := s.LimitTruncation(30, Log{Bytes: 5, Most: 10}); got != 30 {
		t.Errorf("kept from %d on, want 30", got)
	}
	if got := s.LimitTruncation(100, Log{Bytes: 11, Most: 10}); got != 100 {
		t.Errorf("a log that is too large is kept from %d on", got)
	}
	close(let[2])
	await(t, "the end of a transfer",
		func() bool { return s.LimitTruncation(100, Log{Bytes: 5, Most: 10}) == 70 })
	if !begin(3) {
		t.Error("there is room for another")
	}
	let[1] <- errors.New("cut off")
	await(t, "the end of another",
		func() bool { return s.LimitTruncation(100, Log{Bytes: 5, Most: 10}) == 100 })
	if begin(1) {
		t.Error("an attempt that failed is repeated at once")
	}
	await(t, "the next attempt", func() bool { return begin(1) })
	close(let[1])
	close(let[3])
	s.Close()
	if begin(4) {
		t.Error("one began after the end")
	}
}

func await(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !reached(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s", what)
		}
	}
}
