package suite

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"vigil/client"
	"vigil/tools/bench/grpcconn"
	"vigil/tools/bench/load"
	"vigil/tools/bench/resource"
)

func clientScenarios() []Scenario {
	return []Scenario{
		{Name: "client-put",
			About: "puts by 50 goroutines through one client: vigil/client and clientv3, in turns, against one server", Run: clientPut},
		{Name: "client-watch",
			About: "100 watchers of one key in one client, 300 puts/s: vigil/client and clientv3, in turns, against one server", Run: clientWatch},
	}
}

// library is a client library under test.
type library interface {
	put(ctx context.Context, key string, value []byte) error
	// watch delivers the revisions of a key's events until the context ends.
	watch(ctx context.Context, key string, created func(), event func(revision int64)) error
	close() error
}

type vigilClient struct{ of *client.Client }

func (c vigilClient) put(ctx context.Context, key string, value []byte) error {
	_, err := c.of.Put(ctx, key, value)
	return err
}

func (c vigilClient) watch(ctx context.Context, key string, created func(),
	event func(int64)) error {
	w := c.of.Watch(ctx, key)
	if _, err := w.Created(ctx); err != nil {
		return err
	}
	created()
	for ev, err := range w.Events() {
		if err != nil {
			return err
		}
		event(ev.KV.ModRevision)
	}
	return nil
}

func (c vigilClient) close() error { return c.of.Close() }

type stockClient struct{ of *clientv3.Client }

func (c stockClient) put(ctx context.Context, key string, value []byte) error {
	_, err := c.of.Put(ctx, key, string(value))
	return err
}

func (c stockClient) watch(ctx context.Context, key string, created func(),
	event func(int64)) error {
	for r := range c.of.Watch(ctx, key, clientv3.WithCreatedNotify()) {
		if r.Created {
			created()
		}
		if err := r.Err(); err != nil {
			return err
		}
		for _, ev := range r.Events {
			event(ev.Kv.ModRevision)
		}
	}
	return ctx.Err()
}

func (c stockClient) close() error { return c.of.Close() }

// connectLibraries opens both, the one under test first.
func (e *Env) connectLibraries(ctx context.Context) (list [2]library, err error) {
	mine, err := client.Connect(ctx, client.Config{Endpoints: []string{e.server.Addr}})
	if err != nil {
		return list, err
	}
	stock, err := clientv3.New(clientv3.Config{Endpoints: []string{e.server.Addr},
		Logger: zap.NewNop()})
	if err != nil {
		_ = mine.Close()
		return list, err
	}
	return [2]library{vigilClient{mine}, stockClient{stock}}, nil
}

// spent is what a client used.
type spent struct {
	cpu       time.Duration
	allocated uint64 // number
	bytes     uint64
	ops       int64
}

func (s *spent) measure(f func() (ops int64, err error)) error {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	cpu := resource.OwnCPU()
	n, err := f()
	s.cpu += resource.OwnCPU() - cpu
	runtime.ReadMemStats(&after)
	s.allocated += after.Mallocs - before.Mallocs
	s.bytes += after.TotalAlloc - before.TotalAlloc
	s.ops += n
	return err
}

// measureTurns measures both libraries twice, in turns, and compares them.
func (e *Env) measureTurns(per string,
	part func(which int) (ops int64, err error)) ([]Figure, error) {
	var used [2]spent
	for _, which := range []int{0, 1, 1, 0} {
		if err := used[which].measure(func() (int64, error) { return part(which) }); err != nil {
			return nil, err
		}
	}
	var f []Figure
	for i, name := range []string{"vigil/client", "clientv3"} {
		u := used[i]
		n := float64(max(u.ops, 1))
		better := Neither
		if i == 0 {
			better = Lower
		}
		f = append(f,
			Figure{Name: name + " CPU per " + per, Unit: "µs", Value: perOp(u.cpu, u.ops),
				Better: better},
			Figure{Name: name + " allocations per " + per, Value: float64(u.allocated) / n,
				Better: better},
			Figure{Name: name + " bytes allocated per " + per, Unit: "B",
				Value: float64(u.bytes) / n, Better: better})
	}
	share := func(what string, a, b float64) Figure {
		return Figure{Name: "vigil/client ÷ clientv3, " + what, Value: a / b, Better: Lower}
	}
	return append(f, share("CPU", f[0].Value, f[3].Value),
		share("allocations", f[1].Value, f[4].Value),
		share("bytes allocated", f[2].Value, f[5].Value)), nil
}

