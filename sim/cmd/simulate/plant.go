package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"vigil/sim/check"
	"vigil/sim/planted"
	"vigil/sim/scenario"
	"vigil/sim/world"
)

// finding is what became of a planted mistake.
type finding struct {
	Name, Promise string
	Past          bool `json:",omitempty"`
	Found         bool
	// By says what found it: a check, or the end of a member, or that there was no recovery.
	By string `json:",omitempty"`
	// Seed is the one that failed, the last of Seeds.
	Seed  uint64
	Seeds int
	// Unusable seeds fail without the mistake too, so that they show nothing.
	Unusable  int `json:",omitempty"`
	Simulated time.Duration
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
	// Most mistakes share a program, which is the same for any list of them, so that its compiled
	// form is found in the cache.
	root, err := sources(context.Background())
	if err != nil {
		return err
	}
	files, rest, err := planted.Combine(root, planted.All)
	if err != nil {
		return err
	}
	shared, err := loadGuest(context.Background(), o.guest, files)
	if err != nil {
		return err
	}
	defer shared.Close(context.Background())
	o.control = newControl(shared.With("0"))
	all := make([]finding, len(list))
	next := make(chan int)
	var workers sync.WaitGroup
	for range o.parallel {
		workers.Go(func() {
			for n := range next {
				m, began := list[n], time.Now()
				all[n] = finding{Name: m.Name, Promise: m.Promise, Past: m.Past}
				if slices.ContainsFunc(rest,
					func(r planted.Mistake) bool { return r.Name == m.Name }) {
					o.findAlone(m, first, &all[n])
				} else {
					number := 1 + slices.IndexFunc(planted.All,
						func(a planted.Mistake) bool { return a.Name == m.Name })
					o.find(shared.With(strconv.Itoa(number)), m, first, &all[n])
				}
				all[n].Took = time.Since(began)
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
	if slices.ContainsFunc(all, func(f finding) bool { return !f.Found }) {
		return fmt.Errorf("planted mistakes were not found: %w", errViolated)
	}
	return nil
}

// findAlone is find with a program that has no other mistake.
func (o *options) findAlone(m planted.Mistake, first uint64, f *finding) {
	root, err := sources(context.Background())
	if err != nil {
		f.Violation = err.Error()
		return
	}
	files, err := m.Apply(root)
	if err != nil {
		f.Violation = err.Error()
		return
	}
	g, err := loadGuest(context.Background(), "", files)
	if err != nil {
		f.Violation = err.Error()
		return
	}
	defer g.Close(context.Background())
	o.find(g, m, first, f)
}

// find runs seeds, or the plans of the corpus, with a mistake until one fails.
func (o *options) find(g *world.Guest, m planted.Mistake, first uint64, f *finding) {
	var plans []scenario.Plan // those of the corpus; nil for seeds
	if o.corpus != "" {
		var err error
		if plans, err = plansFor(o.corpus, m.Name); err != nil {
			f.Violation = err.Error()
			return
		}
	}
	for n := 0; (plans != nil && n < len(plans) || plans == nil && n < int(o.seeds)) &&
		!f.Found; n++ {
		var p scenario.Plan
		again := "-corpus " + o.corpus
		if plans != nil {
			p = plans[n]
		} else {
			profile := cmp.Or(o.profile, m.Profile, scenario.Mixed)
			again = fmt.Sprintf("-seed %d -profile %s", first+uint64(n), profile)
			var err error
			if p, err = scenario.ProfilePlan(profile, first+uint64(n), 0); err != nil {
				f.Violation = err.Error()
				return
			}
		}
		out, closeTrace, err := o.openTrace()
		if err != nil {
			f.Violation = err.Error()
			return
		}
		r := scenario.Run(g, p, out)
		closeTrace()
		f.Seed = p.Seed
		f.Seeds++
		f.Simulated += r.Simulated
		if len(r.Violations) > 0 {
			if !o.control.clean(p, again) {
				f.Unusable++
				continue
			}
			f.Found = true
			f.By, f.Violation = plainest(r.Violations)
			if o.shrink {
				shrink(g, newFailure(job{name: f.Promise, plan: p, mistake: m.Name}, r))
			}
		}
	}
}

// plainest returns the first violation of a promise to clients, or another one if there is none,
// and what found it.
func plainest(all check.Violations) (by, violation string) {
	by, violation = "check", all[0]
	for _, v := range all {
		switch {
		case strings.Contains(v, "ended by itself"), strings.Contains(v, ": panic:"),
			strings.Contains(v, ": fatal error:"):
			by, violation = "end of a process", v
		case strings.Contains(v, "after the last fault has ended"),
			strings.Contains(v, "after the faults had ended"),
			strings.Contains(v, " without a fault"):
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
		return fmt.Sprintf("%s: not found in %d seeds, of which %d fail without it, and %v: %s",
			f.Name, f.Seeds, f.Unusable, f.Simulated.Round(time.Second), f.Violation)
	}
	return fmt.Sprintf("%s: found in seed %d, after %d seeds, %v and %v of work, by %s: %.300s",
		f.Name, f.Seed, f.Seeds,
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
	head := []string{"mistake", "promise", "seeds", "simulated", "work", "found by",
		"first violation"}
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
		row(name, promise, fmt.Sprint(f.Seeds), f.Simulated.Round(time.Second).String(),
			f.Took.Round(time.Second).String(), by, cell(f.Violation))
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
