package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"vigil/tools/bench/grpcconn"
	"vigil/tools/bench/hist"
	"vigil/tools/bench/load"
	"vigil/tools/bench/target"
)

func failoverScenarios() []Scenario {
	return []Scenario{{Name: "failover-kill",
		About: "kill -9 of the leader of three, 20 times, with 200 puts/s at the two others: the time to the first put that was due " +
			"after it", Run: failoverKill}}
}

// awaited is the first success among the puts that were due after a moment. Times are nanoseconds
// since base.
type awaited struct {
	base         time.Time
	since, first atomic.Int64
}

// awaitedPut is a put that reports its success to an awaited.
type awaitedPut struct {
	*putter
	to  *awaited
	due int64
}

func (p *awaitedPut) Due(at time.Time) { p.due = int64(at.Sub(p.to.base)) }

func (p *awaitedPut) Check(msg []byte) error {
	if err := p.putter.Check(msg); err != nil {
		return err
	}
	if since := p.to.since.Load(); since != 0 && p.due >= since {
		p.to.first.CompareAndSwap(0, int64(time.Since(p.to.base)))
	}
	return nil
}

func failoverKill(ctx context.Context, e *Env) ([]Figure, error) {
	const kills = 20
	if err := e.startGroup(ctx); err != nil {
		return nil, err
	}
	var took, all hist.Hist
	var failed, answered int64
	for i := range kills {
		d, r, err := e.killLeader(ctx)
		if err != nil {
			return nil, fmt.Errorf("kill %d: %w", i+1, err)
		}
		took.Record(d)
		all.Merge(&r.Latency)
		failed += r.Refused
		answered += r.Ops
	}
	f := []Figure{
		{Name: "kill to first put, median", Unit: "ms", Value: micros(took.Quantile(0.5)) / 1e3,
			Better: Lower},
		{Name: "kill to first put, longest", Unit: "ms", Value: micros(took.Max()) / 1e3,
			Better: Lower},
		{Name: "failed puts", Value: float64(failed), Better: Lower},
		{Name: "answered puts", Value: float64(answered)},
	}
	return append(f, latencies("put", &all)...), nil
}

// killLeader kills the leader, starts it again and waits until it has what the others have. It
// returns the time until the first put and the answers to all puts.
func (e *Env) killLeader(ctx context.Context) (time.Duration, *load.Result, error) {
	const rate, before, after, patience = 200, 300 * time.Millisecond, 500 * time.Millisecond,
		30 * time.Second
	var cs load.Conns
	defer func() { cs.Close() }()
	for _, s := range e.others {
		more, err := load.Dial(ctx, s.Addr, 2, grpcconn.Options{})
		if err != nil {
			return 0, nil, err
		}
		cs = append(cs, more...)
	}
	fill := newFiller(e.Params.ValueSize)
	to := &awaited{base: time.Now()}
	p, err := load.Start(cs, rate, func(slot int) load.Op {
		return &awaitedPut{putter: newPutter(slot, spread, e.Params.ValueSize, fill), to: to}
	}, func(grpcconn.Status) bool { return true })
	if err != nil {
		return 0, nil, err
	}
	if err := p.Wait(ctx, before); err != nil {
		return 0, nil, err
	}
	old := e.server
	r, err := p.Phase(ctx, func() error {
		to.since.Store(int64(time.Since(to.base)))
		e.server = nil
		if err := old.Kill(); err != nil {
			return err
		}
		for end := time.Now().Add(patience); to.first.Load() == 0; {
			if time.Now().After(end) {
				return fmt.Errorf("no put succeeded within %v", patience)
			}
			if err := p.Wait(ctx, time.Millisecond); err != nil {
				return err
			}
		}
		return p.Wait(ctx, after)
	})
	if err != nil {
		return 0, nil, err
	}
	if err := e.rejoin(ctx, p, old); err != nil {
		return 0, nil, err
	}
	_, err = p.Stop(ctx)
	return time.Duration(to.first.Load() - to.since.Load()), r, err
}

// rejoin starts a member of the group that was killed, and chooses e.server again.
func (e *Env) rejoin(ctx context.Context, p *load.Pacer, old *target.Server) error {
	s, err := e.Launcher.Restart(old)
	if err != nil {
		return err
	}
	e.others = append(e.others, s)
	if _, err := s.Ready(ctx); err != nil {
		return err
	}
	for i, s := range e.others {
		st, err := e.status(ctx, s)
		if err != nil {
			return err
		}
		if st.Leader == st.Header.MemberID {
			e.server, e.others = s, slices.Delete(e.others, i, i+1)
			return e.awaitInSync(ctx, p, e.others[len(e.others)-1])
		}
	}
	return errors.New("no member leads")
}
