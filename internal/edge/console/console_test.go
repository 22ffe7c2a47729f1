package console

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"vigil/internal/health"
	"vigil/internal/kv"
	"vigil/internal/store/watch"
)

// refusing is a connection on which no call succeeds.
type refusing struct{}

var errRefused = errors.New("refused")

func (refusing) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return errRefused
}
func (refusing) NewStream(context.Context, *grpc.StreamDesc, string,
	...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errRefused
}

func open(t *testing.T, change func(*Config)) *Console {
	t.Helper()
	c := Config{Serve: Auto, Conn: refusing{}, AuthEnabled: func() bool { return false },
		RequireAdmin: func(context.Context) error { return errRefused },
		WithCaller: func(ctx context.Context, _ net.Addr, _ *tls.ConnectionState,
			_ func()) context.Context {
			return ctx
		},
		User: func(context.Context) string { return "" },
		Rights: func(context.Context) (string, bool, []kv.Permission, error) {
			return "", false,
				nil, nil
		}, Leader: func() Leadership { return Leadership{Known: true} },
		Watchers: func(context.Context, uint64, WatchersQuery) (*WatchersView, error) {
			return nil,
				errRefused
		}, MaxRequestBytes: 1 << 20,
		Sample: func(context.Context, uint64) (*Sample, error) { return nil, errRefused },
		Compare: func(context.Context, uint64, int64) (*Comparison, error) {
			return nil,
				errRefused
		}, Hosts: []string{"db.example"}}
	change(&c)
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// TestServed: the console is served on loopback, and elsewhere if there are users or the operator
// wants it.
func TestServed(t *testing.T) {
	loopback, public := &net.TCPAddr{IP: net.IPv6loopback}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}
	for _, c := range []struct {
		serve string
		auth  bool
		addr  net.Addr
		code  int
	}{
		{Auto, false, loopback, 200}, {Auto, false, &net.TCPAddr{IP: net.IPv4(127, 3, 0, 1)}, 200},
		{Auto, false, &net.UnixAddr{Name: "/s"}, 200},
		{Auto, false, public, 403}, {Auto, false, nil, 403}, {Auto, true, public, 200},
		{On, false, public, 200}, {Off, true, loopback, 403},
	} {
		h := open(t, func(x *Config) {
			x.Serve, x.AuthEnabled = c.serve,
				func() bool { return c.auth }
		})
		for _, path := range []string{"/console/", "/console/api/session"} {
			r := httptest.NewRequest("GET", "http://127.0.0.1"+path, nil)
			r.Header.Set(requestHeader, "1")
			r.RemoteAddr = "127.0.0.1:9"
			if c.addr != nil {
				r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, c.addr))
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != c.code {
				t.Errorf("--console=%s, auth %v, connection to %v, %s: %d %s, want %d", c.serve,
					c.auth, c.addr, path, w.Code, w.Body, c.code)
			}
		}
	}
}

func TestHosts(t *testing.T) {
	h := open(t, func(*Config) {})
	for host, known := range map[string]bool{"127.0.0.1:2379": true, "[::1]:2379": true,
		"[::1]": true, "localhost": true, "LOCALHOST:1": true, "app.localhost": true,
		"db.example": true, "DB.example:2379": true, "10.1.2.3": true, "evil.example": false,
		"localhost.evil.example": false, "127.0.0.1.evil.example": false, "": false,
		"notlocalhost": false} {
		r := httptest.NewRequest("GET", "/console/", nil)
		r.Host = host
		if h.knownHost(r) != known {
			t.Errorf("host %q: known is %v", host, !known)
		}
		r.TLS = &tls.ConnectionState{}
		if !h.knownHost(r) {
			t.Errorf("host %q is not known with TLS", host)
		}
	}
}

