package history

import (
	"bytes"
	"encoding/binary"
	"errors"
	"path/filepath"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/vfs"
)

// TestGetFramed reads records of many sizes, empty ones as well, into buffers of many sizes: each
// is there once, in order, in the buffer that was given, however the records are stored.
func TestGetFramed(t *testing.T) {
	const tag = 2<<3 | 2
	for name, fsys := range map[string]vfs.FS{"mapped": vfs.OS(),
		"not mapped": unmapped{vfs.OS()}} {
		t.Run(name, func(t *testing.T) {
			rng := seeded(t, 1)
			o := testOptions(fsys)
			o.Dir, o.NoSync = filepath.Join(t.TempDir(), "history"), true
			l, _ := create(t, o)
			defer l.Close()
			var revs []kv.Rev
			var want [][]byte // the frames
			for i := range 600 {
				size := rng.IntN(4)
				if rng.IntN(3) == 0 {
					size = rng.IntN(2000)
				}
				r := rec{rev: kv.Rev{Main: int64(i + 1)}, data: bytes.Repeat([]byte{byte(i)}, size)}
				b := batch{applied: Applied{Term: 1, Index: uint64(i) + 2}, recs: []rec{r}}
				if err := errors.Join(appendBatch(l, b), l.Commit(b.applied)); err != nil {
					t.Fatal(err)
				}
				revs = append(revs, r.rev)
				want = append(want, append(binary.AppendUvarint([]byte{tag},
					uint64(size)), r.data...))
				if i%40 == 39 && i < 560 {
					l.WaitNext()
					if _, err := l.Roll(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if _, err := l.Sync(); err != nil {
				t.Fatal(err)
			}
			v := l.View()
			for range 500 {
				from := rng.IntN(len(revs))
				room := rng.IntN(100)
				if rng.IntN(2) == 0 {
					room = rng.IntN(64 << 10)
				}
				buf := make([]byte, 0, room)
				got, n, err := v.GetFramed(revs[from:], tag, buf)
				if err != nil {
					t.Fatal(err)
				}
				if all := bytes.Join(want[from:from+n], nil); !bytes.Equal(got, all) {
					t.Fatalf("%d records from %d on in %d bytes: %d bytes, want %d", n, from, room,
						len(got), len(all))
				}
				if cap(got) != room {
					t.Fatalf("the buffer of %d bytes has grown to %d", room, cap(got))
				}
				if from+n < len(revs) && room-len(got) > 64+len(want[from+n]) {
					t.Fatalf("stopped before a record of %d bytes with room for %d",
						len(want[from+n]), room-len(got))
				}
			}
		})
	}
}
