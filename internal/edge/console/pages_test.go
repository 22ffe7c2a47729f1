package console

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"vigil/internal/kv"
)

// past is a connection to a store with these changes of keys, each of a later revision, up to now.
// What is older than compact is gone.
type past struct {
	now, compact int64
	changes      []*mvccpb.Event
	// slow is how many events a watch sends before it hangs, 0 if it does not.
	slow int
	txns int
}

// Invoke implements grpc.ClientConnInterface.
func (p *past) Invoke(_ context.Context, method string, args, reply any,
	_ ...grpc.CallOption) error {
	switch in := args.(type) {
	case *etcdserverpb.RangeRequest:
		out := reply.(*etcdserverpb.RangeResponse)
		out.Header = &etcdserverpb.ResponseHeader{Revision: p.now}
		if in.Revision > 0 && in.Revision < p.compact {
			return kv.ErrCompacted
		}
		for _, e := range slices.Backward(p.changes) {
			if bytes.Equal(e.Kv.Key, in.Key) &&
				(in.Revision == 0 || e.Kv.ModRevision <= in.Revision) {
				if e.Type == mvccpb.PUT {
					out.Kvs = []*mvccpb.KeyValue{e.Kv}
				}
				break
			}
		}
	case *etcdserverpb.TxnRequest:
		p.txns++
		reply.(*etcdserverpb.TxnResponse).Succeeded = true
	case *dynamicpb.Message: // times: none is known
	default:
		return fmt.Errorf("%s is not served", method)
	}
	return nil
}

// NewStream implements grpc.ClientConnInterface.
func (p *past) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string,
	_ ...grpc.CallOption) (grpc.ClientStream, error) {
	return &replay{past: p, ctx: ctx, created: make(chan struct{})}, nil
}

// replay is a watch of the past.
type replay struct {
	grpc.ClientStream
	*past
	ctx     context.Context
	created chan struct{}
	left    []*etcdserverpb.WatchResponse
	sent    int
}

// CloseSend implements grpc.ClientStream.
func (w *replay) CloseSend() error { return nil }

// SendMsg implements grpc.ClientStream.
func (w *replay) SendMsg(m any) error {
	create := m.(*etcdserverpb.WatchRequest).GetCreateRequest()
	if create == nil {
		return w.ctx.Err()
	}
	defer close(w.created)
	header := &etcdserverpb.ResponseHeader{Revision: w.now}
	if create.StartRevision <= w.compact {
		w.left = []*etcdserverpb.WatchResponse{{Header: header, Canceled: true,
			CompactRevision: w.compact}}
		return nil
	}
	w.left = []*etcdserverpb.WatchResponse{{Header: header, Created: true}}
	for _, e := range w.changes {
		inside := bytes.Equal(e.Kv.Key, create.Key) || len(create.RangeEnd) > 0 &&
			bytes.Compare(e.Kv.Key, create.Key) >= 0
		if inside && e.Kv.ModRevision >= create.StartRevision {
			w.left = append(w.left,
				&etcdserverpb.WatchResponse{Header: header, Events: []*mvccpb.Event{e}})
		}
	}
	w.left = append(w.left, &etcdserverpb.WatchResponse{Header: header})
	return nil
}

// RecvMsg implements grpc.ClientStream.
func (w *replay) RecvMsg(m any) error {
	<-w.created
	if w.sent++; len(w.left) == 0 || w.slow > 0 && w.sent > w.slow {
		<-w.ctx.Done()
		return w.ctx.Err()
	}
	proto.Merge(m.(proto.Message), w.left[0])
	w.left = w.left[1:]
	return nil
}

// answer is the body of an answer of the API.
func answer(t *testing.T, h http.Handler, method, path, body string, into any) int {
	t.Helper()
	r := httptest.NewRequest(method, "http://localhost/console/api/"+path, strings.NewReader(body))
	r.Header.Set(requestHeader, "1")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Origin", "http://localhost")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
		t.Fatalf("%s: %v: %s", path, err, w.Body)
	}
	return w.Code
}

func served(t *testing.T, conn grpc.ClientConnInterface) *Console {
	return open(t, func(c *Config) { c.Serve, c.Conn = On, conn })
}

var encoded = func(key string) string {
	return url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(key)))
}

// change is a change of the key k at a revision.
func change(rev int64, deleted bool) *mvccpb.Event {
	e := &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte("k"), ModRevision: rev, CreateRevision: rev,
		Version: 1, Value: fmt.Append(nil, rev)}}
	if deleted {
		e.Type, e.Kv = mvccpb.DELETE, &mvccpb.KeyValue{Key: []byte("k"), ModRevision: rev}
	}
	return e
}

