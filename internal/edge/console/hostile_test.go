package console

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"vigil/internal/kv"
)

// store is a connection to services with these sorted keys and leases, and whose watches see
// events.
type store struct {
	kvs      []*mvccpb.KeyValue
	leases   []*etcdserverpb.LeaseTimeToLiveResponse
	users    []string
	names    []string // of roles; each user has all
	members  []*etcdserverpb.Member
	events   []*etcdserverpb.WatchResponse
	calls    []context.Context // of reads of keys or leases
	overlaps int               // calls during which the context of an earlier one had not ended
}

// Invoke implements grpc.ClientConnInterface.
func (s *store) Invoke(ctx context.Context, method string, args, reply any,
	_ ...grpc.CallOption) error {
	for _, earlier := range s.calls {
		if earlier.Err() == nil {
			s.overlaps++
		}
	}
	switch in := args.(type) {
	case *etcdserverpb.RangeRequest:
		out := &etcdserverpb.RangeResponse{Header: &etcdserverpb.ResponseHeader{Revision: 10}}
		for _, kv := range s.kvs {
			if bytes.Compare(kv.Key, in.Key) < 0 || !bytes.Equal(in.RangeEnd, []byte{0}) &&
				bytes.Compare(kv.Key, in.RangeEnd) >= 0 {
				continue
			}
			out.Count++
			if out.More = in.Limit > 0 && int64(len(out.Kvs)) == in.Limit; !out.More &&
				!in.CountOnly {
				out.Kvs = append(out.Kvs, kv)
			}
		}
		if !in.CountOnly {
			s.calls = append(s.calls, ctx)
		}
		proto.Merge(reply.(proto.Message), out)
	case *dynamicpb.Message: // times: none is known
	case *etcdserverpb.MemberListRequest:
		reply.(*etcdserverpb.MemberListResponse).Members = s.members
	case *etcdserverpb.AuthUserListRequest:
		reply.(*etcdserverpb.AuthUserListResponse).Users = s.users
	case *etcdserverpb.AuthRoleListRequest:
		reply.(*etcdserverpb.AuthRoleListResponse).Roles = s.names
	case *etcdserverpb.AuthUserGetRequest:
		reply.(*etcdserverpb.AuthUserGetResponse).Roles = s.names
	case *etcdserverpb.AuthRoleGetRequest:
		for _, name := range s.names {
			reply.(*etcdserverpb.AuthRoleGetResponse).Perm = append(reply.(*etcdserverpb.AuthRoleGetResponse).Perm, &authpb.Permission{Key: []byte(name), RangeEnd: []byte(name)})
		}
	case *etcdserverpb.LeaseLeasesRequest:
		for _, l := range s.leases {
			reply.(*etcdserverpb.LeaseLeasesResponse).Leases = append(reply.(*etcdserverpb.LeaseLeasesResponse).Leases, &etcdserverpb.LeaseStatus{ID: l.ID})
		}
	case *etcdserverpb.LeaseTimeToLiveRequest:
		s.calls = append(s.calls, ctx)
		for _, l := range s.leases {
			if l.ID == in.ID {
				proto.Merge(reply.(proto.Message), l)
			}
		}
	default:
		return fmt.Errorf("%s is not served", method)
	}
	return nil
}

// NewStream implements grpc.ClientConnInterface.
func (s *store) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string,
	_ ...grpc.CallOption) (grpc.ClientStream, error) {
	return &watching{ctx: ctx, left: s.events}, nil
}

// watching is a watch that receives responses, and then nothing.
type watching struct {
	grpc.ClientStream
	ctx  context.Context
	left []*etcdserverpb.WatchResponse
}

// CloseSend implements grpc.ClientStream.
func (w *watching) CloseSend() error { return nil }

// SendMsg implements grpc.ClientStream.
func (w *watching) SendMsg(any) error { return w.ctx.Err() }

