package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"vigil/internal/edge/rpc/lockpb"
)

// services answers calls with a function.
type services func(ctx context.Context, method string, in, out any) error

func (s services) Invoke(ctx context.Context, method string, in, out any,
	_ ...grpc.CallOption) error {
	return s(ctx, method, in, out)
}

func (s services) NewStream(context.Context, *grpc.StreamDesc, string,
	...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unavailable, "no streams here")
}

func handler(t *testing.T, s services) http.Handler {
	t.Helper()
	h, err := New(Config{Conn: s, MaxBodyBytes: 100})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestConfig(t *testing.T) {
	_, err := New(Config{})
	for _, field := range []string{"Conn", "MaxBodyBytes"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not in %v", field, err)
		}
	}
}

// TestTranslation: what comes out as JSON, with generated messages and with dynamic ones.
func TestTranslation(t *testing.T) {
	h := handler(t, func(ctx context.Context, method string, in, out any) error {
		if md, _ := metadata.FromOutgoingContext(ctx); len(md.Get("authorization")) != 1 ||
			md.Get("authorization")[0] != "token" {
			t.Errorf("%s: metadata %v", method, md)
		}
		switch out := out.(type) {
		case *etcdserverpb.PutResponse:
			if r := in.(*etcdserverpb.PutRequest); string(r.Key) != "k" || r.Lease != 1<<62 {
				t.Errorf("%v", r)
			}
			proto.Merge(out, &etcdserverpb.PutResponse{Header: &etcdserverpb.ResponseHeader{Revision: 1 << 62, RaftTerm: 1}})
		case *dynamicpb.Message:
			if r := in.(*dynamicpb.Message); method != "/v3lockpb.Lock/Unlock" ||
				string(lockpb.Bytes(r, "key")) != "k" {
				t.Errorf("%s %v", method, r)
			}
			lockpb.Set(out, "header", &etcdserverpb.ResponseHeader{Revision: 7})
		default:
			return status.Error(codes.NotFound, "a text with \"quotes\"")
		}
		return nil
	})
	for _, c := range []struct {
		path, body string
		code       int
		want       string
	}{
		{"/v3/kv/put", `{"key":"aw==","lease":"4611686018427387904","nobody":[]}`, 200,
			`{"header":{"revision":"4611686018427387904","raft_term":"1"}}`},
		{"/v3/lock/unlock", `{"key":"aw=="}`, 200, `{"header":{"revision":"7"}}`},
		{"/v3/lock/unlock", `{"key":1}`, 400, ``},
		{"/v3/kv/range", `{}`, 404, `{"code":5,"message":"a text with \"quotes\""}`},
		{"/v3/election/observe", `{}`, 503, `{"code":14,"message":"no streams here"}`},
		{"/v3/watch", `{}`, 503, `{"code":14,"message":"no streams here"}`},
		{"/v3/nothing", `{}`, 404, `{"code":5,"message":"Not Found"}`},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, c.path, strings.NewReader(c.body))
		r.Header.Set("Authorization", "token")
		h.ServeHTTP(w, r)
		if w.Code != c.code || c.want != "" && w.Body.String() != c.want {
			t.Errorf("%s %s: %d %s, want %d %s", c.path, c.body, w.Code, w.Body, c.code, c.want)
		}
	}
}

// TestBody: a bound on each message, and none on how many there are.
func TestBody(t *testing.T) {
	message := `{"key":"` + strings.Repeat("a", 80) + `"}`
	r := httptest.NewRequest(http.MethodPost, "/",
		strings.NewReader(strings.Repeat(message, 50)+`{"key":"`+strings.Repeat("a", 300)))
	b := newBody(httptest.NewRecorder(), r, 200)
	dec := (&bounded{&runtime.JSONPb{}}).NewDecoder(b)
	for i := range 50 {
		if err := dec.Decode(&etcdserverpb.RangeRequest{}); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	if err := dec.Decode(&etcdserverpb.RangeRequest{}); err == nil ||
		!strings.Contains(err.Error(), "more than 200 bytes") {
		t.Errorf("%v", err)
	}
	// One that is just as long as it may be.
	r = httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(make([]byte, 200)))
	if n, err := io.Copy(io.Discard, newBody(httptest.NewRecorder(), r, 200)); n != 200 ||
		err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestBearer(t *testing.T) {
	for _, c := range []struct {
		protocol, cookie, want string
		ok                     bool
	}{
		{"", "", "", false}, {"Bearer, abc", "", "Bearer abc", true},
		{"Bearer,abc", "", "Bearer abc", true}, {"other", "", "", true},
		{"", "xyz", "Bearer xyz", true}, {"Bearer, abc", "xyz", "Bearer xyz", true},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if c.protocol != "" {
			r.Header.Set("Sec-WebSocket-Protocol", c.protocol)
		}
		if c.cookie != "" {
			r.AddCookie(&http.Cookie{Name: "token", Value: c.cookie})
		}
		if got, ok := bearer(r); got != c.want || ok != c.ok {
			t.Errorf("%+v: %q, %v", c, got, ok)
		}
	}
}

var errGone = errors.New("the client is gone")

// TestCallEndsWithRequest: a call is canceled when its request is.
func TestCallEndsWithRequest(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	h := handler(t, func(call context.Context, _ string, _, _ any) error {
		cancel(errGone)
		<-call.Done()
		return status.FromContextError(call.Err()).Err()
	})
	for _, path := range []string{"/v3/kv/range", "/v3/lock/lock"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, path,
			strings.NewReader(`{}`)))
		if w.Code != 499 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
