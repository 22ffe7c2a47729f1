package index

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"vigil/internal/kv"
)

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

// TestEntry plays random lives of one key against the whole list of its changes, with compactions
// in all three places where changes are dropped.
func TestEntry(t *testing.T) {
	g := seed(t)
	type change struct {
		rev             kv.Rev
		create, version int64
	}
	for range 300 {
		x := New()
		e := x.Add("key")
		var all []change
		var create, version, compact int64
		compact = -1
		for main := int64(2); main < 80; main += 1 + g.Int64N(3) {
			for sub := range 1 + g.Int64N(3) {
				rev := kv.Rev{Main: main, Sub: sub}
				if version > 0 && g.IntN(5) == 0 {
					create, version = 0, 0
					x.Append(e, NewTombstone(rev))
				} else {
					if version++; version == 1 {
						create = main
					}
					x.Append(e, NewPut(rev, version))
				}
				all = append(all, change{rev, create, version})
			}
			if g.IntN(6) == 0 {
				compact = max(compact, main-g.Int64N(20))
				l := e.Changes()
				if k := l.Needless(compact); k > 0 && k < l.Len() && g.IntN(2) == 0 {
					x.Cut(e, k)
				}
			}
			for at := max(compact, 0); at <= main+1; at++ {
				var want change
				for _, c := range all {
					if c.rev.Main <= at {
						want = c
					}
				}
				s, ok := e.At(at)
				if ok != (want.version > 0) || ok && s != (State{want.rev, want.create, want.version}) {
					t.Fatalf("at %d of %+v, compacted %d: got %+v %v, want %+v", at, all, compact, s, ok, want)
				}
			}
		}
	}
}

// TestEntryVersionOverflow: what the index cannot number any more it leaves to the record.
func TestEntryVersionOverflow(t *testing.T) {
	x := New()
	e := x.Add("key")
	for i := range int64(10) {
		x.Append(e, NewPut(kv.Rev{Main: 100 + i}, maxVersion-5+i))
		e.block()[1] = 7 // of a generation whose beginning is long gone
	}
	for i := range int64(10) {
		s, ok := e.At(100 + i)
		want := int64(maxVersion) - 5 + i
		if want >= maxVersion {
			want = 0
		}
		if !ok || s.Version != want || s.Create != 7 {
			t.Fatalf("change %d: %+v %v, want version %d", i, s, ok, want)
		}
	}
}
