package memfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"testing"

	"vigil/internal/vfs"
	"vigil/internal/vfs/vfstest"
)

func TestContract(t *testing.T) {
	vfstest.Run(t, func(t *testing.T) (vfs.FS, string) {
		f := New()
		if err := f.MkdirAll("/data"); err != nil {
			t.Fatal(err)
		}
		return f, "/data"
	})
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func read(t *testing.T, f vfs.FS, name string) []byte {
	t.Helper()
	h := must[vfs.File](t)(f.Open(name))
	b := make([]byte, must[int64](t)(h.Size()))
	if _, err := h.ReadAt(b, 0); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return b
}

func TestCrashEndsTheOld(t *testing.T) {
	f := New()
	h := must[vfs.File](t)(f.Create("a"))
	l := must[io.Closer](t)(f.Lock("LOCK"))
	next := f.Crash(rand.New(rand.NewPCG(1, 1)))
	_, werr := h.WriteAt([]byte("x"), 0)
	_, rerr := h.ReadAt(make([]byte, 1), 0)
	_, cerr := f.Create("b")
	_, serr := f.Stat("a")
	for _, err := range []error{werr, rerr, cerr, serr, h.Sync(), f.SyncDir("/"), f.Remove("a")} {
		if !errors.Is(err, ErrDead) {
			t.Errorf("after a crash: %v", err)
		}
	}
	// The lock died with its holder, and closing it late does not hurt the next one.
	must[io.Closer](t)(next.Lock("LOCK"))
	if err := errors.Join(l.Close(), h.Close()); err != nil {
		t.Error(err)
	}
	if _, err := next.Lock("LOCK"); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("locked twice: %v", err)
	}
}

// What is synced survives every crash, and each outcome that the model allows for what is not comes
// up in some crash.
func TestCrashOutcomes(t *testing.T) {
	f := New()
	a := must[vfs.File](t)(f.Create("synced"))
	must[int](t)(a.WriteAt(bytes.Repeat([]byte("s"), 1024), 0))
	if err := errors.Join(a.Sync(), f.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	must[int](t)(a.WriteAt(bytes.Repeat([]byte("1"), 1024), 512))
	must[int](t)(a.WriteAt(bytes.Repeat([]byte("2"), 700), 900))
	b := must[vfs.File](t)(f.Create("new"))
	must[int](t)(b.WriteAt([]byte("content"), 0))
	if err := b.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := f.Rename("new", "newer"); err != nil {
		t.Fatal(err)
	}
	if err := f.Link("synced", "linked"); err != nil {
		t.Fatal(err)
	}

	seen := map[string]int{}
	for seed := range uint64(3000) {
		g := f.Crash(rand.New(rand.NewPCG(seed, 0)))
		got := read(t, g, "synced")
		if len(got) < 1024 || !bytes.Equal(got[:512], bytes.Repeat([]byte("s"), 512)) {
			t.Fatalf("seed %d: synced content is lost", seed)
		}
		shape := fmt.Sprintf("size %d:", len(got))
		for off := 0; off < len(got); off += sectorSize {
			sector := got[off:min(off+sectorSize, len(got))]
			shape += " " + string(sector[0]) + string(sector[min(len(sector), 500)-1])
		}
		seen[shape]++
		names := must[[]string](t)(g.List("/"))
		seen[fmt.Sprint(names)]++
		for _, n := range names {
			switch n {
			case "new", "newer":
				if s := read(t, g, n); string(s) != "content" {
					t.Fatalf("seed %d: %s lost its synced content: %q", seed, n, s)
				}
			case "linked":
				h := must[vfs.File](t)(g.OpenWrite("linked"))
				must[int](t)(h.WriteAt([]byte("both"), 0))
				if !bytes.HasPrefix(read(t, g, "synced"), []byte("both")) {
					t.Fatalf("seed %d: two names of one file became two files", seed)
				}
			}
		}
	}
	for _, want := range []string{
		"size 1024: ss ss", "size 1024: ss 12", "size 1600: ss 12 22 22",
		"size 1600: ss ss 22 \x00\x00",
		"size 1536: ss 11 11", "size 1600: ss 11 22 22", "size 1536: ss ss \x00\x00",
		"[synced]", "[new synced]", "[newer synced]", "[linked synced]", "[linked newer synced]",
	} {
		if seen[want] == 0 {
			t.Errorf("never seen: %q", want)
		}
	}
	if t.Failed() {
		t.Logf("seen: %v", seen)
	}
}

func TestKillKeepsEverything(t *testing.T) {
	f := New()
	h := must[vfs.File](t)(f.Create("a"))
	must[int](t)(h.WriteAt([]byte("written"), 0))
	g := f.Kill()
	if _, err := f.Open("a"); !errors.Is(err, ErrDead) {
		t.Fatalf("the killed one lives: %v", err)
	}
	if s := read(t, g, "a"); string(s) != "written" {
		t.Fatalf("after a kill %q", s)
	}
	// It is still not synced.
	lost := false
	for seed := range uint64(50) {
		names := must[[]string](t)(g.Crash(rand.New(rand.NewPCG(seed, 0))).List("/"))
		lost = lost || len(names) == 0
	}
	if !lost {
		t.Error("killing the process synced the file")
	}
}

// Random operations, compared with a plain model: the content always agrees, and after a crash a
// file holds, sector by sector, something it held since its last sync.
func TestRandomAgainstModel(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 7))
		f := New()
		h := must[vfs.File](t)(f.Create("a"))
		if err := f.SyncDir("/"); err != nil {
			t.Fatal(err)
		}
		var versions [][]byte // since the last sync, the synced one first
		cur := []byte{}
		versions = append(versions, cur)
		for range 300 {
			switch op := rng.IntN(20); {
			case op < 12:
				b := bytes.Repeat([]byte{byte(rng.IntN(255) + 1)}, rng.IntN(3000)+1)
				off := rng.IntN(20000)
				cur = append([]byte(nil), cur...)
				if need := off + len(b); need > len(cur) {
					cur = append(cur, make([]byte, need-len(cur))...)
				}
				copy(cur[off:], b)
				must[int](t)(h.WriteAt(b, int64(off)))
				versions = append(versions, cur)
			case op < 14:
				n := rng.IntN(20000)
				cur = append([]byte(nil), cur...)
				if n < len(cur) {
					cur = cur[:n:n]
				} else {
					cur = append(cur, make([]byte, n-len(cur))...)
				}
				if err := h.Truncate(int64(n)); err != nil {
					t.Fatal(err)
				}
				versions = append(versions, cur)
			case op < 18:
				if err := h.Sync(); err != nil {
					t.Fatal(err)
				}
				versions = [][]byte{cur}
			default:
				f = f.Crash(rng)
				got := read(t, f, "a")
				checkCrashed(t, seed, got, versions)
				h = must[vfs.File](t)(f.OpenWrite("a"))
				cur = got
				versions = [][]byte{cur}
			}
			if got := read(t, f, "a"); !bytes.Equal(got, cur) {
				t.Fatalf("seed %d: content differs from the model", seed)
			}
		}
	}
}

