package kill

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"vigil/test/proc"
)

// TestStop ends a server in the ordinary way while clients are at work: it exits with 0 and soon,
// has nothing to complain about, and lost nothing. (A stock etcd ends by the signal instead, and
// after seconds.)
func TestStop(t *testing.T) {
	s := proc.Start(t, proc.Config{Program: proc.Vigil})
	c := dial(t, s)
	ctx := proc.Context(t)
	watch := c.Watch(ctx, "k")
	for round := range 3 {
		for i := range 20 {
			if _, err := c.Put(ctx, "k", fmt.Sprint(round, i)); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		if code := s.Stop(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		t.Logf("stopped in %s", time.Since(start).Round(time.Millisecond))
		for line := range strings.Lines(s.Log().String()) {
			if strings.Contains(line, `"level":"error"`) {
				t.Errorf("logged: %s", line)
			}
		}
		s.Restart()
	}
	got, err := dial(t, s).Get(ctx, "k")
	if err != nil || got.Header.Revision != 61 || got.Kvs[0].Version != 60 {
		t.Errorf("after the restarts: %v %v", got, err)
	}
	n := 0
	for r := range watch {
		if err := r.Err(); err != nil {
			t.Fatal(err)
		}
		if n += len(r.Events); n >= 60 {
			break
		}
	}
	if n != 60 {
		t.Errorf("the watcher saw %d events", n)
	}
}
