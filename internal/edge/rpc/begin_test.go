package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/gate"
	"vigil/internal/edge/rpc/kvapi"
	"vigil/internal/edge/rpc/leaseapi"
	"vigil/internal/kv"
)

// fakeStarter starts most requests by passing them to a fake KV on a goroutine, and answers most gets: all tests of the package
// run on both ways of serving a call.
type fakeStarter struct {
	kv      kvapi.Store
	leases  leaseapi.Leases
	n       atomic.Int64
	results chan kv.Outcome
	broken  atomic.Bool // Get panics
}

func newFakeStarter(store kvapi.Store) *fakeStarter {
	return &fakeStarter{kv: store, results: make(chan kv.Outcome, 10_000)}
}

// declines reports whether a request is declined: every third one.
func (f *fakeStarter) declines() bool { return f.n.Add(1)%3 == 0 }

func (f *fakeStarter) Get(ctx context.Context, r *kv.RangeRequest, into *kv.GetResult, _ time.Time) bool {
	if f.broken.Load() {
		panic("broken get")
	}
	fake, ok := f.kv.(*fakeKV)
	if !ok || f.declines() || len(r.End) > 0 || fake.hook.Load() != nil {
		return false
	}
	res, err := fake.Range(ctx, r)
	if err == nil {
		into.RangeResult = *res
	}
	return err == nil
}

func (f *fakeStarter) start(tag any, call func() kv.Outcome) bool {
	if f.declines() {
		return false
	}
	go func() {
		o := kv.Outcome{Err: errors.New("a panic")}
		func() {
			defer func() { _ = recover() }()
			o = call()
		}()
		o.Tag = tag
		f.results <- o
	}()
	return true
}

// StartGet declines some requests later.
func (f *fakeStarter) StartGet(r *kv.RangeRequest, tag any) bool {
	fake, ok := f.kv.(*fakeKV)
	if !ok || len(r.End) > 0 || fake.hook.Load() != nil {
		return false
	}
	return f.start(tag, func() (o kv.Outcome) {
		if f.declines() {
			return kv.Outcome{Declined: true}
		}
		o.Range, o.Err = fake.Range(context.Background(), r)
		return o
	})
}

func (f *fakeStarter) StartWrite(ctx context.Context, w kv.Write, tag any) bool {
	if _, ok := f.kv.(*fakeKV); !ok && w.DeleteRange == nil {
		return false
	}
	return f.start(tag, func() kv.Outcome { return f.kv.Do(ctx, w) })
}

// Renew renews what a fake of leases that does not wait renews.
func (f *fakeStarter) Renew(id int64) (int64, bool) {
	l, ok := f.leases.(*fakeLeases)
	if !ok || f.declines() || l.hang != nil || l.err != nil {
		return 0, false
	}
	ttl, err := l.KeepAlive(context.Background(), id)
	return ttl, err == nil
}

func (f *fakeStarter) Unproposed() bool { return false }

func (f *fakeStarter) Propose(dst []kv.Outcome, _ bool) []kv.Outcome { return dst }

func (f *fakeStarter) Apply(dst []kv.Outcome, stop <-chan struct{}) []kv.Outcome {
	<-stop
	return dst
}

func (f *fakeStarter) Results(dst []kv.Outcome, stop <-chan struct{}) []kv.Outcome {
	select {
	case o := <-f.results:
		dst = append(dst, o)
	case <-stop:
		return dst
	}
	for len(f.results) > 0 {
		select {
		case o := <-f.results:
			dst = append(dst, o)
		default:
		}
	}
	return dst
}

// TestStarted: calls without a handler get their own answers, and are counted once.
func TestStarted(t *testing.T) {
	f := start(t, nil)
	var calls sync.WaitGroup
	const n = 300
	for i := range n {
		calls.Go(func() {
			key := fmt.Appendf(nil, "k%d", i)
			if _, err := f.KV.Put(t.Context(), &etcdserverpb.PutRequest{Key: key, Value: key}); err != nil {
				t.Error(err)
			}
			res, err := f.KV.Range(t.Context(), &etcdserverpb.RangeRequest{Key: key})
			if err != nil || len(res.Kvs) != 1 || string(res.Kvs[0].Value) != string(key) {
				t.Errorf("key %d: %v, %v", i, res, err)
			}
		})
	}
	calls.Wait()
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(f.metrics)
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := 0
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			method, code := labels["grpc_method"], labels["grpc_code"]
			if method != "Put" && method != "Range" || code != "" && code != "OK" {
				continue
			}
			counted++
			if got := m.GetCounter().GetValue(); got != n {
				t.Errorf("%s of %s is %v, want %d", family.GetName(), method, got, n)
			}
		}
	}
	if counted != 8 {
		t.Errorf("%d counters, want 4 for each method", counted)
	}
}

// TestPanicOfReader: a panic on the goroutine that reads a connection is logged, and ends no connection.
func TestPanicOfReader(t *testing.T) {
	starter := newFakeStarter(nil)
	f := start(t, func(c *Config) { starter.kv = c.KV; c.Starter = starter })
	if _, err := f.KV.Put(t.Context(), &etcdserverpb.PutRequest{Key: []byte("k")}); err != nil {
		t.Fatal(err)
	}
	starter.broken.Store(true)
	for range 3 {
		if _, err := f.KV.Range(t.Context(), &etcdserverpb.RangeRequest{Key: []byte("k")}); err != nil {
			t.Errorf("%v %v", status.Code(err), err)
		}
	}
}

// hoarder is a Starter whose lists of results have much room.
type hoarder struct {
	*fakeStarter
	most atomic.Int64 // of the room in a list that it gets
}

func (h *hoarder) Results(dst []kv.Outcome, stop <-chan struct{}) []kv.Outcome {
	for n := h.most.Load(); int64(cap(dst)) > n && !h.most.CompareAndSwap(n, int64(cap(dst))); n = h.most.Load() {
	}
	return h.fakeStarter.Results(make([]kv.Outcome, 0, 3*gate.MostKept), stop)
}

// TestMemoryOfResults: a long list of results is not kept.
func TestMemoryOfResults(t *testing.T) {
	h := &hoarder{}
	f := start(t, func(c *Config) { h.fakeStarter = newFakeStarter(c.KV); c.Starter = h })
	for range 30 {
		if _, err := f.KV.Put(t.Context(), &etcdserverpb.PutRequest{Key: []byte("k")}); err != nil {
			t.Fatal(err)
		}
	}
	if n := h.most.Load(); n > gate.MostKept {
		t.Errorf("memory for %d results was kept", n)
	}
}
