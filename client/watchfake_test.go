package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"vigil/client"
)

// read iterates until n events or the end, and returns "key@revision" of each and the error.
func read(w *client.Watcher, n int) (got []string, err error) {
	for ev, err := range w.Events() {
		if err != nil {
			return got, err
		}
		if got = append(got, fmt.Sprintf("%s@%d", ev.KV.Key, ev.KV.ModRevision)); len(got) == n {
			break
		}
	}
	return got, nil
}

func want(t *testing.T, w *client.Watcher, events ...string) {
	t.Helper()
	if got, err := read(w, len(events)); err != nil || !slices.Equal(got, events) {
		t.Errorf("%v, %v, want %v", got, err, events)
	}
}

func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestWatchEnds: how a server ends or refuses a watch, and which error the reader receives.
func TestWatchEnds(t *testing.T) {
	refuse := func(reason string) *pb.WatchResponse {
		return &pb.WatchResponse{WatchId: -1, Created: true, Canceled: true, CancelReason: reason}
	}
	for _, tc := range []struct {
		name    string
		answers func(id int64) []*pb.WatchResponse
		is      error
		as      func(error) bool
	}{
		{"refused", func(int64) []*pb.WatchResponse { return []*pb.WatchResponse{refuse("because")} }, nil,
			func(err error) bool {
				e, ok := errors.AsType[*client.CanceledError](err)
				return ok && !e.Created && e.Reason == "because"
			}},
		{"no permission", func(int64) []*pb.WatchResponse {
			return []*pb.WatchResponse{refuse(rpctypes.ErrGRPCPermissionDenied.Error())}
		}, client.ErrPermissionDenied, nil},
		{"no permission, in words", func(int64) []*pb.WatchResponse {
			return []*pb.WatchResponse{refuse("etcdserver: permission denied")}
		}, client.ErrPermissionDenied, nil},
		{"no token", func(int64) []*pb.WatchResponse {
			return []*pb.WatchResponse{refuse(rpctypes.ErrGRPCUserEmpty.Error())}
		}, client.ErrUserEmpty, nil},
		{"compacted at once", func(id int64) []*pb.WatchResponse {
			return []*pb.WatchResponse{{WatchId: id, Created: true},
				{WatchId: id, Canceled: true, CompactRevision: 42}}
		}, client.ErrCompacted, func(err error) bool {
			e, ok := errors.AsType[*client.CompactedError](err)
			return ok && e.Revision == 42
		}},
		{"canceled", func(id int64) []*pb.WatchResponse {
			return []*pb.WatchResponse{{WatchId: id, Created: true},
				{WatchId: id, Canceled: true, CancelReason: "enough"}}
		}, nil, func(err error) bool {
			e, ok := errors.AsType[*client.CanceledError](err)
			return ok && e.Created && strings.Contains(err.Error(), "enough")
		}},
		{"permission lost", func(id int64) []*pb.WatchResponse {
			return []*pb.WatchResponse{{WatchId: id, Created: true},
				{WatchId: id, Canceled: true, CancelReason: "etcdserver: permission denied"}}
		}, client.ErrPermissionDenied, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var streams atomic.Int64
			f := start(t, &fake{watch: func(s *fakeStream) error {
				streams.Add(1)
				r := s.creates(1)[0]
				if !r.GetFragment() {
					t.Error("fragments are not asked for")
				}
				if err := s.send(tc.answers(r.GetWatchId())...); err != nil {
					return err
				}
				return s.hold()
			}})
			w := to(t, f).Watch(limited(t), "k", client.FromRevision(3))
			got, err := read(w, 1)
			if len(got) != 0 || err == nil || tc.is != nil && !errors.Is(err, tc.is) ||
				tc.as != nil && !tc.as(err) {
				t.Errorf("%v, %v", got, err)
			}
			if _, again := read(w, 1); again != err || w.Err() != err {
				t.Errorf("then %v, %v", again, w.Err())
			}
			if streams.Load() != 1 {
				t.Errorf("%d streams: it was tried again", streams.Load())
			}
		})
	}
}

