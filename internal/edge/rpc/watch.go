package rpc

import (
	"context"
	"errors"
	"io"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/transport"
	"vigil/internal/edge/rpc/wire"
	"vigil/internal/kv"
	"vigil/internal/store/watch"
)

// watchConn is the transport's side of one watch stream. Recv and Send may be called concurrently; a waiting Recv returns
// an error soon after the handler of the stream has returned.
type watchConn interface {
	// Context ends with the stream; its cause is the status to end with if the server ends it.
	Context() context.Context
	// Client is the address of the client.
	Client() string
	// Recv fills the zero value of a request; io.EOF if the client will send no more.
	Recv(*wire.WatchRequest) error
	// Send sends responses in order. It blocks while the client does not read, and keeps only the bytes of events.
	Send([]wire.WatchResponse) error
}

// errReceive is the cause of the end of a stream after an error of Recv.
type errReceive struct{ error }

func (e errReceive) Unwrap() error { return e.error }

// watch serves one stream. It sends on the calling goroutine and receives on another one: only the end of the handler
// interrupts a Recv, and the server must be able to end the handler. So the receiver ends shortly after the handler, and
// then uses only a closed stream of the hub.
func (s *service) watch(conn watchConn) (err error) {
	ctx, cancel := context.WithCancelCause(conn.Context())
	defer cancel(nil)
	hub := s.watchStream(conn.Context(), conn.Client())
	defer hub.Close()
	go func() {
		defer func() {
			if p := recover(); p != nil {
				cancel(transport.Recovered(s.log, "watch receiver", p))
			}
		}()
		if err := receive(conn, hub); err != nil {
			cancel(errReceive{err})
		}
	}()
	var batch []watch.Response
	var out []wire.WatchResponse
	for {
		batch, err = hub.Next(ctx, batch[:0])
		if err != nil {
			return s.watchEnd(conn, ctx, err)
		}
		head := s.cfg.Member.Header()
		out = out[:0]
		for i := range batch {
			out = append(out, response(head, &batch[i]))
		}
		began := time.Now()
		err = conn.Send(out)
		s.cfg.Metrics.watching.sent(out, time.Since(began))
		clear(batch) // so that an idle stream does not keep sent events in memory
		clear(out)
		if err != nil {
			return s.watchEnd(conn, ctx, err)
		}
	}
}

// receive hands the client's requests to the hub. It returns nil when the client has closed its
// side: the watchers that exist stay, until the client ends the whole stream.
func receive(conn watchConn, hub WatchStream) error {
	for {
		var r wire.WatchRequest
		if err := conn.Recv(&r); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		switch r.Kind {
		case wire.WatchCreate:
			c := &r.Create
			hub.Create(watch.CreateRequest{ID: c.WatchID, Key: c.Key, End: c.End, StartRev: c.StartRevision, NoPut: c.NoPut,
				NoDelete: c.NoDelete, PrevKV: c.PrevKV, ProgressNotify: c.ProgressNotify, Fragment: c.Fragment})
		case wire.WatchCancel:
			hub.Cancel(r.CancelID)
		case wire.WatchProgress:
			hub.Progress()
		}
	}
}

// response returns the message for a response of the hub; head is the present header.
func response(head kv.Header, r *watch.Response) wire.WatchResponse {
	head.Revision = r.Revision
	return wire.WatchResponse{Header: head, WatchID: r.WatchID, Created: r.Created, Canceled: r.Canceled,
		CompactRevision: r.CompactRevision, Reason: r.Reason, Fragment: r.Fragment, Events: r.Events}
}

// watchEnd returns the status of a stream that ends because of err.
func (s *service) watchEnd(conn watchConn, ctx context.Context, err error) error {
	if errors.Is(err, watch.ErrClosed) && ctx.Err() == nil {
		return rpctypes.ErrGRPCStopped
	}
	if errors.Is(err, kv.ErrCorrupt) {
		return rpctypes.ErrGRPCCorrupt
	}
	cause := context.Cause(ctx)
	var received errReceive
	switch {
	case cause == nil:
		// Sending failed though the client did not end the stream.
		s.cfg.Metrics.streamFailures.WithLabelValues("send", "watch").Inc()
		s.log.Warn("failed to send watch response", "remote", conn.Client(), "error", err)
		return err
	case errors.As(cause, &received):
		if conn.Context().Err() == nil && status.Code(cause) != codes.Canceled {
			s.cfg.Metrics.streamFailures.WithLabelValues("receive", "watch").Inc()
			s.log.Warn("failed to receive watch request", "remote", conn.Client(), "error", received.error)
			return received.error
		}
		return rpctypes.ErrGRPCWatchCanceled
	case errors.Is(cause, context.Canceled):
		return rpctypes.ErrGRPCWatchCanceled
	case errors.Is(cause, context.DeadlineExceeded):
		return status.FromContextError(cause).Err()
	}
	return cause
}
