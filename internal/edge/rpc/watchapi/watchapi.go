// Package watchapi implements the Watch service.
//
//  1. A stream has no goroutine while nothing happens. A client that does not read blocks its own
//     stream only.
//  2. A watcher is created only if the user may read its range. That is checked again whenever
//     users or roles change; until then the hub keeps back the events that followed the change.
package watchapi

import (
	"context"
	"log/slog"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/internal/edge/rpc/gate"
	"vigil/internal/edge/rpc/timesapi"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/edge/rpc/wire"
	"vigil/internal/kv"
	"vigil/internal/store/watch"
)

// HubStream is the hub's side of one watch stream. Either Next or Take is called, by one goroutine
// at a time; Create, Cancel and Progress by another; Close once, by any. After Close the others may
// still be called, and must do nothing.
type HubStream interface {
	// Create, Cancel and Progress do not fail: Next returns their responses, in order. Create has
	// no effect, and returns false, if Hub.Withheld has changed since the request.
	Create(watch.CreateRequest) bool
	Cancel(id int64)
	Progress()
	// Refuse answers a rejected create with the reason. It is called by the goroutine that calls
	// Create.
	Refuse(reason string)
	// Revoke cancels the watchers for whose range refuse returns a reason. It may be called
	// concurrently.
	Revoke(refuse func(key, end []byte) (reason string))
	// Next waits until there are responses, or the context ends, and appends them to dst.
	Next(ctx context.Context, dst []watch.Response) ([]watch.Response, error)
	// NotifyReady is called first. It lets the stream be reported whenever Take has something to
	// return: after the call, and after each call of Take that has returned nothing.
	NotifyReady(to *watch.Ready, owner any)
	// Take appends responses to dst, up to about most bytes, without waiting.
	Take(dst []watch.Response, most int64) ([]watch.Response, error)
	Close()
}

// Hub keeps back events of watchers after each change of users or roles, while auth is enabled.
type Hub interface {
	// Withheld returns how often it did so.
	Withheld() int64
	// Release delivers the events that are kept back because of the first n changes: the watchers
	// were checked after these.
	Release(n int64)
}

// Rights is the part of the member that knows who may watch.
type Rights interface {
	// AuthEnabled reports whether calls need credentials. It returns at once.
	AuthEnabled() bool
	// AuthChanged returns a channel that is closed at the next change of users or roles.
	AuthChanged() <-chan struct{}
	// User returns the name of the user who makes a call, "" if unknown.
	User(context.Context) string
	// MayWatch rejects callers that may not read a range now, by what this member knows. The error
	// is kv's.
	MayWatch(ctx context.Context, key, end []byte) error
}

// Member names the member in the headers of answers.
type Member interface{ Header() kv.Header }

// Options are what New needs.
type Options struct {
	// NewStream makes the hub's side of a stream. A stream whose Next and Take return kv.ErrCorrupt
	// is refused.
	NewStream func(watch.StreamInfo) HubStream
	// Rights may be nil: then everyone may watch everything. Hub is required with Rights.
	Rights Rights
	Hub    Hub
	Times  timesapi.Source // may be nil
	Member Member
	// ReviewTime is how long a review of all watchers may wait for a leader.
	ReviewTime time.Duration
	Metrics    *Metrics
	Logger     *slog.Logger
}

// API implements the service. WakeStreams and ReviewRights must run until the server stops.
type API struct {
	Options
	open  openStreams
	ready *watch.Ready // the streams with responses
}

// New returns the service.
func New(o Options) *API {
	a := &API{Options: o, ready: watch.NewReady()}
	a.open.mu.streams = map[*authorizedStream]struct{}{}
	return a
}

// Service lists the methods.
func (a *API) Service() gate.Service {
	return gate.Service{Name: etcdserverpb.Watch_ServiceDesc.ServiceName, Methods: []gate.Endpoint{
		gate.BidiStreaming[wire.WatchRequest]("Watch",
			func() gate.SessionHandler { return &session{hub: authorizedStream{api: a}} }),
	}}
}

// WakeStreams lets the transport take responses of watch streams whenever there are some, until
// stop is closed.
func (a *API) WakeStreams(stop <-chan struct{}) {
	var owners []any
	var peers []transport.Peer
	for {
		var ok bool
		if owners, ok = a.ready.Wait(stop, owners[:0]); !ok {
			return
		}
		for _, o := range owners {
			peers = append(peers, o.(*session).Peer)
		}
		transport.WakeAll(peers)
		clear(owners)
		clear(peers)
		if peers = peers[:0]; cap(peers) > 1024 {
			owners, peers = nil, nil
		}
	}
}
