package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"vigil/tools/bench/api"
	"vigil/tools/bench/grpcconn"
	"vigil/tools/bench/hist"
	"vigil/tools/bench/load"
)

func rangeScenarios() []Scenario {
	return []Scenario{
		{Name: "range-500", About: "linearizable ranges of 500 keys out of 100,000, 10 connections, 20 in flight", Run: func(ctx context.Context, e *Env) ([]Figure, error) {
			return rangeSome(ctx, e, e.Params.ValueSize)
		}},
		{Name: "range-500-1k", About: "the same of values of 1 KiB",
			Run: func(ctx context.Context, e *Env) ([]Figure, error) {
				return rangeSome(ctx, e, 1<<10)
			}},
		{Name: "count-100k", About: "counts of 100,000 keys, 10 connections, 20 in flight",
			Run: countAll},
		{Name: "list-paged",
			About: "2 million x scale keys in pages of 500 at a pinned revision, with 1,000 puts/s going on", Run: func(ctx context.Context, e *Env) ([]Figure, error) {
				return list(ctx, e, true, false)
			}},
		{Name: "list-paged-churn",
			About: "the same, the writes making and deleting keys in between",
			Run: func(ctx context.Context, e *Env) ([]Figure, error) {
				return list(ctx, e, true, true)
			}},
		{Name: "list-paged-newest",
			About: "2 million x scale keys in pages of 500 with 1,000 puts/s going on, each page at the newest revision", Run: func(ctx context.Context, e *Env) ([]Figure, error) {
				return list(ctx, e, false, false)
			}},
		{Name: "range-huge", About: "1 GiB x scale by unary ranges of five clients at once",
			Run: rangeHuge},
	}
}

// ranger asks for width keys that follow each other, of those in one namespace.
type ranger struct {
	keys, width, size int
	fill              filler
	rng               *rand.Rand
	first             int
	key, end          []byte
}

// namespaces is how many there are in the names of appendKey: keys this far apart are neighbours.
const namespaces = 100

func (r *ranger) Next(buf []byte) (string, []byte, bool) {
	r.first = r.rng.IntN(namespaces) + namespaces*r.rng.IntN(r.keys/namespaces-r.width+1)
	r.key = appendKey(r.key[:0], r.first)
	r.end = appendKey(r.end[:0], r.first+namespaces*r.width)
	q := api.RangeRequest{Key: r.key, End: r.end}
	return api.Range, q.Append(buf), true
}

func (r *ranger) Check(msg []byte) error {
	var a api.RangeAnswer
	i := r.first
	err := a.Read(msg, func(kv *api.KeyValue) error {
		if r.key = appendKey(r.key[:0], i); !bytes.Equal(kv.Key, r.key) ||
			len(kv.Value) != r.size || !r.fill.holds(kv.Value, uint64(i)) {
			return fmt.Errorf("key %s with %d bytes, want %s", kv.Key, len(kv.Value), r.key)
		}
		i += namespaces
		return nil
	})
	if err == nil && (a.Keys != r.width || a.Count != int64(r.width) || a.More) {
		err = fmt.Errorf("range of %d keys gave %d, count %d", r.width, a.Keys, a.Count)
	}
	return err
}

func rangeSome(ctx context.Context, e *Env, size int) ([]Figure, error) {
	const keys, width = 100_000, 500
	return overKeys(ctx, e, keys, size, "range", func(slot int, fill filler) load.Op {
		return &ranger{keys: keys, width: width, size: size, fill: fill,
			rng: rand.New(rand.NewPCG(uint64(slot), 6))}
	})
}

// counter counts all keys.
type counter struct{ keys int64 }

func (c *counter) Next(buf []byte) (string, []byte, bool) {
	q := api.RangeRequest{Key: allKeys, End: allKeysEnd, CountOnly: true}
	return api.Range, q.Append(buf), true
}

func (c *counter) Check(msg []byte) error {
	var a api.RangeAnswer
	if err := a.Read(msg, nil); err != nil {
		return err
	}
	if a.Count != c.keys || a.Keys != 0 {
		return fmt.Errorf("count of %d keys gave %d, and %d keys", c.keys, a.Count, a.Keys)
	}
	return nil
}

