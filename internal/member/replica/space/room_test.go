package space

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/replica/freespace"
	"vigil/internal/member/replica/handle"
	"vigil/internal/member/replica/proposal"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
	"vigil/internal/vfs/memfs"
)

// state is all that a Room depends on.
type state struct {
	room, roomToFree error
	bytes, kept      int64
	away             error
	applying         int64
}

func (s *state) CheckRoom() error            { return s.room }
func (s *state) CheckRoomForRemovals() error { return s.roomToFree }
func (s *state) Allocated() (int64, int64)   { return s.bytes, s.kept }
func (s *state) Err() error                  { return s.away }
func (s *state) Applying() int64             { return s.applying }

func newRoom(t *testing.T, s *state, quota int64, stopping chan struct{}) *Room {
	t.Helper()
	fs := memfs.New()
	log, err := history.Create(history.Options{FS: fs, Dir: "h", ClusterID: 1, MemberID: 1},
		history.Applied{Term: 1, Index: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	store, err := mvcc.Open(log, mvcc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	log.WaitNext()
	return NewRoom(RoomOptions{Current: handle.NewCurrent(handle.New(log, store, nil), nil, nil),
		RaftLog: s, Custody: s, Gauge: freespace.New(fs, "h", "h"), QuotaBytes: quota,
		Ready: make(chan struct{}), Stopping: stopping, RequestTimeout: time.Second})
}

// A request is admitted if the quota, the logs and the disks have room for it and for all requests
// that are being applied.
func TestAdmit(t *testing.T) {
	plenty := []int64{1 << 40, 1 << 40}
	for name, c := range map[string]struct {
		state state
		quota int64
		n     int64
		free  []int64
		want  error
	}{
		"room":                 {state{bytes: 1 << 20}, 0, 1000, nil, nil},
		"below the quota":      {state{bytes: 1 << 20}, 1 << 20, 1000, nil, nil},
		"above the quota":      {state{bytes: 1 << 20}, 1000, 1001, nil, ErrQuota},
		"above it with others": {state{bytes: 1 << 20, applying: 600}, 1000, 401, nil, ErrQuota},
		"a log cannot allocate": {state{bytes: 1 << 20, room: kv.ErrNoSpace}, 0, 1, nil,
			kv.ErrNoSpace},
		"no file descriptors": {state{bytes: 1 << 20, room: kv.ErrTooManyRequests}, 0, 1, nil,
			kv.ErrTooManyRequests},
		"files are away":      {state{bytes: 1 << 20, away: kv.ErrAway}, 0, 1, nil, kv.ErrAway},
		"more than allocated": {state{bytes: 1000}, 0, 1001, nil, proposal.ErrUnmeasured},
		"more than is not kept": {state{bytes: 1000, kept: 500}, 0, 501, nil,
			proposal.ErrUnmeasured},
		"more with others": {state{bytes: 1000, applying: 600}, 0, 401, nil,
			proposal.ErrUnmeasured},
		"and the disk has room": {state{bytes: 1000, kept: 500}, 0, 501, plenty, nil},
		"and the disk has too little": {state{bytes: 1000, kept: 500}, 0, 501,
			[]int64{1 << 40, 4*501 + 16*500 - 1}, kv.ErrNoSpace},
	} {
		r := newRoom(t, &c.state, c.quota, nil)
		if err := r.Admit(c.n, &c.state, c.free); err != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// Requests that give space back have the room that is kept for them.
func TestShortageToFree(t *testing.T) {
	s := &state{room: kv.ErrNoSpace}
	r := newRoom(t, s, 0, nil)
	if err := r.Shortage(); err != kv.ErrNoSpace {
		t.Errorf("a put: %v", err)
	}
	if err := r.ShortageToFree(); err != nil {
		t.Errorf("a deletion: %v", err)
	}
	s.roomToFree = kv.ErrNoSpace
	if err := r.ShortageToFree(); err != kv.ErrNoSpace {
		t.Errorf("a deletion without room: %v", err)
	}
	s.away = kv.ErrAway
	if err := r.ShortageToFree(); err != kv.ErrAway {
		t.Errorf("a deletion while files are away: %v", err)
	}
}

func TestMeasureEnds(t *testing.T) {
	stopping := make(chan struct{})
	r := newRoom(t, &state{}, 0, stopping)
	if free, err := r.Measure(t.Context()); err != nil || len(free) != 2 {
		t.Errorf("%v, %v", free, err)
	}
	hangs := &hangingFS{FS: memfs.New(), release: make(chan struct{})}
	r.o.Gauge = freespace.New(hangs, "h")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Measure(ctx); err != context.Canceled {
		t.Errorf("a caller that leaves: %v", err)
	}
	r.o.RequestTimeout = time.Millisecond
	if _, err := r.Measure(t.Context()); err != ErrUnmeasured {
		t.Errorf("a disk that hangs: %v", err)
	}
	close(stopping)
	r.o.RequestTimeout = time.Hour
	if _, err := r.Measure(t.Context()); err != kv.ErrStopped {
		t.Errorf("a member that stops: %v", err)
	}
	close(hangs.release)
}

// hangingFS does not answer how much is free until it is released.
type hangingFS struct {
	*memfs.FS
	release chan struct{}
}

func (f *hangingFS) Free(string) (int64, error) {
	<-f.release
	return 0, nil
}

// A stall is there from the first wait to the end of all, and is shown for want of disk space only.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStall(slog.New(slog.DiscardHandler))
		committed := func() uint64 { return 9 }
		s.End(committed)
		begun := time.Now()
		s.Begin(kv.ErrNoSpace, 7, 9)
		time.Sleep(time.Second)
		s.Begin(kv.ErrAway, 7, 9)
		if at := s.SinceNoSpace(); at != begun {
			t.Errorf("since %v, want %v", at, begun)
		}
		s.End(committed)
		s.Begin(kv.ErrAway, 7, 9)
		if at := s.SinceNoSpace(); !at.IsZero() {
			t.Errorf("since %v, and the disk is not full", at)
		}
	})
}