func TestAssets(t *testing.T) {
	h := open(t, func(x *Config) { x.Serve = On })
	get := func(path, encoding string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "http://localhost"+path, nil)
		r.Header.Set("Accept-Encoding", encoding)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	page := get("/console/", "").Body.String()
	total := 0
	for _, a := range h.assets {
		total += len(a.packed())
	}
	if total > 250<<10 {
		t.Errorf("a browser loads %d bytes, at most 250 KiB", total)
	}
	t.Logf("a browser loads %d bytes", total)
	for name, a := range h.assets {
		plain, packed := get("/console/"+name, ""), get("/console/"+name, "gzip, br")
		if plain.Code != 200 || !bytes.Equal(plain.Body.Bytes(), a.content) ||
			plain.Header().Get("Content-Encoding") != "" {
			t.Errorf("%s: %d, %d bytes", name, plain.Code, plain.Body.Len())
		}
		if packed.Header().Get("Content-Encoding") != "gzip" ||
			packed.Body.Len() >= len(a.content) {
			t.Errorf("%s is not compressed", name)
		}
		if a.hashed != strings.Contains(plain.Header().Get("Cache-Control"), "immutable") ||
			a.hashed != strings.Contains(page, name) {
			t.Errorf("%s: %s", name, plain.Header().Get("Cache-Control"))
		}
	}
	for _, inline := range []string{"<style", "<script>", "style=", "onclick",
		"http://", "https://"} {
		if strings.Contains(page, inline) {
			t.Errorf("the page contains %s", inline)
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, key string
		matches      bool
	}{
		{"", "anything", true}, {"b", "abc", true}, {"b", "ac", false}, {"a/*/c", "a/b/c", true},
		{"a/*/c", "a/b/b/c", false}, {"a/**/c", "a/b/b/c", true},
		{"**x**", "axb", true}, {"**", "", true}, {"a**a", "a", false}, {"a**b**c", "acb", false},
		{"[ab]?", "bz", true}, {"*", "\xff\x00", true},
	} {
		match, err := matcher(c.pattern)
		if err != nil {
			t.Fatal(c.pattern, err)
		}
		if match([]byte(c.key)) != c.matches {
			t.Errorf("pattern %q, key %q: %v", c.pattern, c.key, !c.matches)
		}
	}
	for _, wrong := range []string{"[", "a**[", strings.Repeat("a", 1001)} {
		if _, err := matcher(wrong); err == nil {
			t.Errorf("the pattern %.20q is accepted", wrong)
		}
	}
}

// A permission of a type that this program does not know allows nothing, and is not shown as one
// that does.
func TestPermissionsAsShown(t *testing.T) {
	left := room(1 << 20)
	for typ, want := range map[authpb.Permission_Type][2]bool{authpb.READ: {true, false},
		authpb.WRITE: {false, true}, authpb.READWRITE: {true, true}, 3: {}, -1: {}} {
		got := left.permissions([]*authpb.Permission{{PermType: typ, Key: []byte("k")}})
		if len(got) != 1 || [2]bool{got[0].Read, got[0].Write} != want {
			t.Errorf("a permission of type %d: %+v", typ, got)
		}
	}
}

func TestEndOf(t *testing.T) {
	for prefix, end := range map[string]string{"a": "b", "a\xff": "b", "\xff\xff": "\x00",
		"": "\x00", "a/": "a0"} {
		if got := string(endOf([]byte(prefix))); got != end {
			t.Errorf("end of %q: %q, want %q", prefix, got, end)
		}
	}
}

// TestCloseEndsRound: the end of the console does not wait for members that do not answer.
func TestCloseEndsRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sampler{stopped: make(chan struct{}),
			read: func(ctx context.Context, id uint64) *reading {
				<-ctx.Done()
				return readingOf(t, id, 1, "")
			}}
		defer s.join([]uint64{1, 2})()
		synctest.Wait() // the round has begun
		begun := time.Now()
		s.close()
		if took := time.Since(begun); took > 0 {
			t.Errorf("the end took %v", took)
		}
	})
}

