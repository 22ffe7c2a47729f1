package operate

import (
	"context"
	"encoding/hex"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"vigil/test/proc"
)

// spans is a collector.
type spans struct {
	collector.UnimplementedTraceServiceServer
	mu      sync.Mutex
	list    []*trace.Span
	service string
	all     strings.Builder
}

func (s *spans) Export(_ context.Context,
	r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rs := range r.ResourceSpans {
		for _, a := range rs.Resource.Attributes {
			s.service += a.Key + "=" + a.Value.GetStringValue() + ";"
		}
		for _, ss := range rs.ScopeSpans {
			s.list = append(s.list, ss.Spans...)
		}
	}
	s.all.WriteString(r.String())
	return &collector.ExportTraceServiceResponse{}, nil
}

// children returns the names of what was done within the span of a name, in order.
func (s *spans) children(name string) (found bool, names []string) {
	var parent *trace.Span
	for _, sp := range s.list {
		if sp.Name == name {
			parent = sp
		}
	}
	if parent == nil {
		return false, nil
	}
	var list []*trace.Span
	for _, sp := range s.list {
		if string(sp.ParentSpanId) == string(parent.SpanId) {
			list = append(list, sp)
		}
	}
	slices.SortStableFunc(list,
		func(a, b *trace.Span) int { return int(int64(a.StartTimeUnixNano) - int64(b.StartTimeUnixNano)) })
	for _, sp := range list {
		names = append(names, sp.Name)
	}
	return true, names
}

// TestTracing: a collector gets the spans of calls with their steps, at the latest when the member
// stops.
func TestTracing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	got := &spans{}
	g := grpc.NewServer()
	collector.RegisterTraceServiceServer(g, got)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true, Args: []string{
		"--enable-distributed-tracing", "--distributed-tracing-address=" + l.Addr().String(),
		"--distributed-tracing-service-name=store",
		"--distributed-tracing-instance-id=m1", "--distributed-tracing-sampling-rate=1000000"}})
	c := s.Client()
	ctx := proc.Context(t)
	if _, err := c.Put(ctx, "k", "hunter2"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	// A call through the gateway, within a trace of its client.
	r, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"http://"+s.Addr()+"/v3/kv/deleterange", strings.NewReader(`{"key":"aw=="}`))
	if err != nil {
		t.Fatal(err)
	}
	const traceID = "0af7651916cd43dd8448eb211c80319c"
	r.Header.Set("Grpc-Metadata-Traceparent", "00-"+traceID+"-b7ad6b7169203331-01")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if code := s.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	got.mu.Lock()
	defer got.mu.Unlock()
	for name, want := range map[string][]string{
		"etcdserverpb.KV/Put":   {"propose", "commit", "apply", "wait"},
		"etcdserverpb.KV/Range": {"agree", "read"},

		"etcdserverpb.KV/DeleteRange": {"propose", "commit", "apply", "wait"},
	} {
		if found, names := got.children(name); !found || !slices.Equal(names, want) {
			t.Errorf("%s: found %v, within it %q, want %q", name, found, names, want)
		}
	}
	if !slices.ContainsFunc(got.list, func(sp *trace.Span) bool {
		return sp.Name == "etcdserverpb.KV/DeleteRange" &&
			hex.EncodeToString(sp.TraceId) == traceID && sp.Kind == trace.Span_SPAN_KIND_SERVER
	}) {
		t.Error("the call through the gateway is not in its client's trace")
	}
	if !strings.Contains(got.service, "service.name=store;") ||
		!strings.Contains(got.service, "service.instance.id=m1;") {
		t.Errorf("resource %q", got.service)
	}
	if strings.Contains(got.all.String(), "hunter2") {
		t.Error("a value is in a span")
	}
}

// A missing collector delays neither requests nor the stop.
func TestTracingToNobody(t *testing.T) {
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true, Args: []string{
		"--enable-distributed-tracing", "--distributed-tracing-address=127.0.0.1:1",
		"--distributed-tracing-sampling-rate=1000000"}})
	c := s.Client()
	for range 100 {
		if _, err := c.Put(proc.Context(t), "k", "v"); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	if code := s.Stop(); code != 0 || time.Since(began) > 5*time.Second {
		t.Errorf("exit code %d after %v", code, time.Since(began))
	}
	checkLines(t, s.Log().String())
}
