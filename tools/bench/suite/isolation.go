package suite

import (
	"context"
	"fmt"
	"time"

	"vigil/tools/bench/api"
	"vigil/tools/bench/grpcconn"
	"vigil/tools/bench/hist"
	"vigil/tools/bench/load"
)

func isolationScenarios() []Scenario {
	return []Scenario{
		{Name: "watch-others",
			About: "puts with 10,000 live watchers on other keys, 100 streams, compared with puts without", Run: watchOthers},
		{Name: "watch-stalled",
			About: "puts with 100 streams of 100 watchers on the written keys whose clients stop reading, compared with puts without", Run: func(ctx context.Context, e *Env) ([]Figure, error) {
				return watchStalled(ctx, e, false)
			}},
		{Name: "watch-stalled-socket",
			About: "the same with clients that do not even read their sockets",
			Run: func(ctx context.Context, e *Env) ([]Figure, error) {
				return watchStalled(ctx, e, true)
			}},
		{Name: "watch-catch-up-1",
			About: "puts while one watcher catches up from 1 million x scale revisions behind, compared with puts without", Run: func(ctx context.Context, e *Env) ([]Figure, error) {
				return watchCatchUp(ctx, e, 1)
			}},
		{Name: "watch-catch-up-100", About: "the same with 100 watchers on 20 streams",
			Run: func(ctx context.Context, e *Env) ([]Figure, error) {
				return watchCatchUp(ctx, e, 100)
			}},
		{Name: "watch-prev-kv",
			About: "400 puts/s of 256 KiB with one prev_kv watcher, compared with puts without",
			Run:   watchPrevKV},
	}
}

// condition is something whose effect on the latency of puts is in question.
type condition struct {
	begin  func(ctx context.Context) error
	during func(ctx context.Context, p *load.Pacer) error // nil lets half the duration pass
	end    func() error
}

// compared is what puts were like without and with a condition.
type compared struct {
	without, with hist.Hist
	last          *load.Result // of the last part with it
	usage         usage        // of the last part with it
	rssWithout    int64        // anonymous, at the end of the first part without it
	offered       float64
	ops           int64
	elapsed       time.Duration
	puts          int64
}