// TestSampler: members are measured only while there is a reader and shortly after, by one
// goroutine for all readers.
func TestSampler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var count atomic.Int64
		s := &sampler{stopped: make(chan struct{}),
			read: func(_ context.Context, id uint64) *reading {
				if id != 1 {
					return readingOf(t, id, 1, "")
				}
				rounds := count.Add(1)
				return readingOf(t, id, rounds,
					fmt.Sprintf("etcd_mvcc_put_total %d\nprocess_start_time_seconds 1\n",
						10*rounds))
			}}
		defer s.close()
		time.Sleep(time.Hour)
		synctest.Wait()
		if rounds := count.Load(); rounds != 0 {
			t.Fatalf("%d rounds without a reader", rounds)
		}
		var leave []func()
		for range 10 {
			leave = append(leave, s.join([]uint64{1, 2}))
		}
		time.Sleep(sampleInterval / 2)
		time.Sleep(time.Hour)
		synctest.Wait()
		if rounds, want := int(count.Load()), int(time.Hour/sampleInterval)+1; rounds < want-1 ||
			rounds > want+1 {
			t.Errorf("%d rounds in an hour with ten readers, want %d", rounds, want)
		}
		now, _ := s.measurements()
		list := now.points[1]
		if len(list) > maxPoints || len(list) < maxPoints-1 {
			t.Errorf("%d points, want %d", len(list), maxPoints)
		}
		if p := list[len(list)-1]; p.Rates["puts"] != 10/sampleInterval.Seconds() || p.Lag != 0 {
			t.Errorf("point %+v", p)
		}
		for _, l := range leave {
			l()
		}
		synctest.Wait()
		before := count.Load()
		time.Sleep(time.Hour)
		synctest.Wait()
		if rounds, most := count.Load()-before,
			int64(sampleLinger/sampleInterval)+1; rounds > most {
			t.Errorf("%d rounds after the last reader, at most %d", rounds, most)
		}
		s.mu.Lock()
		running := s.mu.running
		s.mu.Unlock()
		if running {
			t.Error("the sampler runs without a reader")
		}
		if now, _ := s.measurements(); now.last != nil {
			t.Error("what was seen long ago is shown as the present")
		}
		before = count.Load()
		s.join([]uint64{1})
		time.Sleep(time.Second)
		synctest.Wait()
		if count.Load() == before {
			t.Error("the sampler does not start again")
		}
	})
}

// TestSamplerShowsFirstAnswers: the first answers are shown soon, although another member takes
// long; without a diagnosis, until all are there. Later rounds wait for all.
func TestSamplerShowsFirstAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, func(c *Config) { c.Self.Cluster = 7 })
		h.sampler.read = func(ctx context.Context, id uint64) *reading {
			if id == 3 {
				<-ctx.Done()
				return read(nil, ctx.Err(), time.Now())
			}
			return readingOf(t, id, 1, "")
		}
		members := []*etcdserverpb.Member{{ID: 1, Name: "m1"}, {ID: 2, Name: "m2"},
			{ID: 3, Name: "m3"}}
		leave := h.sampler.join([]uint64{1, 2, 3})
		for i, want := range []struct {
			after   time.Duration
			pending []string
		}{{firstLook, []string{"m3"}}, {sampleInterval - firstLook, nil}, {sampleInterval, nil}} {
			_, changed := h.sampler.measurements()
			start := time.Now()
			<-changed
			now, _ := h.sampler.measurements()
			o := h.overview(members, now, true)
			if took := time.Since(start); took != want.after ||
				!slices.Equal(o.Pending, want.pending) ||
				(o.Diagnosis == nil) != (want.pending != nil) || o.Members[0].State == nil {
				t.Errorf("look %d after %v, want %v: pending %q, diagnosis %v", i, took, want.after,
					o.Pending, o.Diagnosis)
			}
		}
		leave()
		h.Close()
	})
}

// TestLastState: of a member that does not answer the newest answer is kept, with its time; of one
// that was removed nothing.
func TestLastState(t *testing.T) {
	h := open(t, func(c *Config) { c.Self.Member = 1 })
	members := []*etcdserverpb.Member{{ID: 1, Name: "m1"}, {ID: 2, Name: "m2"}, {ID: 3, Name: "m3"}}
	dead := read(nil, errRefused, time.Now())
	old := readingOf(t, 2, 7, "")
	h.sampler.keepRound(map[uint64]*reading{1: readingOf(t, 1, 7, ""), 2: old, 3: dead}, time.Now())
	last := map[uint64]*reading{1: readingOf(t, 1, 8, ""), 2: dead, 3: dead}
	h.sampler.keepRound(last, time.Now())
	now, _ := h.sampler.measurements()
	now.last = last
	o := h.overview(members, now, true)
	for i, want := range []struct {
		answers  bool
		revision int64 // 0 if nothing is known
		at       time.Time
	}{{true, 8, last[1].At}, {false, 7, old.At}, {false, 0, time.UnixMilli(0)}} {
		m := o.Members[i]
		revision := int64(0)
		if m.State != nil {
			revision = m.State.Revision
		}
		if m.Answers != want.answers || revision != want.revision || m.At != want.at.UnixMilli() {
			t.Errorf("%s: %+v, state %+v", m.Name, m, m.State)
		}
	}
	h.sampler.keepRound(map[uint64]*reading{1: last[1]}, time.Now())
	if now, _ := h.sampler.measurements(); len(now.seen) != 1 {
		t.Errorf("%d members are kept of 1", len(now.seen))
	}
}

