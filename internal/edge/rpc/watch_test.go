package rpc

import (
	"bytes"
	"context"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
	"vigil/internal/store/watch"
)

func create(key string) *etcdserverpb.WatchRequest {
	return &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{
		CreateRequest: &etcdserverpb.WatchCreateRequest{Key: []byte(key)}}}
}

func event(size int) []byte {
	b, err := proto.Marshal(&mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte("k"),
		Value: make([]byte, size), ModRevision: 9}})
	if err != nil {
		panic(err)
	}
	return b
}

func openWatch(t *testing.T, f *fixture,
	ctx context.Context) (etcdserverpb.Watch_WatchClient, *fakeStream) {
	t.Helper()
	stream, err := f.Watch.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return stream, within(t, f.hub.streams)
}

func TestWatchRequests(t *testing.T) {
	f := start(t, nil)
	stream, hub := openWatch(t, f, t.Context())
	if !strings.HasPrefix(hub.info.Client, "127.0.0.1:") {
		t.Errorf("client is %q", hub.info.Client)
	}
	for _, r := range []*etcdserverpb.WatchRequest{
		{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: &etcdserverpb.WatchCreateRequest{
			Key: []byte("a"), RangeEnd: []byte("b"), StartRevision: -5, ProgressNotify: true,
			PrevKv: true, WatchId: 7, Fragment: true,
			Filters: []etcdserverpb.WatchCreateRequest_FilterType{0, 1}}}},
		{},
		{RequestUnion: &etcdserverpb.WatchRequest_CancelRequest{CancelRequest: &etcdserverpb.WatchCancelRequest{WatchId: 7}}},
		{RequestUnion: &etcdserverpb.WatchRequest_ProgressRequest{ProgressRequest: &etcdserverpb.WatchProgressRequest{}}},
		create(""),
	} {
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []any{
		watch.CreateRequest{ID: 7, Key: []byte("a"), End: []byte("b"), StartRev: -5, NoPut: true,
			NoDelete: true, PrevKV: true, ProgressNotify: true, Fragment: true},
		int64(7), "progress", watch.CreateRequest{},
	} {
		if got := within(t, hub.in); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func TestWatchResponses(t *testing.T) {
	f := start(t, nil)
	stream, hub := openWatch(t, f, t.Context())
	small, large := event(10), event(100<<10)
	keep := bytes.Clone(large)
	list := []watch.Response{
		{WatchID: 1, Revision: 3, Created: true},
		{WatchID: -1, Revision: 3, Created: true, Canceled: true,
			Reason: "mvcc: watcher range is empty"},
		{WatchID: 1, Revision: 9, Events: [][]byte{small}},
		{WatchID: 1, Also: []int64{0, 2, 300}, Revision: 9, Events: [][]byte{small}},
		{WatchID: 1, Revision: 9, Events: [][]byte{small, large, small, large}, Fragment: true},
		{WatchID: 1, Also: []int64{2}, Revision: 9, Events: [][]byte{small, large}},
		{WatchID: 1, CompactRevision: 5, Canceled: true},
		{WatchID: -1, Revision: 9},
	}
	hub.out <- list[:2]
	hub.out <- list[2:]
	for _, r := range list {
		for _, id := range append([]int64{r.WatchID}, r.Also...) {
			got, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			want := &etcdserverpb.WatchResponse{
				Header: &etcdserverpb.ResponseHeader{ClusterId: 0xc1, MemberId: 0xa1,
					Revision: r.Revision, RaftTerm: 7},
				WatchId: id, Created: r.Created, Canceled: r.Canceled, CancelReason: r.Reason,
				CompactRevision: r.CompactRevision, Fragment: r.Fragment}
			for _, b := range r.Events {
				ev := &mvccpb.Event{}
				if err := proto.Unmarshal(b, ev); err != nil {
					t.Fatal(err)
				}
				want.Events = append(want.Events, ev)
			}
			wantEqual(t, got, want)
		}
	}
	if !bytes.Equal(large, keep) {
		t.Error("the shared event was written to")
	}
}

// TestWatchHalfClose: a client that sends no more requests still gets its events.
func TestWatchHalfClose(t *testing.T) {
	f := start(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, hub := openWatch(t, f, ctx)
	if err := stream.Send(create("k")); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	within(t, hub.in)
	for range 3 {
		hub.out <- []watch.Response{{WatchID: 0, Revision: 9, Events: [][]byte{event(1)}}}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	within(t, hub.closed)
}

// TestWatchEnds: however a stream ends, the hub's side is closed and no goroutine is left.
func TestWatchEnds(t *testing.T) {
	f := start(t, func(c *Config) { c.ElectionTimeout = 20 * time.Millisecond })
	if _, err := f.KV.Range(t.Context(), &etcdserverpb.RangeRequest{Key: []byte("k")}); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()

	t.Run("client cancels", func(t *testing.T) {
		for range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			_, hub := openWatch(t, f, ctx)
			cancel()
			within(t, hub.closed)
		}
	})
	t.Run("hub closes", func(t *testing.T) {
		stream, hub := openWatch(t, f, t.Context())
		close(hub.out)
		_, err := stream.Recv()
		wantStatus(t, err, rpctypes.ErrGRPCStopped)
		within(t, hub.closed)
	})
	t.Run("server ends all", func(t *testing.T) {
		stream, hub := openWatch(t, f, t.Context())
		f.EndStreams(kv.ErrCorrupt)
		_, err := stream.Recv()
		wantStatus(t, err, rpctypes.ErrGRPCCorrupt)
		within(t, hub.closed)
		// Later streams are accepted.
		ctx, cancel := context.WithCancel(t.Context())
		_, hub = openWatch(t, f, ctx)
		cancel()
		within(t, hub.closed)
	})
	t.Run("hub refuses", func(t *testing.T) {
		stream, hub := openWatch(t, f, t.Context())
		hub.fail <- kv.ErrCorrupt
		_, err := stream.Recv()
		wantStatus(t, err, rpctypes.ErrGRPCCorrupt)
		within(t, hub.closed)
	})
	t.Run("deadline", func(t *testing.T) {
		f := start(t, nil)
		// A deadline may pass before the server has the stream; then the test tries a later one.
		for wait := 50 * time.Millisecond; ; wait *= 2 {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			stream, err := f.Watch.Watch(ctx)
			if err == nil {
				_, err = stream.Recv()
			}
			if status.Code(err) != codes.DeadlineExceeded {
				t.Fatalf("error %v", err)
			}
			select {
			case hub := <-f.hub.streams:
				within(t, hub.closed)
				return
			default:
			}
		}
	})
	t.Run("no leader", func(t *testing.T) {
		needs, needsHub := openWatch(t, f,
			metadata.AppendToOutgoingContext(t.Context(), "hasleader", "true"))
		ctx, cancel := context.WithCancel(t.Context())
		other, otherHub := openWatch(t, f, ctx)
		f.member.leader.Store(0)
		_, err := needs.Recv()
		wantStatus(t, err, rpctypes.ErrGRPCNoLeader)
		within(t, needsHub.closed)
		refused, err := f.Watch.Watch(metadata.AppendToOutgoingContext(t.Context(),
			"hasleader", "true"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = refused.Recv()
		wantStatus(t, err, rpctypes.ErrGRPCNoLeader)
		otherHub.out <- []watch.Response{{WatchID: 3, Revision: 1, Created: true}}
		if r, err := other.Recv(); err != nil || r.WatchId != 3 {
			t.Errorf("the stream that needs no leader: %v, %v", r, err)
		}
		f.member.leader.Store(0xa1)
		cancel()
		within(t, otherHub.closed)
	})
	t.Run("malformed", func(t *testing.T) {
		stream, err := f.conn.NewStream(t.Context(),
			&grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/etcdserverpb.Watch/Watch",
			grpc.ForceCodec(rawCodec{}))
		if err != nil {
			t.Fatal(err)
		}
		hub := within(t, f.hub.streams)
		if err := stream.SendMsg([]byte{0x0a, 0xff}); err != nil {
			t.Fatal(err)
		}
		var reply []byte
		wantStatus(t, stream.RecvMsg(&reply), status.Error(codes.Internal,
			"grpc: failed to unmarshal the received message: proto: cannot parse invalid wire-format data"))
		within(t, hub.closed)
	})
	t.Run("connection breaks", func(t *testing.T) {
		conn := f.dial(t)
		if _, err := etcdserverpb.NewWatchClient(conn).Watch(t.Context()); err != nil {
			t.Fatal(err)
		}
		hub := within(t, f.hub.streams)
		conn.Close()
		within(t, hub.closed)
	})
	eventually(t, "the goroutines of the streams are gone",
		func() bool { return runtime.NumGoroutine() <= before+2 })
	eventually(t, "no stream is known any more", func() bool {
		return f.streams.Empty()
	})
}

// TestSlowWatcher: a client that does not read its stream delays only this stream.
func TestSlowWatcher(t *testing.T) {
	f := start(t, nil)
	_, stalled := openWatch(t, f, t.Context())
	go func() {
		for range 500 {
			stalled.out <- []watch.Response{{WatchID: 0, Revision: 9,
				Events: [][]byte{event(64 << 10)}}}
		}
	}()
	eventually(t, "the sender waits for the client", func() bool { return len(stalled.out) > 100 })
	stream, hub := openWatch(t, f, t.Context())
	for range 100 {
		hub.out <- []watch.Response{{WatchID: 0, Revision: 9, Events: [][]byte{event(100)}}}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.KV.Put(t.Context(), &etcdserverpb.PutRequest{Key: []byte("k")}); err != nil {
		t.Fatal(err)
	}
}