// compareWith runs open-loop puts twice without and twice with a condition, in turns, so that a
// server or a machine that changes with time changes both.
func (e *Env) compareWith(ctx context.Context, rate float64, conns int,
	newOp func(slot int) load.Op, c condition) (*compared, error) {
	cs, err := e.dial(ctx, conns, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	p, err := load.Start(cs, rate, newOp, load.Refuses)
	if err != nil {
		return nil, err
	}
	if err := p.Wait(ctx, e.Params.Warmup); err != nil {
		return nil, err
	}
	var out compared
	out.offered = rate
	half := func(ctx context.Context,
		p *load.Pacer) error {
		return p.Wait(ctx, e.Params.Duration/2)
	}
	if c.during == nil {
		c.during = half
	}
	m := e.meter()
	measured := func(during func(ctx context.Context, p *load.Pacer) error) (*load.Result, error) {
		return p.Phase(ctx, func() error {
			if err := m.beginMetering(); err != nil {
				return err
			}
			if err := during(ctx, p); err != nil {
				return err
			}
			return m.endMetering()
		})
	}
	for turn := range 2 {
		// The profile is of the first part with the condition.
		to := e.ProfileTo
		e.ProfileTo = ""
		r, err := measured(half)
		e.ProfileTo = to
		if err != nil {
			return nil, err
		}
		out.without.Merge(&r.Latency)
		if turn == 0 {
			out.rssWithout = m.usage.Memory.Anon
		}
		if err := c.begin(ctx); err != nil {
			return nil, err
		}
		if r, err = measured(c.during); err != nil {
			return nil, err
		}
		out.with.Merge(&r.Latency)
		out.last, out.usage = r, m.usage
		out.ops += r.Ops
		out.elapsed += r.Elapsed
		if err := c.end(); err != nil {
			return nil, err
		}
	}
	if err := m.addProfile(); err != nil {
		return nil, err
	}
	out.puts, err = p.Stop(ctx)
	return &out, err
}

func (c *compared) figures() []Figure {
	ratio := func(q float64) float64 {
		return float64(c.with.Quantile(q)) / max(float64(c.without.Quantile(q)), 1)
	}
	f := []Figure{
		{Name: "put p99, with ÷ without", Value: ratio(0.99), Better: Lower},
		{Name: "put p50, with ÷ without", Value: ratio(0.5), Better: Lower},
	}
	f = append(f, latencies("put without", &c.without)...)
	f = append(f, latencies("put with", &c.with)...)
	f = append(f, rates(c.last)...)
	f = append(f,
		Figure{Name: "RSS anonymous growth to its peak", Unit: "MiB",
			Value: float64(c.usage.PeakAnon-c.rssWithout) / mib, Better: Lower},
	)
	f = append(f, c.usage.memory()...)
	return append(f, c.usage.auxiliary()...)
}

func watchOthers(ctx context.Context, e *Env) ([]Figure, error) {
	const streams, per, rate = 100, 100, 1000
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	wc, err := e.dial(ctx, 20, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	fill := newFiller(e.Params.ValueSize)
	var w *load.Watchers
	c, err := e.compareWith(ctx, rate, 20,
		func(slot int) load.Op { return newPutter(slot, spread, e.Params.ValueSize, fill) },
		condition{
			begin: func(ctx context.Context) (err error) {
				w, err = load.Watch(ctx, wc,
					load.WatchSpec{Streams: streams, PerStream: per,
						Create: func(s, i int) api.WatchCreate {
							return api.WatchCreate{Key: appendKey(nil, 50_000_000+s*per+i)}
						}})
				return err
			},
			end: func() error {
				err := w.Err()
				if n := w.Totals().Events; err == nil && n > 0 {
					err = fmt.Errorf("watchers of other keys got %d events", n)
				}
				w.Close()
				return err
			},
		})
	if err != nil {
		return nil, err
	}
	return c.figures(), nil
}

func watchStalled(ctx context.Context, e *Env, socket bool) ([]Figure, error) {
	const streams, per, conns, rate = 100, 100, 10, 1000
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	fill := newFiller(e.Params.ValueSize)
	gc, err := e.dial(ctx, 20, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	if _, err := e.settleMemory(ctx, gc); err != nil { // the growth of memory is a figure
		return nil, err
	}
	var wc load.Conns
	c, err := e.compareWith(ctx, rate, 20,
		func(slot int) load.Op { return newPutter(slot, 100, e.Params.ValueSize, fill) }, condition{
			begin: func(ctx context.Context) (err error) {
				o := grpcconn.Options{StreamWindow: 65535, HoldStreamWindow: true}
				if socket {
					o = grpcconn.Options{}
				}
				if wc, err = load.Dial(ctx, e.server.Addr, conns, o); err != nil {
					return err
				}
				e.conns = append(e.conns, wc)
				_, err = load.Watch(ctx, wc,
					load.WatchSpec{Streams: streams, PerStream: per,
						Create: func(_, i int) api.WatchCreate {
							return api.WatchCreate{Key: appendKey(nil, i)}
						}})
				for _, c := range wc {
					if socket {
						c.Pause()
					}
				}
				return err
			},
			// Clients that vanish are what a stalled one ends as.
			end: func() error { wc.Close(); return nil },
		})
	if err != nil {
		return nil, err
	}
	return c.figures(), nil
}

func watchCatchUp(ctx context.Context, e *Env, watchers int) ([]Figure, error) {
	const rate, keys, patience = 1000, 10_000, time.Minute
	revs := e.Params.scaled(1_000_000, 20_000)
	fill := newFiller(e.Params.ValueSize)
	if err := e.writeRevisions(ctx, keys, revs, fill); err != nil {
		return nil, err
	}
	streams := min(watchers, 20)
	wc, err := e.dial(ctx, streams, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	head, err := e.revision(ctx, wc[0])
	if err != nil {
		return nil, err
	}
	var w *load.Watchers
	var speed, share, seconds []float64
	c, err := e.compareWith(ctx, rate, 20,
		func(slot int) load.Op { return newPutter(slot, keys, e.Params.ValueSize, fill) },
		condition{
			begin: func(context.Context) error { return nil },
			during: func(ctx context.Context, p *load.Pacer) error {
				began := time.Now()
				spec := load.WatchSpec{Streams: streams, PerStream: watchers / streams,
					SharedRevisions: true, Create: func(int, int) api.WatchCreate {
						return api.WatchCreate{Key: allKeys, End: allKeysEnd, StartRevision: 2}
					}}
				if w, err = load.Watch(ctx, wc, spec); err != nil {
					return err
				}
				patient, cancel := context.WithTimeout(ctx, patience)
				defer cancel()
				err := w.Until(patient, func() bool { return w.Lowest() >= head })
				took := time.Since(began)
				if err != nil && (ctx.Err() != nil || w.Err() != nil) {
					return err
				}
				share = append(share, min(float64(w.Lowest()-1)/float64(head-1), 1))
				speed = append(speed, float64(w.Totals().Bytes)/1e6/took.Seconds())
				seconds = append(seconds, took.Seconds())
				// A catch-up of a moment gives no percentile: the phase is as long as the one
				// without.
				if left := e.Params.Duration/2 - took; left > 0 {
					return p.Wait(ctx, left)
				}
				return nil
			},
			end: func() error { err := w.Err(); w.Close(); return err },
		})
	if err != nil {
		return nil, err
	}
	f := []Figure{
		{Name: "catch-up, all watchers together", Unit: "MB/s", Value: (speed[0] + speed[1]) / 2,
			Better: Higher},
		{Name: "time to catch up (60: gave up)", Unit: "s", Value: (seconds[0] + seconds[1]) / 2,
			Better: Lower},
		{Name: "share of the history reached by the last", Value: (share[0] + share[1]) / 2,
			Better: Higher},
	}
	return append(f, c.figures()...), nil
}

func watchPrevKV(ctx context.Context, e *Env) ([]Figure, error) {
	const rate, size, keys = 400, 256 << 10, 100
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	wc, err := e.dial(ctx, 1, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	fill := newFiller(size)
	var w *load.Watchers
	c, err := e.compareWith(ctx, rate, 20,
		func(slot int) load.Op { return newPutter(slot, keys, size, fill) }, condition{
			begin: func(ctx context.Context) (err error) {
				w, err = load.Watch(ctx, wc,
					load.WatchSpec{Streams: 1, PerStream: 1,
						Create: func(int, int) api.WatchCreate {
							return api.WatchCreate{Key: allKeys, End: allKeysEnd, PrevKV: true}
						}})
				return err
			},
			end: func() error {
				err := w.Err()
				if w.Totals().Events == 0 && err == nil {
					err = fmt.Errorf("the watcher got nothing")
				}
				w.Close()
				return err
			},
		})
	if err != nil {
		return nil, err
	}
	return c.figures(), nil
}
