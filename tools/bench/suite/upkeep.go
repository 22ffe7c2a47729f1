package suite

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"vigil/tools/bench/api"
	"vigil/tools/bench/grpcconn"
	"vigil/tools/bench/load"
	"vigil/tools/bench/resource"
)

func upkeepScenarios() []Scenario {
	return []Scenario{
		{Name: "compaction",
			About: "compaction at the head of 5 million x scale revisions of 200,000 x scale keys under 500 puts/s; etcd is also defragmented", Run: compaction},
		{Name: "restart", About: "kill -9 with 1 million x scale keys and 5 million x scale revisions, then the time to the first linearizable get", Run: restart},
	}
}

// storeDir returns where a server keeps its revisions, without its raft log.
func (e *Env) storeDir() string {
	if e.Build.Kind == "etcd" {
		return filepath.Join(e.server.DataDir, "member", "snap")
	}
	return filepath.Join(e.server.DataDir, "history")
}

// writeRevisions prepares a history of revs puts over keys keys.
func (e *Env) writeRevisions(ctx context.Context, keys, revs int, fill filler) error {
	size := e.Params.ValueSize
	return e.prepareData(ctx, fmt.Sprintf("history-%d-%d-%d", keys, revs, size),
		func(ctx context.Context) error {
			if err := e.loadKeys(ctx, keys, size, fill); err != nil {
				return err
			}
			return e.writeHistory(ctx, max(revs-keys, 0), keys, size, fill)
		})
}

