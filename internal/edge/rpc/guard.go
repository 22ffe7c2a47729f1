package rpc

import (
	"context"
	"errors"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"vigil/internal/kv"
	"vigil/internal/store/watch"
)

// guards are the open watch streams. All their watchers are checked again when users or roles change.
type guards struct {
	mu struct {
		sync.Mutex
		open map[*guard]struct{}
	}
}

func (g *guards) init() { g.mu.open = map[*guard]struct{}{} }

// guard is the hub's side of a watch stream, and the right of its client to what it watches.
type guard struct {
	WatchStream
	svc *service
	ctx context.Context
}

// watchStream opens the hub's side of a stream for the client of a call.
func (s *service) watchStream(ctx context.Context, client string) *guard {
	info := watch.StreamInfo{Client: client}
	if s.enabled() {
		info.User = s.cfg.Auth.User(ctx)
	}
	g := &guard{WatchStream: s.cfg.NewWatchStream(info), svc: s, ctx: ctx}
	s.guards.mu.Lock()
	defer s.guards.mu.Unlock()
	s.guards.mu.open[g] = struct{}{}
	return g
}

// Close implements WatchStream.
func (g *guard) Close() {
	all := &g.svc.guards
	all.mu.Lock()
	delete(all.mu.open, g)
	all.mu.Unlock()
	g.WatchStream.Close()
}

// Create implements WatchStream. It rejects a watcher of a range that the client may not read.
func (g *guard) Create(r watch.CreateRequest) {
	if g.svc.cfg.Auth == nil || r.StartRev < 0 {
		g.WatchStream.Create(r) // rejects a negative revision
		return
	}
	// A change from now on is checked after the watcher exists: reviewAll may have reviewed this stream before.
	changed := g.svc.cfg.Auth.AuthChanged()
	if reason := g.refuse(r.Key, r.End); reason != "" {
		g.Refuse(reason)
		return
	}
	g.WatchStream.Create(r)
	select {
	case <-changed:
		g.review()
	default:
	}
}

// refuse returns the reason why the client may not watch a range, empty if it may.
func (g *guard) refuse(key, end []byte) string {
	if !g.svc.enabled() {
		return ""
	}
	if len(key) == 0 {
		key = []byte{0}
	}
	switch err := g.svc.cfg.Auth.MayWatch(g.ctx, key, end); {
	case err == nil:
		return ""
	case errors.Is(err, kv.ErrInvalidAuthToken), errors.Is(err, kv.ErrAuthOldRevision), errors.Is(err, kv.ErrUserEmpty):
		return statusOf(err).Error()
	default:
		return rpctypes.ErrGRPCPermissionDenied.Error()
	}
}

// review cancels the watchers of ranges that the client may not read any more.
func (g *guard) review() {
	if g.svc.enabled() {
		g.Revoke(g.refuse)
	}
}

// reviewAll reviews every stream whenever users or roles have changed, until stop is closed.
func (s *service) reviewAll(stop <-chan struct{}) {
	for {
		changed := s.cfg.Auth.AuthChanged()
		s.guards.mu.Lock()
		open := make([]*guard, 0, len(s.guards.mu.open))
		for g := range s.guards.mu.open {
			open = append(open, g)
		}
		s.guards.mu.Unlock()
		for _, g := range open {
			g.review()
		}
		select {
		case <-changed:
		case <-stop:
			return
		}
	}
}
