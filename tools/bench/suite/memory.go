package suite

import (
	"context"
	"time"

	"vigil/tools/bench/grpcconn"
	"vigil/tools/bench/load"
	"vigil/tools/bench/resource"
)

func memoryScenarios() []Scenario {
	return []Scenario{{Name: "memory-steps",
		About: "anonymous memory of one server: without a client, with one sequential client, with 1,000 puts in flight, and " +
			"afterwards", Run: memorySteps}}
}

// memorySteps measures the memory in four steps. Each is as long as a measured part, but the last
// one: it lasts until the memory stands still.
func memorySteps(ctx context.Context, e *Env) ([]Figure, error) {
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	figure := func(name string, bytes int64) Figure {
		return Figure{Name: "RSS anonymous, " + name, Unit: "MiB",
			Value: float64(bytes) / mib, Better: Lower}
	}
	rest := func() (resource.Memory, error) {
		t := time.NewTimer(e.Params.Duration)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return resource.Memory{}, ctx.Err()
		}
		return resource.ReadMemory(e.server.PID)
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
		cs, err := load.Dial(ctx, e.server.Addr, step.conns, grpcconn.Options{})
		if err != nil {
			return nil, err
		}
		m := e.meter()
		_, err = load.Closed(ctx, cs, step.each,
			load.Window{Warmup: e.Params.Warmup, Duration: e.Params.Duration,
				Begin: m.beginMetering, End: m.endMetering},
			func(slot int) load.Op { return newPutter(slot, spread, e.Params.ValueSize, fill) })
		cs.Close()
		if err != nil {
			return nil, err
		}
		f = append(f, figure(step.name+", end", m.usage.Memory.Anon),
			figure(step.name+", peak", m.usage.PeakAnon))
	}
	after, took, err := e.measureAtRest(ctx)
	if err != nil {
		return nil, err
	}
	return append(f, figure("at rest after the load", after.Anon),
		Figure{Name: "time after the load until that is reached", Unit: "s", Value: took.Seconds(),
			Better: Lower}), nil
}

// measureAtRest waits until the anonymous memory of an idle server stands still, and returns how
// long the server has changed it. Servers return memory some seconds after work is over, and a part
// of it at a time.
func (e *Env) measureAtRest(ctx context.Context) (m resource.Memory,
	took time.Duration, err error) {
	const still, most = 6 * time.Second, time.Minute
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for reference := int64(0); ; {
		if m, err = resource.ReadMemory(e.server.PID); err != nil {
			return m, 0, err
		}
		since := time.Since(began)
		if d := m.Anon - reference; d > mib || d < -mib {
			reference, took = m.Anon, since
		}
		if since-took >= still || since >= most {
			return m, took, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return m, 0, ctx.Err()
		}
	}
}
