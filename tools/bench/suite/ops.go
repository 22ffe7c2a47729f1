package suite

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"vigil/tools/bench/api"
	"vigil/tools/bench/grpcconn"
	"vigil/tools/bench/load"
	"vigil/tools/bench/resource"
)

// appendKey adds the name of key i, shaped like the keys of a Kubernetes API server.
func appendKey(b []byte, i int) []byte {
	b = append(b, "/registry/pods/namespace-"...)
	b = append(b, byte('0'+i/10%10), byte('0'+i%10), '/', 'p', 'o', 'd', '-')
	for d := 100_000_000; d > 0; d /= 10 {
		b = append(b, byte('0'+i/d%10))
	}
	return b
}

// The range that holds every key of appendKey.
var allKeys, allKeysEnd = []byte("/registry/pods/"), []byte("/registry/pods0")

// filler is what values are cut from; it does not compress.
type filler []byte

func newFiller(size int) filler {
	f := make(filler, size+4096)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range f {
		f[i] = byte(rng.Uint32())
	}
	return f
}

// fill makes the value that belongs to number i: the number, and bytes that depend on it. It is
// shorter than 8 bytes for no key.
func (f filler) fill(v []byte, i uint64) {
	copy(v, f[i%4096:])
	binary.BigEndian.PutUint64(v, i)
}

// holds reports whether v is the value of number i.
func (f filler) holds(v []byte, i uint64) bool {
	return len(v) >= 8 && binary.BigEndian.Uint64(v) == i &&
		bytes.Equal(v[8:], f[i%4096+8:][:len(v)-8])
}

// putter puts values under random keys of a number of keys. It stamps the values with the time the
// put was due if it has a base.
type putter struct {
	keys  int
	size  int
	fill  filler
	rng   *rand.Rand
	base  time.Time
	due   time.Time
	from  int // the first key
	key   []byte
	value []byte
	last  int64 // revision of this slot's last put
}

func newPutter(slot, keys, size int, f filler) *putter {
	return &putter{keys: keys, size: size, fill: f, rng: rand.New(rand.NewPCG(uint64(slot), 3)),
		value: make([]byte, size)}
}

// Due takes the time the next put is due.
func (p *putter) Due(at time.Time) { p.due = at }

func (p *putter) Next(buf []byte) (string, []byte, bool) {
	i := p.from + p.rng.IntN(p.keys)
	p.key = appendKey(p.key[:0], i)
	p.fill.fill(p.value, uint64(i))
	if !p.base.IsZero() {
		load.Stamp(p.value, p.base, p.due)
	}
	return api.Put, api.AppendPut(buf, p.key, p.value), true
}

func (p *putter) Check(msg []byte) error {
	h, err := api.ReadHeader(msg)
	if err != nil {
		return err
	}
	if h.Revision <= p.last {
		return fmt.Errorf("put at revision %d after one at %d was answered", h.Revision, p.last)
	}
	p.last = h.Revision
	return nil
}

// getter reads random keys of those that load filled.
type getter struct {
	keys, size   int
	serializable bool
	fill         filler
	rng          *rand.Rand
	key          []byte
	want         uint64
}

func (g *getter) Next(buf []byte) (string, []byte, bool) {
	i := g.rng.IntN(g.keys)
	g.want = uint64(i)
	g.key = appendKey(g.key[:0], i)
	r := api.RangeRequest{Key: g.key, Serializable: g.serializable}
	return api.Range, r.Append(buf), true
}

func (g *getter) Check(msg []byte) error {
	var a api.RangeAnswer
	err := a.Read(msg, func(kv *api.KeyValue) error {
		if !bytes.Equal(kv.Key, g.key) || len(kv.Value) != g.size ||
			!g.fill.holds(kv.Value, g.want) {
			return fmt.Errorf("get of %s gave %s with %d bytes", g.key, kv.Key, len(kv.Value))
		}
		return nil
	})
	if err == nil && (a.Keys != 1 || a.Count != 1 || a.More) {
		err = fmt.Errorf("get of %s gave %d keys, count %d", g.key, a.Keys, a.Count)
	}
	return err
}

// filling puts keys [0, keys) in transactions of several puts each.
type filling struct {
	next       *atomic.Int64
	keys, size int
	per        int
	fill       filler
	key, value []byte
	n          int
	name       func(i int) int // the number of the key that is put as number i; nil means i
}

