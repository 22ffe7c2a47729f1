package probe

import (
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const page = `# TYPE puts counter
puts 41
# TYPE alive gauge
alive{peer="a"} 1
alive{peer="b"} 2
# TYPE took histogram
took_bucket{op="x",le="0.001"} 10
took_bucket{op="x",le="0.002"} 90
took_bucket{op="x",le="+Inf"} 100
took_sum{op="x"} 1
took_count{op="x"} 100
took_bucket{op="y",le="0.001"} 0
took_bucket{op="y",le="0.002"} 0
took_bucket{op="y",le="+Inf"} 0
took_sum{op="y"} 0
took_count{op="y"} 0
`

func TestMetrics(t *testing.T) {
	m, err := ParseMetrics(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"puts": 41, "alive": 3} {
		if v, ok := m.Value(name); !ok || v != want {
			t.Errorf("%s: %v %v", name, v, ok)
		}
	}
	if _, ok := m.Value("none"); ok {
		t.Error("a metric that is not there has a value")
	}
	h := m.Histogram("took")
	for share, want := range map[float64]float64{0.05: 0.0005, 0.1: 0.001, 0.5: 0.0015, 0.9: 0.002, 0.99: 0.002} {
		if v, ok := h.Quantile(share); !ok || math.Abs(v-want) > 1e-12 {
			t.Errorf("share %v: %v %v, want %v", share, v, ok, want)
		}
	}
	if _, ok := m.Histogram("none").Quantile(0.5); ok {
		t.Error("nothing has a quantile")
	}
	if _, err := ParseMetrics(strings.NewReader("{")); err == nil {
		t.Error("nonsense is read")
	}
}

func TestHistogramSince(t *testing.T) {
	old := Histogram{Bounds: []float64{1, 2}, UpTo: []uint64{5, 6}, Count: 7}
	now := Histogram{Bounds: []float64{1, 2}, UpTo: []uint64{5, 16}, Count: 17}
	d := now.Since(old)
	if d.Count != 10 || d.UpTo[0] != 0 || d.UpTo[1] != 10 {
		t.Errorf("%+v", d)
	}
	if v, _ := d.Quantile(0.5); v != 1.5 {
		t.Errorf("%v", v)
	}
	// A member that was started again counts from 0.
	if d := old.Since(now); d.Count != old.Count {
		t.Errorf("%+v", d)
	}
}

func TestClock(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 300e6, time.UTC)
	at := func(ahead time.Duration) Clock {
		return clock(now.Add(ahead).Truncate(time.Second), now.Add(-10*time.Millisecond), now.Add(10*time.Millisecond))
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
	if w, err := m.Watchers(ctx); err != nil || w.Revision != 7 || len(w.Watchers) != 1 || w.Watchers[0].Lag != 3 {
		t.Errorf("%+v %v", w, err)
	}
	if _, err := m.Metrics(ctx); err == nil || !strings.Contains(err.Error(), "403 Forbidden: no") {
		t.Errorf("metrics: %v", err)
	}
	if c, err := m.Clock(ctx); err != nil || c.Least > 0 || c.Most < 0 {
		t.Errorf("clock: %+v %v", c, err)
	}
	if end, err := m.CertificateExpiry(ctx); err != nil || !end.Equal(srv.Certificate().NotAfter) {
		t.Errorf("certificate: %v %v", end, err)
	}
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	if _, err := New(plain.URL, "", nil, time.Minute).Watchers(ctx); err != ErrNotFound {
		t.Errorf("no page: %v", err)
	}
}
