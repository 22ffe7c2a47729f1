package httpd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// stalledWriter is the connection of a client that does not read: a write waits for its deadline.
type stalledWriter struct {
	http.ResponseWriter
	writing chan struct{}
	cut     chan struct{}
	once    sync.Once
}

func newStalledWriter() *stalledWriter {
	return &stalledWriter{ResponseWriter: httptest.NewRecorder(), writing: make(chan struct{}),
		cut: make(chan struct{})}
}

func (w *stalledWriter) Write([]byte) (int, error) {
	close(w.writing)
	<-w.cut
	return 0, errors.New("too late")
}

func (w *stalledWriter) SetWriteDeadline(t time.Time) error {
	if t.Before(time.Now()) {
		w.once.Do(func() { close(w.cut) })
	}
	return nil
}

// TestPages: the pages that wait for their clients are bounded: the connections of those that have
// waited longest are closed. A page is made although others wait for their clients.
func TestPages(t *testing.T) {
	const size, most = 1000, 10
	p := newPages(most * size)
	var making sync.WaitGroup
	h := p.handler(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		w.Write(make([]byte, size))
	}))
	var writers []*stalledWriter
	for i := range 3 * most {
		w := newStalledWriter()
		making.Go(func() { h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil)) })
		<-w.writing // it is made, although others wait for their clients
		writers = append(writers, w)
		if i >= most {
			<-writers[i-most].cut
		}
		p.mu.Lock()
		if p.mu.bytes > most*size || p.mu.waiting.Len() > most {
			t.Errorf("after %d pages %d bytes of %d pages wait", i+1, p.mu.bytes,
				p.mu.waiting.Len())
		}
		p.mu.Unlock()
	}
	for _, w := range writers[2*most:] {
		select {
		case <-w.cut:
			t.Error("a connection was closed although there is room for its page")
		default:
		}
		w.SetWriteDeadline(time.Unix(1, 0))
	}
	making.Wait()
	if p.mu.bytes != 0 || p.mu.waiting.Len() != 0 {
		t.Errorf("%d bytes of %d pages are left", p.mu.bytes, p.mu.waiting.Len())
	}
	// A page that is larger than all may be is sent alone.
	large := newPages(size / 2)
	rec := httptest.NewRecorder()
	large.handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X", "y")
		w.WriteHeader(http.StatusTeapot)
		w.Write(make([]byte, size))
	})).ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
	if rec.Code != http.StatusTeapot || rec.Body.Len() != size || rec.Header().Get("X") != "y" {
		t.Errorf("%d, %d bytes, %v", rec.Code, rec.Body.Len(), rec.Header())
	}
}

// TestUnreadPagesLeaveRoom: clients that read no page, however many, keep nobody from a page, also
// if they share the page that waits, and have the address of those that read.
func TestUnreadPagesLeaveRoom(t *testing.T) {
	p := newPages(1 << 20)
	shared := &madePage{header: http.Header{}}
	shared.body.WriteByte('x')
	h := boundRequests(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := shared
		if r.URL.Path != "/metrics" {
			page = &madePage{header: http.Header{}}
			page.body.WriteByte('y')
		}
		p.sendPage(w, page)
	}))
	var running sync.WaitGroup
	var writers []*stalledWriter
	for i := range maxPages {
		w := newStalledWriter()
		writers = append(writers, w)
		ended := make(chan struct{})
		running.Go(func() {
			defer close(ended)
			h.ServeHTTP(w, httptest.NewRequest("GET",
				[]string{"/metrics", "/debug/vars"}[i%2], nil))
		})
		select {
		case <-w.writing:
		case <-ended:
		}
		if rec := httptest.NewRecorder(); i%100 == 99 {
			h.ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
			if rec.Code != http.StatusOK {
				t.Fatalf("next to %d requests for pages that nobody reads: %d %s", i+1,
					rec.Code, rec.Body)
			}
		}
	}
	for _, w := range writers {
		w.SetWriteDeadline(time.Unix(1, 0))
	}
	running.Wait()
	if p.mu.bytes != 0 || p.mu.unread != 0 || p.mu.waiting.Len() != 0 {
		t.Errorf("%d bytes and %d requests of %d pages are left", p.mu.bytes, p.mu.unread,
			p.mu.waiting.Len())
	}
}

// waitingContext counts the calls that wait for its end.
type waitingContext struct {
	context.Context
	waiting *atomic.Int64
}

func (c waitingContext) Done() <-chan struct{} {
	c.waiting.Add(1)
	return c.Context.Done()
}

