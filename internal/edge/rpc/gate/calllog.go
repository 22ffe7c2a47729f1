package gate

import (
	"context"
	"log/slog"
	"path"
	"strings"
	"time"

	"golang.org/x/net/trace"
	"google.golang.org/protobuf/proto"

	"vigil/internal/edge/rpc/transport"
	"vigil/internal/edge/rpc/wire"
	"vigil/internal/kv"
)

// slowLines is the limit for lines about slow calls in a second.
const slowLines = 100

// logSlowCall logs a slow call, unless many were logged.
func (g *Gate) logSlowCall(ctx context.Context, method string, req, resp any, start time.Time,
	took time.Duration, err error) {
	if ok, dropped := g.slow.Allow(time.Now()); ok {
		g.logCall(ctx, slog.LevelWarn, method, req, resp, start, took, err, dropped)
	}
}

// logCall logs a unary call. dropped is the number of slow calls that were not logged.
func (g *Gate) logCall(ctx context.Context, level slog.Level, method string, req, resp any,
	start time.Time, took time.Duration, err error, dropped uint64) {
	st := describeCall(req, resp)
	attrs := []slog.Attr{
		slog.Time("start time", start), slog.Duration("time spent", took),
		slog.String("remote", transport.Remote(ctx)),
		slog.String("response type", method),
		slog.Int64("request count", st.requests), slog.Int("request size", st.requestBytes),
		slog.Int64("response count", st.responses), slog.Int("response size", st.responseBytes),
		slog.String("request content", st.content),
	}
	if steps := st.stepsText(took); steps != "" {
		attrs = append(attrs, slog.String("steps", steps))
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	if dropped > 0 {
		attrs = append(attrs, slog.Uint64("lines left out", dropped))
	}
	g.o.Logger.LogAttrs(ctx, level, "request stats", attrs...)
}

// traced begins the record of a call for /debug/requests and returns the function that ends it. It
// is used only with a verbose log: a record costs more than most calls.
func traced(ctx context.Context, method string) (end func(error)) {
	service := strings.TrimPrefix(path.Dir(method), "/")
	tr := trace.New("grpc.Recv."+service[strings.LastIndexByte(service, '.')+1:], method)
	tr.LazyPrintf("from %s", transport.Remote(ctx))
	return func(err error) {
		if err != nil {
			tr.LazyPrintf("%v", err)
			tr.SetError()
		}
		tr.Finish()
	}
}

// callStats describes a call in the log. Unknown counts and sizes are -1.
type callStats struct {
	requests, responses         int64
	requestBytes, responseBytes int
	content                     string
	steps                       kv.Steps
}

// describeCall describes a call that has ended, without values, passwords and tokens.
func describeCall(req, resp any) callStats {
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

// stepsText has the steps in order, such as "propose 2ms, commit 310ms, apply 1ms, wait 20µs, rest
// 30µs". The rest is the time before the member was called and after it answered.
func (st *callStats) stepsText(total time.Duration) string {
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
