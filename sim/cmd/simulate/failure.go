package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"vigil/sim/check"
	"vigil/sim/scenario"
	"vigil/sim/world"
)

// shown is the number of violations of a kind that are printed.
const shown = 3

// failure is a plan that failed.
type failure struct {
	job  job
	kind string // of the violation that explains most
	text string
}

// newFailure describes the violations of a run: when they were noticed, the plainest one, and some
// of each kind.
func newFailure(j job, r scenario.Result) *failure {
	_, plain := plainest(r.Violations)
	f := &failure{job: j, kind: scenario.KindOf(plain)}
	// Of several violations of one kind, the shortest is understood first.
	for _, v := range r.Violations {
		if scenario.KindOf(v) == f.kind && len(v) < len(plain) {
			plain = v
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s failed, noticed at %v of simulated time, in line %d of the trace\n  %s\n",
		j.name, r.At, r.Line, plain)
	count := map[string]int{}
	for _, v := range r.Violations {
		k := scenario.KindOf(v)
		if count[k]++; count[k] <= shown && v != plain {
			fmt.Fprintf(&b, "  also: %s\n", v)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(count)) {
		fmt.Fprintf(&b, "  %d times: %s\n", count[k], k)
	}
	fmt.Fprintf(&b, "again: simulate %s -trace -\n", j.again)
	f.text = b.String()
	return f
}

func (f *failure) String() string { return f.text }

// kinds counts the plans that failed by the kind of their violation.
type kinds map[string]*struct {
	plans int
	first job
}

func (k *kinds) add(f *failure) {
	if *k == nil {
		*k = kinds{}
	}
	e := (*k)[f.kind]
	if e == nil {
		e = &struct {
			plans int
			first job
		}{first: f.job}
		(*k)[f.kind] = e
	}
	e.plans++
}

func (k kinds) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(k)) {
		fmt.Fprintf(&b, "%d failed by %q, the first is: simulate %s\n", k[name].plans, name,
			k[name].first.again)
	}
	return b.String()
}

// shrink makes a failing plan smaller, and writes it to a file.
func shrink(g *world.Guest, f *failure) {
	runs, last := 1, f.text
	same := func(v check.Violations) (found string) {
		for _, v := range v {
			if scenario.KindOf(v) == f.kind && (found == "" || len(v) < len(found)) {
				found = v
			}
		}
		return found
	}
	p := scenario.Shrink(f.job.plan, func(q scenario.Plan) bool {
		runs++
		found := same(scenario.Run(g, q, nil).Violations)
		fmt.Printf("run %d: %d faults until %v, %d x %d clients: fails %t\n", runs, len(q.Faults),
			q.Faulty, q.Clients, q.Workers, found != "")
		if found != "" {
			last = found
		}
		return found != ""
	})
	fmt.Printf("needed after %d runs: %d members, %d processes of %d clients and %d watchers, work %q, %d faults\n", runs, p.Members, p.Clients, p.Workers, p.Watchers, p.Work, len(p.Faults))
	for _, f := range p.Faults {
		fmt.Println("  ", f)
	}
	fmt.Println("  ", last)
	file := fmt.Sprintf("plan-%d.json", p.Seed)
	if err := (scenario.Case{Cause: f.job.name, Mistake: f.job.mistake, Violation: f.kind,
		Plan: p}).Write(file); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	if f.job.mistake != "" {
		fmt.Printf("again: simulate -corpus . -planted %s\n", f.job.mistake)
		return
	}
	fmt.Printf("again: simulate -plan %s\n", file)
}
