package scenario

import (
	"context"
	"time"

	"vigil/bench/h2"
	"vigil/bench/load"
	"vigil/bench/proc"
)

func memoryScenarios() []Scenario {
	return []Scenario{{Name: "memory-steps", About: "anonymous memory of one server: without a client, with one sequential client, with 1,000 puts in flight, and " +
		"afterwards", Run: memorySteps}}
}

// memorySteps measures the memory in four steps, each as long as a measured part.
func memorySteps(ctx context.Context, e *Env) ([]Figure, error) {
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	figure := func(name string, bytes int64) Figure {
		return Figure{Name: "RSS anonymous, " + name, Unit: "MiB", Value: float64(bytes) / mib, Better: Lower}
	}
	rest := func() (proc.Memory, error) {
		t := time.NewTimer(e.Params.Duration)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return proc.Memory{}, ctx.Err()
		}
		return proc.ReadMemory(e.server.PID)
	}
	idle, err := rest()
	if err != nil {
		return nil, err
	}
	f := []Figure{figure("idle", idle.Anon)}
	fill := newFiller(e.Params.ValueSize)
	for _, step := range []struct {
		name        string
		conns, each int
	}{{"1 client", 1, 1}, {"full put load", manyConns, perConn}} {
		cs, err := load.Dial(ctx, e.server.Addr, step.conns, h2.Options{})
		if err != nil {
			return nil, err
		}
		m := e.meter()
		_, err = load.Closed(ctx, cs, step.each, load.Window{Warmup: e.Params.Warmup, Duration: e.Params.Duration, Begin: m.begin, End: m.end},
			func(slot int) load.Op { return newPutter(slot, spread, e.Params.ValueSize, fill) })
		cs.Close()
		if err != nil {
			return nil, err
		}
		f = append(f, figure(step.name+", end", m.usage.Memory.Anon), figure(step.name+", peak", m.usage.PeakAnon))
	}
	after, err := rest()
	if err != nil {
		return nil, err
	}
	return append(f, figure("at rest after the load", after.Anon)), nil
}
