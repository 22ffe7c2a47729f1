package mvcc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"testing"
	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc/index"
	"vigil/internal/store/mvcc/meter"
	"vigil/internal/vfs/memfs"
)

// seed returns a source of randomness that VIGIL_SEED can repeat.
func seed(t testing.TB) *rand.Rand {
	s := rand.Uint64()
	if env := os.Getenv("VIGIL_SEED"); env != "" {
		var err error
		if s, err = strconv.ParseUint(env, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("VIGIL_SEED=%d", s)
	return rand.New(rand.NewPCG(s, 0))
}

// rounds is how often a random test runs: n times, or as VIGIL_ROUNDS says.
func rounds(t testing.TB, n int) int {
	if env := os.Getenv("VIGIL_ROUNDS"); env != "" {
		var err error
		if n, err = strconv.Atoi(env); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// bed is a store on a file system in memory.
type bed struct {
	*Store
	fs      *memfs.FS
	log     *history.Log
	opts    Options
	seg     int64
	applied history.Applied
	// twin, if set, is a store whose results are discarded. It must refuse what this one refuses.
	twin    *bed
	refused int
}

func newBed(t testing.TB, o Options, segment int64) *bed {
	b := &bed{fs: memfs.New(), opts: o, seg: segment, applied: history.Applied{Term: 1, Index: 1}}
	log, err := history.Create(b.history(), b.applied, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.open(t, log)
	return b
}

func (b *bed) history() history.Options {
	return history.Options{FS: b.fs, Dir: "history", SegmentBytes: b.seg, ClusterID: 1, MemberID: 2}
}

func (b *bed) open(t testing.TB, log *history.Log) {
	s, err := Open(log, b.opts)
	if err != nil {
		t.Fatal(err)
	}
	// The index is cleaned as often as that of a large store.
	s.lock <- struct{}{}
	s.writer.index.Pool.CleanFrom = 64
	<-s.lock
	b.Store, b.log = s, log
}

func (b *bed) close(t testing.TB) {
	b.Store.Close()
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
}

func (b *bed) reopen(t testing.TB) {
	b.close(t)
	log, err := history.Open(b.history())
	if err != nil {
		t.Fatal(err)
	}
	b.open(t, log)
}

func (b *bed) commit(t testing.TB) Published {
	b.applied.Index++
	p, err := b.Writer().Commit(b.applied)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// refuses reports whether a request that ended with err was refused for a limit. The twin makes it too.
func (b *bed) refuses(t testing.TB, err error, again func(w *Writer) error) bool {
	t.Helper()
	if b.twin != nil {
		w := b.twin.Writer()
		w.Discard(true)
		if terr := again(w); fmt.Sprint(terr) != fmt.Sprint(err) {
			t.Fatalf("error %v; without results %v", err, terr)
		}
	}
	if meter.IsLimit(err) {
		b.refused++
	}
	return meter.IsLimit(err)
}

// gen makes random requests over few keys.
type gen struct{ *rand.Rand }

func (g gen) key() []byte {
	const letters = "abcdefghijklmnop"
	i := g.IntN(len(letters))
	switch g.IntN(8) {
	case 0:
		return []byte("p/" + letters[i:i+1])
	case 1:
		return []byte(letters[i:i+1] + "\x00")
	default:
		return []byte(letters[i : i+1])
	}
}

func (g gen) bounds() (key, end []byte) {
	key = g.key()
	switch g.IntN(6) {
	case 0, 1:
		return key, nil
	case 2:
		return key, []byte{0}
	case 3:
		return []byte{0}, []byte{0}
	default:
		return key, g.key() // inverted half of the time
	}
}

func (g gen) revision(cur int64) int64 {
	switch g.IntN(8) {
	case 0:
		return cur + g.Int64N(3)
	case 1:
		return -g.Int64N(3)
	case 2, 3:
		return max(cur-g.Int64N(30), 0)
	default:
		return 0
	}
}

func (g gen) rangeRequest(cur int64) *kv.RangeRequest {
	r := &kv.RangeRequest{Revision: g.revision(cur)}
	r.Key, r.End = g.bounds()
	if g.IntN(2) == 0 {
		r.Limit = g.Int64N(8) - 1
	}
	if g.IntN(3) == 0 {
		r.Sort, r.Order = kv.SortTarget(g.IntN(5)), kv.SortOrder(g.IntN(3))
	}
	r.KeysOnly = g.IntN(4) == 0
	r.CountOnly = g.IntN(8) == 0
	if g.IntN(6) == 0 {
		for _, p := range []*int64{&r.MinModRevision, &r.MaxModRevision, &r.MinCreateRevision, &r.MaxCreateRevision} {
			if g.IntN(3) == 0 {
				*p = max(cur-g.Int64N(40), 0)
			}
		}
	}
	return r
}

func (g gen) put() *kv.PutRequest {
	p := &kv.PutRequest{Key: g.key(), PrevKV: g.IntN(3) == 0}
	if p.IgnoreValue = g.IntN(8) == 0; !p.IgnoreValue {
		p.Value = []byte(strconv.Itoa(g.IntN(10)))
	}
	if p.IgnoreLease = g.IntN(8) == 0; !p.IgnoreLease && g.IntN(4) == 0 {
		p.Lease = g.Int64N(3)
		if g.IntN(20) == 0 {
			p.Lease = 77
		}
	}
	return p
}

func (g gen) delete() *kv.DeleteRangeRequest {
	d := &kv.DeleteRangeRequest{PrevKV: g.IntN(2) == 0}
	d.Key, d.End = g.key(), nil
	if g.IntN(4) == 0 {
		d.Key, d.End = g.bounds()
	}
	return d
}

func (g gen) txn(cur int64, depth int) *kv.TxnRequest {
	r := &kv.TxnRequest{}
	for range g.IntN(3) {
		c := kv.Compare{Target: kv.CompareTarget(g.IntN(5)), Result: kv.CompareResult(g.IntN(4)), Number: g.Int64N(4)}
		c.Key = g.key()
		if g.IntN(4) == 0 {
			c.Key, c.End = g.bounds()
		}
		switch c.Target {
		case kv.CompareCreate, kv.CompareMod:
			c.Number = max(cur-g.Int64N(20), 0)
		case kv.CompareValue:
			c.Value = []byte(strconv.Itoa(g.IntN(10)))
		}
		if g.IntN(50) == 0 {
			c.Target = 9
		}
		if g.IntN(50) == 0 {
			c.Result = 9
		}
		r.Compare = append(r.Compare, c)
	}
	for _, ops := range []*[]kv.Op{&r.Success, &r.Failure} {
		for range g.IntN(4) {
			var op kv.Op
			switch n := g.IntN(10); {
			case n < 3:
				op.Range = g.rangeRequest(cur)
				if g.IntN(8) > 0 {
					op.Range.Revision = 0
				}
			case n < 7:
				op.Put = g.put()
				op.Put.IgnoreValue = op.Put.IgnoreValue && g.IntN(4) == 0
			case n < 8:
				op.Delete = g.delete()
			case n < 9 && depth < 3:
				op.Txn = g.txn(cur, depth+1)
			}
			*ops = append(*ops, op)
		}
	}
	return r
}

// same compares an answer with the model's.
func same(t *testing.T, what string, got any, gotErr error, want any, wantErr error) {
	t.Helper()
	if (gotErr == nil) != (wantErr == nil) || wantErr != nil && !errors.Is(gotErr, wantErr) {
		t.Fatalf("%s: error %v, want %v", what, gotErr, wantErr)
	}
	if wantErr == nil && !reflect.DeepEqual(got, want) {
		t.Fatalf("%s:\n got %s\nwant %s", what, show(got), show(want))
	}
}

func show(v any) string {
	if r, ok := v.(*modelResult); ok {
		s := fmt.Sprintf("{%d %v", r.Revision, r.Succeeded)
		for _, one := range r.Responses {
			s += "\n  " + show(one)
		}
		return s + "}"
	}
	return fmt.Sprintf("%+v", reflect.Indirect(reflect.ValueOf(&v)))
}

// step makes one random request of the store and of the model.
func step(t *testing.T, g gen, b *bed, m *model) {
	w := b.Writer()
	switch n := g.IntN(20); {
	case n < 8:
		p := g.put()
		res, err := w.Put(p, m)
		if b.refuses(t, err, func(w *Writer) error { _, err := w.Put(p, m); return err }) {
			return
		}
		var want modelPut
		wantErr := m.checkPut(p)
		if wantErr == nil {
			tx := &modelTxn{m: m}
			want = tx.put(p)
			tx.end()
		}
		got, decErr := plainPut(res)
		same(t, fmt.Sprintf("put %+v", p), got, errors.Join(err, decErr), want, wantErr)
	case n < 11:
		d := g.delete()
		res, err := w.DeleteRange(d)
		if b.refuses(t, err, func(w *Writer) error { _, err := w.DeleteRange(d); return err }) {
			return
		}
		tx := &modelTxn{m: m}
		want := tx.delete(d)
		tx.end()
		got, decErr := plainDelete(res)
		same(t, fmt.Sprintf("delete %+v", d), got, errors.Join(err, decErr), want, nil)
	case n < 19:
		r := g.txn(m.rev, 0)
		res, err := w.Txn(r, m)
		if b.refuses(t, err, func(w *Writer) error { _, err := w.Txn(r, m); return err }) {
			return
		}
		want, wantErr := m.txn(r)
		var got *modelResult
		if err == nil {
			got, err = plainTxn(res)
		}
		same(t, fmt.Sprintf("txn %+v", r), got, err, want, wantErr)
	default:
		rev := max(m.rev-g.Int64N(40), -1)
		if g.IntN(10) == 0 {
			rev = m.rev + 1
		}
		_, err := w.Compact(rev)
		b.refuses(t, err, func(w *Writer) error { _, err := w.Compact(rev); return err })
		same(t, fmt.Sprintf("compact %d", rev), nil, err, nil, m.compactTo(rev))
	}
}

// reads compares random reads of the committed state with the model's.
func reads(t *testing.T, g gen, b *bed, m *model) {
	ctx := context.Background()
	if b.Revision() != m.rev || b.CompactRevision() != m.compact {
		t.Fatalf("revision %d, compacted %d; want %d, %d", b.Revision(), b.CompactRevision(), m.rev, m.compact)
	}
	for range 4 {
		r := g.rangeRequest(m.rev)
		res, err := b.Range(ctx, r)
		var got *modelRange
		if err == nil {
			got, err = plainRange(res)
		}
		want, wantErr := m.rangeAt(r, m.rev)
		same(t, fmt.Sprintf("range %+v", r), got, err, want, wantErr)
	}
	r := g.txn(m.rev, 0)
	for _, ops := range []*[]kv.Op{&r.Success, &r.Failure} {
		for i := range *ops {
			(*ops)[i] = kv.Op{Range: g.rangeRequest(m.rev)}
		}
	}
	res, err := b.ReadTxn(ctx, r)
	var got *modelResult
	if err == nil {
		got, err = plainTxn(res)
	}
	want, wantErr := m.txn(r)
	same(t, fmt.Sprintf("read-only txn %+v", r), got, err, want, wantErr)

	peek := &kv.RangeRequest{Key: g.key()}
	var peeked kv.GetResult
	if b.Peek(peek, &peeked) {
		got, err := plainRange(&peeked.RangeResult)
		want, wantErr := m.rangeAt(peek, m.rev)
		same(t, fmt.Sprintf("peek %q", peek.Key), got, err, want, wantErr)
	}

	key, at := g.key(), g.revision(m.rev)
	enc, err := b.Get(key, at)
	all, wantErr := m.rangeAt(&kv.RangeRequest{Key: key, Revision: at}, m.rev)
	var one, wantOne []modelKV
	if err == nil && enc != nil {
		k, decErr := plainKV(enc)
		one, err = []modelKV{k}, decErr
	}
	if wantErr == nil {
		wantOne = all.KVs
	}
	same(t, fmt.Sprintf("get %q at %d", key, at), one, err, wantOne, wantErr)
	eventsOf(t, g, b, m)
}

// event is a kv.Event in a form that can be compared.
type event struct {
	rev         kv.Rev
	del, create bool
	kv          modelKV
}

func plainEvents(t *testing.T, evs []kv.Event) (out []event) {
	for _, e := range evs {
		k, err := plainKV(e.KV)
		if err != nil || k.Key != string(e.Key) {
			t.Fatalf("an event of %q has %+v: %v", e.Key, k, err)
		}
		out = append(out, event{e.Rev, e.Delete, e.Create, k})
	}
	return out
}

func (m *model) events(from, to int64) (out []event) {
	for _, c := range m.changes {
		if c.rev.Main >= from && c.rev.Main <= to {
			out = append(out, event{c.rev, c.tomb, !c.tomb && c.kv.Create == c.kv.Mod, c.kv})
		}
	}
	return out
}

// eventsOf reads the events of random revisions, in steps of a random size.
func eventsOf(t *testing.T, g gen, b *bed, m *model) {
	from := max(m.rev-g.Int64N(50), 1)
	to := from + g.Int64N(50)
	limit := g.IntN(400)
	var all []event
	next := from
	var buf *kv.EventBuffer
	if g.IntN(2) == 0 {
		buf = &kv.EventBuffer{}
	}
	for first := true; next <= min(to, m.rev); first = false {
		evs, n, err := b.EventsIn(buf, next, to, limit)
		if from < m.compact {
			var ce *kv.CompactedError
			if !first || !errors.As(err, &ce) || ce.CompactRevision != m.compact {
				t.Fatalf("events from %d below %d: %v", from, m.compact, err)
			}
			return
		}
		if err != nil {
			t.Fatalf("events %d..%d: %v", next, to, err)
		}
		if n <= next {
			t.Fatalf("events from %d go on at %d", next, n)
		}
		got := plainEvents(t, evs)
		size := 0
		for i, e := range evs {
			if size >= limit && i > 0 && evs[i-1].Rev.Main != e.Rev.Main {
				t.Fatalf("%d bytes of events, more than %d", size, limit)
			}
			size += len(e.KV)
		}
		all = append(all, got...)
		next = n
	}
	if want := m.events(from, to); !reflect.DeepEqual(all, want) {
		t.Fatalf("events %d..%d:\n got %+v\nwant %+v", from, to, all, want)
	}
}

func TestRandom(t *testing.T) {
	g := gen{seed(t)}
	refused := 0
	for range rounds(t, 12) {
		o := Options{TrimKeys: 1 + g.IntN(5), Pins: g.IntN(4) - 1, Parallel: 1 + g.IntN(4)}
		limited := g.IntN(3) > 0
		if limited {
			o.Limits = Limits{RecordBytes: 20 + g.IntN(20), ChangeBytes: 40 + g.Int64N(200), ResultBytes: 20 + g.Int64N(400), VisitedKeys: 1 + g.Int64N(60)}
		}
		b := newBed(t, o, 4096<<g.IntN(4))
		if limited {
			o.Pins = g.IntN(4) - 1
			b.twin = newBed(t, o, 4096<<g.IntN(4))
		}
		m := newModel()
		for range 60 {
			before := m.rev
			attached := map[string]int64{}
			for _, k := range m.keys([]byte{0}, []byte{0}, m.rev) {
				attached[k.Key] = k.Lease
			}
			committed := m.clone()
			for range 1 + g.IntN(5) {
				step(t, g, b, m)
				if g.IntN(4) == 0 {
					reads(t, g, b, committed)
				}
			}
			compacted := m.compact
			p := b.commit(t)
			if b.twin != nil {
				b.twin.commit(t)
				reads(t, g, b.twin, m)
				if g.IntN(10) == 0 {
					b.twin.reopen(t)
					leased(t, b.twin, m)
				}
			}
			if got, want := plainEvents(t, p.Events), m.events(before+1, m.rev); !reflect.DeepEqual(got, want) {
				t.Fatalf("published\n     %+v\nwant %+v", got, want)
			}
			if p.Revision != m.rev || (p.Compacted > 0) != (compacted > committed.compact && compacted > 0) {
				t.Fatalf("published %+v, want revision %d, compacted %d", p, m.rev, compacted)
			}
			for _, c := range p.Leases {
				if attached[string(c.Key)] != c.From || c.From == c.To {
					t.Fatalf("lease change %+v of a key attached to %d", c, attached[string(c.Key)])
				}
				attached[string(c.Key)] = c.To
			}
			for _, k := range m.keys([]byte{0}, []byte{0}, m.rev) {
				if attached[k.Key] != k.Lease {
					t.Fatalf("%q is attached to %d, published %d", k.Key, k.Lease, attached[k.Key])
				}
			}
			reads(t, g, b, m)
			if g.IntN(10) == 0 {
				if err := b.WaitTrimmed(context.Background(), m.compact); err != nil {
					t.Fatal(err)
				}
				trimmed(t, b, m)
				reads(t, g, b, m)
			}
			if g.IntN(15) == 0 {
				b.reopen(t)
				trimmed(t, b, m)
				reads(t, g, b, m)
				leased(t, b, m)
			}
		}
		b.close(t)
		if b.twin != nil {
			b.twin.close(t)
		}
		refused += b.refused
	}
	if refused == 0 {
		t.Error("no request met a limit")
	}
}

// leased compares the attachments that the store returns after it was opened.
func leased(t *testing.T, b *bed, m *model) {
	got, want := map[string]int64{}, map[string]int64{}
	for k, l := range b.Leased() {
		got[k] = l
	}
	for _, k := range m.keys([]byte{0}, []byte{0}, m.rev) {
		if k.Lease != 0 {
			want[k.Key] = k.Lease
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("attached %v, want %v", got, want)
	}
}

// trimmed checks that the index of an idle store holds no key too many and counts right.
func trimmed(t *testing.T, b *bed, m *model) {
	known := map[string]bool{}
	for _, k := range m.keys([]byte{0}, []byte{0}, m.compact) {
		known[k.Key] = true
	}
	for _, c := range m.changes {
		if c.rev.Main > m.compact {
			known[c.kv.Key] = true
		}
	}
	st := b.Stats()
	if live := len(m.keys([]byte{0}, []byte{0}, m.rev)); st.Keys != live || st.Known != len(known) {
		t.Fatalf("%+v; want %d keys, %d known", st, live, len(known))
	}
	tree := b.snap.Load().tree
	for it := tree.Range("", ""); it.Next(); {
		list := index.At(&it).Changes()
		for i := range list.Len() {
			// One change at or below the compact revision is enough, and none if it is a deletion.
			if list.Main(i) <= m.compact && (i+1 < list.Len() && list.Main(i+1) <= m.compact) && b.Stats().Trimmed == m.compact {
				t.Fatalf("%q still has the change at %d below %d", it.Key(), list.Main(i), m.compact)
			}
		}
	}
}
