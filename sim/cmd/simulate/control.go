package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	"vigil/sim/scenario"
	"vigil/sim/world"
)

// control runs plans with the unchanged program: a plan that fails with it finds no planted mistake.
type control struct {
	file  string
	load  func() (*world.Guest, error)
	guest *world.Guest
	mu    sync.Mutex
	plans map[string]func() bool // by the text of the plan
}

func newControl(file string) *control {
	c := &control{file: file, plans: map[string]func() bool{}}
	c.load = sync.OnceValues(func() (g *world.Guest, err error) {
		c.guest, err = loadGuest(context.Background(), c.file, "")
		return c.guest, err
	})
	return c
}

// clean reports whether a plan has no violation, and prints the violations. It runs each plan once.
func (c *control) clean(p scenario.Plan) (bool, error) {
	g, err := c.load()
	if err != nil {
		return false, err
	}
	key := fmt.Sprintf("%+v", p)
	c.mu.Lock()
	run := c.plans[key]
	if run == nil {
		run = sync.OnceValue(func() bool {
			r := scenario.Run(g, p, nil)
			if len(r.Violations) > 0 {
				fmt.Fprint(os.Stderr, "without a mistake, ", newFailure(job{name: fmt.Sprintf("seed %d@%s", p.Seed, g.Version), plan: p, again: fmt.Sprintf("-seed %d@%s", p.Seed, g.Version)}, r))
			}
			return len(r.Violations) == 0
		})
		c.plans[key] = run
	}
	c.mu.Unlock()
	return run(), nil
}

func (c *control) close() {
	if c.guest != nil {
		c.guest.Close(context.Background())
	}
}
