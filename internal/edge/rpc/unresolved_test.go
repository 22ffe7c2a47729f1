package rpc

import (
	"context"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/watchapi"
	"vigil/internal/kv"
	"vigil/internal/store/watch"
)

// failingAuth answers questions about rights with an error once there is one.
type failingAuth struct {
	*gatedAuth
	err atomic.Pointer[error]
}

func (a *failingAuth) MayWatch(context.Context, []byte, []byte) error {
	if err := a.err.Load(); err != nil {
		return *err
	}
	return nil
}

// A stream whose client's rights are not known after a change of users ends, so that the client
// continues at another member: the end of a watcher is final for etcd's clients. It gets no event
// of after the change.
func TestReviewWithoutAnswerEndsStream(t *testing.T) {
	for _, unresolved := range []error{kv.ErrNoLeader, kv.ErrTimeout, context.DeadlineExceeded,
		context.Canceled} {
		src, auth := &oneKey{}, &failingAuth{gatedAuth: newGatedAuth()}
		src.newest.Store(1)
		hub := watch.New(src, watch.Options{})
		f := start(t, func(c *Config) {
			c.Auth, c.WatchHub = auth, hub
			c.NewWatchStream = func(i watch.StreamInfo) watchapi.HubStream { return hub.NewStream(i) }
		})
		stream, err := f.Watch.Watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(create("k")); err != nil {
			t.Fatal(err)
		}
		if r, err := stream.Recv(); err != nil || !r.Created || r.Canceled {
			t.Fatal(r, err)
		}
		auth.err.Store(&unresolved)
		hub.Withhold()
		src.put(hub)
		auth.announce()
		if r, err := stream.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("%v: %v, %v", unresolved, r, err)
		}
		hub.Close()
	}
}

// Work of handlers after their calls ends when the time of Stop is over, because Stop waits for the
// handlers.
func TestStopEndsWhatFollowsCalls(t *testing.T) {
	f := start(t, nil)
	entered := make(chan struct{})
	hook := func(context.Context) error {
		close(entered)
		<-f.running.Done()
		return kv.ErrStopped
	}
	f.kv.hook.Store(&hook)
	answered := make(chan error, 1)
	go func() {
		_, err := f.KV.Compact(t.Context(), &etcdserverpb.CompactionRequest{Revision: 1})
		answered <- err
	}()
	within(t, entered)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		f.Stop(ctx)
	}()
	within(t, stopped)
	within(t, answered)
}