// readingOf returns what a member of a cluster with the leader 1 reports.
func readingOf(t *testing.T, id uint64, revision int64, metrics string) *reading {
	t.Helper()
	st := &etcdserverpb.StatusResponse{Header: &etcdserverpb.ResponseHeader{ClusterId: 7,
		MemberId: id, Revision: revision}, Leader: 1, RaftIndex: 10, RaftAppliedIndex: 10,
		DbSizeQuota: 100}
	b, err := proto.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	return read(&Sample{At: time.Now().UnixMilli(), Status: b, Metrics: metrics,
		Report: health.Report{Settings: map[string]string{}}}, nil, time.Now())
}

// TestOddSample: a member that sends numbers that are none spoils its own figures, and not the
// stream of all.
func TestOddSample(t *testing.T) {
	h := open(t, func(c *Config) { c.Self.Cluster = 7 })
	for _, n := range []string{"NaN", "+Inf", "1.7e308"} {
		const text = "etcd_mvcc_put_total %s\nprocess_resident_memory_bytes %[1]s\n# TYPE etcd_server_apply_duration_seconds histogram\netcd_server_apply_duration_seconds_bucket{le=\"1\"} %d\netcd_server_apply_duration_seconds_bucket{le=\"1.7e308\"} %[2]d\netcd_server_apply_duration_seconds_sum %[1]s\netcd_server_apply_duration_seconds_count %[2]d\n"
		old, now := readingOf(t, 1, 1, fmt.Sprintf(text, "0", 0)),
			readingOf(t, 1, 1, fmt.Sprintf(text, n, 5))
		old.At = now.At.Add(-time.Millisecond)
		all := map[uint64]*reading{1: now}
		o := h.overview([]*etcdserverpb.Member{{ID: 1, Name: "m1"}},
			measurements{all, all, map[uint64][]point{1: {makePoint(now, old, 0)}}}, true)
		if _, err := json.Marshal(o); err != nil {
			t.Errorf("%s: %v", n, err)
		}
	}
	b, err := json.Marshal(&Sample{Report: health.Report{Certificates: make([]health.Certificate,
		1000)}})
	if s, err2 := DecodeSample(b); err != nil || err2 != nil || len(s.Certificates) > 0 {
		t.Errorf("a report of nonsense: %v %v %v", s, err, err2)
	}
}

func TestSamplerRestartedMember(t *testing.T) {
	old, now := readingOf(t, 1, 1, "etcd_mvcc_put_total 100\nprocess_start_time_seconds 1\n"),
		readingOf(t, 1, 1, "etcd_mvcc_put_total 500\nprocess_start_time_seconds 2\n")
	if p := makePoint(now, old, 0); p.Rates != nil {
		t.Errorf("rates of a member that was restarted: %v", p.Rates)
	}
	if p := makePoint(now, nil, 0); p.Rates != nil || p.Revision != 1 {
		t.Errorf("the first point: %+v", p)
	}
}