func checkCrashed(t *testing.T, seed uint64, got []byte, versions [][]byte) {
	t.Helper()
	sized := false
	for _, v := range versions {
		sized = sized || len(v) == len(got)
	}
	if !sized {
		t.Fatalf("seed %d: the size %d never was", seed, len(got))
	}
	for off := 0; off < len(got); off += sectorSize {
		sector := got[off:min(off+sectorSize, len(got))]
		if !anyVersion(sector, off, versions) {
			t.Fatalf("seed %d: the sector at %d holds what never was there", seed, off)
		}
	}
}

// anyVersion reports whether the sector is that of a version, with zeros where one of the sizes
// cut it off.
func anyVersion(sector []byte, off int, versions [][]byte) bool {
	for _, v := range versions {
		for _, cut := range versions {
			want := make([]byte, len(sector))
			if end := min(len(v), len(cut)); off < end {
				copy(want, v[off:end])
			}
			if bytes.Equal(want, sector) {
				return true
			}
		}
	}
	return false
}

func TestErrorsNameTheFile(t *testing.T) {
	f := New()
	_, err := f.Open("/data/none")
	var pe *fs.PathError
	if !errors.As(err, &pe) || pe.Path != "/data/none" {
		t.Errorf("%v", err)
	}
}

// A crash of a large preallocated file costs what was written, not what was reserved.
func BenchmarkCrash(b *testing.B) {
	f := New()
	h, _ := f.Create("a")
	_ = h.Preallocate(64 << 20)
	_ = h.Sync()
	for i := range 100 {
		_, _ = h.WriteAt(make([]byte, 600), int64(i)*600)
		if i%10 == 0 {
			_ = h.Sync()
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	b.ReportAllocs()
	for b.Loop() {
		f.Crash(rng)
	}
}