// TestWatchResumes: a broken stream continues after the last revision received, and repeated events
// are delivered once.
func TestWatchResumes(t *testing.T) {
	var streams atomic.Int64
	from := make(chan int64, 10)
	f := start(t, &fake{watch: func(s *fakeStream) error {
		r := s.creates(1)[0]
		from <- r.GetStartRevision()
		created := &pb.WatchResponse{WatchId: r.GetWatchId(), Created: true, Header: at(10)}
		switch streams.Add(1) {
		case 1:
			if err := s.send(created); err != nil {
				return err
			}
			return unavailable("before the first event")
		case 2:
			if err := s.send(created,
				&pb.WatchResponse{WatchId: r.GetWatchId(),
					Events: []*mvccpb.Event{event("a", 11), event("b", 11),
						event("a", 12)}}); err != nil {
				return err
			}
			// Half of revision 13.
			if err := s.send(&pb.WatchResponse{WatchId: r.GetWatchId(), Fragment: true,
				Events: []*mvccpb.Event{event("c", 13)}}); err != nil {
				return err
			}
			return unavailable("in a revision")
		default:
			created.Header = at(14)
			// A server that repeats itself.
			if err := s.send(created,
				&pb.WatchResponse{WatchId: r.GetWatchId(),
					Events: []*mvccpb.Event{event("a", 12), event("c", 13), event("d", 13),
						event("e", 14)}}); err != nil {
				return err
			}
			return s.hold()
		}
	}})
	w := to(t, f).Watch(limited(t), "", client.WithPrefix())
	want(t, w, "a@11", "b@11", "a@12", "c@13", "d@13", "e@14")
	for _, rev := range []int64{0, 11, 13} {
		if got := <-from; got != rev {
			t.Errorf("from %d, want %d", got, rev)
		}
	}
}

// TestFragments: a revision in fragments is delivered as a whole.
func TestFragments(t *testing.T) {
	f := start(t, &fake{watch: func(s *fakeStream) error {
		id := s.creates(1)[0].GetWatchId()
		part := func(more bool, list ...*mvccpb.Event) *pb.WatchResponse {
			return &pb.WatchResponse{WatchId: id, Fragment: more, Events: list}
		}
		if err := s.send(&pb.WatchResponse{WatchId: id, Created: true},
			part(true, event("a", 2), event("a", 3)), part(true, event("b", 3)),
			part(true, event("c", 3)), part(false, event("d", 3), event("a", 4)),
			part(false, event("a", 5))); err != nil {
			return err
		}
		return s.hold()
	}})
	w := to(t, f).Watch(limited(t), "", client.WithPrefix())
	var got []string
	for b, err := range w.Batches() {
		if err != nil {
			t.Fatal(err)
		}
		s := ""
		for _, ev := range b.Events {
			s += fmt.Sprintf("%s%d ", ev.KV.Key, ev.KV.ModRevision)
		}
		got = append(got, fmt.Sprintf("%sto %d", s, b.Revision))
		if b.Revision == 5 {
			break
		}
	}
	if s := strings.Join(got, ", "); s != "a2 to 2, a3 b3 c3 d3 a4 to 4, a5 to 5" {
		t.Error(s)
	}
}

