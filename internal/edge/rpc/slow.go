package rpc

import (
	"context"
	"log/slog"
	"time"

	"vigil/internal/edge/rpc/calls"
	"vigil/internal/edge/rpc/transport"
)

// slowLines is how many lines about calls that took long there may be in a second.
const slowLines = 100

// logSlowCall logs a slow call, unless many were logged.
func (s *service) logSlowCall(ctx context.Context, method string, req, resp any, start time.Time, took time.Duration, err error) {
	if ok, dropped := s.slow.Allow(time.Now()); ok {
		s.logCall(ctx, slog.LevelWarn, method, req, resp, start, took, err, dropped)
	}
}

// logCall logs a unary call. dropped is the number of slow calls that were not logged.
func (s *service) logCall(ctx context.Context, level slog.Level, method string, req, resp any, start time.Time, took time.Duration, err error, dropped uint64) {
	st := calls.StatsOf(req, resp)
	attrs := []slog.Attr{
		slog.Time("start time", start), slog.Duration("time spent", took), slog.String("remote", transport.Remote(ctx)),
		slog.String("response type", method),
		slog.Int64("request count", st.Requests), slog.Int("request size", st.RequestBytes),
		slog.Int64("response count", st.Responses), slog.Int("response size", st.ResponseBytes),
		slog.String("request content", st.Content),
	}
	if steps := st.Text(took); steps != "" {
		attrs = append(attrs, slog.String("steps", steps))
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	if dropped > 0 {
		attrs = append(attrs, slog.Uint64("lines left out", dropped))
	}
	s.log.LogAttrs(ctx, level, "request stats", attrs...)
}
