package transport

import (
	"context"
	"time"

	"google.golang.org/grpc/stats"
)

// ReportCall notifies a stats handler of a call made in this process. The returned function reports
// its end.
func ReportCall(h StatsHandler, ctx context.Context, fullMethod string,
	m *Method) (context.Context, func(error)) {
	if h == nil {
		return ctx, func(error) {}
	}
	ctx = h.TagRPC(ctx, &stats.RPCTagInfo{FullMethodName: fullMethod})
	began := &stats.Begin{BeginTime: time.Now(), IsClientStream: m.ClientStreams,
		IsServerStream: m.ServerStreams}
	h.HandleRPC(ctx, began)
	return ctx, func(err error) {
		h.HandleRPC(ctx, &stats.End{BeginTime: began.BeginTime, EndTime: time.Now(), Error: err})
	}
}

// reportCall notifies the stats handler, if there is one, that the call begins. The returned
// function reports its end; it may be nil.
func (c *call) reportCall() func(error) {
	h := c.conn.server.o.Stats
	if h == nil {
		return nil
	}
	path := c.header.method.path
	ctx := h.TagRPC(c, &stats.RPCTagInfo{FullMethodName: path})
	c.header.makeSpecial().tagged = ctx
	h.HandleRPC(ctx, &stats.InHeader{FullMethod: path, RemoteAddr: c.conn.peer.Addr,
		LocalAddr:   c.conn.peer.LocalAddr,
		Compression: c.header.peekSpecial().received, Header: c.header.metadata.md})
	began := &stats.Begin{BeginTime: time.Now(), IsClientStream: c.header.method.ClientStreams,
		IsServerStream: c.header.method.ServerStreams}
	h.HandleRPC(ctx, began)
	return func(err error) {
		h.HandleRPC(ctx, &stats.OutTrailer{})
		h.HandleRPC(ctx, &stats.End{BeginTime: began.BeginTime, EndTime: time.Now(), Error: err})
	}
}
