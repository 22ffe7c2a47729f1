package rpc

import (
	"context"
	"errors"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

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
func (st *authorizedStream) Create(r watch.CreateRequest) {
	if st.svc.cfg.Auth == nil || r.StartRev < 0 {
		st.WatchStream.Create(r) // rejects a negative revision
		return
	}
	// A change from now on is checked after the watcher exists: reviewAll may have reviewed this stream before.
	changed := st.svc.cfg.Auth.AuthChanged()
	if reason := st.denial(r.Key, r.End); reason != "" {
		st.Refuse(reason)
		return
	}
	st.WatchStream.Create(r)
	select {
	case <-changed:
		st.review()
	default:
	}
}

// denial returns the reason why the client may not watch a range, empty if it may.
func (st *authorizedStream) denial(key, end []byte) string {
	if !st.svc.enabled() {
		return ""
	}
	if len(key) == 0 {
		key = []byte{0}
	}
	switch err := st.svc.cfg.Auth.MayWatch(st.ctx, key, end); {
	case err == nil:
		return ""
	case errors.Is(err, kv.ErrInvalidAuthToken), errors.Is(err, kv.ErrAuthOldRevision), errors.Is(err, kv.ErrUserEmpty):
		return apierror.Status(err).Error()
	default:
		return rpctypes.ErrGRPCPermissionDenied.Error()
	}
}

// review cancels the watchers of ranges that the client may not read any more.
func (st *authorizedStream) review() {
	if st.svc.enabled() {
		st.Revoke(st.denial)
	}
}

// reviewAll reviews every stream whenever users or roles have changed, until stop is closed.
func (s *service) reviewAll(stop <-chan struct{}) {
	for {
		changed := s.cfg.Auth.AuthChanged()
		s.watchStreams.mu.Lock()
		open := make([]*authorizedStream, 0, len(s.watchStreams.mu.open))
		for st := range s.watchStreams.mu.open {
			open = append(open, st)
		}
		s.watchStreams.mu.Unlock()
		for _, st := range open {
			st.review()
		}
		select {
		case <-changed:
		case <-stop:
			return
		}
	}
}
