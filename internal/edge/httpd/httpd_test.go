package httpd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// fakeMember is healthy unless told otherwise.
type fakeMember struct {
	alarms        []string
	leader        uint64
	learner       bool
	local, quorum error
	hang          bool
}

func (f *fakeMember) Alarms() []string { return f.alarms }
func (f *fakeMember) Leader() uint64   { return f.leader }
func (f *fakeMember) IsLearner() bool  { return f.learner }
func (f *fakeMember) Read(ctx context.Context, serializable bool) error {
	if f.hang && !serializable {
		<-ctx.Done()
		return ctx.Err()
	}
	if serializable {
		return f.local
	}
	return f.quorum
}

func newHandler(t *testing.T, f *fakeMember) http.Handler {
	t.Helper()
	h, err := New(Config{Health: f, Registry: prometheus.NewRegistry(),
		CheckTimeout: 20 * time.Millisecond,
		Versions:     func() Versions { return Versions{"3.7.3", "3.7.0", "3.7.0", "0.1"} }})
	if err != nil {
		t.Fatal(err)
	}
	return h.Client
}

func do(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

func TestPaths(t *testing.T) {
	timeout := errors.New("etcdserver: request timed out")
	good := fakeMember{leader: 1}
	for _, c := range []struct {
		member fakeMember
		path   string
		code   int
		body   string
	}{
		{good, "/health", 200, `{"health":"true","reason":""}`},
		{fakeMember{}, "/health", 503, `{"health":"false","reason":"RAFT NO LEADER"}` + "\n"},
		{fakeMember{}, "/health?serializable=true", 200, `{"health":"true","reason":""}`},
		{fakeMember{}, "/health?serializable=1", 503,
			`{"health":"false","reason":"RAFT NO LEADER"}` + "\n"},
		{fakeMember{leader: 1, quorum: timeout}, "/health", 503,
			`{"health":"false","reason":"RANGE ERROR:etcdserver: request timed out"}` + "\n"},
		{fakeMember{leader: 1, quorum: timeout}, "/health?serializable=true", 200,
			`{"health":"true","reason":""}`},
		{fakeMember{leader: 1, hang: true}, "/health", 503,
			`{"health":"false","reason":"RANGE ERROR:context deadline exceeded"}` + "\n"},
		{fakeMember{leader: 1, alarms: []string{"NOSPACE"}}, "/health", 503,
			`{"health":"false","reason":"ALARM NOSPACE"}` + "\n"},
		{fakeMember{leader: 1, alarms: []string{"NOSPACE"}}, "/health?exclude=NOSPACE", 200,
			`{"health":"true","reason":""}`},
		{fakeMember{leader: 1, alarms: []string{"NOSPACE", "CORRUPT"}}, "/health?exclude=NOSPACE",
			503, `{"health":"false","reason":"ALARM CORRUPT"}` + "\n"},
		{fakeMember{leader: 1, alarms: []string{"NOSPACE", "CORRUPT"}},
			"/health?exclude=NOSPACE&exclude=CORRUPT", 200, `{"health":"true","reason":""}`},
		{fakeMember{alarms: []string{"OTHER"}}, "/health", 503,
			`{"health":"false","reason":"ALARM UNKNOWN"}` + "\n"},

		{good, "/livez", 200, "ok\n"},
		{good, "/livez?verbose", 200, "[+]serializable_read ok\nok\n"},
		{fakeMember{quorum: timeout}, "/livez", 200, "ok\n"},
		{fakeMember{local: timeout}, "/livez", 503,
			"[-]serializable_read failed: etcdserver: request timed out\n\n"},
		{fakeMember{local: timeout}, "/livez?exclude=serializable_read", 200, "ok\n"},
		{good, "/livez/serializable_read", 200, "ok\n"},
		{good, "/livez/serializable_read?verbose", 200, "[+]serializable_read ok\nok\n"},
		{good, "/livez/linearizable_read", 404, "404 page not found\n"},

		{good, "/readyz", 200, "ok\n"},
		{good, "/readyz?verbose", 200,
			"[+]data_corruption ok\n[+]serializable_read ok\n[+]linearizable_read ok\n[+]non_learner ok\nok\n"},
		{fakeMember{quorum: timeout, alarms: []string{"CORRUPT"}, learner: true}, "/readyz", 503,
			"[-]data_corruption failed: alarm activated: CORRUPT\n[+]serializable_read ok\n" +
				"[-]linearizable_read failed: etcdserver: request timed out\n[-]non_learner failed: not supported for learner\n\n"},
		{fakeMember{quorum: timeout},
			"/readyz?exclude=linearizable_read&exclude=nonsense&verbose=", 200,
			"[+]data_corruption ok\n[+]serializable_read ok\n[+]non_learner ok\nok\n"},
		{fakeMember{alarms: []string{"NOSPACE"}}, "/readyz", 200, "ok\n"},
		{fakeMember{learner: true}, "/readyz/non_learner", 503,
			"[-]non_learner failed: not supported for learner\n\n"},
		{fakeMember{learner: true}, "/readyz/linearizable_read", 200, "ok\n"},

		{good, "/version", 200,
			`{"etcdserver":"3.7.3","etcdcluster":"3.7.0","storage":"3.7.0","vigil":"0.1"}`},
		{good, "/", 404, "404 page not found\n"},
		{good, "/v2/keys", 404, "404 page not found\n"},
		{good, "/health/", 404, "404 page not found\n"},
	} {
		h := newHandler(t, &c.member)
		w := do(h, http.MethodGet, c.path)
		if w.Code != c.code || w.Body.String() != c.body {
			t.Errorf("%s of %+v: %d %q, want %d %q", c.path, c.member, w.Code, w.Body,
				c.code, c.body)
		}
		if c.code == http.StatusNotFound {
			continue
		}
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete,
			http.MethodHead} {
			if w := do(h, method, c.path); w.Code != http.StatusMethodNotAllowed ||
				w.Header().Get("Allow") != "GET" {
				t.Errorf("%s %s: %d, Allow: %q", method, c.path, w.Code, w.Header().Get("Allow"))
			}
		}
	}
}