// TestOutOfOrder: answers to create requests in any order, refusals without an id, duplicate ids
// and ids that were not requested.
func TestOutOfOrder(t *testing.T) {
	f := start(t, &fake{watch: func(s *fakeStream) error {
		list := s.creates(4)
		byKey := map[string]int64{}
		for _, r := range list {
			byKey[string(r.GetKey())] = r.GetWatchId()
		}
		ok := func(key string) *pb.WatchResponse {
			return &pb.WatchResponse{WatchId: byKey[key],
				Created: true}
		}
		ev := func(id int64, key string, rev int64) *pb.WatchResponse {
			return &pb.WatchResponse{WatchId: id, Events: []*mvccpb.Event{event(key, rev)}}
		}
		if err := s.send(
			ev(byKey["c"], "c", 2), // before it is created
			// The refusal of "b", when all four wait.
			&pb.WatchResponse{WatchId: -1, Created: true, Canceled: true, CancelReason: "not b"},
			ok("d"),
			ev(77, "x", 2), // unknown
			&pb.WatchResponse{WatchId: 79, Canceled: true}, // unknown
			ok("c"), ok("c"),
			ok("a"),
			&pb.WatchResponse{WatchId: 78, Created: true}, // not requested
			ev(byKey["a"], "a", 3), ev(byKey["c"], "c", 4), ev(byKey["d"], "d", 5)); err != nil {
			return err
		}
		return s.hold()
	}})
	c := to(t, f)
	ctx := limited(t)
	w := map[string]*client.Watcher{}
	for _, k := range []string{"a", "b", "c", "d"} {
		w[k] = c.Watch(ctx, k)
	}
	want(t, w["a"], "a@3")
	want(t, w["c"], "c@2", "c@4")
	want(t, w["d"], "d@5")
	if _, err := read(w["b"], 1); err == nil || !strings.Contains(err.Error(), "not b") {
		t.Error(err)
	}
}

// TestDuplicateID: if a server rejects an id as duplicate, the client requests another.
func TestDuplicateID(t *testing.T) {
	f := start(t, &fake{watch: func(s *fakeStream) error {
		first := s.creates(1)[0].GetWatchId()
		if err := s.send(&pb.WatchResponse{WatchId: -1, Created: true, Canceled: true,
			CancelReason: "mvcc: duplicate watch ID provided on the WatchStream"}); err != nil {
			return err
		}
		id := s.creates(1)[0].GetWatchId()
		if id == first {
			t.Errorf("id %d again", id)
		}
		if err := s.send(&pb.WatchResponse{WatchId: id, Created: true},
			&pb.WatchResponse{WatchId: id, Events: []*mvccpb.Event{event("k", 2)}}); err != nil {
			return err
		}
		return s.hold()
	}})
	want(t, to(t, f).Watch(limited(t), "k"), "k@2")
}

// TestServersOwnIDs: a server that assigns its own ids, like some proxies.
func TestServersOwnIDs(t *testing.T) {
	f := start(t, &fake{watch: func(s *fakeStream) error {
		for id, r := range s.creates(3) {
			if err := s.send(&pb.WatchResponse{WatchId: int64(id), Created: true},
				&pb.WatchResponse{WatchId: int64(id),
					Events: []*mvccpb.Event{event(string(r.GetKey()), 2)}}); err != nil {
				return err
			}
		}
		return s.hold()
	}})
	c := to(t, f)
	var list []*client.Watcher
	for i := range 3 {
		list = append(list, c.Watch(limited(t), fmt.Sprint("k", i)))
	}
	for i, w := range list {
		want(t, w, fmt.Sprintf("k%d@2", i))
	}
}

// TestAnotherCluster: a watch does not continue in another cluster or in a store that has lost
// revisions.
func TestAnotherCluster(t *testing.T) {
	for _, tc := range []struct {
		name string
		then *pb.ResponseHeader
		is   error
	}{
		{"another cluster", &pb.ResponseHeader{ClusterId: 8, Revision: 100},
			client.ErrClusterChanged},
		{"rolled back", at(5), client.ErrRolledBack},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var streams atomic.Int64
			f := start(t, &fake{
				get: func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
					return &pb.RangeResponse{Header: tc.then}, nil
				},
				watch: func(s *fakeStream) error {
					id := s.creates(1)[0].GetWatchId()
					if streams.Add(1) == 1 {
						if err := s.send(&pb.WatchResponse{WatchId: id, Created: true,
							Header: at(50)}); err != nil {
							return err
						}
						return unavailable("restored")
					}
					if err := s.send(&pb.WatchResponse{WatchId: id, Created: true,
						Header: tc.then}); err != nil {
						return err
					}
					return s.hold()
				}})
			if _, err := read(to(t, f).Watch(limited(t), "k"), 1); !errors.Is(err, tc.is) {
				t.Error(err)
			}
		})
	}
}

