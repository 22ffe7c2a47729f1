package memfs

import (
	"math/rand/v2"
	"testing"
)

// TestFlip: a flipped bit can be read and survives a crash, whether the page was synced or not, and
// nothing else changes.
func TestFlip(t *testing.T) {
	for _, synced := range []bool{true, false} {
		f := New()
		file, err := f.Create("a")
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 3*pageSize)
		for i := range b {
			b[i] = byte(i % 251)
		}
		if _, err := file.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
		if err := file.Sync(); err != nil {
			t.Fatal(err)
		}
		if err := f.SyncDir("/"); err != nil {
			t.Fatal(err)
		}
		const off = pageSize + 5
		if !synced { // another place of the page
			if _, err := file.WriteAt([]byte{1, 2, 3}, off+100); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Flip("a", off, 3); err != nil {
			t.Fatal(err)
		}
		for _, crash := range []bool{false, true} {
			if crash {
				if file, err = f.Crash(rand.New(rand.NewPCG(1, 1))).Open("a"); err != nil {
					t.Fatal(err)
				}
			}
			got := make([]byte, off+90)
			if _, err := file.ReadAt(got, 0); err != nil {
				t.Fatal(err)
			}
			for i := range got {
				want := b[i]
				if i == off {
					want ^= 8
				}
				if got[i] != want {
					t.Fatalf("synced %t, after a crash %t: byte %d is %x, want %x", synced, crash,
						i, got[i], want)
				}
			}
			if !crash {
				if err := f.Flip("a", 3*pageSize, 0); err == nil {
					t.Error("a bit after the end was flipped")
				}
				if err := f.Flip("b", 0, 0); err == nil {
					t.Error("a bit of a file that does not exist was flipped")
				}
			}
		}
	}
}
