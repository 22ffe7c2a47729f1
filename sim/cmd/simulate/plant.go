package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"vigil/sim/check"
	"vigil/sim/planted"
	"vigil/sim/scenario"
)

// finding is what became of a planted mistake.
type finding struct {
	Name, Promise string
	Past          bool `json:",omitempty"`
	Found         bool
	// By says what found it: a check, or the end of a member, or that there was no recovery.
	By string `json:",omitempty"`
	// Seed is the one that failed, the last of Seeds.
	Seed      uint64
	Seeds     int
	Simulated time.Duration
	// Took includes the build.
	Took      time.Duration
	Violation string `json:",omitempty"`
}

// findPlanted looks for planted mistakes, in at most -seeds seeds each.
func (o *options) findPlanted(first uint64) error {
	list := planted.All
	if o.planted != "all" {
		list = nil
		for name := range strings.SplitSeq(o.planted, ",") {
			m, err := planted.Find(name)
			if err != nil {
				return err
			}
			list = append(list, m)
		}
	}
	all := make([]finding, len(list))
	next := make(chan int)
	var workers sync.WaitGroup
	for range o.parallel {
		workers.Go(func() {
			for n := range next {
				all[n] = o.find(list[n], first)
				fmt.Fprintln(os.Stderr, all[n])
			}
		})
	}
	for n := range list {
		next <- n
	}
	close(next)
	workers.Wait()
	if err := printFindings(all, o.format); err != nil {
		return err
	}
	if n := slices.IndexFunc(all, func(f finding) bool { return !f.Found }); n >= 0 {
		return fmt.Errorf("planted mistakes were not found: %w", errViolated)
	}
	return nil
}

// find runs seeds with a mistake until one fails.
func (o *options) find(m planted.Mistake, first uint64) (f finding) {
	f = finding{Name: m.Name, Promise: m.Promise, Past: m.Past}
	began := time.Now()
	defer func() { f.Took = time.Since(began) }()
	var plans []scenario.Plan // those of the corpus; nil for seeds
	if o.corpus != "" {
		var err error
		if plans, err = plansFor(o.corpus, m.Name); err != nil {
			f.Violation = err.Error()
			return f
		}
	}
	dir, err := os.MkdirTemp("", "vigil-planted")
	if err != nil {
		f.Violation = err.Error()
		return f
	}
	defer os.RemoveAll(dir)
	overlay, err := m.Overlay("..", dir)
	if err != nil {
		f.Violation = err.Error()
		return f
	}
	ctx := context.Background()
	g, err := loadGuest(ctx, "", overlay)
	if err != nil {
		f.Violation = err.Error()
		return f
	}
	defer g.Close(ctx)
	for n := 0; (plans != nil && n < len(plans) || plans == nil && n < int(o.seeds)) && !f.Found; n++ {
		var p scenario.Plan
		if plans != nil {
			p = plans[n]
		} else {
			p = scenario.NewPlan(first + uint64(n))
		}
		r := scenario.Run(g, p, nil)
		f.Seed = p.Seed
		f.Seeds++
		f.Simulated += r.Simulated
		if len(r.Violations) > 0 {
			f.Found = true
			f.By, f.Violation = plainest(r.Violations)
			if o.shrink {
				shrink(g, newFailure(job{name: m.Promise, plan: p, mistake: m.Name}, r))
			}
		}
	}
	return f
}

// plainest returns the first violation of a promise to clients, or another one if there is none, and what found it.
func plainest(all check.Violations) (by, violation string) {
	by, violation = "check", all[0]
	for _, v := range all {
		switch {
		case strings.Contains(v, "ended by itself"), strings.Contains(v, ": panic:"), strings.Contains(v, ": fatal error:"):
			by, violation = "end of a process", v
		case strings.Contains(v, "after the last fault has ended"), strings.Contains(v, "the first write after the faults"):
			if by == "check" {
				by, violation = "no recovery", v
			}
		default:
			return "check", v
		}
	}
	return by, violation
}

func (f finding) String() string {
	if !f.Found {
		return fmt.Sprintf("%s: not found in %d seeds and %v: %s", f.Name, f.Seeds, f.Simulated.Round(time.Second), f.Violation)
	}
	return fmt.Sprintf("%s: found in seed %d, after %d seeds, %v and %v of work, by %s: %.300s", f.Name, f.Seed, f.Seeds,
		f.Simulated.Round(time.Second), f.Took.Round(time.Second), f.By, f.Violation)
}

// printFindings prints a table to the standard output, as text, Markdown (md) or JSON.
func printFindings(all []finding, format string) error {
	if format == "json" {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "\t")
		return e.Encode(all)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	row := func(cells ...string) { fmt.Fprintln(w, strings.Join(cells, "\t")) }
	head := []string{"mistake", "promise", "seeds", "simulated", "work", "found by", "first violation"}
	if format == "md" {
		w.Init(os.Stdout, 0, 0, 0, ' ', 0)
		row = func(cells ...string) { fmt.Fprintln(w, "| "+strings.Join(cells, " | ")+" |") }
		row(head...)
		fmt.Fprintln(w, strings.Repeat("|---", len(head))+"|")
	} else {
		row(head...)
	}
	for _, f := range all {
		name, promise, by := f.Name, f.Promise, f.By
		if format == "md" {
			name = "`" + name + "`"
		}
		if f.Past {
			promise += " (of the past)"
		}
		if !f.Found {
			by = "not found"
		}
		row(name, promise, fmt.Sprint(f.Seeds), f.Simulated.Round(time.Second).String(), f.Took.Round(time.Second).String(), by, cell(f.Violation))
	}
	return w.Flush()
}

// cell is the beginning of a text without what a table cannot have.
func cell(s string) string {
	s = strings.NewReplacer("\n", " ", "\t", " ", "|", "/").Replace(s)
	if len(s) > 110 {
		s = strings.ToValidUTF8(s[:110], "") + "…"
	}
	return s
}