// TestMemberBehind: a watch continues at a member that lags behind the others, also if the member
// learns their revision late. A serializable read does not show it.
func TestMemberBehind(t *testing.T) {
	var streams, reads atomic.Int64
	f := start(t, &fake{
		// As etcd and Vigil answer a transaction without operations.
		txn: func(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) {
			return &pb.TxnResponse{Header: at(5)}, nil
		},
		get: func(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
			reads.Add(1)
			if r.Serializable || string(r.Key) != "k" || len(r.RangeEnd) > 0 {
				return nil, status.Error(codes.PermissionDenied,
					rpctypes.ErrPermissionDenied.Error())
			}
			return &pb.RangeResponse{Header: at(60)}, nil
		},
		watch: func(s *fakeStream) error {
			id := s.creates(1)[0].GetWatchId()
			if streams.Add(1) == 1 {
				if err := s.send(&pb.WatchResponse{WatchId: id, Created: true,
					Header: at(50)}); err != nil {
					return err
				}
				return unavailable("stopped")
			}
			if err := s.send(&pb.WatchResponse{WatchId: id, Created: true,
				Header: at(5)}); err != nil {
				return err
			}
			for end := time.Now().Add(30 * time.Second); reads.Load() == 0 &&
				time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			if err := s.send(&pb.WatchResponse{WatchId: id, Header: at(61),
				Events: []*mvccpb.Event{event("k", 61)}}); err != nil {
				return err
			}
			return s.hold()
		}})
	want(t, to(t, f).Watch(limited(t), "k", client.WithPrefix()), "k@61")
}

// TestRolledBackIsAskedAgain: a watch whose member lags retries the check for a rollback when
// that fails for a while.
func TestRolledBackIsAskedAgain(t *testing.T) {
	var streams, reads atomic.Int64
	f := start(t, &fake{
		get: func(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
			if reads.Add(1) <= 3 {
				return nil, rpctypes.ErrGRPCTimeout
			}
			return &pb.RangeResponse{Header: at(5)}, nil
		},
		watch: func(s *fakeStream) error {
			id := s.creates(1)[0].GetWatchId()
			rev := int64(5)
			if streams.Add(1) == 1 {
				rev = 50
			}
			if err := s.send(&pb.WatchResponse{WatchId: id, Created: true,
				Header: at(rev)}); err != nil {
				return err
			}
			if rev == 50 {
				return unavailable("restored")
			}
			return s.hold()
		}})
	c := open(t, client.Config{Endpoints: []string{f.addr}, MaxAttempts: 2})
	if _, err := read(c.Watch(limited(t), "k"), 1); !errors.Is(err, client.ErrRolledBack) {
		t.Error(err)
	}
}

// TestRequireLeader: without any leader a watch waits, unless it requires one.
func TestRequireLeader(t *testing.T) {
	var leader atomic.Bool
	f := start(t, &fake{watch: func(s *fakeStream) error {
		if !leader.Load() {
			return rpctypes.ErrGRPCNoLeader
		}
		id := s.creates(1)[0].GetWatchId()
		if err := s.send(&pb.WatchResponse{WatchId: id, Created: true},
			&pb.WatchResponse{WatchId: id, Events: []*mvccpb.Event{event("k", 2)}}); err != nil {
			return err
		}
		return s.hold()
	}})
	c := to(t, f)
	patient := c.Watch(limited(t), "k")
	if _, err := read(c.Watch(limited(t), "k", client.WithRequireLeader()), 1); !errors.Is(err,
		client.ErrNoLeader) {
		t.Error(err)
	}
	for end := time.Now().Add(time.Minute); !errors.Is(patient.Status().Trouble,
		client.ErrNoLeader); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%+v", patient.Status())
		}
	}
	leader.Store(true)
	want(t, patient, "k@2")
}