func compaction(ctx context.Context, e *Env) ([]Figure, error) {
	const rate = 500
	keys, revs := e.Params.scaled(200_000, 1000), e.Params.scaled(5_000_000, 25_000)
	size := e.Params.ValueSize
	fill := newFiller(size)
	if err := e.writeRevisions(ctx, keys, revs, fill); err != nil {
		return nil, err
	}
	cs, err := e.dial(ctx, 21, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	p, err := load.Start(cs[1:], rate,
		func(slot int) load.Op { return newPutter(slot, keys, size, fill) }, load.Refuses)
	if err != nil {
		return nil, err
	}
	if err := p.Wait(ctx, e.Params.Warmup); err != nil {
		return nil, err
	}
	before, err := p.Phase(ctx, func() error { return p.Wait(ctx, e.Params.Duration) })
	if err != nil {
		return nil, err
	}
	dirBefore, err := resource.DirBytes(e.storeDir())
	if err != nil {
		return nil, err
	}
	const patience = 30 * time.Second
	live := float64(keys) * float64(len(appendKey(nil, 0))+size+24)
	reached, m := -1.0, e.meter()
	var dirAfter int64
	during, err := p.Phase(ctx, func() error {
		if err := m.beginMetering(); err != nil {
			return err
		}
		began := time.Now()
		rev, err := e.revision(ctx, cs[0])
		if err != nil {
			return err
		}
		compacted := make(chan error, 1)
		go func() { compacted <- e.compact(ctx, cs[0], rev) }()
		// The disk is watched for as long as the goal gives, in both systems.
		for since := time.Duration(0); since < patience; since = time.Since(began) {
			if dirAfter, err = resource.DirBytes(e.storeDir()); err != nil {
				return err
			}
			if reached < 0 && float64(dirAfter) <= 1.5*live {
				reached = time.Since(began).Seconds()
			}
			if err := p.Wait(ctx, 250*time.Millisecond); err != nil {
				return err
			}
			if reached >= 0 && since > e.Params.Duration && len(compacted) > 0 {
				break
			}
		}
		select {
		case err = <-compacted:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		return m.endMetering()
	})
	if err != nil {
		return nil, err
	}
	if err := m.addProfile(); err != nil {
		return nil, err
	}
	if _, err := p.Stop(ctx); err != nil {
		return nil, err
	}
	if reached < 0 {
		reached = patience.Seconds()
	}
	f := latencies("put before", &before.Latency)
	f = append(f, latencies("put during", &during.Latency)...)
	f = append(f,
		Figure{Name: "longest put, during ÷ before",
			Value: float64(during.Latency.Max()) / float64(before.Latency.Max()), Better: Lower},
		Figure{Name: "store before", Unit: "x live", Value: float64(dirBefore) / live,
			Better: Lower},
		Figure{Name: "store after", Unit: "x live", Value: float64(dirAfter) / live, Better: Lower},
		Figure{Name: "time to 1.5 x live (30: not reached)", Unit: "s", Value: reached,
			Better: Lower},
		Figure{Name: "server CPU during", Unit: "s", Value: m.usage.CPU.Seconds(), Better: Lower},
	)
	f = append(f, rates(during)...)
	f = append(f, m.usage.memory()...)
	return append(f, m.usage.auxiliary()...), nil
}

// compact compacts, and defragments where space does not come back without that.
func (e *Env) compact(ctx context.Context, c *grpcconn.Conn, rev int64) error {
	if _, err := c.Call(ctx, api.Compact,
		api.AppendCompact(nil, rev, e.Build.Kind == "etcd")); err != nil {
		return fmt.Errorf("compaction at %d: %w", rev, err)
	}
	if e.Build.Kind == "etcd" {
		if _, err := c.Call(ctx, api.Defragment, nil); err != nil {
			return fmt.Errorf("defragmentation: %w", err)
		}
	}
	return nil
}

func restart(ctx context.Context, e *Env) ([]Figure, error) {
	keys, revs := e.Params.scaled(1_000_000, 10_000), e.Params.scaled(5_000_000, 50_000)
	fill := newFiller(e.Params.ValueSize)
	if err := e.writeRevisions(ctx, keys, revs, fill); err != nil {
		return nil, err
	}
	cs, err := e.dial(ctx, 1, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	before, err := e.revision(ctx, cs[0])
	if err != nil {
		return nil, err
	}
	// A moment of writes, so that the killed server leaves something to recover.
	if err := e.writeHistory(ctx, 10_000, keys, e.Params.ValueSize, fill); err != nil {
		return nil, err
	}
	old := e.server
	e.server = nil
	cs.Close()
	e.conns = nil
	if err := old.Kill(); err != nil {
		return nil, err
	}
	if e.server, err = e.Launcher.Restart(old); err != nil {
		return nil, err
	}
	at, err := e.server.Ready(ctx)
	if err != nil {
		return nil, err
	}
	cpu, err := resource.ReadCPU(e.server.PID)
	if err != nil {
		return nil, err
	}
	if cs, err = e.dial(ctx, 1, grpcconn.Options{}); err != nil {
		return nil, err
	}
	if err := e.checkWrites(ctx, cs[0], before, 10_000); err != nil {
		return nil, err
	}
	count := counter{int64(keys)}
	_, msg, _ := count.Next(nil)
	b, err := cs[0].Call(ctx, api.Range, msg)
	if err != nil {
		return nil, err
	}
	if err := count.Check(b); err != nil {
		return nil, err
	}
	mem, err := resource.ReadMemory(e.server.PID)
	if err != nil {
		return nil, err
	}
	total, _, _ := cpu.Since(resource.CPU{})
	return []Figure{
		{Name: "exec to first linearizable get", Unit: "ms",
			Value: at.Sub(e.server.Began).Seconds() * 1e3, Better: Lower},
		{Name: "server CPU until then", Unit: "ms", Value: total.Seconds() * 1e3, Better: Lower},
		{Name: "RSS anonymous", Unit: "MiB", Value: float64(mem.Anon) / mib, Better: Lower},
		{Name: "RSS total", Unit: "MiB", Value: float64(mem.Total) / mib, Better: Lower},
		{Name: "RSS total, peak", Unit: "MiB", Value: float64(mem.Peak) / mib, Better: Lower},
	}, nil
}