// TestSharedPages: requests that wait while a page is made get the next one, all the same, which is
// made after they have come. A client that leaves, or whose page waits, does not keep the others
// from theirs.
func TestSharedPages(t *testing.T) {
	begun, release := make(chan int), make(chan struct{})
	var made atomic.Int64
	p := newPages(1 << 20)
	h := p.shared(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(made.Add(1))
		begun <- n
		<-release
		fmt.Fprint(w, n)
	}))
	var asking sync.WaitGroup
	ask := func(ctx context.Context) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		asking.Go(func() {
			h.ServeHTTP(w,
				httptest.NewRequest("GET", "/metrics", nil).WithContext(ctx))
		})
		return w
	}
	places := max(2, runtime.GOMAXPROCS(0))
	var first []*httptest.ResponseRecorder
	for i := range places { // all places are taken
		first = append(first, ask(t.Context()))
		if n := <-begun; n != i+1 {
			t.Fatalf("page %d begins as number %d", n, i+1)
		}
	}
	leaving, leave := context.WithCancel(t.Context())
	var waiting atomic.Int64
	ask(waitingContext{leaving, &waiting})
	var rest []*httptest.ResponseRecorder
	for range 100 {
		rest = append(rest, ask(waitingContext{t.Context(), &waiting}))
	}
	for waiting.Load() < 101 {
		runtime.Gosched()
	}
	leave()
	for range places {
		release <- struct{}{}
	}
	go func() { // the next pages: one, and another one for a request that counted twice and comes late
		for range begun {
			release <- struct{}{}
		}
	}()
	asking.Wait()
	close(begun)
	for i, w := range first {
		if w.Body.String() != fmt.Sprint(i+1) {
			t.Errorf("request %d got page %q", i+1, w.Body)
		}
	}
	for _, w := range rest {
		if n, err := strconv.Atoi(w.Body.String()); err != nil || n <= places {
			t.Errorf("a later request got page %q", w.Body)
		}
	}
	if n := int(made.Load()); n > places+2 {
		t.Errorf("%d pages were made for 100 requests that waited", n-places)
	}
	if p.mu.bytes != 0 || p.mu.waiting.Len() != 0 {
		t.Errorf("%d bytes of %d pages are left", p.mu.bytes, p.mu.waiting.Len())
	}
}

// TestRequests: the requests of a client are bounded by what is left, so that another one is
// served.
func TestRequests(t *testing.T) {
	const most = 100
	release := make(chan struct{})
	var running sync.WaitGroup
	entered := make(chan struct{})
	q := newRequests(most, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-release
	}))
	// ask returns whether a request is served, which goes on until release.
	ask := func(host string) bool {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = host
		ended := make(chan struct{})
		running.Go(func() {
			defer close(ended)
			q.ServeHTTP(w, r)
		})
		select {
		case <-entered:
			return true
		case <-ended:
			if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
				t.Errorf("%d %v", w.Code, w.Header())
			}
			return false
		}
	}
	count := func(host string) (n int) {
		for ask(strings.ReplaceAll(host, "N", fmt.Sprint(n+1))) {
			n++
		}
		return n
	}
	if first, second, socket := count("10.0.0.1:N"), count("[2001:db8::N]:1"),
		count("@"); first != most/2 || second != most/4 || socket == 0 {
		t.Errorf("three clients have %d, %d and %d requests of %d", first, second, socket, most)
	}
	if !ask("10.0.0.3:1") {
		t.Error("a new client has no room for one request")
	}
	close(release)
	running.Wait()
	if q.mu.all != 0 || len(q.mu.of) != 0 {
		t.Errorf("%d requests are left, of %v", q.mu.all, q.mu.of)
	}
}

// TestStreamsLeaveRoom: a proxy whose clients have as many streams as one address may have can
// still probe the member, and an operator next to it sees its pages.
func TestStreamsLeaveRoom(t *testing.T) {
	release, entered := make(chan struct{}), make(chan struct{})
	h, err := New(Config{Health: &fakeMember{leader: 1}, Registry: prometheus.NewRegistry(),
		CheckTimeout: time.Minute,
		Versions:     func() Versions { return Versions{} },
		Gateway: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			entered <- struct{}{}
			<-release
		})})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(path string) int {
		w := httptest.NewRecorder()
		h.Client.ServeHTTP(w, httptest.NewRequest("GET", path, nil)) // all of one address
		return w.Code
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer close(release)
	for range maxRequests / 2 {
		running.Go(func() { ask("/v3/watch") })
		<-entered
	}
	if code := ask("/v3/watch"); code != http.StatusServiceUnavailable {
		t.Errorf("one stream more: %d", code)
	}
	for _, path := range []string{"/health", "/livez", "/readyz", "/readyz/linearizable_read",
		"/metrics", "/version", "/debug/vars"} {
		if code := ask(path); code != http.StatusOK {
			t.Errorf("%s: %d next to as many streams as an address may have", path, code)
		}
	}
}