// TestProgress: progress of the stream does not apply to a watcher that is not created yet.
func TestProgress(t *testing.T) {
	f := start(t, &fake{watch: func(s *fakeStream) error {
		list := s.creates(2)
		if string(list[0].GetKey()) != "0" {
			slices.Reverse(list)
		}
		first, second := list[0].GetWatchId(), list[1].GetWatchId()
		if err := s.send(&pb.WatchResponse{WatchId: first, Created: true, Header: at(5)},
			&pb.WatchResponse{WatchId: -1, Header: at(9)},
			&pb.WatchResponse{WatchId: second, Created: true, Header: at(9)},
			&pb.WatchResponse{WatchId: second, Header: at(11)}); err != nil {
			return err
		}
		return s.hold()
	}})
	c := to(t, f)
	for i, rev := range []int64{9, 11} {
		w := c.Watch(limited(t), fmt.Sprint(i), client.WithProgress())
		defer func() {
			for b, err := range w.Batches() {
				if err != nil || b.Revision != rev || len(b.Events) != 0 ||
					w.Status().Next != rev+1 {
					t.Errorf("%+v, %v", b, err)
				}
				break
			}
		}()
	}
}

// TestProgressBeforeCreation: the answer to an older request for progress may arrive after a
// watcher from the past was created. It must not stand for the events that this one has yet to
// receive.
func TestProgressBeforeCreation(t *testing.T) {
	var streams atomic.Int64
	f := start(t, &fake{watch: func(s *fakeStream) error {
		if streams.Add(1) > 1 {
			for _, r := range s.creates(2) {
				if err := s.send(&pb.WatchResponse{WatchId: r.GetWatchId(), Created: true,
					Header: at(10)},
					&pb.WatchResponse{WatchId: r.GetWatchId(), Header: at(10),
						Events: []*mvccpb.Event{event("from", r.GetStartRevision())}}); err != nil {
					return err
				}
			}
			return s.hold()
		}
		now := s.creates(1)[0].GetWatchId()
		if err := s.send(&pb.WatchResponse{WatchId: now, Created: true,
			Header: at(10)}); err != nil {
			return err
		}
		past := s.creates(1)[0].GetWatchId()
		if err := s.send(&pb.WatchResponse{WatchId: past, Created: true, Header: at(10)},
			&pb.WatchResponse{WatchId: -1, Header: at(10)}); err != nil {
			return err
		}
		return unavailable("before the events")
	}})
	c := to(t, f)
	now := c.Watch(limited(t), "now", client.WithProgress())
	defer now.Close()
	if _, err := now.Created(limited(t)); err != nil {
		t.Fatal(err)
	}
	now.RequestProgress()
	past := c.Watch(limited(t), "past", client.FromRevision(3))
	defer past.Close()
	want(t, past, "from@3")
}

