package console

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/debugger"
	"github.com/chromedp/cdproto/performance"
	clientv3 "go.etcd.io/etcd/client/v3"
	"vigil/test/proc"
)

// counted is what a tail says of the events that it has received.
var counted, skippedCount = regexp.MustCompile(`([\d,]+) in all`), regexp.MustCompile(`([\d,]+) skipped`)

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

// TestTail writes 1,000 events a second, as far as this machine allows, and compares what the page has counted with what was written: every
// event arrives or is said to be skipped. It prints where time went.
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
	server, page, start := cpu(t, m), b.work(), time.Now()
	written, last := 0, int64(0)
	for at := start; written < 1000*seconds; at = at.Add(10 * time.Millisecond) {
		time.Sleep(time.Until(at)) // does not wait if the machine was too slow: the rate is kept on average
		var ops []clientv3.Op
		for range 10 {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("load/%03d", written%1000), fmt.Sprint("the value ", written)))
			written++
		}
		res, err := c.Txn(t.Context()).Then(ops...).Commit()
		if err != nil {
			t.Fatal(err)
		}
		last = res.Header.Revision
	}
	took := time.Since(start)
	b.until(fmt.Sprintf(`document.getElementById("tail-counts").innerText.includes("revision %d")`, last))
	b.until(fmt.Sprintf(`document.body.innerText.includes("the value %d")`, written-1))
	arrived := time.Since(start)
	events, skipped := b.counts()
	if events+skipped != written {
		t.Errorf("%d events were written, %d arrived and %d were skipped: %d were lost in silence", written, events, skipped, written-events-skipped)
	}
	now := b.work()
	t.Logf("%d events written in %.2f s (%.0f/s), all shown %.2f s later, %d skipped; processor time for 1,000 events: member %.0f ms; page %.0f ms, of which script %.0f, style %.0f, layout %.0f; heap %.1f MiB",
		written, took.Seconds(), float64(written)/took.Seconds(), (arrived - took).Seconds(), skipped, 1e6*(cpu(t, m)-server)/float64(written),
		1e6*(now["TaskDuration"]-page["TaskDuration"])/float64(written), 1e6*(now["ScriptDuration"]-page["ScriptDuration"])/float64(written),
		1e6*(now["RecalcStyleDuration"]-page["RecalcStyleDuration"])/float64(written), 1e6*(now["LayoutDuration"]-page["LayoutDuration"])/float64(written), b.heap())
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
		t.Errorf("after a restart of the member: %d arrived and %d were skipped of %d", events, skipped, written)
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
	// The page stands still while the events are written: what the connection does not hold waits in the member, up to a bound.
	call(b, debugger.Enable, debugger.EnableParams{})
	eval[any](b, `setTimeout(() => { debugger }), 0`)
	written := 0
	for written < 60_000 {
		var ops []clientv3.Op
		for range 100 {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("load/%03d", written%1000), fmt.Sprint("the value ", written, " ", strings.Repeat("x", 150))))
			written++
		}
		if _, err := c.Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
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
