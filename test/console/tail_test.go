package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/debugger"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"vigil/test/proc"
)

// counted is what a tail says of the events that it has received.
var counted, skippedCount = regexp.MustCompile(`([\d,]+) in all`),
	regexp.MustCompile(`([\d,]+) skipped`)

// counts returns how many events a tail has received, and how many it says that it has skipped.
func (b *browser) counts() (events, skipped int) {
	b.t.Helper()
	number := func(s string) int {
		n, _ := strconv.Atoi(strings.ReplaceAll(s, ",", ""))
		return n
	}
	text := b.text()
	m := counted.FindStringSubmatch(text)
	if m == nil {
		b.t.Fatalf("the tail counts nothing:\n%s", text)
	}
	if s := skippedCount.FindStringSubmatch(text); s != nil {
		skipped = number(s[1])
	}
	return number(m[1]), skipped
}

// work returns the seconds that the tab has worked, by kind.
func (b *browser) work() map[string]float64 {
	b.t.Helper()
	out := map[string]float64{}
	for _, m := range call(b, performance.GetMetrics, cdp.Empty{}).Metrics {
		out[m.Name] = m.Value
	}
	return out
}

// write writes events at a rate, with many in flight, so that the answer to one does not delay the
// next. It returns how long that took, and the newest revision.
func write(t *testing.T, c *clientv3.Client, events,
	perSecond int) (took time.Duration, last int64) {
	t.Helper()
	next := make(chan int)
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for i := range next {
				res, err := c.Put(t.Context(), fmt.Sprintf("load/%03d", i%1000),
					fmt.Sprint("the value ", i))
				if err != nil {
					t.Error(err)
					continue
				}
				mu.Lock()
				last = max(last, res.Header.Revision)
				mu.Unlock()
			}
		})
	}
	start := time.Now()
	for i := range events {
		time.Sleep(time.Until(start.Add(time.Duration(i/10) * 10 * time.Second / time.Duration(perSecond))))
		next <- i
	}
	close(next)
	all.Wait()
	return time.Since(start), last
}

// TestTail writes 1,000 events a second, and compares what the page has counted with what was
// written: every event arrives or is said to be skipped, and meanwhile the page answers its reader.
// It prints the rate, how long the page stood still, and where time went.
func TestTail(t *testing.T) {
	chromium(t)
	seconds := 12
	if testing.Short() {
		seconds = 4
	}
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	c := connect(t, m, "")
	b := newBrowser(t, "http://"+m.Addr())
	call(b, performance.Enable, performance.EnableParams{})
	b.open("watches?tail=load/")
	b.shows("No event yet")
	b.until(`!document.body.innerText.includes("(connecting)")`)
	// The times between the frames of the page.
	eval[any](b, `window.gaps = [], (function frame(last) { requestAnimationFrame((t) => { gaps.push(t - last); frame(t); }); })(performance.now()), 0`)
	server, viewer, page, start := cpu(t, m), b.cpu(), b.work(), time.Now()
	done := make(chan struct{})
	written := 1000 * seconds
	var took time.Duration
	var last int64
	go func() {
		defer close(done)
		took, last = write(t, c, written, 1000)
	}()
	b.until(`document.getElementById("tail-counts").innerText.includes("000 in all") || /[1-9],[0-9]{3} in all/.test(document.getElementById("tail-counts").innerText)`)
	const press = `new Promise((done) => { const b = [...document.querySelectorAll("button")].find((e) => /^(Pause|Continue)$/.test(e.innerText)), was = b.innerText, t = performance.now(); b.click();
		(function wait() { b.innerText === was ? requestAnimationFrame(wait) : done(performance.now() - t); })(); })`
	pause := eval[float64](b, press, chromedp.EvalAwaitPromise)
	again := eval[float64](b, press, chromedp.EvalAwaitPromise)
	<-done
	b.until(fmt.Sprintf(`document.getElementById("tail-counts").innerText.includes("revision %d")`,
		last))
	b.until(fmt.Sprintf(`document.body.innerText.includes("the value %d")`, written-1))
	arrived := time.Since(start)
	events, skipped := b.counts()
	if events+skipped != written {
		t.Errorf("%d events were written, %d arrived and %d were skipped: %d were lost in silence",
			written, events, skipped, written-events-skipped)
	}
	rate := float64(written) / took.Seconds()
	if rate < 950 && os.Getenv("VIGIL_LARGE") != "" {
		t.Errorf("%.0f events a second were written, want 1,000: this machine is too busy for the test", rate)
	}
	now := b.work()
	t.Logf("%d events written in %.2f s (%.0f/s), all shown %.2f s later, %d skipped; processor time for 1,000 events: member %.0f ms, browser %.0f ms; time of the page, in which others may have run: %.0f ms, of which script %.0f, style %.0f, layout %.0f; heap %.1f MiB",
		written, took.Seconds(), rate, (arrived - took).Seconds(), skipped,
		1e6*(cpu(t, m)-server)/float64(written), 1e6*(b.cpu()-viewer)/float64(written),
		1e6*(now["TaskDuration"]-page["TaskDuration"])/float64(written),
		1e6*(now["ScriptDuration"]-page["ScriptDuration"])/float64(written),
		1e6*(now["RecalcStyleDuration"]-page["RecalcStyleDuration"])/float64(written),
		1e6*(now["LayoutDuration"]-page["LayoutDuration"])/float64(written), b.heap())
	gaps := eval[[]float64](b, "gaps")
	slices.Sort(gaps)
	t.Logf("between two of %d frames: %.0f ms at the median, %.0f ms at 99 of 100, %.0f ms at most; Pause took %.0f ms, Continue %.0f ms", len(gaps), gaps[len(gaps)/2], gaps[len(gaps)*99/100], gaps[len(gaps)-1], pause, again)
	if pause > 2000 || again > 2000 {
		t.Errorf("a click took %.0f and %.0f ms under load", pause, again)
	}
	b.click("Pause")
	b.shows("events are still counted")

	// A stream that is cut continues where it ended.
	m.Kill()
	b.shows("(connecting)")
	m.Restart()
	put(t, connect(t, m, ""), "load/after", "the end of the pause")
	written++
	b.click("Continue")
	b.shows("the end of the pause")
	if events, skipped := b.counts(); events+skipped != written {
		t.Errorf("after a restart of the member: %d arrived and %d were skipped of %d", events,
			skipped, written)
	}
	b.check()
}

