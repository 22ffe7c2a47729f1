package calls

import (
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"vigil/internal/edge/rpc/transport"
	"vigil/internal/edge/rpc/wire"
	"vigil/internal/kv"
)

// Stats describes a call in the log. Unknown counts and sizes are -1.
type Stats struct {
	Requests, Responses         int64
	RequestBytes, ResponseBytes int
	Content                     string
	steps                       kv.Steps
}

// StatsOf describes a call that has ended, without values, passwords and tokens.
func StatsOf(req, resp any) Stats {
	st := Stats{Requests: -1, Responses: -1, RequestBytes: -1, ResponseBytes: -1}
	if h, ok := resp.(*transport.LentMessage); ok {
		resp = h.Encoder
	}
	switch r := req.(type) {
	case *wire.RangeRequest:
		st.Content, st.Requests, st.steps = r.Describe(), 0, stepsOf(r.Steps)
		st.RequestBytes = len(r.Key) + len(r.End)
	case *wire.PutRequest:
		st.Content, st.Requests, st.steps = r.Describe(), 1, stepsOf(r.Steps)
		st.RequestBytes = r.Len
	case *wire.DeleteRangeRequest:
		st.Content, st.Requests, st.steps = r.Describe(), 0, stepsOf(r.Steps)
		st.RequestBytes = r.Len
	case *wire.TxnRequest:
		st.Content, st.Requests, st.steps = r.Describe(), int64(len(r.Success)), stepsOf(r.Steps)
		if t, ok := resp.(*wire.TxnResponse); ok && t != nil && !t.Result.Succeeded {
			st.Requests = int64(len(r.Failure))
		}
		st.RequestBytes = r.Len
	case *wire.LeaseGrantRequest:
		st.RequestBytes = r.Len
	case *wire.CompactionRequest:
		st.Content, st.steps = r.Describe(), stepsOf(r.Steps)
	case proto.Message:
		st.RequestBytes = proto.Size(r)
	}
	switch r := resp.(type) {
	case *wire.RangeResponse:
		st.Responses, st.ResponseBytes = r.Result.Count, r.Size()
	case *wire.DeleteRangeResponse:
		st.Responses, st.ResponseBytes = r.Result.Deleted, r.Size()
	case *wire.PutResponse:
		st.Responses, st.ResponseBytes = 0, r.Size()
	case *wire.TxnResponse:
		st.Responses, st.ResponseBytes = 0, r.Size()
	case wire.Encoder:
		st.ResponseBytes = r.Size()
	case proto.Message:
		st.ResponseBytes = proto.Size(r)
	}
	return st
}

func stepsOf(s *kv.Steps) kv.Steps {
	if s == nil {
		return nil
	}
	return *s
}

// Text has the steps in order, such as "propose 2ms, commit 310ms, apply 1ms, wait 20µs, rest 30µs". The
// rest is the time before the member was called and after it has answered.
func (st *Stats) Text(total time.Duration) string {
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