// RecvMsg implements grpc.ClientStream.
func (w *watching) RecvMsg(m any) error {
	if len(w.left) == 0 {
		return io.EOF
	}
	if part, ok := m.(*etcdserverpb.SnapshotResponse); ok {
		part.Blob, w.left = []byte("part"), nil
		return nil
	}
	proto.Merge(m.(proto.Message), w.left[0])
	w.left = w.left[1:]
	return nil
}

// ask returns the response to a request with parameters NAME, VALUE; values are encoded in base64
// unless the name begins with =.
func (s *store) ask(t *testing.T, path string, params ...string) string {
	t.Helper()
	h := open(t, func(c *Config) { c.Serve, c.Conn = On, s })
	q := url.Values{}
	for i := 0; i < len(params); i += 2 {
		name, plain := strings.CutPrefix(params[i], "=")
		value := params[i+1]
		if !plain {
			value = base64.StdEncoding.EncodeToString([]byte(value))
		}
		q.Set(name, value)
	}
	r := httptest.NewRequest("GET", "http://localhost/console/api/"+path+"?"+q.Encode(), nil)
	r.Header.Set(requestHeader, "1")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %.500s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

func keysOf(keys ...string) (out []*mvccpb.KeyValue) {
	for _, k := range keys {
		out = append(out, &mvccpb.KeyValue{Key: []byte(k), Value: []byte("v"), ModRevision: 5,
			CreateRevision: 5, Version: 1})
	}
	return out
}

// TestPartsStayInTheirRange: a list continues inside its range, wherever a request says that it
// begins.
func TestPartsStayInTheirRange(t *testing.T) {
	s := &store{kvs: keysOf("b", "prefix/x")}
	for _, path := range []string{"tree", "search"} {
		out := s.ask(t, path, "prefix", "prefix/", "key", "prefix/", "after", "a",
			"=separator", "/")
		if want, other := base64.StdEncoding.EncodeToString([]byte("prefix/x")),
			`"`+base64.StdEncoding.EncodeToString([]byte("b"))+`"`; !strings.Contains(out, want) ||
			strings.Contains(out, other) {
			t.Errorf("%s: %s", path, out)
		}
	}
}

// TestSearchIsBoundedByItsWork: one request compares a limited number of bytes, however large the
// keys are.
func TestSearchIsBoundedByItsWork(t *testing.T) {
	s := &store{}
	const size = 4 << 20
	for i := range 4 {
		s.kvs = append(s.kvs, &mvccpb.KeyValue{Key: append([]byte{byte(i)}, make([]byte, size)...)})
	}
	// The cheapest pattern with this length: the test bounds the work, it does not do it.
	out := s.ask(t, "search", "=pattern", strings.Repeat("y", 400))
	if !strings.Contains(out, `"visited":1,`) && !strings.Contains(out, `"visited":1}`) ||
		!strings.Contains(out, `"after":`) {
		t.Errorf("%.100s ... %s", out, out[max(0, len(out)-100):])
	}
}

// TestListsAreBoundedByBytes: locks and changes with large keys make no larger answers than others.
func TestListsAreBoundedByBytes(t *testing.T) {
	const size = 200 << 10
	s := &store{}
	for i := range 20 {
		name := append(bytes.Repeat([]byte{byte('a' + i)}, size),
			[]byte(fmt.Sprintf("/%x", i+1))...)
		s.kvs = append(s.kvs, &mvccpb.KeyValue{Key: name})
		s.leases = append(s.leases,
			&etcdserverpb.LeaseTimeToLiveResponse{ID: int64(i + 1), Keys: [][]byte{name}})
	}
	const most = 4 * maxPageBytes // the keys in base64, twice, and a key more
	if out := s.ask(t, "locks"); len(out) > most || !strings.Contains(out, `"holder"`) ||
		!strings.Contains(out, `"cut":true`) {
		t.Errorf("locks: %d bytes, at most %d; %.100s", len(out), most, out[max(0, len(out)-100):])
	}
	// One revision that is larger than an answer, and the next.
	for _, kv := range s.kvs {
		s.events = append(s.events,
			&etcdserverpb.WatchResponse{Header: &etcdserverpb.ResponseHeader{Revision: 8},
				Events: []*mvccpb.Event{{Kv: &mvccpb.KeyValue{Key: kv.Key, ModRevision: 7}}}})
	}
	s.events = append(s.events,
		&etcdserverpb.WatchResponse{Header: &etcdserverpb.ResponseHeader{Revision: 8},
			Events: []*mvccpb.Event{{Kv: &mvccpb.KeyValue{Key: []byte("next"), ModRevision: 8}}}},
		&etcdserverpb.WatchResponse{Header: &etcdserverpb.ResponseHeader{Revision: 10}})
	out := s.ask(t, "changes", "=from", "7")
	if len(out) > most ||
		!strings.Contains(out,
			`"changes":[{"key":"`+base64.StdEncoding.EncodeToString([]byte("next"))) ||
		!strings.Contains(out, `"cut":7`) {
		t.Errorf("changes: %d bytes, at most %d; %s", len(out), most, out[max(0, len(out)-100):])
	}
	if out = s.ask(t, "changes", "=from", "7", "=to", "7"); strings.Contains(out, `"before"`) ||
		!strings.Contains(out, `"cut":7`) {
		t.Errorf("changes up to the revision that is cut: %s", out[max(0, len(out)-100):])
	}
}

// TestMemoryOfPartsIsGivenBack: a request of many reads has at most one of their answers in use.
func TestMemoryOfPartsIsGivenBack(t *testing.T) {
	s := &store{}
	for i := range 2500 {
		s.kvs = append(s.kvs, keysOf(fmt.Sprintf("k/%05d", i))...)
		s.kvs[i].ModRevision = int64(i%9 + 1)
	}
	for i := range 3 {
		s.leases = append(s.leases,
			&etcdserverpb.LeaseTimeToLiveResponse{ID: int64(i + 1),
				Keys: [][]byte{[]byte(fmt.Sprintf("k/%x", i+1))}})
	}
	for _, path := range []string{"export", "search", "tree", "locks", "leases"} {
		s.calls, s.overlaps = nil, 0
		s.ask(t, path, "=pattern", "none")
		if s.overlaps > 0 || len(s.calls) < 2 {
			t.Errorf("%s: %d of %d reads while the answer of an earlier one counted as in use",
				path, s.overlaps, len(s.calls))
		}
	}
}

// TestOnlyThisMachineIsLoopback: a request that a proxy or the kernel has passed on may be of
// anybody.
func TestOnlyThisMachineIsLoopback(t *testing.T) {
	h := open(t, func(*Config) {})
	for _, c := range []struct {
		remote, header string
		code           int
	}{
		{"127.0.0.1:9", "", 200}, {"[::1]:9", "", 200}, {"[::ffff:127.0.0.1]:9", "", 200},
		{"10.0.0.2:9", "", 403}, {"", "", 403}, {"127.0.0.1:9", "X-Forwarded-For", 403},
		{"127.0.0.1:9", "Forwarded", 403}, {"127.0.0.1:9", "X-Real-IP", 403},
		{"127.0.0.1:9", "Via", 403}, {"127.0.0.1:9", "X-Forwarded-Host", 403},
	} {
		r := httptest.NewRequest("GET", "http://127.0.0.1/console/", nil)
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey,
			net.Addr(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})))
		if r.RemoteAddr = c.remote; c.header != "" {
			r.Header.Set(c.header, "x")
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != c.code {
			t.Errorf("a request of %q with the header %q: %d, want %d", c.remote, c.header,
				w.Code, c.code)
		}
	}
}

