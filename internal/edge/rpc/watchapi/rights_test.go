package watchapi

import (
	"context"
	"errors"
	"strings"
	"testing"

	"vigil/internal/kv"
)

// answering lets watch what err says.
type answering struct {
	Rights
	err error
}

func (a answering) AuthEnabled() bool                              { return true }
func (a answering) MayWatch(context.Context, []byte, []byte) error { return a.err }

// A client whose token cannot be resolved for want of a leader, or in time, loses its watchers for
// a reason after which it continues at another member, not for want of a right.
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
		st := &authorizedStream{api: New(Options{Rights: answering{err: err}}), ctx: t.Context()}
		if got, _ := st.denial(t.Context(), []byte("k"), nil); !strings.Contains(got, want) ||
			(got == "") != (err == nil) {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// slowAuth waits for a leader that does not come.
type slowAuth struct {
	Rights
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
type revoking struct{ HubStream }

func (revoking) Close()                                     {}
func (revoking) Revoke(reason func(key, end []byte) string) { reason([]byte("k"), nil) }

// idleHub keeps nothing back.
type idleHub struct{}

func (idleHub) Withheld() int64 { return 0 }
func (idleHub) Release(int64)   {}

// The end of the server ends a review that waits.
func TestStopEndsReview(t *testing.T) {
	a := slowAuth{asked: make(chan struct{}, 1)}
	api := New(Options{Rights: a, Hub: idleHub{}, ReviewTime: 1 << 50})
	st := &authorizedStream{HubStream: revoking{}, api: api, ctx: t.Context()}
	api.open.mu.streams[st] = struct{}{}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		api.ReviewRights(stop)
	}()
	<-a.asked
	close(stop)
	<-done
}
