package rpc

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/maintenanceapi"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/kv"
)

// fakeSnapshots have size bytes; after these, writing fails with err, or panics.
type fakeSnapshots struct {
	size  int
	err   error
	begin error
	most  int64 // how many may be open, 0 for any
	begun atomic.Int64
	open  atomic.Int64
}

func (f *fakeSnapshots) Snapshot(context.Context) (maintenanceapi.Snapshot, error) {
	if f.begin != nil {
		return nil, f.begin
	}
	if n := f.open.Add(1); f.most > 0 && n > f.most {
		f.open.Add(-1)
		return nil, kv.ErrTooManyRequests
	}
	f.begun.Add(1)
	return &fakeSnapshot{f}, nil
}

type fakeSnapshot struct{ f *fakeSnapshots }

func (s *fakeSnapshot) Version() string { return "3.7.0" }
func (s *fakeSnapshot) Size() int64     { return int64(s.f.size) }
func (s *fakeSnapshot) Close()          { s.f.open.Add(-1) }

func (s *fakeSnapshot) Write(out io.Writer) error {
	const piece = 5000
	repeats := content(256 + piece)
	for at := 0; at < s.f.size; at += piece {
		if _, err := out.Write(repeats[at%256:][:min(piece, s.f.size-at)]); err != nil {
			return err
		}
	}
	if errors.Is(s.f.err, transport.ErrPanic) {
		panic("on purpose")
	}
	return s.f.err
}

// content returns the first bytes of a snapshot, which repeat every 256 bytes.
func content(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7)
	}
	return b
}