func clientPut(ctx context.Context, e *Env) (f []Figure, err error) {
	const workers = 50
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	libs, err := e.connectLibraries(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, l := range libs {
			if cerr := l.close(); err == nil {
				err = cerr
			}
		}
	}()
	cs, err := e.dial(ctx, 1, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	from, err := e.revision(ctx, cs[0])
	if err != nil {
		return nil, err
	}
	var all atomic.Int64
	run := func(which int, d time.Duration) (int64, error) {
		var ops atomic.Int64
		var wg sync.WaitGroup
		errs := make(chan error, workers)
		end := time.Now().Add(d)
		for w := range workers {
			wg.Go(func() {
				key := string(appendKey(nil, w))
				value := make([]byte, e.Params.ValueSize)
				for time.Now().Before(end) {
					if err := libs[which].put(ctx, key, value); err != nil {
						errs <- err
						return
					}
					ops.Add(1)
				}
			})
		}
		wg.Wait()
		all.Add(ops.Load())
		select {
		case err := <-errs:
			return 0, err
		default:
			return ops.Load(), nil
		}
	}
	for which := range libs {
		if _, err := run(which, e.Params.Warmup/2); err != nil {
			return nil, err
		}
	}
	f, err = e.measureTurns("put",
		func(which int) (int64, error) { return run(which, e.Params.Duration/2) })
	if err != nil {
		return nil, err
	}
	return f, e.checkWrites(ctx, cs[0], from, all.Load())
}

func clientWatch(ctx context.Context, e *Env) (f []Figure, err error) {
	const watchers, rate = 100, 300
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	libs, err := e.connectLibraries(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, l := range libs {
			if cerr := l.close(); err == nil {
				err = cerr
			}
		}
	}()
	cs, err := e.dial(ctx, 1, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	fill := newFiller(e.Params.ValueSize)
	p, err := load.Start(cs, rate,
		func(slot int) load.Op { return newPutter(slot, 1, e.Params.ValueSize, fill) }, nil)
	if err != nil {
		return nil, err
	}
	key := string(appendKey(nil, 0))
	part := func(which int) (int64, error) {
		wctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var events atomic.Int64
		var created, ended sync.WaitGroup
		errs := make(chan error, watchers)
		created.Add(watchers)
		for range watchers {
			ended.Go(func() {
				var last int64
				err := libs[which].watch(wctx, key, created.Done, func(revision int64) {
					// The key is all that is written, so each revision comes and comes once.
					if last != 0 && revision != last+1 {
						errs <- fmt.Errorf("revision %d after %d", revision, last)
						cancel()
					}
					last = revision
					events.Add(1)
				})
				if wctx.Err() == nil {
					errs <- fmt.Errorf("a watcher ended: %w", err)
					cancel()
				}
			})
		}
		created.Wait()
		err := p.Wait(ctx, e.Params.Duration/2)
		n := events.Load()
		select {
		case err = <-errs:
		default:
		}
		cancel()
		ended.Wait()
		return n, err
	}
	for which := range libs {
		if _, err := part(which); err != nil {
			return nil, err
		}
	}
	f, err = e.measureTurns("event", part)
	if err != nil {
		return nil, err
	}
	_, err = p.Stop(ctx)
	return f, err
}
