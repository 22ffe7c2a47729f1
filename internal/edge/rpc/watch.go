package rpc

import (
	"cmp"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/times"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/edge/rpc/wire"
	"vigil/internal/kv"
	"vigil/internal/store/watch"
)

// watchSession is one watch stream. It has no goroutine: the hub reports streams with responses (wakeWatches), and the transport
// takes them when there is room (Fill).
type watchSession struct {
	session
	hub authorizedStream
	// start is the start revision of watchers that name none, 0 for the present one.
	start int64
}

// begin implements served: it opens the hub's side.
func (w *watchSession) begin() (err error) {
	if w.start, err = times.Start(w.ctx, w.svc.cfg.Times); err != nil {
		return err
	}
	w.hub.open(w.ctx, w.svc, transport.Remote(w.ctx))
	w.hub.NotifyReady(w.svc.ready, w)
	return nil
}

// wakeWatches lets the transport take responses of watch streams whenever there are some, until stop is closed.
func (s *service) wakeWatches(stop <-chan struct{}) {
	var owners []any
	var peers []transport.Peer
	for {
		var ok bool
		if owners, ok = s.ready.Wait(stop, owners[:0]); !ok {
			return
		}
		for _, o := range owners {
			peers = append(peers, o.(*watchSession).Peer)
		}
		transport.WakeAll(peers)
		clear(owners)
		clear(peers)
		if peers = peers[:0]; cap(peers) > 1024 {
			owners, peers = nil, nil
		}
	}
}

// Receive implements transport.Session: it hands a request to the hub.
func (w *watchSession) Receive(message any) {
	switch r := message.(*wire.WatchRequest); r.Kind {
	case wire.WatchCreate:
		c := &r.Create
		w.hub.Create(watch.CreateRequest{ID: c.WatchID, Key: c.Key, End: c.End, StartRev: cmp.Or(c.StartRevision, w.start), NoPut: c.NoPut,
			NoDelete: c.NoDelete, PrevKV: c.PrevKV, ProgressNotify: c.ProgressNotify, Fragment: c.Fragment})
	case wire.WatchCancel:
		w.hub.Cancel(r.CancelID)
	case wire.WatchProgress:
		w.hub.Progress()
	}
}

// EndReceive implements transport.Session: the watchers that exist stay, until the client ends the whole stream.
func (w *watchSession) EndReceive() {}

// filling is what a call of Fill needs. An idle stream keeps none.
type filling struct {
	batch   []watch.Response
	out     []wire.WatchResponse
	encoder transport.WatchEncoder
}

var fillings = sync.Pool{New: func() any { return new(filling) }}

// Fill implements transport.Session.
func (w *watchSession) Fill(room int) {
	f := fillings.Get().(*filling)
	for w.fill(f, room) {
	}
	if cap(f.batch) <= 1024 { // otherwise left to the garbage collector
		fillings.Put(f)
	}
}

// fill queues about room bytes of what the hub has, and reports whether there may be more, with room for it.
func (w *watchSession) fill(f *filling, room int) bool {
	batch, err := w.hub.Take(f.batch[:0], int64(room))
	f.batch = batch
	switch {
	case errors.Is(err, watch.ErrClosed):
		w.End(w.hub.ended()) // unless the stream has ended before
		return false
	case errors.Is(err, kv.ErrCorrupt):
		w.End(rpctypes.ErrGRPCCorrupt)
		return false
	case err != nil:
		w.End(apierror.Status(err))
		return false
	case len(batch) == 0:
		return false
	}
	head := w.svc.cfg.Member.Header()
	f.out = f.out[:0]
	for i := range batch {
		f.out = append(f.out, response(head, &batch[i]))
	}
	began := time.Now()
	sent, bytes, more, err := f.encoder.Queue(w.Peer, f.out)
	w.m.sent.Add(float64(sent))
	w.svc.cfg.Metrics.bytesSent.Add(float64(bytes))
	w.svc.cfg.Metrics.watching.sent(f.out, time.Since(began))
	clear(batch) // so that sent events are not kept in memory
	clear(f.out)
	if err != nil {
		w.sendFailed(err)
	}
	return more && err == nil
}

// response returns the message for a response of the hub; head is the present header.
func response(head kv.Header, r *watch.Response) wire.WatchResponse {
	head.Revision = r.Revision
	return wire.WatchResponse{Header: head, WatchID: r.WatchID, Also: r.Also, Created: r.Created, Canceled: r.Canceled,
		CompactRevision: r.CompactRevision, Reason: r.Reason, Fragment: r.Fragment, Events: r.Events}
}

// sendFailed ends a stream on which sending has failed.
func (w *watchSession) sendFailed(err error) {
	if w.ctx.Err() != nil {
		return // the client or the server has ended it
	}
	w.svc.cfg.Metrics.streamFailures.WithLabelValues("send", "watch").Inc()
	w.svc.log.Warn("failed to send watch response", "remote", transport.Remote(w.ctx), "error", err)
	w.End(err)
}

// Close implements transport.Session.
func (w *watchSession) Close(reason error) {
	w.hub.Close()
	var received *transport.ReceiveError
	if errors.As(reason, &received) && status.Code(reason) != codes.Canceled {
		w.svc.cfg.Metrics.streamFailures.WithLabelValues("receive", "watch").Inc()
		w.svc.log.Warn("failed to receive watch request", "remote", transport.Remote(w.ctx), "error", received.Err)
	}
}
