package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"vigil/sim/planted"
	"vigil/sim/scenario"
)

// findPlanted looks for planted mistakes, in at most -seeds seeds each.
func (o *options) findPlanted(first uint64) error {
	list := planted.All
	if o.planted != "all" {
		m, err := planted.Find(o.planted)
		if err != nil {
			return err
		}
		list = []planted.Mistake{m}
	}
	missed := 0
	for _, m := range list {
		found, err := o.find(m, first)
		if err != nil {
			return err
		}
		if !found {
			missed++
		}
	}
	if missed > 0 {
		return errors.New("planted mistakes were not found")
	}
	return nil
}

// find runs seeds with a mistake until one fails.
func (o *options) find(m planted.Mistake, first uint64) (bool, error) {
	dir, err := os.MkdirTemp("", "vigil-planted")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	overlay, err := m.Overlay("..", dir)
	if err != nil {
		return false, err
	}
	ctx := context.Background()
	g, err := loadGuest(ctx, "", overlay)
	if err != nil {
		return false, err
	}
	defer g.Close(ctx)
	var simulated time.Duration
	for n := range o.seeds {
		r := scenario.Run(g, scenario.NewPlan(first+n), nil)
		simulated += r.Simulated
		if len(r.Violations) > 0 {
			fmt.Printf("%s: found in seed %d, after %d seeds and %v: %.200s\n", m.Name, first+n, n+1, simulated.Round(time.Second), r.Violations[0])
			return true, nil
		}
	}
	fmt.Printf("%s: not found in %d seeds and %v\n", m.Name, o.seeds, simulated.Round(time.Second))
	return false, nil
}
