package suite

import (
	"context"
	"fmt"
	"math/rand/v2"

	"vigil/tools/bench/api"
	"vigil/tools/bench/grpcconn"
	"vigil/tools/bench/load"
)

// The load of the throughput scenarios.
const (
	manyConns = 100
	perConn   = 10 // requests in flight on each
	spread    = 10_000
)

func kvScenarios() []Scenario {
	return []Scenario{
		{Name: "put-sequential", About: "one connection, one put at a time",
			Run: func(ctx context.Context, e *Env) ([]Figure, error) {
				return puts(ctx, e, 1, 1)
			}},
		{Name: "put-pipelined", About: "puts on 100 connections, 1,000 in flight",
			Run: func(ctx context.Context, e *Env) ([]Figure, error) {
				return puts(ctx, e, manyConns, perConn)
			}},
		{Name: "put-open", About: "1,000 puts/s in an open loop on 20 connections", Run: putOpen},
		{Name: "cas-txn", About: "Kubernetes-shaped updates (if mod_revision = X then put else range), 20 connections, 200 in flight", Run: casTxn},
		{Name: "get-linearizable",
			About: "linearizable gets of one key on 100 connections, 1,000 in flight",
			Run: func(ctx context.Context, e *Env) ([]Figure, error) {
				return gets(ctx, e, false)
			}},
		{Name: "get-serializable",
			About: "serializable gets of one key on 100 connections, 1,000 in flight",
			Run: func(ctx context.Context, e *Env) ([]Figure, error) {
				return gets(ctx, e, true)
			}},
	}
}

func puts(ctx context.Context, e *Env, conns, inflight int) ([]Figure, error) {
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	cs, err := e.dial(ctx, conns, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	from, err := e.revision(ctx, cs[0])
	if err != nil {
		return nil, err
	}
	fill := newFiller(e.Params.ValueSize)
	r, f, err := e.measureClosed(ctx, cs, inflight, "put", func(slot int) load.Op {
		return newPutter(slot, spread, e.Params.ValueSize, fill)
	})
	if err != nil {
		return nil, err
	}
	return f, e.checkWrites(ctx, cs[0], from, r.All)
}

func putOpen(ctx context.Context, e *Env) ([]Figure, error) {
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	cs, err := e.dial(ctx, 20, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	from, err := e.revision(ctx, cs[0])
	if err != nil {
		return nil, err
	}
	fill := newFiller(e.Params.ValueSize)
	p, err := load.Start(cs, 1000,
		func(slot int) load.Op { return newPutter(slot, spread, e.Params.ValueSize, fill) }, nil)
	if err != nil {
		return nil, err
	}
	r, u, f, err := e.measurePhase(ctx, p, "put")
	if err != nil {
		return nil, err
	}
	all, err := p.Stop(ctx)
	if err != nil {
		return nil, err
	}
	f = append(f, u.cost("put", r.Ops)...)
	f = append(f, u.memory()...)
	return append(f, u.auxiliary()...), e.checkWrites(ctx, cs[0], from, all)
}

func gets(ctx context.Context, e *Env, serializable bool) ([]Figure, error) {
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	fill := newFiller(e.Params.ValueSize)
	if err := e.loadKeys(ctx, spread, e.Params.ValueSize, fill); err != nil {
		return nil, err
	}
	cs, err := e.dial(ctx, manyConns, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	_, f, err := e.measureClosed(ctx, cs, perConn, "get", func(slot int) load.Op {
		return &getter{keys: spread, size: e.Params.ValueSize, serializable: serializable,
			fill: fill, rng: rand.New(rand.NewPCG(uint64(slot), 4))}
	})
	return f, err
}

// updater updates the keys of its slot as a Kubernetes API server does, and no one else writes
// them, so every update must succeed.
type updater struct {
	from, keys int
	size       int
	fill       filler
	rng        *rand.Rand
	revs       []int64
	i          int
	key, value []byte
}

func (u *updater) Next(buf []byte) (string, []byte, bool) {
	u.i = u.rng.IntN(u.keys)
	u.key = appendKey(u.key[:0], u.from+u.i)
	u.fill.fill(u.value, uint64(u.from+u.i))
	return api.Txn, api.AppendUpdateTxn(buf, u.key, u.value, u.revs[u.i]), true
}

func (u *updater) Check(msg []byte) error {
	var a api.TxnAnswer
	if err := a.Read(msg); err != nil {
		return err
	}
	if !a.Succeeded || a.Responses != 1 || a.Header.Revision <= u.revs[u.i] {
		return fmt.Errorf("update of %s at %d: succeeded %v, %d responses, revision %d", u.key,
			u.revs[u.i], a.Succeeded, a.Responses, a.Header.Revision)
	}
	u.revs[u.i] = a.Header.Revision
	return nil
}

func casTxn(ctx context.Context, e *Env) ([]Figure, error) {
	const conns, inflight, keys = 20, 10, 50
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	cs, err := e.dial(ctx, conns, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	from, err := e.revision(ctx, cs[0])
	if err != nil {
		return nil, err
	}
	fill := newFiller(e.Params.ValueSize)
	r, f, err := e.measureClosed(ctx, cs, inflight, "txn", func(slot int) load.Op {
		return &updater{from: slot * keys, keys: keys, size: e.Params.ValueSize, fill: fill,
			rng:  rand.New(rand.NewPCG(uint64(slot), 5)),
			revs: make([]int64, keys), value: make([]byte, e.Params.ValueSize)}
	})
	if err != nil {
		return nil, err
	}
	return f, e.checkWrites(ctx, cs[0], from, r.All)
}
