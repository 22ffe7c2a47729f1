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

	"vigil/internal/kv"
)

// fakeStarter starts most requests by passing them to a fake KV on a goroutine, and answers most
// gets: all tests of the package run on both ways of serving a call.
type fakeStarter struct {
	KV
	n      atomic.Int64
	broken atomic.Bool // GetNow panics
}

// declines reports whether a request is declined: every third one.
func (f *fakeStarter) declines() bool { return f.n.Add(1)%3 == 0 }

func (f *fakeStarter) GetNow(ctx context.Context, r *kv.RangeRequest, into *kv.GetResult,
	_ time.Time) bool {
	if f.broken.Load() {
		panic("broken get")
	}
	fake, ok := f.KV.(*fakeKV)
	if !ok || f.declines() || len(r.End) > 0 || fake.hook.Load() != nil {
		return false
	}
	res, err := fake.Range(ctx, r)
	if err == nil {
		into.RangeResult = *res
	}
	return err == nil
}

func (f *fakeStarter) start(done kv.Completion, call func() kv.Outcome) bool {
	if f.declines() {
		return false
	}
	go func() {
		o := kv.Outcome{Err: errors.New("a panic")}
		func() {
			defer func() { _ = recover() }()
			o = call()
		}()
		o.Tag = done.Tag
		done.To.Receive([]kv.Outcome{o})
	}()
	return true
}

// StartGet declines some requests later.
func (f *fakeStarter) StartGet(r *kv.RangeRequest, done kv.Completion) bool {
	fake, ok := f.KV.(*fakeKV)
	if !ok || len(r.End) > 0 || fake.hook.Load() != nil {
		return false
	}
	return f.start(done, func() (o kv.Outcome) {
		if f.declines() {
			return kv.Outcome{Declined: true}
		}
		o.Range, o.Err = fake.Range(context.Background(), r)
		return o
	})
}

func (f *fakeStarter) StartWrite(ctx context.Context, w kv.Write, done kv.Completion) bool {
	if _, ok := f.KV.(*fakeKV); !ok && w.DeleteRange == nil {
		return false
	}
	return f.start(done, func() kv.Outcome { return f.Do(ctx, w) })
}

// noStarter starts nothing.
type noStarter struct{}

func (noStarter) GetNow(context.Context, *kv.RangeRequest, *kv.GetResult, time.Time) bool {
	return false
}
func (noStarter) StartGet(*kv.RangeRequest, kv.Completion) bool            { return false }
func (noStarter) StartWrite(context.Context, kv.Write, kv.Completion) bool { return false }
func (noStarter) ProposeStarted(bool)                                      {}

// TestStarted: calls without a handler get their own answers, and are counted once.
func TestStarted(t *testing.T) {
	f := start(t, nil)
	var calls sync.WaitGroup
	const n = 300
	for i := range n {
		calls.Go(func() {
			key := fmt.Appendf(nil, "k%d", i)
			if _, err := f.KV.Put(t.Context(),
				&etcdserverpb.PutRequest{Key: key, Value: key}); err != nil {
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

// TestPanicOfReader: a panic on the goroutine that reads a connection is logged, and ends no
// connection.
func TestPanicOfReader(t *testing.T) {
	starter := &fakeStarter{}
	f := start(t, func(c *Config) { starter.KV, c.KV = c.KV, starter })
	if _, err := f.KV.Put(t.Context(), &etcdserverpb.PutRequest{Key: []byte("k")}); err != nil {
		t.Fatal(err)
	}
	starter.broken.Store(true)
	for range 3 {
		if _, err := f.KV.Range(t.Context(),
			&etcdserverpb.RangeRequest{Key: []byte("k")}); err != nil {
			t.Errorf("%v %v", status.Code(err), err)
		}
	}
}
