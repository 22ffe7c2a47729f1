package mvcc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/vfs/memfs"
)

// chronicle is what the raft log is to a store: the requests, in batches, that are carried out again
// after a crash.
type chronicle struct {
	batches [][]any
	models  []*model // after each batch
	lag     int64    // compactions lag at least that far
	size    int      // of values, at most
}

// write makes up a batch and carries it out on the model.
func (c *chronicle) write(g gen, m *model) {
	var batch []any
	for range 1 + g.IntN(4) {
		var req any
		switch n := g.IntN(20); {
		case n < 10:
			p := g.put()
			p.Value = bytes.Repeat(p.Value, g.IntN(max(c.size, 60)))
			if req = p; m.checkPut(p) == nil {
				tx := &modelTxn{m: m}
				tx.put(p)
				tx.end()
			}
		case n < 14:
			d := g.delete()
			req = d
			tx := &modelTxn{m: m}
			tx.delete(d)
			tx.end()
		case n < 18:
			r := g.txn(m.rev, 0)
			req = r
			_, _ = m.txn(r)
		default:
			rev := max(m.rev-c.lag-g.Int64N(20), 1)
			req = rev
			_ = m.compactTo(rev)
		}
		batch = append(batch, req)
	}
	c.batches = append(c.batches, batch)
	c.models = append(c.models, m.clone())
}

// replay carries out what the store has not seen yet, up to n batches in all.
func (c *chronicle) replay(t *testing.T, b *bed, n int) {
	t.Helper()
	for b.applied = b.log.Applied(); int(b.applied.Index) <= n; {
		w := b.Writer()
		for _, req := range c.batches[b.applied.Index-1] {
			var err error
			switch r := req.(type) {
			case *kv.PutRequest:
				_, err = w.Put(r, c.models[0])
			case *kv.DeleteRangeRequest:
				_, err = w.DeleteRange(r)
			case *kv.TxnRequest:
				_, err = w.Txn(r, c.models[0])
			case int64:
				_, err = w.Compact(r)
			}
			if f := (*FatalError)(nil); errors.As(err, &f) {
				t.Fatal(err)
			}
		}
		b.commit(t)
	}
}

// reclaimLife is what happens to one of the stores between batches.
type reclaimLife struct {
	*rand.Rand
	b *bed
}

func (l *reclaimLife) disturb(t *testing.T) {
	switch l.IntN(12) {
	case 0:
		l.b.Reclaim()
	case 1:
		if _, err := l.b.log.Sync(); err != nil {
			t.Fatal(err)
		}
	case 2:
		l.b.reopen(t)
	case 3, 4:
		// Whatever is under way, a rewrite too, ends here.
		next := l.b.fs.Kill
		if l.IntN(3) > 0 {
			next = func() *memfs.FS { return l.b.fs.Crash(l.Rand) }
		}
		fs := next()
		l.b.Store.Close()
		_ = l.b.log.Close()
		l.b.fs = fs
		log, err := history.Open(l.b.history())
		if err != nil {
			t.Fatal(err)
		}
		l.b.open(t, log)
	case 5, 6, 7:
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := l.b.log.WaitReclaimed(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// needless returns the records that a compaction has made needless, by the model.
func (m *model) needless() map[kv.Rev]bool {
	dead := map[kv.Rev]bool{}
	newest := map[string]modelChange{}
	for _, c := range m.changes {
		if c.rev.Main > m.compact {
			continue
		}
		if old, ok := newest[c.kv.Key]; ok && old.rev.Main < m.compact {
			dead[old.rev] = true
		}
		newest[c.kv.Key] = c
	}
	for _, c := range newest {
		if c.tomb && c.rev.Main < m.compact {
			dead[c.rev] = true
		}
	}
	return dead
}

// remains checks what is left in the log: nothing that is needed is missing, and after reclaim has
// done all it can, nothing that is not needed is in a sealed segment.
func remains(t *testing.T, b *bed, m *model) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := b.WaitTrimmed(ctx, m.compact); err != nil {
		t.Fatal(err)
	}
	b.Reclaim()
	for left := true; left; {
		if err := b.WaitReclaimed(ctx, m.compact); err != nil {
			t.Fatal(err)
		}
		total, live := b.log.Size()
		left = total > live
	}
	if err := b.log.Check(ctx); err != nil {
		t.Fatal(err)
	}
	present := map[kv.Rev]bool{}
	sc := b.log.View().Scan(kv.Rev{})
	defer sc.Close()
	for sc.Next() {
		present[sc.Rev()] = true
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	dead := m.needless()
	for _, c := range m.changes {
		if present[c.rev] == dead[c.rev] {
			t.Fatalf("compacted at %d: the record of %q at %v is there: %v", m.compact, c.kv.Key, c.rev, present[c.rev])
		}
	}
}

// TestReclaim carries out one history on several stores that differ in the size of their segments
// and in when they reclaim space, are closed, killed or lose power, and compares each with the model
// and with the others. VIGIL_ROUNDS says how many histories.
func TestReclaim(t *testing.T) {
	for range rounds(t, 10) {
		g := gen{seed(t)}
		m := newModel()
		var c chronicle
		for range 20 + g.IntN(100) {
			c.write(g, m)
		}
		var dumps []string
		for range 3 {
			b := newBed(t, Options{TrimKeys: 1 + g.IntN(20), Parallel: 1 + g.IntN(3)}, 4096<<g.IntN(3))
			l := reclaimLife{rand.New(rand.NewPCG(g.Uint64(), 1)), b}
			for n := 1; n <= len(c.batches); n++ {
				c.replay(t, b, n)
				if g.IntN(8) == 0 {
					reads(t, g, b, c.models[n-1])
				}
				l.disturb(t)
			}
			c.replay(t, b, len(c.batches))
			for range 5 {
				reads(t, g, b, m)
			}
			remains(t, b, m)
			b.reopen(t)
			for range 5 {
				reads(t, g, b, m)
			}
			dumps = append(dumps, dump(t, b))
			b.close(t)
		}
		for _, d := range dumps[1:] {
			if d != dumps[0] {
				t.Fatalf("two stores differ:\n%s\n%s", dumps[0], d)
			}
		}
	}
}

// dump returns all that can be read of a store, at every revision.
func dump(t *testing.T, b *bed) string {
	var out bytes.Buffer
	for at := max(b.CompactRevision(), 1); at <= b.Revision(); at++ {
		res, err := b.Range(context.Background(), &kv.RangeRequest{Key: []byte{0}, End: []byte{0}, Revision: at})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%d: %x\n", at, res.KVs.Buf)
	}
	evs, _, err := b.Events(max(b.CompactRevision(), 1), b.Revision(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range plainEvents(t, evs) {
		fmt.Fprintf(&out, "%+v\n", e)
	}
	return out.String()
}
