package history

import (
	"math/rand/v2"
	"testing"

	"vigil/internal/kv"
)

// TestTable compares both forms of a table, in memory and encoded, with a list.
func TestTable(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 4))
		var (
			tab  table
			list []kv.Rev
			rev  = kv.Rev{Main: rng.Int64N(100)}
		)
		breaks := rng.IntN(3) == 0
		for range rng.IntN(60) {
			var recs []entry
			for range rng.IntN(4) {
				switch {
				case breaks && rng.IntN(20) == 0:
					rev = kv.Rev{Main: rev.Main + rng.Int64N(100), Sub: rev.Sub + 1 + rng.Int64N(5)}
				case rng.IntN(3) > 0:
					rev = kv.Rev{Main: rev.Main + 1 + rng.Int64N(1+rng.Int64N(maxGap+1))}
				case len(list) > 0 || len(recs) > 0:
					rev.Sub++
				default:
					continue
				}
				recs = append(recs, entry{rev.Main, uint32(rev.Sub), uint32(10 * (len(list) + len(recs)))})
			}
			want := tab.sizeWith(recs)
			for _, e := range recs {
				tab.add(e.rev(), e.off)
				list = append(list, e.rev())
			}
			if tab.size() != want {
				t.Fatalf("seed %d: the size is %d, was to be %d", seed, tab.size(), want)
			}
		}
		if len(list) == 0 {
			continue
		}
		if tab.sorted && !breaks {
			t.Fatalf("seed %d: a dense list became sparse", seed)
		}
		f := footer{sparse: tab.sorted, records: uint32(tab.len()), mains: uint32(len(tab.mains)), first: list[0], last: rev}
		encoded := tab.append(nil)
		if int64(len(encoded)) != tab.size() || tab.size() != f.tableSize() {
			t.Fatalf("seed %d: %d bytes, want %d", seed, len(encoded), tab.size())
		}
		file, _ := f.table(encoded)
		for _, l := range []locator{&tab, &file} {
			if l.len() != len(list) {
				t.Fatalf("seed %d: %d records, want %d", seed, l.len(), len(list))
			}
			number := map[kv.Rev]int{}
			for i, r := range list {
				number[r] = i
				if l.offset(i) != uint32(10*i) {
					t.Fatalf("seed %d: offset %d of record %d", seed, l.offset(i), i)
				}
			}
			for range 200 {
				r := kv.Rev{Main: list[0].Main - 2 + rng.Int64N(rev.Main-list[0].Main+5), Sub: rng.Int64N(6) - 1}
				want, ok := number[r]
				if !ok {
					want = -1
				}
				if got := l.find(r); got != want {
					t.Fatalf("seed %d: find %v is %d, want %d", seed, r, got, want)
				}
				ceil := 0
				for ceil < len(list) && list[ceil].Less(r) {
					ceil++
				}
				if got := l.ceil(r); got != ceil {
					t.Fatalf("seed %d: ceil %v is %d, want %d", seed, r, got, ceil)
				}
			}
		}
	}
}
