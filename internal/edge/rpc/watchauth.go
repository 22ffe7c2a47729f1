package rpc

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/kv"
	"vigil/internal/store/watch"
)

// watchStreams are the open watch streams. All their watchers are checked again when users or roles change.
type watchStreams struct {
	mu struct {
		sync.Mutex
		open map[*authorizedStream]struct{}
	}
}

func (g *watchStreams) init() { g.mu.open = map[*authorizedStream]struct{}{} }

// authorizedStream is the hub's side of a watch stream. It rejects and cancels watchers of ranges that its client may not read.
type authorizedStream struct {
	WatchStream
	svc *service
	ctx context.Context
	// unknown is why a review has closed the hub's side: whether the client has its rights is not known.
	unknown atomic.Pointer[error]
}

// open opens the hub's side of a stream for the client of a call.
func (st *authorizedStream) open(ctx context.Context, s *service, client string) {
	info := watch.StreamInfo{Client: client}
	if s.enabled() {
		info.User = s.cfg.Auth.User(ctx)
	}
	st.WatchStream, st.svc, st.ctx = s.cfg.NewWatchStream(info), s, ctx
	s.watchStreams.mu.Lock()
	defer s.watchStreams.mu.Unlock()
	s.watchStreams.mu.open[st] = struct{}{}
}

// Close implements WatchStream.
func (st *authorizedStream) Close() {
	all := &st.svc.watchStreams
	all.mu.Lock()
	delete(all.mu.open, st)
	all.mu.Unlock()
	st.WatchStream.Close()
}

// Create implements WatchStream. It rejects a watcher of a range that the client may not read.
func (st *authorizedStream) Create(r watch.CreateRequest) bool {
	if st.svc.cfg.Auth == nil || r.StartRev < 0 {
		return st.WatchStream.Create(r) // rejects a negative revision
	}
	for {
		r.Withheld = st.svc.cfg.WatchHub.Withheld()
		if reason, _ := st.denial(st.ctx, r.Key, r.End); reason != "" {
			st.Refuse(reason)
			return true
		}
		if st.WatchStream.Create(r) {
			return true
		}
	}
}

// denial returns the reason why the client may not watch a range, empty if it may. unknown is the reason as the status of a stream if
// another member may know better. ctx has the credentials of the client.
func (st *authorizedStream) denial(ctx context.Context, key, end []byte) (reason string, unknown error) {
	if !st.svc.enabled() {
		return "", nil
	}
	if len(key) == 0 {
		key = []byte{0}
	}
	err := st.svc.cfg.Auth.MayWatch(ctx, key, end)
	if err == nil {
		return "", nil
	}
	answer := apierror.Status(err)
	switch code := status.Code(answer); {
	case code == codes.Unavailable:
		return answer.Error(), answer
	case code == codes.Canceled, code == codes.DeadlineExceeded:
		return rpctypes.ErrGRPCNoLeader.Error(), rpctypes.ErrGRPCNoLeader // its token was not resolved in time
	case errors.Is(err, kv.ErrInvalidAuthToken), errors.Is(err, kv.ErrAuthOldRevision), errors.Is(err, kv.ErrUserEmpty):
		return answer.Error(), nil
	default:
		return rpctypes.ErrGRPCPermissionDenied.Error(), nil
	}
}

// review cancels the watchers of ranges that the client may not read any more. What it waits for ends with ctx. If the client's rights
// are not known, the whole stream ends: the client continues at another member, whereas the end of a watcher is final for etcd's.
func (st *authorizedStream) review(ctx context.Context) {
	if !st.svc.enabled() {
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
		st.WatchStream.Close()
	}
}

// ended returns the status of the stream after the hub's side was closed.
func (st *authorizedStream) ended() error {
	if unknown := st.unknown.Load(); unknown != nil {
		return *unknown
	}
	return rpctypes.ErrGRPCStopped
}

// reviewAll reviews every stream whenever users or roles have changed, until stop is closed. After that the hub delivers events
// that are newer than the change.
func (s *service) reviewAll(stop <-chan struct{}) {
	during, end := context.WithCancel(context.Background())
	go func() {
		<-stop
		end()
	}()
	for {
		changed := s.cfg.Auth.AuthChanged()
		withheld := s.cfg.WatchHub.Withheld()
		s.watchStreams.mu.Lock()
		open := make([]*authorizedStream, 0, len(s.watchStreams.mu.open))
		for st := range s.watchStreams.mu.open {
			open = append(open, st)
		}
		s.watchStreams.mu.Unlock()
		// A token that this member does not know yet may have to wait for a leader, and events must not wait as long.
		ctx, cancel := context.WithTimeout(during, patience*s.cfg.ElectionTimeout)
		for _, st := range open {
			st.review(ctx)
		}
		cancel()
		s.cfg.WatchHub.Release(withheld)
		select {
		case <-changed:
		case <-stop:
			return
		}
	}
}