// limited is a response on a connection with a deadline.
type limited struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (l *limited) SetWriteDeadline(t time.Time) error { l.deadline = t; return nil }

// TestEndOfStreamsIsBounded: the server sends the last bytes of a response after its handler, and
// must not wait forever for a reader.
func TestEndOfStreamsIsBounded(t *testing.T) {
	s := &store{kvs: keysOf("a")}
	h := open(t, func(c *Config) { c.Serve, c.Conn = On, s })
	s.events = []*etcdserverpb.WatchResponse{{Header: &etcdserverpb.ResponseHeader{},
		Created: true}}
	for _, path := range []string{"export", "tail", "snapshot"} {
		r := httptest.NewRequest("GET", "http://localhost/console/api/"+path, nil)
		r.Header.Set(requestHeader, "1")
		w := &limited{ResponseRecorder: httptest.NewRecorder()}
		if h.ServeHTTP(w, r); w.Code != http.StatusOK || w.Body.Len() == 0 || w.deadline.IsZero() {
			t.Errorf("%s: %d, %d bytes, deadline %v", path, w.Code, w.Body.Len(), w.deadline)
		}
	}
}

// TestStreamsOfOneUser: one user cannot take the streams of the others, whatever names the requests
// claim.
func TestStreamsOfOneUser(t *testing.T) {
	auth := true
	h := open(t, func(c *Config) {
		c.Serve, c.Conn, c.AuthEnabled = On, &store{kvs: keysOf("a")}, func() bool { return auth }
		c.User = func(ctx context.Context) string { return strings.TrimSuffix(kv.CredentialsOf(ctx).Token, "'s token") }
	})
	ask := func(claimed, token string, w http.ResponseWriter) {
		r := httptest.NewRequest("GET", "http://localhost/console/api/export", nil)
		r.Header.Set(requestHeader, "1")
		value := fmt.Sprintf(`{"User":%q,"Token":%q}`, claimed, token)
		r.AddCookie(&http.Cookie{Name: h.cookieName(),
			Value: base64.RawURLEncoding.EncodeToString([]byte(value))})
		h.ServeHTTP(w, r)
	}
	// Each open stream asks for the next one. When that is refused, another user asks.
	nested := func(token string) (opened int) {
		other := 0
		var next func()
		next = func() {
			w := &opening{ResponseRecorder: httptest.NewRecorder(),
				during: func() { opened++; next() }}
			if ask(fmt.Sprint("name", opened), token, w); w.Code == http.StatusOK {
				return
			}
			x := httptest.NewRecorder()
			if ask("bob", "bob's token", x); x.Code == http.StatusOK {
				other++
			}
		}
		next()
		if auth != (other == 1) {
			t.Errorf("with %d streams of one user, %d of another", opened, other)
		}
		return opened
	}
	if n := nested("alice's token"); n != maxUserStreams {
		t.Errorf("one user has %d streams, at most %d", n, maxUserStreams)
	}
	auth = false
	if n := nested("alice's token"); n != maxStreams {
		t.Errorf("without users there are %d streams, at most %d", n, maxStreams)
	}
	if len(h.streams.of) > 0 || h.streams.all != 0 {
		t.Errorf("after all have ended: %d, %v", h.streams.all, h.streams.of)
	}
}

// opening is a response during whose first line something is done.
type opening struct {
	*httptest.ResponseRecorder
	during func()
}

// Write implements http.ResponseWriter.
func (o *opening) Write(b []byte) (int, error) {
	if f := o.during; f != nil && o.Code == http.StatusOK {
		o.during = nil
		f()
	}
	return o.ResponseRecorder.Write(b)
}

// TestUsersAreBoundedByBytes: names and ranges may be as large as a request, and each user may have
// all roles.
func TestUsersAreBoundedByBytes(t *testing.T) {
	s := &store{}
	for i := range 60 {
		s.names = append(s.names, fmt.Sprintf("%02d%s", i, strings.Repeat("n", 50<<10)))
	}
	for _, s.users = range [][]string{nil, s.names} {
		if answer := s.ask(t, "access"); len(answer) > 8*maxPageBytes ||
			!strings.Contains(answer, `"cut":true`) {
			t.Errorf("an answer of %d bytes with %d users: %.80s", len(answer),
				len(s.users), answer)
		}
	}
}