// TestSlowTail: a page that does not read for a while says how many events were skipped.
func TestSlowTail(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	chromium(t)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	c := connect(t, m, "")
	b := newBrowser(t, "http://"+m.Addr())
	b.open("watches?tail=load/")
	b.shows("No event yet")
	b.until(`!document.body.innerText.includes("(connecting)")`)
	// The page stands still while the events are written: what the connection does not hold waits
	// in the member, up to a bound.
	call(b, debugger.Enable, debugger.EnableParams{})
	eval[any](b, `setTimeout(() => { debugger }), 0`)
	written := 0
	for written < 120_000 { // more than all buffers on the way hold
		var ops []clientv3.Op
		for range 100 {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("load/%03d", written%1000),
				fmt.Sprint("the value ", written, " ", strings.Repeat("x", 150))))
			written++
		}
		if _, err := c.Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	// The watcher of the tail does not wait for its reader: a watcher that lags would hold up what
	// is distributed to it, and be read from the history.
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		w := watchersOf(t, m, "console")
		if len(w) == 1 && w[0].Lag == 0 && w[0].State == "live" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the watcher of a tail whose reader stands still: %+v", w)
		}
	}
	call(b, debugger.Resume, debugger.ResumeParams{})
	b.until(fmt.Sprintf(`document.body.innerText.includes("the value %d ")`, written-1))
	events, skipped := b.counts()
	t.Logf("%d events written, %d arrived, %d skipped", written, events, skipped)
	if events+skipped != written || skipped == 0 {
		t.Errorf("%d events were lost in silence, %d were skipped", written-events-skipped, skipped)
	}
	b.check()
}

type watcher struct {
	Lag   int64
	State string
}

// watchersOf returns the watchers whose client or key has a text.
func watchersOf(t *testing.T, m *proc.Server, filter string) []watcher {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET",
		"http://"+m.Addr()+"/console/api/watchers?filter="+url.QueryEscape(filter), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Vigil-Console", "1")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var all struct{ Watchers []watcher }
	if err := json.NewDecoder(res.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all.Watchers
}
