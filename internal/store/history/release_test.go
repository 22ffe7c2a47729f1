package history

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/vfs/memfs"
)

// TestSettle: a scan that stands still lets go of what was in memory when it began, as soon as that
// is in files, and goes on to show the same.
func TestSettle(t *testing.T) {
	for _, stand := range []int{0, 1, 50, 99, 100, 150, 199, 200} {
		t.Run(fmt.Sprint(stand), func(t *testing.T) {
			l, err := Create(Options{FS: memfs.New(), Dir: "h", SegmentBytes: 32 << 10},
				Applied{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			rev := int64(0)
			write := func(n int) {
				for range n {
					rev++
					if _, err := l.AppendKV(kv.Rev{Main: rev}, false,
						bytes.Repeat([]byte{byte(rev)}, 200)); err != nil {
						t.Fatal(err)
					}
					if err := l.Commit(Applied{Term: 1, Index: uint64(rev)}); err != nil {
						t.Fatal(err)
					}
				}
			}
			write(200)
			sc, err := l.View().Hold(kv.Rev{})
			if err != nil {
				t.Fatal(err)
			}
			defer sc.Close()
			var got []int64
			next := func() bool {
				if !sc.Next() {
					return false
				}
				if want := bytes.Repeat([]byte{byte(sc.Rev().Main)},
					200); !bytes.Equal(sc.Data(), want) {
					t.Fatalf("revision %d has other data", sc.Rev().Main)
				}
				got = append(got, sc.Rev().Main)
				return true
			}
			for range stand {
				next()
			}
			if stand < 200 && !sc.ReleaseMemory() {
				t.Error("all is in files while the open segment is in memory")
			}
			write(300)
			if _, err := l.Sync(); err != nil { // what is full is sealed now
				t.Fatal(err)
			}
			if stand < 200 && sc.ReleaseMemory() {
				t.Error("something is left in memory")
			}
			if sc.cur != nil && sc.cur.mem != nil && sc.next < sc.limit {
				t.Error("what is under way is in memory")
			}
			for next() {
			}
			if err := sc.Err(); err != nil {
				t.Fatal(err)
			}
			want := make([]int64, 200)
			for i := range want {
				want[i] = int64(i) + 1
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d revisions: %v", len(got), got)
			}
		})
	}
}
