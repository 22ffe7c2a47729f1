package suite

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"vigil/tools/bench/api"
	"vigil/tools/bench/grpcconn"
	"vigil/tools/bench/load"
	"vigil/tools/bench/resource"
)

func watchScenarios() []Scenario {
	fan := func(watchers int, rate float64) Scenario {
		return Scenario{
			Name: fmt.Sprintf("watch-%d-at-%.0f", watchers, rate),
			About: fmt.Sprintf("%d watchers of one key on 100 streams, %.0f puts/s",
				watchers, rate),
			Run: func(ctx context.Context, e *Env) ([]Figure,
				error) {
				return fanOut(ctx, e, 100, watchers/100, rate)
			},
		}
	}
	return []Scenario{
		fan(1000, 100), fan(1000, 500), fan(10_000, 5), fan(10_000, 20),
		{Name: "watch-large",
			About: "20 streams watch 1 MB values written at full speed by four connections",
			Run:   watchLarge},
		{Name: "watch-memory",
			About: "resident memory of 1,000 idle streams and of 100,000 idle watchers on 1,000 streams", Run: watchMemory},
		{Name: "connection-memory",
			About: "resident memory of 4,000 idle connections on each of which a get was made",
			Run:   connectionMemory},
	}
}

// fanOut measures what delivering an event costs.
func fanOut(ctx context.Context, e *Env, streams, per int, rate float64) ([]Figure, error) {
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	wc, err := e.dial(ctx, 20, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	pc, err := e.dial(ctx, 4, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	key := appendKey(nil, 0)
	base := time.Now()
	w, err := load.Watch(ctx, wc, load.WatchSpec{Streams: streams, PerStream: per, Base: base,
		Create: func(int, int) api.WatchCreate { return api.WatchCreate{Key: key} }})
	if err != nil {
		return nil, err
	}
	defer w.Close()
	fill := newFiller(e.Params.ValueSize)
	p, err := load.Start(pc, rate, func(slot int) load.Op {
		op := newPutter(slot, 1, e.Params.ValueSize, fill)
		op.base = base
		return op
	}, nil)
	if err != nil {
		return nil, err
	}
	if err := p.Wait(ctx, e.Params.Warmup); err != nil {
		return nil, err
	}
	m := e.meter()
	var before, after load.Totals
	w.TakeLatency()
	r, err := p.Phase(ctx, func() error {
		if err := m.beginMetering(); err != nil {
			return err
		}
		before = w.Totals()
		if err := p.Wait(ctx, e.Params.Duration); err != nil {
			return err
		}
		after = w.Totals()
		return m.endMetering()
	})
	if err != nil {
		return nil, err
	}
	lat := w.TakeLatency()
	if err := m.addProfile(); err != nil {
		return nil, err
	}
	all, err := p.Stop(ctx)
	if err != nil {
		return nil, err
	}
	patient, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := w.Reach(patient, all*int64(streams*per)); err != nil {
		return nil, err
	}
	n := after.Events - before.Events
	u := &m.usage
	f := u.cost("event", n)
	f = append(f,
		Figure{Name: "events delivered", Unit: "/s", Value: float64(n) / u.Wall.Seconds(),
			Better: Higher},
		Figure{Name: "delivered ÷ (puts x watchers)",
			Value: float64(n) / float64(r.Ops*int64(streams*per)), Better: Higher},
	)
	f = append(f, latencies("delivery", lat)...)
	f = append(f, latencies("put", &r.Latency)...)
	f = append(f, rates(r)...)
	f = append(f, u.memory()...)
	return append(f, u.auxiliary()...), nil
}

func watchLarge(ctx context.Context, e *Env) ([]Figure, error) {
	const streams, size, writers, objects = 20, 1_000_000, 4, 20
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	wc, err := e.dial(ctx, streams, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	pc, err := e.dial(ctx, writers, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	w, err := load.Watch(ctx, wc, load.WatchSpec{Streams: streams, PerStream: 1,
		Create: func(int, int) api.WatchCreate {
			return api.WatchCreate{Key: allKeys,
				End: allKeysEnd}
		}})
	if err != nil {
		return nil, err
	}
	defer w.Close()
	fill := newFiller(size)
	m := e.meter()
	var before, after load.Totals
	r, err := load.Closed(ctx, pc, 1, load.Window{
		Warmup: e.Params.Warmup, Duration: e.Params.Duration,
		Begin: func() error { before = w.Totals(); return m.beginMetering() },
		End:   func() error { after = w.Totals(); return m.endMetering() },
	}, func(slot int) load.Op { return newPutter(slot, objects, size, fill) })
	if err != nil {
		return nil, err
	}
	if err := m.addProfile(); err != nil {
		return nil, err
	}
	began := time.Now()
	patient, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := w.Reach(patient, r.All*streams); err != nil {
		return nil, err
	}
	mem, err := resource.ReadMemory(e.server.PID)
	if err != nil {
		return nil, err
	}
	u := &m.usage
	n := after.Events - before.Events
	f := []Figure{
		{Name: "RSS total, highest since start", Unit: "MiB", Value: float64(mem.Peak) / mib,
			Better: Lower},
		{Name: "puts", Unit: "/s", Value: r.PerSecond(), Better: Higher},
		{Name: "delivered", Unit: "MB/s",
			Value: float64(after.Bytes-before.Bytes) / 1e6 / u.Wall.Seconds(), Better: Higher},
		{Name: "time to deliver the rest", Unit: "ms", Value: time.Since(began).Seconds() * 1e3,
			Better: Lower},
	}
	f = append(f, u.cost("event", n)...)
	f = append(f, latencies("put", &r.Latency)...)
	f = append(f, u.memory()...)
	return append(f, u.auxiliary()...), nil
}

// watchMemory measures what streams and watchers cost when nothing happens.
func watchMemory(ctx context.Context, e *Env) ([]Figure, error) {
	const streams, per, conns = 1000, 100, 20
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	wc, err := e.dial(ctx, conns, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	gc, err := e.dial(ctx, conns, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	settle := func() (resource.Memory, error) { return e.settleMemory(ctx, gc) }
	none, err := settle()
	if err != nil {
		return nil, err
	}
	var n atomic.Int64
	create := func(int, int) api.WatchCreate {
		return api.WatchCreate{Key: appendKey(nil, 1_000_000+int(n.Add(1)))}
	}
	one, err := load.Watch(ctx, wc, load.WatchSpec{Streams: streams, PerStream: 1, Create: create})
	if err != nil {
		return nil, err
	}
	defer one.Close()
	idle, err := settle()
	if err != nil {
		return nil, err
	}
	many, err := load.Watch(ctx, wc,
		load.WatchSpec{Streams: streams, PerStream: per, Create: create})
	if err != nil {
		return nil, err
	}
	defer many.Close()
	full, err := settle()
	if err != nil {
		return nil, err
	}
	if err := many.Err(); err != nil {
		return nil, err
	}
	stream := float64(idle.Anon-none.Anon) / streams
	watcher := (float64(full.Anon-idle.Anon) - float64(idle.Anon-none.Anon)) / (streams * (per - 1))
	return []Figure{
		{Name: "RSS per idle stream with one watcher", Unit: "B", Value: stream, Better: Lower},
		{Name: "RSS per idle watcher", Unit: "B", Value: watcher, Better: Lower},
		{Name: "RSS growth, 101,000 watchers on 2,000 streams", Unit: "MiB",
			Value: float64(full.Anon-none.Anon) / mib, Better: Lower},
		{Name: "RSS anonymous without watchers", Unit: "MiB", Value: float64(none.Anon) / mib,
			Better: Lower},
	}, nil
}

// connectionMemory measures what connections cost that do nothing.
func connectionMemory(ctx context.Context, e *Env) ([]Figure, error) {
	const conns = 4000
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	gc, err := e.dial(ctx, 20, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	none, err := e.settleMemory(ctx, gc)
	if err != nil {
		return nil, err
	}
	idle, err := e.dial(ctx, conns, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	if _, err := e.settleMemory(ctx, idle); err != nil { // makes calls on all of them
		return nil, err
	}
	full, err := e.settleMemory(ctx, gc)
	if err != nil {
		return nil, err
	}
	return []Figure{
		{Name: "RSS per idle connection", Unit: "B", Value: float64(full.Anon-none.Anon) / conns,
			Better: Lower},
		{Name: "RSS anonymous without connections", Unit: "MiB", Value: float64(none.Anon) / mib,
			Better: Lower},
	}, nil
}
