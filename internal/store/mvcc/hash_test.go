package mvcc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"runtime"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
	"vigil/internal/store/history"
)

// hashModel is what etcd keeps of a history and how it hashes that: a list of records from which a
// compaction removes some at once, and the generations of each key, of which the last is empty when
// the key is deleted.
type hashModel struct {
	records []modelChange
	keys    map[string][][]modelChange
	rev     int64
	compact int64
	known   []kv.HashResult
}

func newHashModel() *hashModel {
	return &hashModel{keys: map[string][][]modelChange{}, rev: 1, compact: -1}
}

func (m *hashModel) add(c modelChange) {
	m.records = append(m.records, c)
	m.rev = c.rev.Main
	gens := m.keys[c.kv.Key]
	if len(gens) == 0 {
		gens = append(gens, nil)
	}
	last := &gens[len(gens)-1]
	*last = append(*last, c)
	if c.tomb {
		gens = append(gens, nil)
	}
	m.keys[c.kv.Key] = gens
}

// keep returns what a compaction at a revision keeps of the records at or below it; if it is only
// asked for, a deletion that ends a generation there does not count.
func (m *hashModel) keep(at int64, compacting bool) map[kv.Rev]bool {
	kept := map[kv.Rev]bool{}
	for key, gens := range m.keys {
		g := 0
		for g < len(gens)-1 && gens[g][len(gens[g])-1].rev.Main < at {
			g++
		}
		i := len(gens[g]) - 1
		for i >= 0 && gens[g][i].rev.Main > at {
			i--
		}
		ends := g < len(gens)-1 && i == len(gens[g])-1
		if i >= 0 && (compacting || !ends) {
			kept[gens[g][i].rev] = true
		}
		if !compacting {
			continue
		}
		gens = gens[g:]
		gens[0] = gens[0][max(i, 0):]
		m.keys[key] = gens
		if len(gens) == 1 && len(gens[0]) == 0 {
			delete(m.keys, key)
		}
	}
	return kept
}

func (m *hashModel) sum(lower, at int64, kept map[kv.Rev]bool) uint32 {
	bytes := []byte("key")
	for _, c := range m.records {
		if c.rev.Main > at || c.rev.Main <= lower && len(kept) > 0 && !kept[c.rev] || c.rev.Main == lower && c.tomb {
			continue
		}
		bytes = binary.BigEndian.AppendUint64(bytes, uint64(c.rev.Main))
		bytes = append(bytes, '_')
		bytes = binary.BigEndian.AppendUint64(bytes, uint64(c.rev.Sub))
		rec := &mvccpb.KeyValue{Key: []byte(c.kv.Key)}
		if c.tomb {
			bytes = append(bytes, 't')
		} else {
			rec.CreateRevision, rec.ModRevision, rec.Version = c.kv.Create, c.kv.Mod, c.kv.Version
			rec.Value, rec.Lease = []byte(c.kv.Value), c.kv.Lease
		}
		b, err := proto.Marshal(rec)
		if err != nil {
			panic(err)
		}
		bytes = append(bytes, b...)
	}
	return crc32.Checksum(bytes, crc32.MakeTable(crc32.Castagnoli))
}

func (m *hashModel) compactTo(rev int64) {
	kept := m.keep(rev, true)
	m.known = append(m.known, kv.HashResult{Hash: m.sum(m.compact, rev, kept), HashRevision: rev, CompactRevision: m.compact})
	m.known = m.known[max(len(m.known)-10, 0):]
	m.records = slices.DeleteFunc(m.records, func(c modelChange) bool { return c.rev.Main <= rev && !kept[c.rev] })
	m.compact = rev
}

// losesPut reports whether a key was put in a revision after it was deleted there. A compaction of
// etcd's at just that revision loses the put.
func (m *hashModel) losesPut(rev int64) bool {
	for _, gens := range m.keys {
		for g := 1; g < len(gens); g++ {
			ended := gens[g-1][len(gens[g-1])-1].rev.Main
			if ended == rev && len(gens[g]) > 0 && gens[g][0].rev.Main == rev {
				return true
			}
		}
	}
	return false
}

