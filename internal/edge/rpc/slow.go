package rpc

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"vigil/internal/edge/rpc/transport"
	"vigil/internal/edge/rpc/wire"
	"vigil/internal/kv"
)

// callStats describes a call in the log. Unknown counts and sizes are -1.
type callStats struct {
	requests, responses         int64
	requestBytes, responseBytes int
	content                     string
	steps                       kv.Steps
}

// statsOf describes a call that has ended, without values, passwords and tokens.
func statsOf(req, resp any) callStats {
	st := callStats{requests: -1, responses: -1, requestBytes: -1, responseBytes: -1}
	if h, ok := resp.(*transport.LentMessage); ok {
		resp = h.Encoder
	}
	switch r := req.(type) {
	case *wire.RangeRequest:
		st.content, st.requests, st.steps = r.Describe(), 0, stepsOf(r.Steps)
		st.requestBytes = len(r.Key) + len(r.End)
	case *wire.PutRequest:
		st.content, st.requests, st.steps = r.Describe(), 1, stepsOf(r.Steps)
		st.requestBytes = r.Len
	case *wire.DeleteRangeRequest:
		st.content, st.requests, st.steps = r.Describe(), 0, stepsOf(r.Steps)
		st.requestBytes = r.Len
	case *wire.TxnRequest:
		st.content, st.requests, st.steps = r.Describe(), int64(len(r.Success)), stepsOf(r.Steps)
		if t, ok := resp.(*wire.TxnResponse); ok && t != nil && !t.Result.Succeeded {
			st.requests = int64(len(r.Failure))
		}
		st.requestBytes = r.Len
	case *wire.LeaseGrantRequest:
		st.requestBytes = r.Len
	case *wire.CompactionRequest:
		st.content, st.steps = r.Describe(), stepsOf(r.Steps)
	case proto.Message:
		st.requestBytes = proto.Size(r)
	}
	switch r := resp.(type) {
	case *wire.RangeResponse:
		st.responses, st.responseBytes = r.Result.Count, r.Size()
	case *wire.DeleteRangeResponse:
		st.responses, st.responseBytes = r.Result.Deleted, r.Size()
	case *wire.PutResponse:
		st.responses, st.responseBytes = 0, r.Size()
	case *wire.TxnResponse:
		st.responses, st.responseBytes = 0, r.Size()
	case wire.Encoder:
		st.responseBytes = r.Size()
	case proto.Message:
		st.responseBytes = proto.Size(r)
	}
	return st
}

func stepsOf(s *kv.Steps) kv.Steps {
	if s == nil {
		return nil
	}
	return *s
}

// text has the steps in order, such as "propose 2ms, commit 310ms, apply 1ms, wait 20µs, rest 30µs". The
// rest is the time before the member was called and after it has answered.
func (st *callStats) text(total time.Duration) string {
	if len(st.steps) == 0 {
		return ""
	}
	var b strings.Builder
	for _, s := range st.steps {
		b.WriteString(s.Name + " " + s.Took.String() + ", ")
		total -= s.Took
	}
	b.WriteString("rest " + max(total, 0).String())
	return b.String()
}

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
	st := statsOf(req, resp)
	attrs := []slog.Attr{
		slog.Time("start time", start), slog.Duration("time spent", took), slog.String("remote", transport.Remote(ctx)),
		slog.String("response type", method),
		slog.Int64("request count", st.requests), slog.Int("request size", st.requestBytes),
		slog.Int64("response count", st.responses), slog.Int("response size", st.responseBytes),
		slog.String("request content", st.content),
	}
	if steps := st.text(took); steps != "" {
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
