package main

import (
	"io"
	"sync"
	"testing"
	"time"

	"vigil/sim/scenario"
)

// TestReplay: a run has the same hash again, also with a trace and concurrently with another world.
func TestReplay(t *testing.T) {
	g, err := loadGuest(t.Context(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close(t.Context())
	// A short plan: the corpus and fresh seeds are run by the command itself.
	p, err := scenario.ProfilePlan("leases", 1, 12*time.Second)
	if err != nil || len(p.Faults) == 0 {
		t.Fatalf("the plan has the faults %v, %v", p.Faults, err)
	}
	var results [2]scenario.Result
	var runs sync.WaitGroup
	for n, trace := range []io.Writer{nil, io.Discard} {
		runs.Go(func() { results[n] = scenario.Run(g, p, trace) })
	}
	runs.Wait()
	a, b := results[0], results[1]
	t.Logf("%v simulated, %d faults, %d operations, %d acknowledged, hash %s, %d violations",
		a.Simulated, len(p.Faults), a.Ops, a.Acked, a.Hash, len(a.Violations))
	if a.Acked == 0 || a.Events == 0 {
		t.Errorf("nothing was written or watched: %+v", a)
	}
	if a.Hash != b.Hash || a.Simulated != b.Simulated || a.Ops != b.Ops {
		t.Errorf("the same plan gave %s after %v and %d operations, and %s after %v and %d", a.Hash,
			a.Simulated, a.Ops, b.Hash, b.Simulated, b.Ops)
	}
}