func (m *hashModel) hashKV(rev int64) (kv.HashResult, error) {
	for _, res := range m.known {
		if res.HashRevision == rev {
			res.Revision = m.rev
			return res, nil
		}
	}
	switch {
	case rev > 0 && rev < m.compact:
		return kv.HashResult{}, kv.ErrCompacted
	case rev > m.rev:
		return kv.HashResult{}, kv.ErrFutureRev
	case rev == 0:
		rev = m.rev
	}
	return kv.HashResult{Hash: m.sum(m.compact, rev, m.keep(rev, false)), HashRevision: rev, CompactRevision: m.compact, Revision: m.rev}, nil
}

// hashes compares hashes at many revisions with the model's.
func (m *hashModel) compare(t *testing.T, g gen, b *bed) {
	t.Helper()
	revs := []int64{0, -1, m.rev, m.rev + 1, m.compact - 1, m.compact, m.compact + 1}
	for range 3 {
		revs = append(revs, m.compact+g.Int64N(m.rev-m.compact+1))
	}
	if len(m.known) > 0 {
		revs = append(revs, m.known[g.IntN(len(m.known))].HashRevision)
	}
	for _, rev := range revs {
		got, err := b.HashKV(t.Context(), rev)
		want, wantErr := m.hashKV(rev)
		same(t, fmt.Sprintf("hash at %d", rev), got, err, want, wantErr)
	}
}

// TestHashRandom compares with the model over random histories, and that neither what the trimmer
// has done nor a restart makes a difference.
//
//vigil:norace
func TestHashRandom(t *testing.T) {
	g := gen{seed(t)}
	for range rounds(t, 30) {
		b := newBed(t, Options{TrimKeys: 1 + g.IntN(5)}, 4096<<g.IntN(4))
		b.hashes.states = 1 + g.IntN(20)
		m, h := newModel(), newHashModel()
	life:
		for range 40 {
			for range 1 + g.IntN(5) {
				before, compact := len(m.changes), m.compact
				step(t, g, b, m)
				for _, c := range m.changes[before:] {
					h.add(c)
				}
				if m.compact != compact {
					if h.losesPut(m.compact) {
						b.commit(t)
						break life
					}
					h.compactTo(m.compact)
				}
			}
			b.commit(t)
			h.compare(t, g, b)
			switch g.IntN(6) {
			case 0:
				// The trimmer is done with it all.
				if err := b.WaitTrimmed(t.Context(), m.compact); err != nil {
					t.Fatal(err)
				}
				h.compare(t, g, b)
			case 1:
				b.reopen(t)
				h.known = nil
				h.compare(t, g, b)
			}
		}
		b.close(t)
	}
}

