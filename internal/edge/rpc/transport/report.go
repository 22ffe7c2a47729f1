package transport

import (
	"context"
	"time"

	"google.golang.org/grpc/stats"
)

// ReportCall notifies a handler of a call that is made in this process; the returned function reports its end.
func ReportCall(h StatsHandler, ctx context.Context, fullMethod string, m *Method) (context.Context, func(error)) {
	if h == nil {
		return ctx, func(error) {}
	}
	ctx = h.TagRPC(ctx, &stats.RPCTagInfo{FullMethodName: fullMethod})
	began := &stats.Begin{BeginTime: time.Now(), IsClientStream: m.ClientStreams, IsServerStream: m.ServerStreams}
	h.HandleRPC(ctx, began)
	return ctx, func(err error) {
		h.HandleRPC(ctx, &stats.End{BeginTime: began.BeginTime, EndTime: time.Now(), Error: err})
	}
}

// report notifies the stats handler of the call, if there is one. It returns the function to be called at the end.
func (c *call) report() func(error) {
	h := c.conn.server.o.Stats
	if h == nil {
		return nil
	}
	path := c.method.path
	ctx := h.TagRPC(c, &stats.RPCTagInfo{FullMethodName: path})
	c.makeSpecial().tagged = ctx
	h.HandleRPC(ctx, &stats.InHeader{FullMethod: path, RemoteAddr: c.conn.peer.Addr, LocalAddr: c.conn.peer.LocalAddr,
		Compression: c.peekSpecial().received, Header: c.metadata.md})
	began := &stats.Begin{BeginTime: time.Now(), IsClientStream: c.method.ClientStreams, IsServerStream: c.method.ServerStreams}
	h.HandleRPC(ctx, began)
	return func(err error) {
		h.HandleRPC(ctx, &stats.OutTrailer{})
		h.HandleRPC(ctx, &stats.End{BeginTime: began.BeginTime, EndTime: time.Now(), Error: err})
	}
}
