package rpc

import (
	"context"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/edge/rpc/watchapi"
	"vigil/internal/kv"
	"vigil/internal/store/watch"
)

// gatedAuth lets users with a right watch. If the test wants so, MayWatch waits.
type gatedAuth struct {
	Auth
	allowed atomic.Bool
	changed atomic.Pointer[chan struct{}]
	asked   chan struct{} // receives each question
	answer  chan struct{} // MayWatch receives from it before each answer
}

func newGatedAuth() *gatedAuth {
	a := &gatedAuth{asked: make(chan struct{}, 100), answer: make(chan struct{}, 100)}
	a.announce()
	a.allowed.Store(true)
	return a
}

// announce reports a change.
func (a *gatedAuth) announce() {
	next := make(chan struct{})
	if old := a.changed.Swap(&next); old != nil {
		close(*old)
	}
}

func (a *gatedAuth) AuthEnabled() bool                 { return true }
func (a *gatedAuth) AuthChanged() <-chan struct{}      { return *a.changed.Load() }
func (a *gatedAuth) User(context.Context) string       { return "alice" }
func (a *gatedAuth) CheckUser(context.Context) error   { return nil }
func (a *gatedAuth) RequireUser(context.Context) error { return nil }
func (a *gatedAuth) MayWatch(context.Context, []byte, []byte) error {
	allowed := a.allowed.Load()
	a.asked <- struct{}{}
	<-a.answer
	if !allowed {
		return kv.ErrPermissionDenied
	}
	return nil
}

// oneKey is a store whose revisions from 2 on are puts of the key k.
type oneKey struct {
	noHistory
	newest atomic.Int64
}

func (s *oneKey) Revision() int64 { return s.newest.Load() }
func (s *oneKey) EventsIn(_ *kv.EventBuffer, from, to int64, _ int) (events []kv.Event,
	next int64, err error) {
	for rev := max(from, 2); rev <= to; rev++ {
		events = append(events, s.event(rev))
	}
	return events, to + 1, nil
}

func (s *oneKey) event(rev int64) kv.Event {
	b, err := proto.Marshal(&mvccpb.KeyValue{Key: []byte("k"), ModRevision: rev, CreateRevision: 2,
		Version: rev - 1})
	if err != nil {
		panic(err)
	}
	return kv.Event{Rev: kv.Rev{Main: rev}, Key: []byte("k"), KV: b}
}

// put applies a put, like the member.
func (s *oneKey) put(hub *watch.Hub) {
	rev := s.newest.Add(1)
	hub.Publish(rev, []kv.Event{s.event(rev)})
}

// reviewed is a hub that reports the end of each review.
type reviewed struct {
	*watch.Hub
	released chan int64
}

func (h reviewed) Release(n int64) {
	h.Hub.Release(n)
	h.released <- n
}

// An event that is newer than the loss of a right reaches no watcher: neither a watcher that is
// being checked, nor one whose create was allowed just before and that begins in the past.
func TestEventsWaitForTheReview(t *testing.T) {
	for name, during := range map[string]bool{"review": false, "create": true} {
		t.Run(name, func(t *testing.T) {
			src, auth := &oneKey{}, newGatedAuth()
			src.newest.Store(1)
			hub := watch.New(src, watch.Options{})
			defer hub.Close()
			released := make(chan int64, 100)
			f := start(t, func(c *Config) {
				c.Auth, c.WatchHub = auth, reviewed{hub, released}
				c.NewWatchStream = func(i watch.StreamInfo) watchapi.HubStream { return hub.NewStream(i) }
			})
			stream, err := f.Watch.Watch(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			request := create("k")
			request.GetCreateRequest().StartRevision = 2
			if err := stream.Send(request); err != nil {
				t.Fatal(err)
			}
			within(t, auth.asked)
			if !during {
				auth.answer <- struct{}{}
				if r, err := stream.Recv(); err != nil || !r.Created || r.Canceled {
					t.Fatal(r, err)
				}
				src.put(hub)
				if r, err := stream.Recv(); err != nil || len(r.Events) != 1 {
					t.Fatal(r, err)
				}
			}
			// The right is gone.
			auth.allowed.Store(false)
			hub.Withhold()
			src.put(hub)
			auth.announce()
			if during {
				for within(t, released) < 1 { // that review found no watcher
				}
			} else {
				within(t, auth.asked) // by the review
				src.put(hub)
				for len(released) > 0 {
					if n := <-released; n > 0 {
						t.Errorf("events are delivered before the end of the review: %d", n)
					}
				}
			}
			auth.answer <- struct{}{}
			auth.answer <- struct{}{}
			for {
				r, err := stream.Recv()
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Events) > 0 {
					t.Fatalf("an event of revision %d", r.Events[0].Kv.ModRevision)
				}
				if r.Canceled {
					break
				}
			}
		})
	}
}