// TestWatchClosed: a watcher leaves its stream for any reason of its end, and no goroutine remains.
func TestWatchClosed(t *testing.T) {
	gone := make(chan struct{})
	f := start(t, &fake{watch: func(s *fakeStream) error {
		defer close(gone)
		id := s.creates(1)[0].GetWatchId()
		if err := s.send(&pb.WatchResponse{WatchId: id, Created: true}); err != nil {
			return err
		}
		return s.hold()
	}})
	c := to(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	w := c.Watch(ctx, "k")
	if _, err := w.Created(ctx); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := read(w, 1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-gone // the stream ended with its last watcher
	w = c.Watch(t.Context(), "")
	if _, err := read(w, 1); !errors.Is(err, client.ErrEmptyKey) {
		t.Error(err)
	}
	if _, err := read(c.Watch(t.Context(), "b", client.WithRange("a")), 1); !errors.Is(err,
		client.ErrInvalid) {
		t.Error(err)
	}
}

// TestWatchLeavesDamage: a watch continues at another member when its member has damaged data. It
// ends when each member has.
func TestWatchLeavesDamage(t *testing.T) {
	var first atomic.Pointer[fake]
	serve := func(f *fake) func(*fakeStream) error {
		return func(s *fakeStream) error {
			r := s.creates(1)[0]
			id := r.GetWatchId()
			answers := []*pb.WatchResponse{{WatchId: id, Created: true, Header: at(10)},
				{WatchId: id, Events: []*mvccpb.Event{event("k", 2)}},
				{WatchId: id, Canceled: true, CancelReason: "etcdserver: corrupt cluster"}}
			if !first.CompareAndSwap(nil, f) {
				if first.Load() == f || r.GetStartRevision() != 3 {
					t.Errorf("at the member with damaged data %t, from revision %d",
						first.Load() == f, r.GetStartRevision())
				}
				answers[1], answers = &pb.WatchResponse{WatchId: id,
					Events: []*mvccpb.Event{event("k", 3)}}, answers[:2]
			}
			if err := s.send(answers...); err != nil {
				return err
			}
			return s.hold()
		}
	}
	a, b := &fake{}, &fake{}
	a.watch, b.watch = serve(a), serve(b)
	start(t, a)
	start(t, b)
	w := to(t, a, b).Watch(limited(t), "k", client.FromRevision(2))
	want(t, w, "k@2", "k@3")
	w.Close()

	only := start(t, &fake{watch: func(s *fakeStream) error {
		id := s.creates(1)[0].GetWatchId()
		if err := s.send(&pb.WatchResponse{WatchId: id, Created: true},
			&pb.WatchResponse{WatchId: id, Canceled: true,
				CancelReason: "etcdserver: corrupt cluster"}); err != nil {
			return err
		}
		return s.hold()
	}})
	if got, err := read(to(t, only).Watch(limited(t), "k"), 1); len(got) != 0 ||
		!errors.Is(err, client.ErrCorrupt) {
		t.Errorf("with damaged data everywhere: %v, %v", got, err)
	}
}

// TestWatchToken: a stream or a watcher whose token is refused continues with another token, and
// ends if all are refused.
func TestWatchToken(t *testing.T) {
	for _, whole := range []bool{true, false} {
		var valid atomic.Value
		valid.Store("t2")
		f := start(t, &fake{watch: func(s *fakeStream) error {
			md, _ := metadata.FromIncomingContext(s.Context())
			good := slices.Equal(md.Get("token"), []string{valid.Load().(string)})
			if !good && whole {
				return rpctypes.ErrGRPCInvalidAuthToken
			}
			id := s.creates(1)[0].GetWatchId()
			if !good {
				if err := s.send(&pb.WatchResponse{WatchId: -1, Created: true, Canceled: true,
					CancelReason: rpctypes.ErrGRPCInvalidAuthToken.Error()}); err != nil {
					return err
				}
				return s.hold()
			}
			if err := s.send(&pb.WatchResponse{WatchId: id, Created: true},
				&pb.WatchResponse{WatchId: id,
					Events: []*mvccpb.Event{event("k", 2)}}); err != nil {
				return err
			}
			return s.hold()
		}})
		var given atomic.Int64
		c := open(t, client.Config{Endpoints: []string{f.addr},
			Token: func(context.Context) (client.Token, error) {
				return client.Token{Value: fmt.Sprint("t", given.Add(1))}, nil
			}})
		want(t, c.Watch(limited(t), "k"), "k@2")
		if given.Load() != 2 {
			t.Errorf("%d tokens", given.Load())
		}
		valid.Store("none")
		hopeless := c.In("x").Watch(metadata.AppendToOutgoingContext(limited(t), "own",
			"stream"), "k")
		if _, err := read(hopeless, 1); !errors.Is(err, client.ErrInvalidAuthToken) {
			t.Errorf("whole stream %v: %v", whole, err)
		}
	}
}
