package watchapi

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/kv"
	"vigil/internal/store/watch"
)

// openStreams are the open watch streams. All their watchers are checked again when users or roles
// change.
type openStreams struct {
	mu struct {
		sync.Mutex
		streams map[*authorizedStream]struct{}
	}
}

// authorizedStream is the hub's side of a watch stream. It rejects and cancels watchers of ranges
// that its client may not read.
type authorizedStream struct {
	HubStream
	api *API
	ctx context.Context
	// unknown is why a review has closed the hub's side: the client's rights could not be
	// determined.
	unknown atomic.Pointer[error]
}

// openHubSide opens the hub's side of a stream for the client of a call.
func (st *authorizedStream) openHubSide(ctx context.Context) {
	info := watch.StreamInfo{Client: transport.Remote(ctx)}
	if st.api.authEnabled() {
		info.User = st.api.Rights.User(ctx)
	}
	st.HubStream, st.ctx = st.api.NewStream(info), ctx
	all := &st.api.open
	all.mu.Lock()
	defer all.mu.Unlock()
	all.mu.streams[st] = struct{}{}
}

// authEnabled reports whether watchers need rights, as far as this member knows.
func (a *API) authEnabled() bool { return a.Rights != nil && a.Rights.AuthEnabled() }

// Close implements HubStream.
func (st *authorizedStream) Close() {
	all := &st.api.open
	all.mu.Lock()
	delete(all.mu.streams, st)
	all.mu.Unlock()
	st.HubStream.Close()
}

// Create implements HubStream. It rejects a watcher of a range that the client may not read.
func (st *authorizedStream) Create(r watch.CreateRequest) bool {
	if st.api.Rights == nil || r.StartRev < 0 {
		return st.HubStream.Create(r) // rejects a negative revision
	}
	for {
		r.Withheld = st.api.Hub.Withheld()
		if reason, _ := st.denial(st.ctx, r.Key, r.End); reason != "" {
			st.Refuse(reason)
			return true
		}
		if st.HubStream.Create(r) {
			return true
		}
	}
}

// denial returns the reason why the client may not watch a range, "" if it may. unknown is the
// reason as the status of a stream if another member may know better. ctx has the credentials of
// the client.
func (st *authorizedStream) denial(ctx context.Context, key, end []byte) (reason string,
	unknown error) {
	if !st.api.authEnabled() {
		return "", nil
	}
	if len(key) == 0 {
		key = []byte{0}
	}
	err := st.api.Rights.MayWatch(ctx, key, end)
	if err == nil {
		return "", nil
	}
	answer := apierror.Status(err)
	switch code := status.Code(answer); {
	case code == codes.Unavailable:
		return answer.Error(), answer
	case code == codes.Canceled, code == codes.DeadlineExceeded:
		// its token was not resolved in time
		return rpctypes.ErrGRPCNoLeader.Error(), rpctypes.ErrGRPCNoLeader
	case errors.Is(err, kv.ErrInvalidAuthToken), errors.Is(err, kv.ErrAuthOldRevision),
		errors.Is(err, kv.ErrUserEmpty):
		return answer.Error(), nil
	default:
		return rpctypes.ErrGRPCPermissionDenied.Error(), nil
	}
}

// review cancels the watchers of ranges that the client may no longer read. It waits until ctx ends
// at most. If the client's rights are not known, the whole stream ends: the client continues at
// another member, whereas the end of a watcher is final for etcd's clients.
func (st *authorizedStream) review(ctx context.Context) {
	if !st.api.authEnabled() {
		return
	}
	ctx = kv.WithCredentials(ctx, kv.CredentialsOf(st.ctx))
	var unknown error
	st.Revoke(func(key, end []byte) string {
		if unknown != nil {
			return ""
		}
		var reason string
		if reason, unknown = st.denial(ctx, key, end); unknown != nil {
			return ""
		}
		return reason
	})
	if unknown != nil {
		st.unknown.Store(&unknown)
		st.HubStream.Close()
	}
}

// endStatus returns the status of the stream after the hub's side was closed.
func (st *authorizedStream) endStatus() error {
	if unknown := st.unknown.Load(); unknown != nil {
		return *unknown
	}
	return rpctypes.ErrGRPCStopped
}

// ReviewRights reviews every stream whenever users or roles have changed, until stop is closed.
// After that the hub delivers the events that are newer than the change.
func (a *API) ReviewRights(stop <-chan struct{}) {
	running, end := context.WithCancel(context.Background())
	go func() {
		<-stop
		end()
	}()
	for {
		changed := a.Rights.AuthChanged()
		withheld := a.Hub.Withheld()
		a.open.mu.Lock()
		open := slices.Collect(maps.Keys(a.open.mu.streams))
		a.open.mu.Unlock()
		// A token that this member does not know yet may have to wait for a leader, and events must
		// not wait as long.
		ctx, cancel := context.WithTimeout(running, a.ReviewTime)
		for _, st := range open {
			st.review(ctx)
		}
		cancel()
		a.Hub.Release(withheld)
		select {
		case <-changed:
		case <-stop:
			return
		}
	}
}

// Follow watches for a call that is not a watch stream, until next returns false or an error, which
// it returns. The error is kv.ErrCompacted if the start revision is compacted.
func (a *API) Follow(ctx context.Context, r watch.CreateRequest,
	next func(*watch.Response) (more bool, err error)) error {
	hub := authorizedStream{api: a}
	hub.openHubSide(ctx)
	defer hub.Close()
	hub.Create(r)
	var batch []watch.Response
	for {
		var err error
		if batch, err = hub.Next(ctx, batch[:0]); errors.Is(err, watch.ErrClosed) {
			return hub.endStatus()
		} else if err != nil {
			return transport.EndStatus(ctx, apierror.Status(err))
		}
		for i := range batch {
			switch res := &batch[i]; {
			case res.CompactRevision != 0:
				return kv.ErrCompacted
			case res.Canceled:
				return status.Error(codes.Unknown, res.Reason)
			case len(res.Events) == 0:
			default:
				if more, err := next(res); err != nil || !more {
					return err
				}
			}
		}
	}
}