// fetch reads a whole snapshot.
func fetch(t *testing.T, f *fixture) (body []byte, messages int, err error) {
	t.Helper()
	st, err := f.Maintenance.Snapshot(t.Context(), &etcdserverpb.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for left := int64(-1); ; messages++ {
		r, err := st.Recv()
		if err != nil {
			return body, messages, err
		}
		if left >= 0 && int64(len(r.Blob)) != sha256.Size &&
			left-int64(len(r.Blob)) != int64(r.RemainingBytes) {
			t.Errorf("%d bytes were to come, %d come and %d are said to remain", left, len(r.Blob),
				r.RemainingBytes)
		}
		left = int64(r.RemainingBytes)
		if r.Version != "3.7.0" || len(r.Blob) > maintenanceapi.SnapshotChunk {
			t.Errorf("version %q, %d bytes", r.Version, len(r.Blob))
		}
		body = append(body, r.Blob...)
	}
}

func TestSnapshot(t *testing.T) {
	s := &fakeSnapshots{}
	f := start(t, func(c *Config) { c.Snapshots = s })
	for _, size := range []int{0, 4096, maintenanceapi.SnapshotChunk,
		10*maintenanceapi.SnapshotChunk + 512} {
		s.size = size
		body, messages, err := fetch(t, f)
		want := content(size)
		sum := sha256.Sum256(want)
		if err != io.EOF || !bytes.Equal(body, append(want, sum[:]...)) ||
			messages != (size+maintenanceapi.SnapshotChunk-1)/maintenanceapi.SnapshotChunk+1 {
			t.Errorf("%d bytes: %d in %d messages, %v", size, len(body), messages, err)
		}
	}
	// A learner answers too.
	f.member.learner.Store(true)
	if _, _, err := fetch(t, f); err != io.EOF {
		t.Errorf("a learner: %v", err)
	}
	eventually(t, "all are closed", func() bool { return s.open.Load() == 0 })
}

func TestSnapshotFails(t *testing.T) {
	own := errors.New("disk on fire")
	for _, c := range []struct {
		begin, err error
		code       codes.Code
		text       string
	}{
		{err: own, code: codes.Unknown, text: "disk on fire"},
		{err: transport.ErrPanic, code: codes.Internal,
			text: "vigil: internal error, see the log of the member"},
		{begin: kv.ErrTooManyRequests, code: codes.ResourceExhausted,
			text: "etcdserver: too many requests"},
		{begin: kv.ErrStopped, code: codes.Unavailable, text: "etcdserver: server stopped"},
	} {
		s := &fakeSnapshots{size: 70000, err: c.err, begin: c.begin}
		f := start(t, func(cfg *Config) { cfg.Snapshots = s })
		_, _, err := fetch(t, f)
		if status.Code(err) != c.code || status.Convert(err).Message() != c.text {
			t.Errorf("%v", err)
		}
		eventually(t, "it is closed", func() bool { return s.open.Load() == 0 })
	}
	f := start(t, nil)
	if _, _, err := fetch(t, f); status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
}

// The snapshot is closed when its client reads nothing, when the client goes away, and when the
// server stops.
func TestSnapshotEnds(t *testing.T) {
	s := &fakeSnapshots{size: 64 << 20} // more than the transport takes on its own
	f := start(t, func(c *Config) { c.Snapshots = s })
	f.maintenance.Sending.Patience = 50 * time.Millisecond
	st, err := f.Maintenance.Snapshot(t.Context(), &etcdserverpb.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it was open and is closed",
		func() bool { return s.begun.Load() == 1 && s.open.Load() == 0 })
	for err == nil {
		_, err = st.Recv()
	}
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("the client that took nothing: %v", err)
	}

	f.maintenance.Sending.Patience = maintenanceapi.SnapshotPatience
	ctx, cancel := context.WithCancel(t.Context())
	if _, err = f.Maintenance.Snapshot(ctx, &etcdserverpb.SnapshotRequest{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the next is open", func() bool { return s.open.Load() == 1 })
	cancel()
	eventually(t, "the next is closed", func() bool { return s.open.Load() == 0 })

	if st, err = f.Maintenance.Snapshot(t.Context(), &etcdserverpb.SnapshotRequest{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the last is open", func() bool { return s.open.Load() == 1 })
	// Unread data keep the connection until the end of the context.
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	f.Stop(ctx)
	eventually(t, "the last is closed", func() bool { return s.open.Load() == 0 })
	for err == nil {
		_, err = st.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("the server has stopped: %v", err)
	}
}

// TestSnapshotYields: clients that read nothing do not keep others from their snapshots.
func TestSnapshotYields(t *testing.T) {
	s := &fakeSnapshots{size: 64 << 20, most: 3}
	f := start(t, func(c *Config) { c.Snapshots = s })
	f.maintenance.Sending.Yield = time.Hour
	for range s.most {
		if _, err := f.Maintenance.Snapshot(t.Context(),
			&etcdserverpb.SnapshotRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all are open", func() bool { return s.open.Load() == s.most })
	another := func() error {
		st, err := f.Maintenance.Snapshot(t.Context(), &etcdserverpb.SnapshotRequest{})
		if err == nil {
			_, err = st.Recv()
		}
		return err
	}
	if err := another(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one more than there may be: %v", err)
	}
	f.maintenance.Sending.Yield = 50 * time.Millisecond
	eventually(t, "one makes room", func() bool { return another() == nil })
}

// A client that reads too little within the time is ended, a client that is fast enough is not.
func TestSnapshotRate(t *testing.T) {
	s := &fakeSnapshots{size: 3 * maintenanceapi.SnapshotPiece}
	f := start(t, func(c *Config) { c.Snapshots = s })
	f.maintenance.Sending.Patience = 200 * time.Millisecond
	st, err := f.Maintenance.Snapshot(t.Context(), &etcdserverpb.SnapshotRequest{})
	for tick := time.NewTicker(10 * time.Millisecond); err == nil; <-tick.C {
		_, err = st.Recv()
	}
	if status.Code(err) != codes.DeadlineExceeded ||
		!strings.Contains(err.Error(), "less than 10485760 bytes of it in 10m0s") {
		t.Errorf("the slow client: %v", err)
	}
	f.maintenance.Sending.Patience = time.Minute
	if _, _, err := fetch(t, f); err != io.EOF {
		t.Errorf("the fast client: %v", err)
	}
}

// slowSnapshots are snapshots that the member reads slowly from its disk.
type slowSnapshots struct {
	fakeSnapshots
	delay time.Duration
}

func (f *slowSnapshots) Snapshot(ctx context.Context) (maintenanceapi.Snapshot, error) {
	s, err := f.fakeSnapshots.Snapshot(ctx)
	return &slowSnapshot{s, f.delay}, err
}

type slowSnapshot struct {
	maintenanceapi.Snapshot
	delay time.Duration
}

func (s *slowSnapshot) Write(out io.Writer) error {
	time.Sleep(s.delay)
	return s.Snapshot.Write(out)
}

// A client that reads at once is not ended because the member is slow, neither by its time limit
// nor for another client.
func TestSnapshotOfSlowMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowSnapshots{fakeSnapshots{size: 3 * maintenanceapi.SnapshotChunk, most: 1},
			2 * maintenanceapi.SnapshotPatience}
		k := newFakeKV()
		member := &fakeMember{kv: k}
		server, err := NewServer(Config{KV: k, Member: member, Alarms: member, Hasher: fakeHasher{},
			ElectionTimeout: time.Second, Snapshots: s,
			NewWatchStream: (&fakeHub{}).NewStream, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Stop(t.Context())
		open := func() transport.LocalStream {
			st, err := server.InProcess().Open(t.Context(),
				etcdserverpb.Maintenance_Snapshot_FullMethodName)
			if err != nil {
				t.Fatal(err)
			}
			if err := st.Send(nil); err != nil {
				t.Fatal(err)
			}
			st.CloseSend()
			return st
		}
		first := open()
		time.Sleep(2 * maintenanceapi.SnapshotYield)
		if _, err := open().Receive(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("another client: %v", err)
		}
		for err == nil {
			var data transport.Buffers
			if data, err = first.Receive(); err == nil {
				data.Free()
			}
		}
		if err != io.EOF {
			t.Errorf("the first client: %v", err)
		}
	})
}
