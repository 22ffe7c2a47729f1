package console

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"vigil/test/proc"
)

// heap returns the JavaScript memory of the tab in MiB, after a collection.
func (b *browser) heap() float64 {
	b.t.Helper()
	return eval[float64](b, "performance.memory.usedJSHeapSize") / (1 << 20)
}

// stat returns the parent of a process, and the processor time in seconds that it and its children
// that have ended took.
func stat(pid int) (parent int, seconds float64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	f := strings.Fields(string(b)[strings.LastIndexByte(string(b), ')')+1:])
	parent, _ = strconv.Atoi(f[1])
	for _, ticks := range f[11:15] {
		n, _ := strconv.ParseFloat(ticks, 64)
		seconds += n / 100
	}
	return parent, seconds, nil
}

// cpu returns the processor time of a member, in seconds.
func cpu(t *testing.T, m *proc.Server) float64 {
	t.Helper()
	_, seconds, err := stat(m.Pid())
	if err != nil {
		t.Fatal(err)
	}
	return seconds
}

// cpu returns the processor time of all processes of the browser, in seconds.
func (b *browser) cpu() (seconds float64) {
	b.t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		b.t.Fatal(err)
	}
	parents, times, main := map[int]int{}, map[int]float64{}, 0
	for _, name := range list {
		pid, _ := strconv.Atoi(filepath.Base(name))
		parent, s, err := stat(pid)
		if err != nil {
			continue // it has ended
		}
		parents[pid], times[pid] = parent, s
		if line, _ := os.ReadFile(name + "/cmdline"); strings.Contains(string(line),
			"--user-data-dir="+b.dir) && !strings.Contains(string(line), "--type=") &&
			!strings.Contains(string(line), "crashpad") {
			main = pid
		}
	}
	if main == 0 {
		b.t.Fatal("the process of the browser is not found")
	}
	for pid := range parents {
		for up := pid; up > 1; up = parents[up] {
			if up == main {
				seconds += times[pid]
				break
			}
		}
	}
	return seconds
}

// TestLarge measures the console with a million keys, 20,000 in its short form, and with ten
// readers. It prints figures, and fails where a view does not work, or keeps more than a page in
// memory.
func TestLarge(t *testing.T) {
	chromium(t)
	keys, large := 20_000, os.Getenv("VIGIL_LARGE") != ""
	if large {
		keys = 1_000_000
	}
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	c := connect(t, m, "")
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for first := w * 100; first < keys; first += 800 {
				var ops []clientv3.Op
				for i := first; i < first+100; i++ {
					ops = append(ops, clientv3.OpPut(fmt.Sprintf("registry/kind%02d/namespace%03d/object%06d", i%20, i/20%500, i), "a value of some bytes"))
				}
				if _, err := c.Txn(t.Context()).Then(ops...).Commit(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b := newBrowser(t, "http://"+m.Addr())
	open := func(view string, shows ...string) {
		t.Helper()
		start := time.Now()
		b.run(chromedp.Navigate(b.url + "/console/#/" + view))
		b.shows(shows...)
		if heap := b.heap(); heap > 32 {
			t.Errorf("%s: %.1f MiB in the tab", view, heap)
		}
		// the text is there before it is painted
		b.until(`performance.getEntriesByName("first-contentful-paint").length`)
		b.t.Logf("%-60s first paint %4.0f ms, shown after %4d ms, heap %.1f MiB", view,
			eval[float64](b, `performance.getEntriesByName("first-contentful-paint")[0].startTime`),
			time.Since(start).Milliseconds(), b.heap())
		b.run(chromedp.Navigate("about:blank"))
	}
	open("keys", "registry/",
		strings.Replace(fmt.Sprintf("%d,000 keys", keys/1000), "1000,", "1,000,", 1))
	open("keys?prefix=registry/kind07/", "namespace000/", "keys")
	open("keys?prefix=registry/kind07/namespace000/", "object000007")
	open("keys?sep=none", "object000000", "more…")
	open("keys?mode=pattern&q=object019999", "searched")
	open("history", "500 changes in")
	open("history?k=registry/kind07/namespace000/object000007", "1 revision")

	if !large {
		b.check()
		return
	}
	idle := cpu(t, m)
	time.Sleep(10 * time.Second)
	idle = cpu(t, m) - idle
	b.run(chromedp.Navigate(b.url + "/console/#/overview"))
	b.shows("1 of 1 members answer")
	one := cpu(t, m)
	time.Sleep(10 * time.Second)
	one = cpu(t, m) - one
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 9 {
		readers.Go(func() { follow(ctx, b.url+"/console/api/live") })
	}
	ten := cpu(t, m)
	time.Sleep(10 * time.Second)
	ten = cpu(t, m) - ten
	cancel()
	readers.Wait()
	t.Logf("processor time in 10 s: %.2f s without a reader, %.2f s with one, %.2f s with ten",
		idle, one, ten)

	// The same while 1,000 events a second are written: without a tail, and with ten.
	loaded := func() float64 {
		before := cpu(t, m)
		if took, _ := write(t, c, 10_000, 1000); took > 11*time.Second {
			t.Errorf("10,000 events in %v: this machine is too busy for the test", took)
		}
		return cpu(t, m) - before
	}
	b.run(chromedp.Navigate("about:blank"))
	none := loaded()
	ctx, cancel = context.WithCancel(t.Context())
	for range 10 {
		readers.Go(func() {
			follow(ctx,
				b.url+"/console/api/tail?prefix="+url.QueryEscape(b64("load/")))
		})
	}
	for end := time.Now().Add(patience); len(watchersOf(t, m,
		"console")) < 10; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the tails do not begin")
		}
	}
	tails := loaded()
	cancel()
	readers.Wait()
	t.Logf("processor time while 10,000 events are written in 10 s: %.2f s without a tail, %.2f s with ten", none, tails)

	b.check()
}
