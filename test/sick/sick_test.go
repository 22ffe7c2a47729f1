package sick

import (
	"flag"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"vigil/test/proc"
)

var rewrite = flag.Bool("rewrite", false,
	"write testdata/views.md with what the views say")

// TestSicknesses makes a cluster sick in each way of the table, and waits until each view says what
// it must.
func TestSicknesses(t *testing.T) {
	if proc.Subject() != proc.Vigil {
		t.Skip("the views are Vigil's")
	}
	p := &page{seen: map[string][4]string{}}
	t.Run("all", func(t *testing.T) {
		for _, s := range table {
			if testing.Short() && !s.short {
				continue
			}
			t.Run(strings.ReplaceAll(s.name, " ", "-"), func(t *testing.T) {
				t.Parallel()
				p.add(s, check(t, s))
			})
		}
	})
	if *rewrite && !t.Failed() {
		if len(p.seen) < len(table) {
			t.Fatal("-rewrite needs all sicknesses: root, without -short and -run")
		}
		if err := os.WriteFile(pagePath, []byte(p.render()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// check brings a sickness about and returns what the views say of it.
func check(t *testing.T, s sickness) [4]view {
	t.Helper()
	g := begin(t, s.options)
	began := time.Now()
	for _, m := range g.list {
		m.logged = len(m.Log().String())
	}
	s.cause(g)
	caused := time.Since(began)
	asks := max(s.asks, 1)
	if g.live == nil && s.console.has != nil {
		g.live = g.follow(g.m(asks))
	}
	logs := g.m(max(s.logs, 1))
	reads := [4]func() view{func() view { return g.doctor(s.args...) }, g.top,
		func() view { return g.live.view() }, func() view { return logs.log() }}
	var seen [4]view
	var wg sync.WaitGroup
	for i, w := range s.words() {
		if w.has == nil {
			continue
		}
		wg.Go(func() {
			var missing string
			for end := time.Now().Add(max(s.notices,
				patience)); ; time.Sleep(300 * time.Millisecond) {
				seen[i] = reads[i]()
				if missing = w.wrong(seen[i]); missing == "" {
					t.Logf("%s: %v after the cause", viewNames[i],
						time.Since(began).Round(100*time.Millisecond))
					return
				}
				if time.Now().After(end) {
					t.Errorf("%s %s\n%s", viewNames[i], missing, tail(seen[i]))
					return
				}
			}
		})
	}
	wg.Wait()
	t.Logf("the cause took %v, all %v", caused.Round(100*time.Millisecond),
		time.Since(began).Round(100*time.Millisecond))
	for i := range seen {
		seen[i] = g.constant(s.words()[i].pick(seen[i]))
		for _, entry := range seen[i] {
			t.Logf("%s: %s", viewNames[i], entry)
		}
	}
	return seen
}

// tail returns the last lines of a view.
func tail(v view) string {
	const most = 60
	return strings.Join(v[max(0, len(v)-most):], "\n")
}
