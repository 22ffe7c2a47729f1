package gateway

import (
	"bufio"
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// counted counts buffers that are not given back.
type counted struct{ out atomic.Int64 }

func (c *counted) Get(n int) *[]byte { b := make([]byte, n); return &b }
func (c *counted) Put(*[]byte)       { c.out.Add(-1) }

// cut makes buffers of a message, of any sizes.
func (c *counted) cut(b []byte, rng *rand.Rand) (parts mem.BufferSlice) {
	for len(b) > 0 {
		n := min(len(b), 1+rng.IntN(64<<10))
		part := append(make([]byte, 0, max(n, 64<<10)), b[:n]...)
		c.out.Add(1)
		parts = append(parts, mem.NewBuffer(&part, c))
		b = b[n:]
	}
	return parts
}

// TestRangeTranslation holds the translation key by key against that of whole messages, to the last
// byte.
func TestRangeTranslation(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	value := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	long := &etcdserverpb.RangeResponse{Header: &etcdserverpb.ResponseHeader{ClusterId: math.MaxUint64, MemberId: 2, Revision: 9, RaftTerm: 3}, Count: 1 << 60, More: true}
	for i := range 300 {
		long.Kvs = append(long.Kvs,
			&mvccpb.KeyValue{Key: value(rng.IntN(40)), Value: value(rng.IntN(20 << 10)),
				CreateRevision: int64(i), ModRevision: rng.Int64(),
				Version: int64(i % 3), Lease: int64(i%2) * math.MinInt64})
	}
	none := proto.Clone(long).(*etcdserverpb.RangeResponse)
	none.Kvs = nil
	for name, m := range map[string]*etcdserverpb.RangeResponse{
		"empty": {}, "header": {Header: &etcdserverpb.ResponseHeader{}}, "count": {Count: 7},
		"one":  {Kvs: []*mvccpb.KeyValue{{Key: []byte("<&>")}}},
		"long": long, "none": none, "empty keys": {Kvs: []*mvccpb.KeyValue{{}, {}}, Count: -1},
	} {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		want, err := marshaler.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		pool := &counted{}
		parts := pool.cut(b, rng)
		src := parts.Reader()
		parts.Free()
		var got bytes.Buffer
		w := bufio.NewWriter(&got)
		if err := translateRange(t.Context(), w, src, marshaler); err != nil {
			t.Fatal(err)
		}
		w.Flush()
		if got.String() != string(want) {
			t.Errorf("%s: %.200s\nwant %.200s", name, got.String(), want)
		}
		if n := pool.out.Load(); n != 0 {
			t.Errorf("%s: %d buffers are not given back", name, n)
		}
	}
	// Through the handler: a long answer and a short one look alike, and buffers come back also if
	// nobody reads.
	pool := &counted{}
	short := &etcdserverpb.RangeResponse{Header: long.Header, Kvs: long.Kvs[:2], Count: 2}
	for _, m := range []*etcdserverpb.RangeResponse{long, short} {
		h := handler(t, func(_ context.Context, _ string, _, out any) error {
			b, err := proto.Marshal(m)
			if err != nil {
				return err
			}
			*out.(*mem.BufferSlice) = pool.cut(b, rng)
			return nil
		})
		want, err := marshaler.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v3/kv/range",
			strings.NewReader(`{"key":"aw=="}`)))
		if w.Code != 200 || w.Body.String() != string(want) ||
			w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%d %v %.100s", w.Code, w.Header(), w.Body)
		}
		h.ServeHTTP(&unread{},
			httptest.NewRequest(http.MethodPost, "/v3/kv/range",
				strings.NewReader(`{"key":"aw=="}`)))
		if n := pool.out.Load(); n != 0 {
			t.Errorf("%d buffers are not given back", n)
		}
	}
}

// unread is a client that is gone.
type unread struct{}

func (*unread) Header() http.Header       { return http.Header{} }
func (*unread) WriteHeader(int)           {}
func (*unread) Write([]byte) (int, error) { return 0, errGone }

func FuzzRange(f *testing.F) {
	b, err := proto.Marshal(&etcdserverpb.RangeResponse{Header: &etcdserverpb.ResponseHeader{Revision: 1}, Kvs: []*mvccpb.KeyValue{{Key: []byte("k")}, {}}, More: true, Count: 3})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{0x12, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		src := mem.BufferSlice{mem.SliceBuffer(b)}.Reader()
		_ = translateRange(t.Context(), bufio.NewWriter(&bytes.Buffer{}), src, marshaler)
	})
}