// fill puts n keys, twice, and deletes every third.
func fill(t testing.TB, b *bed, n int) {
	for round := range 2 {
		for i := range n {
			p := &kv.PutRequest{Key: fmt.Appendf(nil, "key-%06d", i), Value: fmt.Appendf(nil, "value-%d", round)}
			if _, err := b.Writer().Put(p, nil); err != nil {
				t.Fatal(err)
			}
			if i%100 == 0 {
				b.commit(t)
			}
		}
	}
	for i := 0; i < n; i += 3 {
		if _, err := b.Writer().DeleteRange(&kv.DeleteRangeRequest{Key: fmt.Appendf(nil, "key-%06d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	b.commit(t)
}

func compactAt(t testing.TB, b *bed, rev int64) {
	t.Helper()
	if _, err := b.Writer().Compact(rev); err != nil {
		t.Fatal(err)
	}
	b.commit(t)
}

// TestHashUntrimmed hashes one state with an index that was not trimmed, is trimmed, and was rebuilt.
func TestHashUntrimmed(t *testing.T) {
	b := newBed(t, Options{}, 1<<20)
	fill(t, b, 3000)
	head, compact := b.Revision(), b.Revision()-200
	// A hash that is under way holds the trimmer back.
	b.hashes.slot <- struct{}{}
	b.hashes.hold(b.Store)
	compactAt(t, b, compact)
	all := func() (out []kv.HashResult) {
		for _, at := range []int64{compact + 1, compact + 100, head} {
			snap := b.snap.Load()
			h := hashing{snap: snap, lower: snap.compact, at: at, limit: hashStates}
			sum, err := h.run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, kv.HashResult{Hash: sum, HashRevision: at, CompactRevision: snap.compact})
		}
		return out
	}
	untrimmed := all()
	// The hash of the compaction is there before the index is trimmed.
	left, err := b.HashKV(t.Context(), compact)
	if err != nil || left.CompactRevision != -1 {
		t.Fatalf("hash of the compaction: %+v, %v", left, err)
	}
	if b.Stats().Trimmed != -1 {
		t.Fatalf("%+v: trimmed while it was held back", b.Stats())
	}
	b.hashes.release()
	<-b.hashes.slot
	if err := b.WaitTrimmed(t.Context(), compact); err != nil {
		t.Fatal(err)
	}
	if trimmed := all(); !slices.Equal(trimmed, untrimmed) {
		t.Errorf("trimmed %+v\nbefore  %+v", trimmed, untrimmed)
	}
	b.reopen(t)
	if rebuilt := all(); !slices.Equal(rebuilt, untrimmed) {
		t.Errorf("rebuilt %+v\nbefore  %+v", rebuilt, untrimmed)
	}
	b.close(t)
}

// TestHashOvertaken compacts, and writes to keys whose blocks are full, while a hash is under way:
// it must not see any of it.
func TestHashOvertaken(t *testing.T) {
	b := newBed(t, Options{TrimKeys: 7}, 1<<20)
	fill(t, b, 1000)
	compactAt(t, b, 500)
	at := b.Revision() - 1200
	want, err := b.HashKV(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	b.hashes.slot <- struct{}{}
	snap := b.hashes.hold(b.Store)
	for range 5 {
		fill(t, b, 1000)
		compactAt(t, b, b.Revision()-10)
	}
	h := hashing{snap: snap, lower: snap.compact, at: at, limit: hashStates}
	if sum, err := h.run(t.Context()); err != nil || sum != want.Hash {
		t.Errorf("hash %d, %v; want %d", sum, err, want.Hash)
	}
	b.hashes.release()
	<-b.hashes.slot
	if _, err := b.HashKV(t.Context(), at); !errors.Is(err, kv.ErrCompacted) {
		t.Errorf("hash below the compaction: %v", err)
	}
	b.close(t)
}

// TestHashBesideWriter hashes the newest revision again and again while the writer writes and
// compacts, the trimmer trims and the log rewrites its segments, and compares what came out with the
// model.
func TestHashBesideWriter(t *testing.T) {
	g := gen{seed(t)}
	b := newBed(t, Options{TrimKeys: 3}, 4096)
	m := newModel()
	stop, results := make(chan struct{}), make(chan []kv.HashResult)
	again := make(chan struct{}) // receives after a hash
	go func() {
		var all []kv.HashResult
		defer func() { close(again); results <- all }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			res, err := b.Hash(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			if n := len(all); n == 0 || all[n-1] != res {
				all = append(all, res)
			}
			select {
			case again <- struct{}{}:
			default:
			}
		}
	}()
	for n := range rounds(t, 300) {
		for range 1 + g.IntN(8) {
			step(t, g, b, m)
		}
		b.commit(t)
		if g.IntN(4) == 0 {
			// Let the background come by.
			if err := b.WaitTrimmed(t.Context(), m.compact); err != nil {
				t.Fatal(err)
			}
		}
		if n%20 == 19 {
			// The writer may be faster than the hashes. The second one began after the commit.
			<-again
			<-again
		}
	}
	close(stop)
	all := <-results
	if len(all) < 10 {
		t.Fatalf("only %d hashes", len(all))
	}
	for range 60 {
		res := all[g.IntN(len(all))]
		h := newHashModel()
		for _, c := range m.changes {
			if c.rev.Main <= res.Revision {
				h.add(c)
			}
		}
		if h.losesPut(res.CompactRevision) {
			continue
		}
		h.compactTo(res.CompactRevision)
		if want := h.sum(res.CompactRevision, res.HashRevision, h.keep(res.HashRevision, false)); res.Hash != want {
			t.Fatalf("%+v, want %d", res, want)
		}
	}
	b.close(t)
}

// TestHashManyCompactions keeps ten hashes of many compactions, also when they come faster
// than they can be hashed.
func TestHashManyCompactions(t *testing.T) {
	b := newBed(t, Options{}, 1<<20)
	fill(t, b, 100)
	b.hashes.slot <- struct{}{}
	b.hashes.hold(b.Store) // the trimmer gets no further than the first
	for rev := int64(10); rev < 50; rev++ {
		compactAt(t, b, rev)
	}
	b.hashes.release()
	<-b.hashes.slot
	if err := b.WaitTrimmed(t.Context(), 49); err != nil {
		t.Fatal(err)
	}
	check := func(last int64) {
		t.Helper()
		for rev := last - 20; rev <= last; rev++ {
			res, err := b.HashKV(t.Context(), rev)
			if kept := rev > last-10; !kept && !errors.Is(err, kv.ErrCompacted) || kept && (err != nil || res.CompactRevision != rev-1) {
				t.Errorf("hash at %d: %+v, %v", rev, res, err)
			}
		}
	}
	check(49)
	for rev := int64(50); rev < 55; rev++ {
		compactAt(t, b, rev)
		if err := b.WaitTrimmed(t.Context(), rev); err != nil {
			t.Fatal(err)
		}
	}
	check(54)
	b.close(t)
}

// TestHashCancel ends a hash, and the wait for one, with the context, and leaves nothing that
// holds others up.
func TestHashCancel(t *testing.T) {
	b := newBed(t, Options{}, 4<<20)
	fill(t, b, 10000)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, rev := range []int64{0, 100} {
		if _, err := b.HashKV(ctx, rev); !errors.Is(err, context.Canceled) {
			t.Errorf("hash at %d: %v", rev, err)
		}
	}
	if _, err := b.Hash(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("hash of all: %v", err)
	}
	// While one hash runs another waits its turn.
	b.hashes.slot <- struct{}{}
	ctx, cancel = context.WithCancel(t.Context())
	errs := make(chan error)
	go func() {
		_, err := b.HashKV(ctx, 0)
		errs <- err
	}()
	cancel()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for the turn: %v", err)
	}
	<-b.hashes.slot
	compactAt(t, b, 1000)
	if err := b.WaitTrimmed(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	b.Store.Close()
	if _, err := b.HashKV(t.Context(), 0); err != nil && !errors.Is(err, history.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	b.close(t)
}

// TestHashMemory bounds the memory of a hash: it does not grow with the number of records.
func TestHashMemory(t *testing.T) {
	b := newBed(t, Options{}, 256<<10)
	fill(t, b, 20000)
	compactAt(t, b, 30000)
	// What the background allocates is not of the hash.
	if err := b.WaitReclaimed(t.Context(), 30000); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := b.HashKV(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	// Of its own it needs the scanner's window and 16 bytes for each of the keys.
	if n := after.TotalAlloc - before.TotalAlloc; n > 2<<20 {
		t.Errorf("a hash took %d bytes", n)
	}
	b.close(t)
}

// BenchmarkHash hashes a million revisions of 256 bytes over 200 thousand keys, as they are and after
// a compaction in the middle.
func BenchmarkHash(b *testing.B) {
	bed := newBed(b, Options{}, 64<<20)
	value := make([]byte, 256)
	const revisions = 1_000_000
	for i := range revisions {
		if _, err := bed.Writer().Put(&kv.PutRequest{Key: fmt.Appendf(nil, "key-%06d", i*7919%200_000), Value: value}, nil); err != nil {
			b.Fatal(err)
		}
		if i%1000 == 0 {
			bed.commit(b)
		}
	}
	bed.commit(b)
	run := func(name string) {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				if _, err := bed.Hash(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/revisions, "ns/revision")
		})
	}
	run("whole")
	compactAt(b, bed, revisions/2)
	if err := bed.WaitTrimmed(b.Context(), revisions/2); err != nil {
		b.Fatal(err)
	}
	run("compacted at the middle")
	bed.close(b)
}

// TestHashDue leaves a compaction alone that readers do not see yet: the snapshot may lack records.
func TestHashDue(t *testing.T) {
	var h hashes
	h.init()
	h.enqueue([]compaction{{-1, 5}, {5, 9}})
	if c, ok := h.next(8); !ok || c.rev != 5 {
		t.Errorf("next up to 8: %+v, %v", c, ok)
	}
	h.done(compaction{-1, 5}, nil)
	if c, ok := h.next(8); ok {
		t.Errorf("next up to 8: %+v", c)
	}
	if _, due, _ := h.find(9); due == nil {
		t.Error("9 is not due")
	}
	if c, ok := h.next(9); !ok || c.rev != 9 {
		t.Errorf("next up to 9: %+v, %v", c, ok)
	}
}
