package rpc

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/internal/kv"
	"vigil/internal/store/watch"
)

// answering lets watch what err says.
type answering struct {
	nobodyKnown
	err error
}

func (a answering) AuthEnabled() bool                              { return true }
func (a answering) MayWatch(context.Context, []byte, []byte) error { return a.err }

// A client whose token cannot be resolved for want of a leader, or in time, loses its watchers for a reason after which it continues at
// another member, not for want of a right.
func TestUnresolvedTokenIsNoDenial(t *testing.T) {
	for err, want := range map[error]string{
		nil:                      "",
		context.DeadlineExceeded: "no leader",
		context.Canceled:         "no leader",
		kv.ErrNoLeader:           "no leader",
		kv.ErrTimeout:            "timed out",
		kv.ErrStopped:            "stopped",
		kv.ErrInvalidAuthToken:   "invalid auth token",
		kv.ErrPermissionDenied:   "permission denied",
		errors.New("unknown"):    "permission denied",
	} {
		st := &authorizedStream{svc: &service{cfg: Config{Auth: answering{err: err}}}, ctx: t.Context()}
		if got, _ := st.denial(t.Context(), []byte("k"), nil); !strings.Contains(got, want) || (got == "") != (err == nil) {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// slowAuth waits for a leader that does not come.
type slowAuth struct {
	nobodyKnown
	asked chan struct{}
}

func (a slowAuth) AuthEnabled() bool            { return true }
func (a slowAuth) AuthChanged() <-chan struct{} { return nil }
func (a slowAuth) MayWatch(ctx context.Context, _, _ []byte) error {
	a.asked <- struct{}{}
	<-ctx.Done()
	if !errors.Is(ctx.Err(), context.Canceled) {
		panic("the review ended by its time")
	}
	return ctx.Err()
}

// revoking asks for a right until the stream is closed.
type revoking struct{ WatchStream }

func (revoking) Close()                                     {}
func (revoking) Revoke(reason func(key, end []byte) string) { reason([]byte("k"), nil) }

// The end of the server ends a review that waits.
func TestStopEndsReview(t *testing.T) {
	a := slowAuth{asked: make(chan struct{}, 1)}
	s := &service{cfg: Config{Auth: a, WatchHub: &fakeHub{}, ElectionTimeout: 1 << 50}}
	s.watchStreams.init()
	st := &authorizedStream{WatchStream: revoking{}, svc: s, ctx: t.Context()}
	s.watchStreams.mu.open[st] = struct{}{}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		s.reviewAll(stop)
	}()
	<-a.asked
	close(stop)
	<-done
}

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

// A stream whose client's rights are not known after a change of users ends, so that the client continues at another member: the
// end of a watcher is final for etcd's clients. It gets no event of after the change.
func TestReviewWithoutAnswerEndsStream(t *testing.T) {
	for _, unresolved := range []error{kv.ErrNoLeader, kv.ErrTimeout, context.DeadlineExceeded, context.Canceled} {
		src, auth := &oneKey{}, &failingAuth{gatedAuth: newGatedAuth()}
		src.newest.Store(1)
		hub := watch.New(src, watch.Options{})
		f := start(t, func(c *Config) {
			c.Auth, c.WatchHub = auth, hub
			c.NewWatchStream = func(i watch.StreamInfo) WatchStream { return hub.NewStream(i) }
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

// What handlers do after their calls ends when Stop waits for nothing any more, because Stop waits for the handlers.
func TestStopEndsWhatFollowsCalls(t *testing.T) {
	f := start(t, nil)
	entered := make(chan struct{})
	hook := func(context.Context) error {
		close(entered)
		<-f.svc.running.Done()
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
