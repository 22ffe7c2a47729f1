package scenario

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"vigil/sim/scenario/setup"
)

// TestNewPlan: a seed always has the same plan, which is valid and leaves out half of the kinds of
// faults and work.
func TestNewPlan(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(200) {
		p := NewPlan(seed)
		if q := NewPlan(seed); !reflect.DeepEqual(p, q) {
			t.Fatalf("seed %d: %+v and %+v", seed, p, q)
		}
		if err := p.validate(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		used := map[string]bool{}
		for _, f := range p.Faults {
			used[f.Kind], seen[f.Kind] = true, true
			if f.At >= p.Faulty {
				t.Errorf("seed %d: it begins when all faults have ended: %v", seed, f)
			}
			c := setup.Client{Wave: int64(p.Wave), Lull: int64(p.Lull), Healed: int64(p.Faulty)}
			if left := c.LullLeft(int64(f.At)); left != 0 {
				t.Errorf("seed %d: it begins %v before the end of a lull: %v", seed,
					time.Duration(left), f)
			}
		}
		if most := (len(kinds()) + 1) / 2; len(used) > most {
			t.Errorf("seed %d has %d kinds of faults, more than %d", seed, len(used), most)
		}
		// The work on users or on the quota is added.
		if most := (len(setup.Works)+1)/2 + 1; len(p.Work) > most {
			t.Errorf("seed %d has the work %q, more than half", seed, p.Work)
		}
		for _, w := range p.Work {
			seen[w] = true
		}
	}
	for _, k := range slices.Concat(kinds(), setup.Works, []string{setup.Users, setup.Quota}) {
		if !seen[k] {
			t.Errorf("no seed has %q", k)
		}
	}
}

// TestShrink: the smallest plan has what the failure needs, and nothing else.
func TestShrink(t *testing.T) {
	p := Plan{Seed: 1, Members: 5, Places: 7, Clients: 2, Workers: 6, Watchers: 4,
		Faulty: time.Minute, Work: []string{"a", "b", "c"}}
	for n := range 40 {
		p.Faults = append(p.Faults,
			Fault{Kind: "kill", At: time.Duration(n) * time.Second, For: 10 * time.Second, A: n % 5,
				B: theLeader, Seed: uint64(n)})
	}
	runs := 0
	fails := func(q Plan) bool {
		runs++
		has := func(n uint64, least time.Duration) bool {
			return slices.ContainsFunc(q.Faults,
				func(f Fault) bool { return f.Seed == n && f.For >= least })
		}
		return has(7, time.Second) && has(23, 0) && slices.Contains(q.Work, "b") && q.Workers >= 3
	}
	q := Shrink(p, fails)
	if len(q.Faults) != 2 || q.Faults[0].Seed != 7 || q.Faults[0].For > 4*time.Second ||
		q.Faults[1].Seed != 23 {
		t.Errorf("faults %v", q.Faults)
	}
	if q.Members != 3 || q.Places != 3 || q.Clients != 1 || q.Workers != 3 || q.Watchers != 1 ||
		!slices.Equal(q.Work, []string{"b"}) || q.Faulty > 26*time.Second {
		t.Errorf("%+v", q)
	}
	if !fails(q) || runs > 120 {
		t.Errorf("after %d runs: fails %t", runs, fails(q))
	}
	if len(p.Faults) != 40 || p.Faults[7].For != 10*time.Second || p.Faults[9].A != 4 {
		t.Errorf("the plan itself was changed: %+v", p)
	}
}

func TestKindOf(t *testing.T) {
	for v, want := range map[string]string{
		"watcher 0.1: not reliable: 3 events were never sent": "watcher not reliable events",
		"m1 ended by itself at 3s: exit":                      "ended by itself at",
		"stale: revision 5 was known":                         "stale revision was known",
	} {
		if got := KindOf(v); got != want {
			t.Errorf("%q is of the kind %q, want %q", v, got, want)
		}
	}
}

// TestCase: a file gives the plan back, and a wrong one says what is wrong.
func TestCase(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plan.json")
	c := Case{Cause: "a test", Mistake: "no-sync", Plan: NewPlan(5)}
	if err := c.Write(file); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadCase(file); err != nil || !reflect.DeepEqual(got, c) {
		t.Errorf("%+v, %v", got, err)
	}
	c.Plan.Faults = []Fault{{Kind: "rain", A: 9}}
	c.Plan.Workers, c.Plan.Watchers, c.Plan.Heartbeats, c.Plan.QuotaBytes, c.Plan.Places = 0,
		-1, 2, -1, 1000
	if err := c.Write(file); err != nil {
		t.Fatal(err)
	}
	_, err := ReadCase(file)
	for _, want := range []string{`"rain"`, "target", "clients", "watchers", "heartbeats",
		"quota", "places"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no word about %s: %v", want, err)
		}
	}
	if err := os.WriteFile(file, []byte("{} {}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadCase(file); err == nil || !strings.Contains(err.Error(), "after the plan") {
		t.Errorf("two plans in a file: %v", err)
	}
}
