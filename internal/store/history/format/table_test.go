package format

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
			tab  Table
			list []kv.Rev
			rev  = kv.Rev{Main: rng.Int64N(100)}
		)
		breaks := rng.IntN(3) == 0
		for range rng.IntN(60) {
			var recs []Entry
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
				recs = append(recs, Entry{rev.Main, uint32(rev.Sub),
					uint32(10 * (len(list) + len(recs)))})
			}
			want := tab.SizeWith(recs)
			for _, e := range recs {
				tab.Append(e.Rev(), e.Off)
				list = append(list, e.Rev())
			}
			if tab.Size() != want {
				t.Fatalf("seed %d: the size is %d, was to be %d", seed, tab.Size(), want)
			}
		}
		if len(list) == 0 {
			continue
		}
		if tab.Sorted && !breaks {
			t.Fatalf("seed %d: a dense list became sparse", seed)
		}
		f := Footer{Sparse: tab.Sorted, Records: uint32(tab.Len()), Mains: uint32(len(tab.Mains)),
			First: list[0], Last: rev}
		encoded := tab.Encode(nil)
		if int64(len(encoded)) != tab.Size() || tab.Size() != f.TableSize() {
			t.Fatalf("seed %d: %d bytes, want %d", seed, len(encoded), tab.Size())
		}
		file, _ := f.Tables(encoded)
		for _, l := range []locator{&tab, &file} {
			if l.Len() != len(list) {
				t.Fatalf("seed %d: %d records, want %d", seed, l.Len(), len(list))
			}
			number := map[kv.Rev]int{}
			for i, r := range list {
				number[r] = i
				if l.Offset(i) != uint32(10*i) {
					t.Fatalf("seed %d: offset %d of record %d", seed, l.Offset(i), i)
				}
			}
			for range 200 {
				r := kv.Rev{Main: list[0].Main - 2 + rng.Int64N(rev.Main-list[0].Main+5),
					Sub: rng.Int64N(6) - 1}
				want, ok := number[r]
				if !ok {
					want = -1
				}
				if got := l.Find(r); got != want {
					t.Fatalf("seed %d: find %v is %d, want %d", seed, r, got, want)
				}
				ceil := 0
				for ceil < len(list) && list[ceil].Less(r) {
					ceil++
				}
				if got := l.Ceil(r); got != ceil {
					t.Fatalf("seed %d: ceil %v is %d, want %d", seed, r, got, ceil)
				}
			}
		}
	}
}

// TestLocate: Locate finds what Find finds, asks for every byte of the table that this needs, and
// for no more than a page or two, and finds nothing if one of the parts is not in memory.
func TestLocate(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 5))
		var tab Table
		rev, sparse := kv.Rev{Main: 1 + rng.Int64N(100)}, rng.IntN(2) == 0
		first := rev
		n := 1 + rng.IntN(3000)
		for i := range n {
			tab.Append(rev, uint32(10*i))
			switch {
			case sparse && i == 0:
				rev.Main += 2 * maxGap
			case rng.IntN(3) == 0:
				rev.Sub++
			default:
				rev = kv.Rev{Main: rev.Main + 1 + rng.Int64N(3)}
			}
		}
		f := Footer{Sparse: tab.Sorted, Records: uint32(n),
			Mains: uint32(len(tab.Mains)), First: first}
		encoded := tab.Encode(nil)
		file, _ := f.Tables(encoded)
		file.Fence()
		for range 500 {
			at := kv.Rev{Main: first.Main - 2 + rng.Int64N(rev.Main-first.Main+5),
				Sub: rng.Int64N(4) - 1}
			asked := map[int]bool{}
			parts := 0
			i, ok := file.Locate(at, func(off, n int) bool {
				if parts++; off < 0 || n <= 0 || n > 4096+2*16 || off+n > len(encoded) {
					t.Fatalf("seed %d: asked for %d bytes at %d of %d", seed, n, off, len(encoded))
				}
				for k := range n {
					asked[off+k] = true
				}
				return true
			})
			want := file.Find(at)
			if ok != (want >= 0) || ok && i != want {
				t.Fatalf("seed %d: revision %v is record %d, %v, want %d", seed, at, i, ok, want)
			}
			// Without what was asked for, another table gives the same.
			other := make([]byte, len(encoded))
			for k := range asked {
				other[k] = encoded[k]
			}
			part, _ := f.Tables(other)
			part.fences = file.fences
			if j, found := part.Locate(at, func(int, int) bool { return true }); found != ok ||
				ok && (j != i || part.Offset(j) != file.Offset(i) ||
					i > 0 && part.Offset(i-1) != file.Offset(i-1) ||
					i+1 < n && part.Offset(i+1) != file.Offset(i+1)) {
				t.Fatalf("seed %d: revision %v is record %d, %v, by what was asked for, want %d",
					seed, at, j, found, i)
			}
			for no := range parts {
				k := 0
				if _, ok := file.Locate(at, func(int, int) bool { k++; return k != no+1 }); ok {
					t.Fatalf("seed %d: revision %v was found although part %d of the table is not in memory", seed, at, no)
				}
			}
		}
	}
}
