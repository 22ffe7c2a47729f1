package watchapi

import (
	"cmp"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/gate"
	"vigil/internal/edge/rpc/timesapi"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/edge/rpc/wire"
	"vigil/internal/kv"
	"vigil/internal/store/watch"
)

// session is one watch stream. It has no goroutine: the hub reports streams with responses
// (API.WakeStreams), and the transport takes them when there is room (Fill).
type session struct {
	gate.Session
	hub authorizedStream
	// start is the start revision of watchers that name none, 0 for the present one.
	start int64
}

// Begin implements gate.SessionHandler: it opens the hub's side.
func (w *session) Begin() (err error) {
	if w.start, err = timesapi.Start(w.Context(), w.hub.api.Times); err != nil {
		return err
	}
	w.hub.openHubSide(w.Context())
	w.hub.NotifyReady(w.hub.api.ready, w)
	return nil
}

// Receive implements transport.Session: it hands a request to the hub.
func (w *session) Receive(message any) {
	switch r := message.(*wire.WatchRequest); r.Kind {
	case wire.WatchCreate:
		c := &r.Create
		w.hub.Create(watch.CreateRequest{ID: c.WatchID, Key: c.Key, End: c.End,
			StartRev: cmp.Or(c.StartRevision, w.start), NoPut: c.NoPut,
			NoDelete: c.NoDelete, PrevKV: c.PrevKV, ProgressNotify: c.ProgressNotify,
			Fragment: c.Fragment})
	case wire.WatchCancel:
		w.hub.Cancel(r.CancelID)
	case wire.WatchProgress:
		w.hub.Progress()
	}
}

// EndReceive implements transport.Session: the watchers that exist stay, until the client ends the
// whole stream.
func (w *session) EndReceive() {}

// filling is the memory of a call of Fill. An idle stream has none.
type filling struct {
	batch   []watch.Response
	out     []wire.WatchResponse
	encoder transport.WatchEncoder
}

var fillings = sync.Pool{New: func() any { return new(filling) }}

// Fill implements transport.Session.
func (w *session) Fill(room int) {
	f := fillings.Get().(*filling)
	for w.queueResponses(f, room) {
	}
	if cap(f.batch) <= 1024 { // otherwise left to the garbage collector
		fillings.Put(f)
	}
}

// queueResponses queues about room bytes of the hub's responses. It reports whether there may be
// more, with room for them.
func (w *session) queueResponses(f *filling, room int) (more bool) {
	batch, err := w.hub.Take(f.batch[:0], int64(room))
	f.batch = batch
	switch {
	case errors.Is(err, watch.ErrClosed):
		w.End(w.hub.endStatus()) // unless the stream has ended before
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
	head := w.hub.api.Member.Header()
	f.out = f.out[:0]
	for i := range batch {
		f.out = append(f.out, makeResponse(head, &batch[i]))
	}
	began := time.Now()
	sent, bytes, more, err := f.encoder.Queue(w.Peer, f.out)
	w.CountSent(sent, bytes)
	w.hub.api.Metrics.countBatch(f.out, time.Since(began))
	clear(batch) // so that sent events are not kept in memory
	clear(f.out)
	if err != nil {
		w.endAfterFailure(err)
	}
	return more && err == nil
}

// makeResponse returns the message for a response of the hub; head is the present header.
func makeResponse(head kv.Header, r *watch.Response) wire.WatchResponse {
	return wire.WatchResponse{Header: head.At(r.Revision), WatchID: r.WatchID, Also: r.Also,
		Created: r.Created, Canceled: r.Canceled,
		CompactRevision: r.CompactRevision, Reason: r.Reason, Fragment: r.Fragment,
		Events: r.Events}
}

// endAfterFailure ends a stream on which sending failed.
func (w *session) endAfterFailure(err error) {
	if w.Context().Err() != nil {
		return // the client or the server has ended it
	}
	w.CountFailure("send", "watch")
	w.hub.api.Logger.Warn("failed to send watch response", "remote",
		transport.Remote(w.Context()), "error", err)
	w.End(err)
}

// Close implements transport.Session.
func (w *session) Close(reason error) {
	w.hub.Close()
	var received *transport.ReceiveError
	if errors.As(reason, &received) && status.Code(reason) != codes.Canceled {
		w.CountFailure("receive", "watch")
		w.hub.api.Logger.Warn("failed to receive watch request", "remote",
			transport.Remote(w.Context()), "error", received.Err)
	}
}
