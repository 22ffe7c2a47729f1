package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vigil/sim/world"
)

// TestLog: each run adds a line, and the sum counts them all.
func TestLog(t *testing.T) {
	o := &options{log: filepath.Join(t.TempDir(), "log")}
	g := &world.Guest{Version: "1a2b3c4d"}
	for _, r := range []*tally{
		{began: time.Now(), done: 3, simulated: 90 * time.Minute},
		{began: time.Now(), done: 2, failed: 1, simulated: 30 * time.Minute,
			kinds: kinds{"a kind": {plans: 1, first: job{again: "-seed 7"}}}},
	} {
		if err := o.appendLog(g, r); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(o.log)
	if err != nil || strings.Count(string(b), "\n") != 2 ||
		!strings.Contains(string(b), "-seed 7") {
		t.Errorf("the log is %q, %v", b, err)
	}
	if got := sumLog(string(b)); got != "5 plans, 2.00 cluster-hours, 1 failed" {
		t.Errorf("the sum is %s", got)
	}
}
