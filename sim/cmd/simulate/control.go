package main

import (
	"fmt"
	"os"
	"sync"

	"vigil/sim/scenario"
	"vigil/sim/world"
)

// control runs plans without a mistake: a plan that fails so finds no planted mistake.
type control struct {
	guest *world.Guest
	mu    sync.Mutex
	plans map[string]func() bool // by the text of the plan
}

func newControl(g *world.Guest) *control {
	return &control{guest: g, plans: map[string]func() bool{}}
}

// clean reports whether a plan has no violation, and prints the violations. again are the options
// that run the plan in the program without mistakes, which has another version than this one. It
// runs each plan once.
func (c *control) clean(p scenario.Plan, again string) bool {
	g := c.guest
	key := fmt.Sprintf("%+v", p)
	c.mu.Lock()
	run := c.plans[key]
	if run == nil {
		run = sync.OnceValue(func() bool {
			r := scenario.Run(g, p, nil)
			if len(r.Violations) > 0 {
				fmt.Fprint(os.Stderr, "without a mistake, ",
					newFailure(job{name: fmt.Sprint("seed ", p.Seed), plan: p, again: again}, r))
			}
			return len(r.Violations) == 0
		})
		c.plans[key] = run
	}
	c.mu.Unlock()
	return run()
}
