package mvcc

import (
	"errors"
	"testing"
	"vigil/internal/kv"
	"vigil/internal/store/mvcc/record"
)

// HashAt at a compact revision above the store's own is what HashKV says once the store is compacted
// there; below it, it is unknown.
func TestHashAtACompactionToCome(t *testing.T) {
	b := newBed(t, Options{}, 1<<20)
	fill(t, b, 2000)
	head := b.Revision()
	compact := head - 700
	revs := []int64{compact, compact + 1, head - 300, head}
	before := map[int64]uint32{}
	for _, rev := range revs {
		sum, err := b.HashAt(t.Context(), rev, compact)
		if err != nil {
			t.Fatal(err)
		}
		before[rev] = sum
	}
	compactAt(t, b, compact)
	if err := b.WaitTrimmed(t.Context(), compact); err != nil {
		t.Fatal(err)
	}
	for _, rev := range revs {
		sum, err := b.HashAt(t.Context(), rev, compact)
		if err != nil || sum != before[rev] {
			t.Errorf("revision %d: %08x before the compaction, %08x after it, %v", rev, before[rev], sum, err)
		}
		// What is asked at the compact revision itself HashKV answers as of before the compaction.
		if res, err := b.HashKV(t.Context(), rev); rev > compact && (err != nil || res.Hash != before[rev]) {
			t.Errorf("revision %d: HashKV %08x, HashAt %08x, %v", rev, res.Hash, before[rev], err)
		}
	}
	if _, err := b.HashAt(t.Context(), head, compact-1); !errors.Is(err, kv.ErrCompacted) {
		t.Errorf("below the compaction: %v", err)
	}
	if _, err := b.HashAt(t.Context(), head+1, compact); err != kv.ErrFutureRev {
		t.Errorf("beyond the newest revision: %v", err)
	}
	b.close(t)
}

// A cut stays what it was while the store goes on; a compaction ends what it can hand out.
func TestCut(t *testing.T) {
	b := newBed(t, Options{}, 1<<20)
	fill(t, b, 300)
	cut, err := b.Cut(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rev := b.Revision()
	sc, err := cut.Records(rev - 99)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, b, 300)
	compactAt(t, b, b.Revision())
	if err := b.WaitTrimmed(t.Context(), b.CompactRevision()); err != nil {
		t.Fatal(err)
	}
	b.log.Reclaim()
	if err := b.WaitReclaimed(t.Context(), b.CompactRevision()); err != nil {
		t.Fatal(err)
	}
	seen := map[int64]bool{}
	for sc.Next() {
		if err := CheckRecord(sc.Rev(), sc.Tombstone(), sc.Data()); err != nil {
			t.Error(err)
		}
		seen[sc.Rev().Main] = true
	}
	if err := sc.Err(); err != nil || len(seen) != 100 || !seen[rev] || cut.Revision != rev {
		t.Errorf("%d revisions up to %d, %v", len(seen), cut.Revision, err)
	}
	sc.Close()
	if _, err := cut.Records(1); !errors.Is(err, kv.ErrCompacted) {
		t.Errorf("records of a cut that a compaction has overtaken: %v", err)
	}
	now, err := b.Cut(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c, err := CompactRevision(now.Meta); err != nil || c != b.CompactRevision() || now.Compact != c {
		t.Errorf("compacted at %d, %d, %v, want %d", c, now.Compact, err, b.CompactRevision())
	}
	if c, err := CompactRevision(cut.Meta); err != nil || c != -1 {
		t.Errorf("compacted at %d before, %v", c, err)
	}
	for _, bad := range []record.KeyValue{{Key: []byte("k"), Mod: 5, Create: 6, Version: 1}, {Key: []byte("k"), Mod: 4, Create: 4, Version: 1}, {Key: []byte("k"), Mod: 5, Create: 5}} {
		if CheckRecord(kv.Rev{Main: 5}, false, bad.Append(nil)) == nil {
			t.Errorf("%+v at revision 5 is taken", bad)
		}
	}
	b.close(t)
}
