package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vigil/sim/check"
	"vigil/sim/scenario"
	"vigil/sim/world"
)

// TestOptions: wrong options are rejected before anything is built.
func TestOptions(t *testing.T) {
	dir := t.TempDir()
	for want, change := range map[string]func(o *options){
		"":                 func(o *options) {},
		"-seed \"x\"":      func(o *options) { o.seed = "x" },
		"-seed \"1@\"":     func(o *options) { o.seed = "1@" },
		"must be at least": func(o *options) { o.seeds = 0 },
		"not be negative":  func(o *options) { o.hours = -1 },
		"-minutes must":    func(o *options) { o.minutes = -1 },
		"-minutes is":      func(o *options) { o.minutes, o.plan = 2, "p" },
		"-profile is":      func(o *options) { o.profile, o.plan = "reads", "p" },
		"-profile: no":     func(o *options) { o.profile = "x" },
		"only one of":      func(o *options) { o.plan, o.hours = "p", 1 },
		"has no use":       func(o *options) { o.seed, o.plan = "1@2", "p" },
		"-trace":           func(o *options) { o.seeds, o.trace = 2, "-" },
		"-format \"x\"":    func(o *options) { o.format = "x" },
		"-planted takes":   func(o *options) { o.planted, o.plan = "no-sync", "p" },
		"seeds from it on": func(o *options) { o.seed, o.seeds = "5", 1<<64-1 },
		"from it on":       func(o *options) { o.seed = "18446744073709551615" },
		"-hours or -plant": func(o *options) { o.seed, o.planted = "1@2", "no-sync" },
		"not for -planted": func(o *options) {
			o.planted, o.log = "no-sync",
				filepath.Join(dir, "log")
		},
		"-log cannot be":   func(o *options) { o.log = filepath.Join(dir, "none", "log") },
		"-trace cannot be": func(o *options) { o.trace = filepath.Join(dir, "none", "trace") },
		"are one file": func(o *options) {
			o.log, o.trace = filepath.Join(dir, "x"),
				filepath.Join(dir, "x")
		},
		"is not expected":  nil,
		"seed 7@0bad is n": func(o *options) { o.seed = "7@0bad" },
	} {
		o := options{seed: "7", seeds: 1, parallel: 1, replays: 1, format: "text"}
		var rest []string
		if change != nil {
			change(&o)
		} else {
			rest = []string{"rest"}
		}
		first, version, err := o.check(rest)
		if err == nil {
			err = o.checkVersion(version, "1a2b")
		}
		if want == "" {
			if err != nil || first != 7 {
				t.Errorf("seed %d: %v", first, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q: %v", want, err)
		}
	}
}

// TestFailure: a failure shows the plainest violation, its time, and how to repeat it; a run groups
// failures by kind.
func TestFailure(t *testing.T) {
	f := newFailure(job{name: "seed 3@ab", again: "-seed 3@ab"},
		scenario.Result{At: 4 * time.Second, Line: 77, Violations: check.Violations{
			"m0 ended by itself at 3s: exit",
			"an acknowledged write is lost: a long text about revision 7 and more",
			"an acknowledged write is lost: revision 7",
		}})
	for _, want := range []string{"seed 3@ab failed", "4s", "line 77",
		"trace\n  an acknowledged write is lost: revision 7\n", "2 times: an acknowledged write is",
		"again: simulate -seed 3@ab -trace -\n"} {
		if !strings.Contains(f.String(), want) {
			t.Errorf("%q is missing:\n%s", want, f)
		}
	}
	for violation, want := range map[string]string{
		"m0 ended by itself at 3s: exit": "end of a process",
		"the first write to the members after the faults had ended at 25s was acknowledged at 0s": "no recovery",
		"failed without a fault: client 3": "no recovery",
		"the count is wrong":               "check",
	} {
		if by, _ := plainest(check.Violations{violation}); by != want {
			t.Errorf("%q is found by %q, want %q", violation, by, want)
		}
	}
	tally := tally{began: time.Now()}
	tally.add(nil, time.Hour)
	tally.add(f, time.Hour)
	tally.add(f, time.Hour)
	log := options{log: filepath.Join(t.TempDir(), "log")}
	for range 2 {
		if err := log.appendLog(&world.Guest{Version: "ab"}, &tally); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(log.log)
	if err != nil || strings.Count(string(b), "\n") != 2 ||
		!strings.Contains(string(b), "version ab: 3 plans, 3.00 cluster-hours") ||
		!strings.Contains(string(b),
			`2 failed by "an acknowledged write is", the first is: simulate -seed 3@ab`) {
		t.Errorf("%s, %v", b, err)
	}
}

// TestCorpus: every plan of the corpus can be run, and says what it once found.
func TestCorpus(t *testing.T) {
	names, err := corpusFiles("../../corpus")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		c, err := scenario.ReadCase(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if c.Cause == "" || c.Violation == "" {
			t.Errorf("%s has no cause or violation", name)
		}
		if c.Mistake != "" {
			if plans, err := plansFor("../../corpus", c.Mistake); err != nil || len(plans) == 0 {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
