package mvcc

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"vigil/internal/kv"
	"vigil/internal/store/mvcc/record"
)

// exported is a record as an export shows it.
type exported struct {
	rev       kv.Rev
	tombstone bool
	data      string
}

// export makes an export and returns what its first walk and its second one show, which must be the same.
func export(t *testing.T, b *bed, during func(n int)) []exported {
	t.Helper()
	var first, second []exported
	e, err := b.Export(t.Context(), func(rev kv.Rev, tombstone bool, data []byte) error {
		if during != nil {
			during(len(first))
		}
		first = append(first, exported{rev, tombstone, string(data)})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if during != nil {
		during(-1)
	}
	for e.Next() {
		second = append(second, exported{e.Rev(), e.Tombstone(), string(e.Data())})
	}
	if err := e.Err(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(first, second) {
		t.Fatalf("the walks differ: %d and %d records", len(first), len(second))
	}
	return first
}

// counting returns what of a whole history counts at a compact revision, by its definition.
func counting(t *testing.T, all []exported, compact int64) []exported {
	t.Helper()
	state := map[string]kv.Rev{}
	for _, x := range all {
		if key, _, err := record.LeadingKey([]byte(x.data)); err != nil {
			t.Fatal(err)
		} else if x.rev.Main <= compact {
			state[string(key)] = x.rev
		}
	}
	var out []exported
	for _, x := range all {
		key, _, _ := record.LeadingKey([]byte(x.data))
		if x.rev.Main >= compact || !x.tombstone && state[string(key)] == x.rev {
			out = append(out, x)
		}
	}
	return out
}

// An export holds what counts, however much of the rest is still in the index or on disk, and a compaction
// that comes in between takes nothing from it.
func TestExport(t *testing.T) {
	for _, states := range []int{hashStates, 10} {
		t.Run(fmt.Sprint(states), func(t *testing.T) {
			b := newBed(t, Options{}, 64<<10)
			b.hashes.states = states
			fill(t, b, 1000)
			all := export(t, b, nil)
			if len(all) != 2334 {
				t.Fatalf("%d records", len(all))
			}
			for _, back := range []int64{1800, 900, 334, 333, 100, 1, 0} {
				compact := b.Revision() - back
				compactAt(t, b, compact)
				want := counting(t, all, compact)
				check := func(when string, got []exported) {
					t.Helper()
					if !slices.Equal(got, want) {
						t.Fatalf("compacted at %d, %s: %d records of %d", compact, when, len(got), len(want))
					}
				}
				check("at once", export(t, b, nil))
				if err := b.WaitTrimmed(t.Context(), compact); err != nil {
					t.Fatal(err)
				}
				check("trimmed", export(t, b, nil))
				b.log.Reclaim()
				if err := b.WaitReclaimed(t.Context(), compact); err != nil {
					t.Fatal(err)
				}
				check("reclaimed", export(t, b, nil))
				b.reopen(t)
				b.hashes.states = states
				check("opened again", export(t, b, nil))
			}
			b.close(t)
		})
	}
}

func TestExportBesideCompaction(t *testing.T) {
	b := newBed(t, Options{}, 64<<10)
	fill(t, b, 1000)
	all := export(t, b, nil)
	compact := b.Revision() - 1500
	compactAt(t, b, compact)
	if err := b.WaitTrimmed(t.Context(), compact); err != nil {
		t.Fatal(err)
	}
	head := b.Revision()
	got := export(t, b, func(n int) {
		switch n {
		case 100: // in the middle of the first walk
			compactAt(t, b, head-700)
			b.log.Reclaim()
		case -1: // before the second one
			compactAt(t, b, head)
			if err := b.WaitReclaimed(t.Context(), head); err != nil {
				t.Fatal(err)
			}
		}
	})
	if want := counting(t, all, compact); !slices.Equal(got, want) {
		t.Fatalf("%d records of %d", len(got), len(want))
	}
	if got := export(t, b, nil); !slices.Equal(got, counting(t, all, head)) {
		t.Fatalf("%d records after the compaction", len(got))
	}
	own := errors.New("enough")
	if _, err := b.Export(t.Context(), func(kv.Rev, bool, []byte) error { return own }); err != own {
		t.Errorf("an error of the visitor: %v", err)
	}
	// Nothing is held any more.
	compactAt(t, b, putOne(t, b))
	if err := b.WaitReclaimed(t.Context(), b.CompactRevision()); err != nil {
		t.Fatal(err)
	}
	b.close(t)
}

func putOne(t *testing.T, b *bed) int64 {
	t.Helper()
	if _, err := b.Writer().Put(&kv.PutRequest{Key: []byte("one")}, nil); err != nil {
		t.Fatal(err)
	}
	return b.commit(t).Revision
}