func countAll(ctx context.Context, e *Env) ([]Figure, error) {
	const keys = 100_000
	return overKeys(ctx, e, keys, e.Params.ValueSize, "count",
		func(int, filler) load.Op { return &counter{keys} })
}

// overKeys measures requests to a store of keys with values of size bytes.
func overKeys(ctx context.Context, e *Env, keys, size int, per string,
	newOp func(slot int, fill filler) load.Op) ([]Figure, error) {
	fill := newFiller(size)
	err := e.prepareData(ctx, fmt.Sprintf("keys-%d-%d", keys, size),
		func(ctx context.Context) error {
			return e.loadKeys(ctx, keys, size, fill)
		})
	if err != nil {
		return nil, err
	}
	cs, err := e.dial(ctx, 10, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	_, f, err := e.measureClosed(ctx, cs, 2, per,
		func(slot int) load.Op { return newOp(slot, fill) })
	return f, err
}

// churner makes a key between those that are there, and deletes it with its next request.
type churner struct {
	putter
	made bool
}

func (c *churner) Next(buf []byte) (string, []byte, bool) {
	c.made = !c.made
	if !c.made {
		return api.DeleteRange, api.AppendDelete(buf, c.key, nil), true
	}
	i := c.rng.IntN(c.keys)
	c.key = append(appendKey(c.key[:0], i), "/churn"...)
	c.fill.fill(c.value, uint64(i))
	return api.Put, api.AppendPut(buf, c.key, c.value), true
}

// list reads everything page by page, again and again, while others write.
func list(ctx context.Context, e *Env, pinned, churn bool) ([]Figure, error) {
	const page, writes = 500, 1000
	keys := e.Params.scaled(2_000_000, 10_000)
	fill := newFiller(e.Params.ValueSize)
	err := e.prepareData(ctx, fmt.Sprintf("keys-%d-%d", keys, e.Params.ValueSize),
		func(ctx context.Context) error {
			return e.loadKeys(ctx, keys, e.Params.ValueSize, fill)
		})
	if err != nil {
		return nil, err
	}
	cs, err := e.dial(ctx, 11, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	p, err := load.Start(cs[1:], writes, func(slot int) load.Op {
		p := newPutter(slot, keys, e.Params.ValueSize, fill)
		if churn {
			return &churner{putter: *p}
		}
		return p
	}, load.Refuses)
	if err != nil {
		return nil, err
	}
	if err := p.Wait(ctx, e.Params.Warmup); err != nil {
		return nil, err
	}
	m := e.meter()
	var pages hist.Hist
	lists := 0
	r, err := p.Phase(ctx, func() error {
		if err := m.beginMetering(); err != nil {
			return err
		}
		for began := time.Now(); lists == 0 || time.Since(began) < e.Params.Duration; lists++ {
			if err := listOnce(ctx, cs[0], keys, page, pinned, churn, &pages); err != nil {
				return err
			}
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
	u := &m.usage
	f := []Figure{
		{Name: "time of a whole list", Unit: "ms", Value: u.Wall.Seconds() * 1e3 / float64(lists),
			Better: Lower},
		{Name: "server CPU per list, puts included", Unit: "ms",
			Value: u.CPU.Seconds() * 1e3 / float64(lists), Better: Lower},
		{Name: "keys listed", Unit: "keys/s",
			Value: float64(lists) * float64(keys) / u.Wall.Seconds(), Better: Higher},
	}
	f = append(f, latencies("page", &pages)...)
	f = append(f, latencies("put meanwhile", &r.Latency)...)
	f = append(f, rates(r)...)
	f = append(f, u.memory()...)
	return append(f, u.auxiliary()...), nil
}

func listOnce(ctx context.Context, c *grpcconn.Conn, keys, page int, pinned, churn bool,
	pages *hist.Hist) error {
	from, seen, rev, first := append([]byte(nil), allKeys...), 0, int64(0), keys
	var last, buf []byte
	for {
		q := api.RangeRequest{Key: from, End: allKeysEnd, Limit: int64(page)}
		if pinned {
			q.Revision = rev
		}
		buf = q.Append(buf[:0])
		began := time.Now()
		b, err := c.Call(ctx, api.Range, buf)
		if err != nil {
			return err
		}
		pages.Record(time.Since(began))
		var a api.RangeAnswer
		err = a.Read(b, func(kv *api.KeyValue) error {
			if bytes.Compare(kv.Key, last) <= 0 {
				return fmt.Errorf("key %s after %s", kv.Key, last)
			}
			if q.Revision > 0 && kv.Mod > q.Revision {
				return fmt.Errorf("key %s of revision %d in a list at %d", kv.Key,
					kv.Mod, q.Revision)
			}
			last = kv.Key
			return nil
		})
		if err != nil {
			return err
		}
		if churn && seen == 0 {
			// How many there are besides is known to the first page alone.
			if keys = int(a.Count); keys < first {
				return fmt.Errorf("page counts %d keys of %d that are always there", keys, first)
			}
		}
		if a.Count != int64(keys-seen) {
			return fmt.Errorf("page counts %d keys, %d are left", a.Count, keys-seen)
		}
		if rev == 0 {
			rev = a.Header.Revision
		}
		seen += a.Keys
		if !a.More {
			break
		}
		from = append(append(from[:0], last...), 0)
	}
	if seen != keys {
		return fmt.Errorf("list of %d keys gave %d", keys, seen)
	}
	return nil
}

// hugeRange counts the keys of one answer of any size without keeping it.
type hugeRange struct {
	api.RangeCounter
	err  error
	done chan grpcconn.Status
}

func (h *hugeRange) Part(_ time.Time, p []byte, last bool) {
	if h.err == nil {
		h.err = h.Add(p)
	}
	if last && h.err == nil {
		h.err = h.Whole()
	}
}
func (h *hugeRange) Message(at time.Time, msg []byte)   { h.Part(at, msg, true) }
func (h *hugeRange) End(_ time.Time, s grpcconn.Status) { h.done <- s }

func rangeHuge(ctx context.Context, e *Env) ([]Figure, error) {
	const clients, size = 5, 16 << 10
	keys := e.Params.scaled(1<<30/clients/size, 100)
	fill := newFiller(size)
	err := e.prepareData(ctx, fmt.Sprintf("keys-%d-%d", keys, size),
		func(ctx context.Context) error {
			return e.loadKeys(ctx, keys, size, fill)
		})
	if err != nil {
		return nil, err
	}
	cs, err := e.dial(ctx, clients, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	m := e.meter()
	if err := m.beginMetering(); err != nil {
		return nil, err
	}
	q := api.RangeRequest{Key: allKeys, End: allKeysEnd}
	hs := make([]*hugeRange, clients)
	for i, c := range cs {
		hs[i] = &hugeRange{done: make(chan grpcconn.Status, 1)}
		if _, err := c.Open(api.Range, hs[i], q.Append(nil), true); err != nil {
			return nil, err
		}
		if err := c.Flush(); err != nil {
			return nil, err
		}
	}
	var total int64
	var failed error
	for _, h := range hs {
		select {
		case s := <-h.done:
			err := errors.Join(s.Err(), h.err)
			if err == nil && (h.Keys != int64(keys) || h.Count != int64(keys)) {
				err = fmt.Errorf("range of %d keys gave %d, count %d", keys, h.Keys, h.Count)
			}
			failed = errors.Join(failed, err)
			total += h.Bytes
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err := errors.Join(failed, m.endMetering()); err != nil {
		return nil, err
	}
	if err := m.addProfile(); err != nil {
		return nil, err
	}
	u := &m.usage
	f := []Figure{
		{Name: "bytes", Unit: "MiB/s", Value: float64(total) / mib / u.Wall.Seconds(),
			Better: Higher},
		{Name: "server CPU per MiB", Unit: "µs", Value: micros(u.CPU) / (float64(total) / mib),
			Better: Lower},
	}
	return append(append(f, u.memory()...), u.auxiliary()...), nil
}
