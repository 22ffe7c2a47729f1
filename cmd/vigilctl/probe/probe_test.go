package probe

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"vigil/internal/health"
)

func TestClock(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 300e6, time.UTC)
	at := func(ahead time.Duration) health.Clock {
		return clock(now.Add(ahead).Truncate(time.Second), now.Add(-10*time.Millisecond),
			now.Add(10*time.Millisecond))
	}
	if off := at(0).Off(at(0)); off != 0 {
		t.Errorf("the same clock is off by %v", off)
	}
	if off := at(600 * time.Millisecond).Off(at(0)); off != 0 {
		t.Errorf("what may be the same is off by %v", off)
	}
	for _, ahead := range []time.Duration{5 * time.Second, -5 * time.Second} {
		off := at(ahead).Off(at(0))
		if off < 3900*time.Millisecond || off > 5*time.Second || off != at(0).Off(at(ahead)) {
			t.Errorf("%v ahead: off by %v", ahead, off)
		}
	}
}

func TestPages(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "t0" {
			t.Errorf("%s without the token", r.URL)
		}
		switch r.URL.Path {
		case "/debug/watch":
			w.Write([]byte(`{"revision":7,"watchers":[{"client":"c","key":"\"a\"","lag_revisions":3}]}`))
		case "/version":
			w.Write([]byte(`{}`))
		case "/debug/vars":
			w.Write([]byte(`{"cmdline":["etcd","--pre-vote"],"settings":{"pre-vote":"false"},"recent":[{"seconds":60,"counters":{"etcd_server_slow_apply_total":3}}]}`))
		case "/metrics":
			http.Error(w, "no", http.StatusForbidden)
		default:
			http.NotFound(w, r)
		}
	}))
	defer srv.Close()
	secure := srv.Client().Transport.(*http.Transport).TLSClientConfig
	m := New(strings.TrimPrefix(srv.URL, "https://"), "t0", secure, time.Minute)
	defer m.Close()
	ctx := t.Context()
	if w, err := m.Watchers(ctx); err != nil || w.Revision != 7 || len(w.Watchers) != 1 ||
		w.Watchers[0].Lag != 3 {
		t.Errorf("%+v %v", w, err)
	}
	if _, err := m.Metrics(ctx); err == nil || !strings.Contains(err.Error(), "403 Forbidden: no") {
		t.Errorf("metrics: %v", err)
	}
	if c, err := m.Clock(ctx); err != nil || c.Least > 0 || c.Most < 0 {
		t.Errorf("clock: %+v %v", c, err)
	}
	if state, err := m.State(ctx); err != nil || len(state.Settings) != 1 ||
		state.Settings["pre-vote"] != "false" || state.Waits != nil || len(state.Recent) != 1 ||
		state.Recent[0].Counters[health.SlowApplies] != 3 {
		t.Errorf("state: %v %v", state, err)
	}
	if c, err := m.Certificate(ctx); err != nil || !c.Equal(srv.Certificate()) {
		t.Errorf("certificate: %v %v", c, err)
	}
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	if _, err := New(plain.URL, "", nil, time.Minute).Watchers(ctx); err != ErrNotFound {
		t.Errorf("no page: %v", err)
	}
}

func TestFlagsOf(t *testing.T) {
	if flags := flagsOf([]string{"vigil", "--unsafe-no-fsync", "-election-timeout", "500",
		"--name=a"}); flags["election-timeout"] != "500" || flags["name"] != "a" ||
		len(flags) != 3 {
		t.Errorf("%v", flags)
	}
	if flagsOf(nil) != nil {
		t.Error("a command line that is not known has flags")
	}
}

// TestAnswersAreBounded: a member that sends without end, or sends what needs much memory, is an
// error.
func TestAnswersAreBounded(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		part := strings.Repeat("{},", 1<<14)
		if r.URL.Path == "/metrics" {
			part = strings.Repeat("# a comment\n", 1<<12)
		} else {
			w.Write([]byte(`{"recent":[`))
		}
		for r.Context().Err() == nil {
			if _, err := w.Write([]byte(part)); err != nil {
				return
			}
		}
	}))
	defer srv.Close()
	m := New(srv.URL, "", nil, time.Minute)
	defer m.Close()
	if s, err := m.State(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "more than 4194304 bytes") || s.Recent != nil {
		t.Errorf("%d windows, %v", len(s.Recent), err)
	}
	if _, err := m.Metrics(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "more than 16777216 bytes") {
		t.Errorf("metrics: %v", err)
	}
}