func TestMetrics(t *testing.T) {
	f := &fakeMember{leader: 1}
	h := newHandler(t, f)
	for range 3 {
		do(h, http.MethodGet, "/health")
	}
	f.leader, f.local = 0, errors.New("no")
	do(h, http.MethodGet, "/health")
	do(h, http.MethodGet, "/livez")
	body := do(h, http.MethodGet, "/metrics").Body.String()
	for _, want := range []string{
		"etcd_server_health_success 3\n", "etcd_server_health_failures 1\n",
		`etcd_server_healthcheck{name="serializable_read",type="livez"} 0` + "\n",
		`etcd_server_healthchecks_total{name="serializable_read",status="error",type="livez"} 1` +
			"\n",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is not in\n%s", want, body)
		}
	}
}

func TestConfig(t *testing.T) {
	_, err := New(Config{CheckTimeout: -1})
	for _, field := range []string{"Health", "Versions", "Registry", "CheckTimeout"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not in %v", field, err)
		}
	}
}

// TestServer: a header without end is cut off.
func TestServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := Server(newHandler(t, &fakeMember{leader: 1}), func(net.Conn) {},
		slog.New(slog.DiscardHandler))
	go s.Serve(l)
	defer s.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	go func() {
		io.WriteString(c, "GET /health HTTP/1.1\r\nX: ")
		chunk := strings.Repeat("x", 1<<10)
		for range 2 << 10 {
			if _, err := io.WriteString(c, chunk); err != nil {
				return
			}
		}
	}()
	b := make([]byte, 12)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "HTTP/1.1 431" {
		t.Errorf("%q, %v", b, err)
	}
	if s.ReadHeaderTimeout <= 0 || s.IdleTimeout <= 0 {
		t.Error("a deadline is missing")
	}
}

// A page of another origin opens a WebSocket only if it is listed, and never with the cookies of
// the browser's user.
func TestWebSocketOrigins(t *testing.T) {
	var cookie string
	next := http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		cookie = r.Header.Get("Cookie")
	})
	for _, c := range []struct {
		cors    []string
		origin  string
		code    int
		cookies bool
	}{
		{nil, "", 200, true}, {[]string{"http://good.example"}, "", 200, true},
		{nil, "http://elsewhere.example", 200, false},
		{[]string{"*"}, "http://elsewhere.example", 200, false},
		{[]string{"http://good.example"}, "http://good.example", 200, false},
		{[]string{"http://good.example"}, "http://elsewhere.example", 403, false},
		{[]string{"http://good.example"}, "https://good.example", 403, false},
		{[]string{"http://good.example"}, "null", 403, false}, {nil, "null", 200, false},
		{[]string{"http://good.example"}, "http://member.example:2379", 200, true},
		{[]string{"http://good.example"}, "https://MEMBER.example:2379", 200, true},
		{[]string{"http://good.example"}, "http://member.example", 403, false},
		{[]string{"http://good.example"}, "http://member.example:2379@evil.example", 403, false},
		{[]string{"http://good.example"}, "%zz", 403, false},
	} {
		cookie = "none was seen"
		r := httptest.NewRequest(http.MethodGet, "http://member.example:2379/v3/watch", nil)
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "websocket")
		r.Header.Set("Cookie", "token=secret")
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		w := httptest.NewRecorder()
		(&access{&Config{CORS: c.cors, Logger: slog.New(slog.DiscardHandler)},
			next}).ServeHTTP(w, r)
		if w.Code != c.code || c.code == 200 && (cookie != "") != c.cookies {
			t.Errorf("%+v: status %d, cookie %q", c, w.Code, cookie)
		}
	}
	// Requests that are no WebSocket are answered, and the browser decides who may read the answer.
	r := httptest.NewRequest(http.MethodPost, "http://member.example/v3/kv/range", nil)
	r.Header.Set("Origin", "http://elsewhere.example")
	w := httptest.NewRecorder()
	(&access{&Config{CORS: []string{"http://good.example"}}, next}).ServeHTTP(w, r)
	if w.Code != 200 || w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a plain request of another origin: %d, %v", w.Code, w.Header())
	}
}

// TestExcludedLines: a request writes one line about the checks that it names wrongly, however many
// there are.
func TestExcludedLines(t *testing.T) {
	var log bytes.Buffer
	h, err := New(Config{Health: &fakeMember{leader: 1}, Registry: prometheus.NewRegistry(),
		CheckTimeout: time.Minute,
		Versions:     func() Versions { return Versions{} },
		Logger:       slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	do(h.Client, "GET", "/livez?exclude=first"+strings.Repeat("&exclude=x", 5000))
	if n := strings.Count(log.String(), "\n"); n != 1 ||
		!strings.Contains(log.String(), "first, x") {
		t.Errorf("%d lines: %.300s", n, log.String())
	}
}
