package rpc

import (
	"context"

	"vigil/internal/edge/rpc/transport"
)

// serverStream counts messages and has a context that the server can end.
type serverStream struct {
	transport.Stream
	m   *method
	ctx context.Context
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
