package suite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"vigil/tools/bench/api"
	"vigil/tools/bench/grpcconn"
	"vigil/tools/bench/load"
)

func costScenarios() []Scenario {
	return []Scenario{
		{Name: "cost-by-keys", Axis: "keys in the store",
			About: "puts and gets over 10 thousand to 10 million x scale keys with values of 64 bytes, 1,000 in flight", Run: costByKeys},
		{Name: "cost-by-connections", Axis: "connections",
			About: "puts and gets on 10 to 4,000 connections, 1,000 in flight at least",
			Run:   costByConnections},
		{Name: "cost-by-value", Axis: "bytes in a value",
			About: "puts and gets of values of 16 bytes to 64 KiB on 100 connections, 200 in flight", Run: costByValue},
	}
}

// measureCost measures a put and a get over keys [0, keys), which exist.
func (e *Env) measureCost(ctx context.Context, cs load.Conns, inflight, keys, size int, fill filler,
	at string, x float64) ([]Figure, error) {
	from, err := e.revision(ctx, cs[0])
	if err != nil {
		return nil, err
	}
	m := e.meter()
	r, _, err := e.measureClosedOn(ctx, m, "", cs, inflight, "put",
		func(slot int) load.Op { return newPutter(slot, keys, size, fill) })
	if err != nil {
		return nil, err
	}
	if err := e.checkWrites(ctx, cs[0], from, r.All); err != nil {
		return nil, err
	}
	f := []Figure{{Name: "server CPU per put, " + at, Unit: "µs", Value: perOp(m.usage.CPU, r.Ops),
		Better: Lower, Line: "put", X: x}}
	m = e.meter()
	r, _, err = e.measureClosedOn(ctx, m, "", cs, inflight, "get", func(slot int) load.Op {
		return &getter{keys: keys, size: size, fill: fill,
			rng: rand.New(rand.NewPCG(uint64(slot), 4))}
	})
	if err != nil {
		return nil, err
	}
	return append(f, Figure{Name: "server CPU per get, " + at, Unit: "µs",
		Value: perOp(m.usage.CPU, r.Ops), Better: Lower, Line: "get", X: x}), nil
}

func costByKeys(ctx context.Context, e *Env) ([]Figure, error) {
	const size, largest, per = 64, 10_000_000, 100
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	cs, err := e.dial(ctx, manyConns, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	fill := newFiller(size)
	var f []Figure
	var next atomic.Int64
	most := e.Params.scaled(largest, 10_000)
	for keys := 10_000; keys <= most; keys *= 10 {
		// Keys are added in a random order, as clients do: neighbours are not neighbours in time.
		order := rand.New(rand.NewPCG(uint64(keys), 6)).Perm(keys - int(next.Load()))
		base := int(next.Load())
		next.Store(0)
		_, err := load.Closed(ctx, cs[:8], 2, load.Window{}, func(int) load.Op {
			return &filling{next: &next, keys: len(order), size: size, per: per, fill: fill,
				value: make([]byte, size), name: func(i int) int { return base + order[i] }}
		})
		if err != nil {
			return nil, fmt.Errorf("loading %d keys: %w", keys, err)
		}
		next.Store(int64(keys))
		more, err := e.measureCost(ctx, cs, perConn, keys, size, fill,
			fmt.Sprintf("%d keys", keys), float64(keys))
		if err != nil {
			return nil, err
		}
		f = append(f, more...)
	}
	first, last := f[:2], f[len(f)-2:]
	return append(f,
		Figure{Name: "put, most keys ÷ fewest", Value: last[0].Value / first[0].Value,
			Better: Lower},
		Figure{Name: "get, most keys ÷ fewest", Value: last[1].Value / first[1].Value,
			Better: Lower}), nil
}

func costByConnections(ctx context.Context, e *Env) ([]Figure, error) {
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	size := e.Params.ValueSize
	fill := newFiller(size)
	if err := e.loadKeys(ctx, spread, size, fill); err != nil {
		return nil, err
	}
	var f []Figure
	for _, conns := range []int{10, 100, 1000, 4000} {
		cs, err := load.Dial(ctx, e.server.Addr, conns, grpcconn.Options{})
		if err != nil {
			return nil, err
		}
		more, err := e.measureCost(ctx, cs, max(1000/conns, 1), spread, size, fill,
			fmt.Sprintf("%d connections", conns), float64(conns))
		cs.Close()
		if err != nil {
			return nil, err
		}
		f = append(f, more...)
	}
	return f, nil
}

func costByValue(ctx context.Context, e *Env) ([]Figure, error) {
	const keys, inflight = 1000, 2
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	cs, err := e.dial(ctx, manyConns, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	var f []Figure
	for _, size := range []int{16, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10} {
		fill := newFiller(size)
		if err := e.loadKeys(ctx, keys, size, fill); err != nil {
			return nil, err
		}
		more, err := e.measureCost(ctx, cs, inflight, keys, size, fill,
			fmt.Sprintf("%d bytes", size), float64(size))
		if err != nil {
			return nil, err
		}
		f = append(f, more...)
		// What the puts have left is not part of the next step.
		rev, err := e.revision(ctx, cs[0])
		if err != nil {
			return nil, err
		}
		if _, err := cs[0].Call(ctx, api.Compact, api.AppendCompact(nil, rev, false)); err != nil {
			return nil, err
		}
	}
	return f, nil
}