func TestSample(t *testing.T) {
	r := prometheus.NewRegistry()
	puts := prometheus.NewCounter(prometheus.CounterOpts{Name: "etcd_mvcc_put_total"})
	apply := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "etcd_server_apply_duration_seconds", Buckets: []float64{.001, .002, .004}}, []string{"op"})
	other := prometheus.NewCounter(prometheus.CounterOpts{Name: "other"})
	r.MustRegister(puts, apply, other)
	puts.Add(3)
	apply.WithLabelValues("a").Observe(.0005)
	st := &etcdserverpb.StatusResponse{Header: &etcdserverpb.ResponseHeader{MemberId: 5,
		Revision: 9}, Leader: 5}
	sample := func() *reading {
		t.Helper()
		sent := time.Now()
		s, err := NewSample(st, r, health.NewHistory(time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeSample(b)
		return read(got, err, sent)
	}
	before := sample()
	for range 98 {
		apply.WithLabelValues("a").Observe(.0015)
	}
	apply.WithLabelValues("b").Observe(.003)
	apply.WithLabelValues("b").Observe(1)
	after := sample()
	if after.ID() != 5 || after.Status.Header.Revision != 9 ||
		after.Value("etcd_mvcc_put_total") != 3 || len(after.Metrics) != 2 ||
		after.Metrics.Histogram(health.Apply).Count != 101 {
		t.Fatalf("%+v", after)
	}
	if c := after.clock; c.Least > 0 || c.Most < 0 {
		t.Errorf("the clock of this process differs: %+v", c)
	}
	if p := makePoint(after, before, 0); math.Abs(p.Times["apply"]-.004) > .0001 {
		t.Errorf("times %v", p.Times)
	}
	if p := makePoint(after, after, 0); len(p.Times) > 0 {
		t.Errorf("times of nothing: %v", p.Times)
	}
	for _, wrong := range [][]byte{make([]byte, maxSample+1), []byte("x"),
		[]byte(`{"status":"//8="}`)} {
		s, err := DecodeSample(wrong)
		if x := read(s, err, time.Now()); x.StatusErr == nil || x.Status != nil {
			t.Errorf("the sample %.20q is accepted", wrong)
		}
	}
	if x := read(&Sample{Metrics: "{"}, nil, time.Now()); x.MetricsErr == nil || x.Metrics != nil {
		t.Error("metrics that are none are accepted")
	}
}

// TestFindings: the findings are those of package health over what members report, with its pages.
func TestFindings(t *testing.T) {
	h := open(t, func(c *Config) { c.Self.Cluster = 7 })
	members := []*etcdserverpb.Member{{ID: 1, Name: "m1", ClientURLs: []string{"http://m1:2379"}},
		{ID: 2, Name: "m2"}, {ID: 3, Name: "m3"}}
	for _, c := range []struct {
		third *reading
		texts []string
	}{
		{readingOf(t, 3, 1, ""), nil},
		{read(nil, errRefused, time.Now()),
			[]string{"m3 does not answer this member: refused", "2 of 3 voting members answer"}},
		{readingOf(t, 3, 1, "vigil_disk_full 1\n"), []string{"m3 its disk is full"}},
		{readingOf(t, 3, 1, "vigil_watch_largest_lag_revisions 20000\nvigil_watch_stalled_watchers 1\netcd_server_proposals_pending 101\nvigil_damage_found_total 1\n"),
			[]string{"a watcher is 20000 revisions behind", "the client of a watcher does not read",
				"101 writes wait", "damaged data were found at one place"}},
		{readingOf(t, 3, 1, "vigil_certificate_expiry_timestamp_seconds{listener=\"client\",use=\"server\"} 1e+09\n"), []string{"m3 its certificate for clients (--cert-file) expired"}},
	} {
		d := h.examination(members,
			map[uint64]*reading{1: readingOf(t, 1, 1, ""), 2: readingOf(t, 2, 1, ""),
				3: c.third}).Diagnose()
		var all strings.Builder
		for _, f := range d.Findings {
			fmt.Fprintln(&all, f.Member, f.What)
			if f.Next == "" || !strings.HasPrefix(f.Page, "docs/") {
				t.Errorf("%s: advice %q, page %q", f.What, f.Next, f.Page)
			}
		}
		if len(d.Findings) != len(c.texts) || d.Healthy != (len(c.texts) == 0) {
			t.Errorf("findings:\n%swant %q", all.String(), c.texts)
		}
		for _, text := range c.texts {
			if !strings.Contains(all.String(), text) {
				t.Errorf("findings:\n%swant %q", all.String(), text)
			}
		}
		if slices.Contains(d.Passed, "data") ||
			!slices.ContainsFunc(d.Unchecked,
				func(u health.Unchecked) bool { return u.Check == "data" }) {
			t.Error("the data pass, which were not compared")
		}
	}
}

func TestWatchersAreBounded(t *testing.T) {
	var st watch.Stats
	for i := range 3 {
		s := watch.StreamStats{ID: uint64(i), Client: fmt.Sprint("client", i)}
		for j := range 400 {
			s.Watchers = append(s.Watchers,
				watch.WatcherStats{ID: int64(j), Lag: int64(1000*i + j), Key: []byte{byte(j)}})
		}
		st.Streams = append(st.Streams, s)
	}
	v := ListWatchers(st, WatchersQuery{Sort: "lag"})
	if v.Total != 1200 || v.Matching != 1200 || len(v.Watchers) != maxWatchers ||
		v.Watchers[0].Lag != 2399 {
		t.Errorf("%d of %d, the first has the lag %d", len(v.Watchers), v.Total, v.Watchers[0].Lag)
	}
	if v = ListWatchers(st,
		WatchersQuery{Sort: "nonsense", Filter: "client1"}); v.Matching != 400 ||
		v.Watchers[0].Client != "client1" {
		t.Errorf("%d match", v.Matching)
	}
	// Whatever clients watch, the answer fits into a call between members.
	long, name := bytes.Repeat([]byte{0xff}, 1<<20), strings.Repeat("<", 1<<20)
	for i := range st.Streams {
		for j := range st.Streams[i].Watchers {
			w := &st.Streams[i].Watchers[j]
			w.Key, w.End = long, long[:j]
			st.Streams[i].User, st.Streams[i].Client = name, name
		}
	}
	b, err := json.Marshal(ListWatchers(st, WatchersQuery{}))
	if err != nil || len(b) > maxWatchersAnswer {
		t.Errorf("an answer of %d bytes, %v", len(b), err)
	}
	if v, err := DecodeWatchers(b); err != nil || !v.Watchers[0].Cut ||
		len(v.Watchers[0].Key) != maxWatcherKey {
		t.Errorf("%v, %v", v, err)
	}
	for _, wrong := range [][]byte{make([]byte, maxWatchersAnswer+1), []byte("x")} {
		if _, err := DecodeWatchers(wrong); err == nil {
			t.Errorf("%.20q is accepted", wrong)
		}
	}
}

// TestWatchersOfAllMembers: the lists of all members are one, and a member that does not answer is
// named.
func TestWatchersOfAllMembers(t *testing.T) {
	h := open(t, func(c *Config) {
		c.Watchers = func(_ context.Context, id uint64, q WatchersQuery) (*WatchersView, error) {
			if id == 3 {
				return nil, errRefused
			}
			return ListWatchers(watch.Stats{Revision: 9,
					Streams: []watch.StreamStats{{Client: fmt.Sprint("of", id),
						Watchers: []watch.WatcherStats{{Lag: int64(id)}, {Lag: 10 * int64(id)}}}}},
					q),
				nil
		}
	})
	members := []*etcdserverpb.Member{{ID: 2, Name: "b"}, {ID: 1, Name: "a"}, {ID: 3}}
	all := h.watchersOf(t.Context(), members, "", WatchersQuery{Sort: "lag"})
	if all.Total != 4 || all.Streams != 2 || len(all.Watchers) != 4 || all.Watchers[0].Lag != 20 ||
		all.Watchers[0].Member != "b" || all.Watchers[3].Member != "a" {
		t.Errorf("%+v", all)
	}
	if len(all.Members) != 3 || all.Members[0].Error == "" || all.Members[0].Name != "3" ||
		all.Members[1].Name != "a" || all.Members[1].Watchers != 2 {
		t.Errorf("%+v", all.Members)
	}
	if all := h.watchersOf(t.Context(), members, "a", WatchersQuery{}); all.Total != 2 ||
		len(all.Members) != 1 {
		t.Errorf("of one member: %+v", all)
	}
}

// TestTail: events wait for the reader of a tail, up to a bound; the oldest beyond it are skipped
// and counted.
func TestTail(t *testing.T) {
	x := &tail{wake: make(chan struct{}, 1), streams: &streams{}}
	revision := int64(0)
	add := func(n int, key []byte) {
		res := &etcdserverpb.WatchResponse{Header: &etcdserverpb.ResponseHeader{}}
		for range n {
			revision++
			res.Events = append(res.Events,
				&mvccpb.Event{Kv: &mvccpb.KeyValue{Key: key, ModRevision: revision,
					Value: []byte("v")}})
		}
		res.Header.Revision = revision
		x.addResponse(res, nil)
	}
	take := func() (events int, skipped int64, last int64) {
		for {
			line, rest, _ := x.takeLine()
			if line == nil {
				return events, skipped, last
			}
			skipped += line.Skipped
			for _, e := range line.Events {
				if events++; last != 0 && e.Mod != last+1 {
					t.Fatalf("revision %d after %d", e.Mod, last)
				}
				last = e.Mod
			}
			if len(line.Events) > maxTailEvents {
				t.Fatalf("a line of %d events", len(line.Events))
			}
			if !rest {
				return events, skipped, last
			}
		}
	}
	for range 3 {
		add(1500, []byte("k"))
	}
	if n, skipped, last := take(); n != 4500 || skipped != 0 || last != revision {
		t.Errorf("%d events up to %d, %d skipped", n, last, skipped)
	}
	add(maxTailQueued+7, []byte("k"))
	add(3, []byte("k"))
	if n, skipped, last := take(); n != maxTailQueued || skipped != 10 || last != revision {
		t.Errorf("%d events up to %d, %d skipped", n, last, skipped)
	}
	add(4000, make([]byte, 1<<20))
	if n, skipped, last := take(); n > maxTailBytes/maxTailKey || n < 3000 ||
		skipped != int64(4000-n) || last != revision {
		t.Errorf("%d large events up to %d, %d skipped", n, last, skipped)
	}
	if x.mu.bytes != 0 || len(x.mu.line.Events) != 0 {
		t.Errorf("%d bytes are left", x.mu.bytes)
	}
	x.streams.all = maxStreams // which have a share of the memory each
	add(4000, []byte("k"))
	if n, skipped, last := take(); n > allTailBytes/maxStreams/eventBytes || n < 2000 ||
		skipped != int64(4000-n) || last != revision {
		t.Errorf("%d events up to %d of one of many tails, %d skipped", n, last, skipped)
	}
	add(2, []byte("k"))
	x.addResponse(nil, errRefused)
	if line, _, err := x.takeLine(); err != errRefused || len(line.Events) != 2 {
		t.Errorf("%v, %v", line, err)
	}
}

// TestTailCutsKeys: a page keeps many events, and a key may be as large as a request.
func TestTailCutsKeys(t *testing.T) {
	x := &tail{wake: make(chan struct{}, 1), streams: &streams{}}
	for _, n := range []int{maxTailKey, maxTailKey + 1, 1 << 20} {
		x.addResponse(&etcdserverpb.WatchResponse{Header: &etcdserverpb.ResponseHeader{},
			Events: []*mvccpb.Event{{Kv: &mvccpb.KeyValue{Key: make([]byte, n), ModRevision: 5}}}},
			nil)
		line, _, _ := x.takeLine()
		if e := line.Events[0]; len(e.Key) != maxTailKey || e.Cut != (n > maxTailKey) {
			t.Errorf("a key of %d bytes is sent with %d, cut: %v", n, len(e.Key), e.Cut)
		}
	}
}

// TestCompare: the data of members that answer are compared at the newest revision that all have,
// by the check of the command doctor, and only for users with the role root.
func TestCompare(t *testing.T) {
	admin := true
	var asked atomic.Int64
	hashes := map[uint64]uint32{}
	s := &store{members: []*etcdserverpb.Member{{ID: 3, Name: "m3"},
		{ID: 2, Name: "m2", IsLearner: true}, {ID: 1, Name: "m1"}, {ID: 4, Name: "m4"},
		{ID: 5, Name: "m5"}}}
	h := open(t, func(c *Config) {
		c.Serve, c.Conn, c.Self.Cluster = On, s, 7
		c.RequireAdmin = func(context.Context) error {
			if admin {
				return nil
			}
			return errRefused
		}
		c.Sample = func(_ context.Context, id uint64) (*Sample, error) {
			if id == 4 {
				return nil, errRefused
			}
			st := &etcdserverpb.StatusResponse{Header: &etcdserverpb.ResponseHeader{ClusterId: 7,
				MemberId: id, Revision: 10 + int64(id)}, Leader: 1, IsLearner: id == 2}
			b, err := proto.Marshal(st)
			return &Sample{At: time.Now().UnixMilli(), Status: b}, err
		}
		c.Compare = func(_ context.Context, id uint64, revision int64) (*Comparison, error) {
			asked.Add(1)
			if revision != 11 {
				t.Errorf("compared at revision %d", revision)
			}
			x, err := NewComparison(&etcdserverpb.StatusResponse{Header: &etcdserverpb.ResponseHeader{ClusterId: 7, MemberId: id, Revision: 20}}, kv.HashResult{Hash: hashes[id], HashRevision: 11, CompactRevision: 3, Revision: 20})
			if err != nil {
				return nil, err
			}
			b, err := json.Marshal(x)
			if err != nil {
				return nil, err
			}
			return DecodeComparison(b)
		}
	})
	ask := func() (int, []comparing) {
		t.Helper()
		r := httptest.NewRequest("GET", "http://localhost/console/api/compare", nil)
		r.Header.Set(requestHeader, "1")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var lines []comparing
		for _, l := range strings.Split(strings.TrimSpace(w.Body.String()), "\n") {
			var x comparing
			if err := json.Unmarshal([]byte(l), &x); err != nil {
				t.Fatal(err, l)
			}
			lines = append(lines, x)
		}
		return w.Code, lines
	}
	for _, c := range []struct {
		hashes   map[uint64]uint32
		findings []string
	}{
		{map[uint64]uint32{1: 5, 3: 5, 5: 5}, nil},
		{map[uint64]uint32{1: 5, 3: 6, 5: 5},
			[]string{": the data of the members differ at revision 11, and no majority of them has the same"}},
	} {
		hashes = c.hashes
		asked.Store(0)
		code, lines := ask()
		if code != 200 || len(lines) != 5 || asked.Load() != 3 {
			t.Fatalf("%d, %d lines, %d members asked", code, len(lines), asked.Load())
		}
		first, result := lines[0], lines[4].Result
		if first.Revision != 11 || len(first.Members) != 5 || first.Members[0].Name != "m1" ||
			first.Members[3].Error != errRefused.Error() {
			t.Errorf("%+v", first)
		}
		for _, l := range lines[1:4] {
			id, _ := strconv.ParseUint(l.Member.ID, 16, 64)
			if l.Member.Hash == nil || *l.Member.Hash != int64(hashes[id]) ||
				l.Member.Compact != 3 {
				t.Errorf("%+v", l.Member)
			}
		}
		var found []string
		for _, f := range result.Findings {
			found = append(found, f.Member+": "+f.What)
		}
		if len(found) != len(c.findings) ||
			len(found) > 0 && !strings.HasPrefix(found[0], c.findings[0]) {
			t.Errorf("found %q, want %q", found, c.findings)
		}
		// The learner and the dead member were not compared, and that is said.
		var skipped []string
		for _, u := range result.Unchecked {
			skipped = append(skipped, u.Member)
		}
		if slices.Sort(skipped); !slices.Equal(skipped, []string{"m2", "m4"}) {
			t.Errorf("not compared: %q", skipped)
		}
	}
	h.comparing.Lock()
	if code, _ := ask(); code != http.StatusServiceUnavailable {
		t.Errorf("a second comparison at the same time: %d", code)
	}
	h.comparing.Unlock()
	admin = false
	asked.Store(0)
	if code, _ := ask(); code != http.StatusForbidden || asked.Load() != 0 {
		t.Errorf("without the role root: %d, %d members asked", code, asked.Load())
	}
	for _, wrong := range [][]byte{make([]byte, maxSample+1), []byte("x"),
		[]byte(`{"status":"//8="}`), []byte(`{"hash":"//8="}`)} {
		c, err := DecodeComparison(wrong)
		if x := c.compared(err); x.Err == nil || x.Hash != nil {
			t.Errorf("%.20q is accepted", wrong)
		}
	}
}