// TestHistoryIsWhole: the pages of the history of a key have each kept change once, the newest
// first, wherever the compaction is and whether or not the key exists.
func TestHistoryIsWhole(t *testing.T) {
	for _, n := range []int64{1, 2, maxVersions - 1, maxVersions, maxVersions + 1,
		2*maxVersions - 1, 2 * maxVersions, 2*maxVersions + 1, 700} {
		for _, deleted := range []int64{0, 1, 2, n/2 + 1, n} { // the change that deletes the key
			for _, compact := range []int64{0, 1, 2, n / 2, n - maxVersions, n - maxVersions - 1,
				n - 2*maxVersions, n - 1, n, n + 5} {
				if compact < 0 {
					continue
				}
				p := &past{now: n + 5, compact: compact}
				var want []int64
				for i := int64(1); i <= n; i++ {
					p.changes = append(p.changes, change(i, i == deleted))
					kept := compact == 0 || i > compact || (i == min(n, compact) && i != deleted)
					if kept {
						want = append(want, i)
					}
				}
				slices.Reverse(want)
				h := served(t, p)
				var got []int64
				before, pages := int64(0), 0
				for {
					var out versions
					if code := answer(t, h, "GET",
						fmt.Sprintf("history?key=%s&before=%d", encoded("k"), before), "",
						&out); code != 200 {
						t.Fatalf("status %d", code)
					}
					for _, v := range out.Versions {
						got = append(got, v.Mod)
					}
					if before = out.Before; before == 0 {
						break
					}
					if pages++; pages > int(n)+2 {
						t.Fatalf("%d changes, compacted at %d: the pages do not end", n, compact)
					}
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%d changes, number %d deletes the key, compacted at %d: %v, want %v",
						n, deleted, compact, got, want)
				}
			}
		}
	}
}

// TestHistoryInTime: what is shown of the history of a deleted key that takes too long to read has
// no gap before it: it is the newest changes.
func TestHistoryInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &past{now: 5000, slow: 600}
		for i := int64(1); i <= p.now; i++ {
			p.changes = append(p.changes, change(i, i%2 == 0))
		}
		h := served(t, p)
		var out versions
		answer(t, h, "GET", "history?key="+encoded("k"), "", &out)
		if len(out.Versions) == 0 || out.Versions[0].Mod != p.now {
			t.Errorf("the first of %d changes shown is not the newest: %+v", len(out.Versions), out)
		}
		h.Close()
	})
}

// TestSameValues: values are called the same only if their bytes are.
func TestSameValues(t *testing.T) {
	long := strings.Repeat("line\n", maxShown)
	for _, c := range []struct {
		a, b    string
		deleted bool
		same    bool
		diff    string
	}{
		{"a", "a", false, true, ""},
		{"a", "b", false, false, "+b"},
		{"a", "a\n", false, false, "0a"},
		{`{"a":1}`, `{"a": 1}`, false, false, "20"},
		{"", "", true, false, ""},
		{"a", "", true, false, "-a"},
		{long + "a", long + "b", false, false, ""},
	} {
		p := &past{now: 2, changes: []*mvccpb.Event{change(1, false), change(2, c.deleted)}}
		p.changes[0].Kv.Value, p.changes[1].Kv.Value = []byte(c.a), []byte(c.b)
		var out difference
		if answer(t, served(t, p), "GET", "diff?a=1&b=2&key="+encoded("k"), "",
			&out); out.Same != c.same || !strings.Contains(out.Diff, c.diff) ||
			c.diff == "" && out.Diff != "" || out.Missing != c.deleted {
			t.Errorf("%.20q and %.20q, deleted %v: %+v", c.a, c.b, c.deleted, out)
		}
	}
}

// TestImportStops: an error of an import has the line of the file, and what was written before it.
func TestImportStops(t *testing.T) {
	p := &past{now: 1}
	var out failure
	code := answer(t, served(t, p), "POST", "import",
		`{"before":100,"lines":"{\"key\":\"a\",\"value\":\"b\"}\n\n{\"key\":\"c\"","replace":false}`, &out)
	if code != 400 || !strings.HasPrefix(out.Text, "line 103: ") || out.Imported == nil ||
		out.Imported.Written != 1 || p.txns != 1 {
		t.Errorf("%d, %+v, %+v", code, out, out.Imported)
	}
}

// endless is a store whose ranges always have more. It cuts the reader off after some parts.
type endless struct {
	past
	parts int
	cut   func()
}

// Invoke implements grpc.ClientConnInterface.
func (e *endless) Invoke(ctx context.Context, method string, args, reply any,
	opts ...grpc.CallOption) error {
	if _, ok := args.(*etcdserverpb.RangeRequest); !ok {
		return e.past.Invoke(ctx, method, args, reply, opts...)
	}
	if e.parts--; e.parts < 0 {
		e.cut()
		<-ctx.Done()
		return ctx.Err()
	}
	*reply.(*etcdserverpb.RangeResponse) = etcdserverpb.RangeResponse{Header: &etcdserverpb.ResponseHeader{Revision: 1}, More: true,
		Kvs: []*mvccpb.KeyValue{change(1, false).Kv}}
	return nil
}

// TestCutExport: an export that the member cuts off does not end like one that is complete.
func TestCutExport(t *testing.T) {
	for _, parts := range []int{0, 3} {
		e := &endless{parts: parts}
		h := open(t, func(c *Config) {
			c.Serve, c.Conn = On, e
			c.WithCaller = func(ctx context.Context, _ net.Addr, _ *tls.ConnectionState,
				cut func()) context.Context {
				e.cut = cut
				return ctx
			}
		})
		s := httptest.NewServer(h)
		r, _ := http.NewRequest("GET", s.URL+"/console/api/export?prefix=", nil)
		r.Header.Set(requestHeader, "1")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		s.Close()
		if complete := res.StatusCode == 200 && err == nil &&
			!bytes.Contains(body, []byte(`"end"`)); complete {
			t.Errorf("after %d parts: an export that was cut off looks complete: %s", parts, body)
		}
	}
}