func (f *filling) Next(buf []byte) (string, []byte, bool) {
	from := int(f.next.Add(int64(f.per))) - f.per
	if from >= f.keys {
		return "", nil, false
	}
	to := min(from+f.per, f.keys)
	for i := from; i < to; i++ {
		name := i
		if f.name != nil {
			name = f.name(i)
		}
		f.key = appendKey(f.key[:0], name)
		f.fill.fill(f.value, uint64(name))
		buf = api.AppendTxnPut(buf, f.key, f.value)
	}
	f.n = to - from
	return api.Txn, buf, true
}

func (f *filling) Check(msg []byte) error {
	var a api.TxnAnswer
	if err := a.Read(msg); err != nil {
		return err
	}
	if !a.Succeeded || a.Responses != f.n {
		return fmt.Errorf("transaction of %d puts: succeeded %v, %d responses", f.n,
			a.Succeeded, a.Responses)
	}
	return nil
}

// loadKeys puts n keys of size bytes, each once, as fast as transactions carry them.
func (e *Env) loadKeys(ctx context.Context, n, size int, fill filler) error {
	cs, err := load.Dial(ctx, e.server.Addr, 8, grpcconn.Options{})
	if err != nil {
		return err
	}
	defer cs.Close()
	var next atomic.Int64
	per := max(min(100, 512<<10/size), 1)
	_, err = load.Closed(ctx, cs, 2, load.Window{}, func(int) load.Op {
		return &filling{next: &next, keys: n, size: size, per: per, fill: fill,
			value: make([]byte, size)}
	})
	if err != nil {
		return fmt.Errorf("loading %d keys: %w", n, err)
	}
	return nil
}

// limited ends an operation after a number of requests shared by all slots.
type limited struct {
	load.Op
	left *atomic.Int64
}

func (l limited) Next(buf []byte) (string, []byte, bool) {
	if l.left.Add(-1) < 0 {
		return "", nil, false
	}
	return l.Op.Next(buf)
}

// writeHistory puts n values under random ones of the first keys, each at its own revision.
func (e *Env) writeHistory(ctx context.Context, n, keys, size int, fill filler) error {
	cs, err := load.Dial(ctx, e.server.Addr, 20, grpcconn.Options{})
	if err != nil {
		return err
	}
	defer cs.Close()
	var left atomic.Int64
	left.Store(int64(n))
	_, err = load.Closed(ctx, cs, 50, load.Window{}, func(slot int) load.Op {
		return limited{newPutter(slot, keys, size, fill), &left}
	})
	if err != nil {
		return fmt.Errorf("writing %d revisions: %w", n, err)
	}
	return nil
}

// revision is the server's current one.
func (e *Env) revision(ctx context.Context, c *grpcconn.Conn) (int64, error) {
	r := api.RangeRequest{Key: []byte("ready?")}
	b, err := c.Call(ctx, api.Range, r.Append(nil))
	if err != nil {
		return 0, err
	}
	h, err := api.ReadHeader(b)
	return h.Revision, err
}

// checkWrites checks that the revision has moved by the number of acknowledged writes since from.
func (e *Env) checkWrites(ctx context.Context, c *grpcconn.Conn, from, writes int64) error {
	now, err := e.revision(ctx, c)
	if err != nil {
		return err
	}
	if now-from != writes {
		return fmt.Errorf("%d writes were acknowledged, the revision moved by %d", writes, now-from)
	}
	return nil
}

// absent reads a key that does not exist.
type absent struct{}

func (absent) Next(buf []byte) (string, []byte, bool) {
	r := api.RangeRequest{Key: []byte("absent")}
	return api.Range, r.Append(buf), true
}

func (absent) Check(msg []byte) error {
	var a api.RangeAnswer
	err := a.Read(msg, nil)
	if err == nil && a.Keys != 0 {
		err = fmt.Errorf("a key exists that was never written")
	}
	return err
}

// settleMemory brings the server's memory to where its collector keeps it when nothing more is
// live: between collections a heap grows by garbage up to a bound. It does gets, which change no
// data, until the resident memory stands still or for long enough.
func (e *Env) settleMemory(ctx context.Context, cs load.Conns) (m resource.Memory, err error) {
	const gets, rounds, still = 20_000, 12, 2
	for i, same := 0, 0; i < rounds && same < still; i++ {
		var left atomic.Int64
		left.Store(gets)
		_, err = load.Closed(ctx, cs, 5, load.Window{},
			func(int) load.Op { return limited{absent{}, &left} })
		if err != nil {
			return m, err
		}
		before := m.Anon
		if m, err = resource.ReadMemory(e.server.PID); err != nil {
			return m, err
		}
		same++
		if d := m.Anon - before; d > mib || d < -mib {
			same = 0
		}
	}
	return m, nil
}
