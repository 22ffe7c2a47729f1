package rpc

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"vigil/internal/edge/rpc/transport"
	"vigil/internal/edge/rpc/wire"
)

// serverStream counts messages and has a context that the server can end.
type serverStream struct {
	transport.Stream
	m         *method
	ctx       context.Context
	bytesSent prometheus.Counter
}

// Context implements transport.Stream.
func (ss *serverStream) Context() context.Context { return ss.ctx }

// SendMsg implements transport.Stream.
func (ss *serverStream) SendMsg(m any) error {
	err := ss.Stream.SendMsg(m)
	if err == nil {
		ss.m.sent.Inc()
	}
	return err
}

// RecvMsg implements transport.Stream.
func (ss *serverStream) RecvMsg(m any) error {
	err := ss.Stream.RecvMsg(m)
	if err == nil {
		ss.m.received.Inc()
	}
	return err
}

// Client, Recv and Send make a serverStream a watchConn.

func (ss *serverStream) Client() string { return transport.Remote(ss.ctx) }

func (ss *serverStream) Recv(r *wire.WatchRequest) error { return ss.RecvMsg(r) }

func (ss *serverStream) Send(list []wire.WatchResponse) error {
	sent, bytes := 0, 0
	defer func() {
		ss.m.sent.Add(float64(sent))
		ss.bytesSent.Add(float64(bytes))
	}()
	for len(list) > 0 {
		messages := transport.EncodeWatch(list)
		list = list[len(messages):]
		n, size, err := transport.SendEncoded(ss.Stream, messages, len(list) > 0)
		sent += n
		bytes += size
		if err != nil {
			return err
		}
	}
	return nil
}
