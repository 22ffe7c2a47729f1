package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"vigil/sim/scenario"
	"vigil/sim/world"
)

// files returns the plans of -plan or -corpus one after the other.
func (o *options) files(g *world.Guest) (func() (job, bool), error) {
	names := []string{o.plan}
	if o.corpus != "" {
		var err error
		if names, err = corpusFiles(o.corpus); err != nil {
			return nil, err
		}
	}
	var jobs []job
	for _, name := range names {
		c, err := scenario.ReadCase(name)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, job{name: fmt.Sprintf("plan %s@%s", name, g.Version), plan: c.Plan,
			again: "-plan " + name})
	}
	return func() (job, bool) {
		if len(jobs) == 0 {
			return job{}, false
		}
		j := jobs[0]
		jobs = jobs[1:]
		return j, true
	}, nil
}

func corpusFiles(dir string) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s has no plans (*.json)", dir)
	}
	slices.Sort(names)
	return names, err
}

// plansFor returns the plans of a corpus that must find a planted mistake.
func plansFor(dir, mistake string) (plans []scenario.Plan, err error) {
	names, err := corpusFiles(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		c, err := scenario.ReadCase(name)
		if err != nil {
			return nil, err
		}
		if c.Mistake == mistake {
			plans = append(plans, c.Plan)
		}
	}
	if len(plans) == 0 {
		return nil, errors.New("the corpus has no plan for it")
	}
	return plans, nil
}
