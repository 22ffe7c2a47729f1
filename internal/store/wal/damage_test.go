package wal

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/vfs/memfs"
)

// damage is a small log of three segments, closed in good order, and what is in it.
type damage struct {
	files map[uint64][]byte
	state logState
	// before is the state before the last group, which is a hard state alone.
	before logState
}

func newDamage(t testing.TB, closed bool) *damage {
	t.Helper()
	mem := memfs.New()
	o := testOptions(mem)
	l := &tracked{}
	must(t, l.open(o))
	for i := range uint64(9) {
		last := l.states[len(l.states)-1].last()
		back := min(i%4, last-1)
		must(t, l.append(
			Batch{HardState: hard(i+1, 1, last-back), Entries: entries(last+1-back, i+1, 3, 400),
				Sync: i%3 != 0},
			Batch{Entries: entries(last+4-back, i+1, 1, 200)}))
	}
	before := l.states[len(l.states)-1]
	must(t, l.append(Batch{HardState: hard(20, 2, 4), Sync: true}))
	if closed {
		must(t, l.w.Close())
	}
	d := &damage{files: map[uint64][]byte{}, state: l.states[len(l.states)-1], before: before}
	ids, err := segmentIDs(mem, testDir)
	must(t, err)
	for _, id := range ids {
		d.files[id] = readBlock(t, mem, id, 0, minSegmentBytes)
	}
	if len(ids) < 3 {
		t.Fatalf("only %d files", len(ids))
	}
	return d
}

// write puts the files, with what the test changed, on a new file system.
func (d *damage) write(t testing.TB) *memfs.FS {
	t.Helper()
	mem := memfs.New()
	must(t, mem.MkdirAll(testDir))
	for id, b := range d.files {
		f, err := mem.Create(segmentPath(testDir, id))
		must(t, err)
		_, err = f.WriteAt(b, 0)
		must(t, err)
		must(t, errors.Join(f.Sync(), f.Close()))
	}
	must(t, mem.SyncDir(testDir))
	return mem
}

// eachFlip opens the log once for each bit that is flipped in turn: every one with VIGIL_EVERY_BIT
// in the environment, else a sample.
func (d *damage) eachFlip(t *testing.T,
	check func(w *WAL, err error, path string, off int64) error) {
	t.Helper()
	step := 149
	if os.Getenv("VIGIL_EVERY_BIT") != "" {
		step = 1
	}
	base := d.write(t)
	n := 0
	for id, b := range d.files {
		for bit := rand.IntN(step); bit < len(b)*8; bit += step {
			// Nothing is unsynced, so a crash is a cheap copy.
			mem := base.Crash(rand.New(rand.NewPCG(0, 0)))
			path, off := segmentPath(testDir, id), int64(bit/8)
			f, err := mem.OpenWrite(path)
			must(t, err)
			_, err = f.WriteAt([]byte{b[off] ^ 1<<(bit%8)}, off)
			must(t, err)
			must(t, f.Sync())
			w, err := Open(testOptions(mem))
			if err := check(w, err, path, off); err != nil {
				t.Fatalf("%s, bit %d of byte %d: %v", path, bit%8, off, err)
			}
			n++
		}
	}
	t.Logf("%d bits flipped", n)
}

// Every single flipped bit of a log that was closed is either found, with the file and an offset at
// or before the bit, or changes nothing.
//
//vigil:norace
func TestEveryFlippedBit(t *testing.T) {
	d := newDamage(t, true)
	found, harmless := 0, 0
	d.eachFlip(t, func(w *WAL, err error, path string, off int64) error {
		var ce *CorruptError
		switch {
		case err == nil:
			harmless++
			return d.state.matches(w)
		case !errors.As(err, &ce) || !errors.Is(err, kv.ErrCorrupt) || ce.File != path ||
			ce.Offset > off:
			return err
		}
		found++
		return nil
	})
	t.Logf("%d were found and %d did no harm", found, harmless)
}

// After a crash the last group may be torn, and a flipped bit in it looks the same; but
// nothing before it is ever lost silently, and nothing false is served.
func TestEveryFlippedBitAfterCrash(t *testing.T) {
	d := newDamage(t, false)
	cut := 0
	d.eachFlip(t, func(w *WAL, err error, _ string, _ int64) error {
		if err != nil {
			if errors.Is(err, kv.ErrCorrupt) {
				return nil
			}
			return err
		}
		if d.state.matches(w) == nil {
			return nil
		}
		cut++
		return d.before.matches(w)
	})
	if cut > (groupHeaderSize+hardStateSize)*8 {
		t.Fatalf("%d flipped bits cut the last group off", cut)
	}
}

// Files cut short, swapped, emptied or filled with noise are refused or do no harm.
func TestDamagedFiles(t *testing.T) {
	good := newDamage(t, true)
	rng := rand.New(rand.NewPCG(1, 2))
	for name, harm := range map[string]func(f map[uint64][]byte){
		"cut the first":        func(f map[uint64][]byte) { f[1] = f[1][:5000] },
		"cut into a header":    func(f map[uint64][]byte) { f[1] = f[1][:100] },
		"empty the first":      func(f map[uint64][]byte) { f[1] = nil },
		"swap two":             func(f map[uint64][]byte) { f[1], f[2] = f[2], f[1] },
		"copy one over a next": func(f map[uint64][]byte) { f[2] = f[1] },
		"zero a body":          func(f map[uint64][]byte) { clear(f[1][headerSize:]) },
		"zero a header":        func(f map[uint64][]byte) { clear(f[2][:headerSize]) },
		"noise":                func(f map[uint64][]byte) { noise(rng, f[1][headerSize:]) },
		"all noise":            func(f map[uint64][]byte) { noise(rng, f[1]) },
	} {
		d := &damage{files: map[uint64][]byte{}, state: good.state}
		for id, b := range good.files {
			d.files[id] = append([]byte(nil), b...)
		}
		harm(d.files)
		if _, err := Open(testOptions(d.write(t))); !errors.Is(err, kv.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Noise in files that are not in use yet does no harm.
	d := good
	d.files[uint64(len(d.files)+1)] = make([]byte, minSegmentBytes)
	noise(rng, d.files[uint64(len(d.files))])
	w := reopen(t, testOptions(d.write(t)))
	must(t, d.state.matches(w))
}

func noise(rng *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
}

// What changes on disk while the log is open is found when it is read.
func TestDamageWhileOpen(t *testing.T) {
	mem := memfs.New()
	o := testOptions(mem)
	o.CacheBytes = 1
	w := create(t, o, Start{})
	must(t, w.Append(Batch{Entries: entries(1, 1, 3, 100), Sync: true}))
	f, err := mem.OpenWrite(segmentPath(testDir, 1))
	must(t, err)
	second := int64(headerSize + groupHeaderSize + entryHeadSize + 100)
	_, err = f.WriteAt([]byte{'!'}, second+entryHeadSize+50)
	must(t, err)
	var ce *CorruptError
	if _, err := w.Entries(1, 4, math.MaxUint64); !errors.As(err, &ce) || ce.Offset != second {
		t.Fatalf("read of a changed entry: %v", err)
	}
	got, err := w.Entries(3, 4, math.MaxUint64)
	must(t, err)
	if !sameEntries(got, entries(3, 1, 1, 100)) {
		t.Fatalf("got%s", describe(got))
	}
}

// FuzzOpen opens a segment with any bytes in it: that never panics, allocates without bound or
// finds entries that do not follow each other.
func FuzzOpen(f *testing.F) {
	for _, b := range newDamage(f, true).files {
		f.Add(b, true)
	}
	f.Add(appendEntry(nil, entry(1, 1, []byte("data"))), false)
	f.Fuzz(func(t *testing.T, b []byte, whole bool) {
		if len(b) > 1<<16 {
			return
		}
		file := b
		if !whole {
			// The bytes are the items of a valid group.
			h := segmentHeader{version: Version, id: 1, owner: testID}
			group := append(make([]byte, groupHeaderSize), b...)
			count := 0
			for rest := b; ; count++ {
				_, n, err := parseItem(rest)
				if err != nil {
					break
				}
				rest = rest[n:]
			}
			sealGroup(group, groupSeed(testID, 1, 0), headerSize, count, headerSize)
			file = append(h.encode(), group...)
		}
		d := &damage{files: map[uint64][]byte{1: file}}
		w, err := Open(testOptions(d.write(t)))
		if err != nil {
			if !errors.Is(err, kv.ErrCorrupt) && !errors.Is(err, ErrIdentity) &&
				!errors.Is(err, ErrVersion) {
				t.Fatal(err)
			}
			return
		}
		first, _ := w.FirstIndex()
		for i, e := range all(t, w) {
			if e.GetIndex() != first+uint64(i) {
				t.Fatalf("entry %d at place of %d", e.GetIndex(), first+uint64(i))
			}
		}
		last, _ := w.LastIndex()
		term, err := w.Term(last)
		must(t, err)
		must(t, w.Append(Batch{Entries: entries(last+1, term, 1, 10), Sync: true}))
		must(t, w.Close())
	})
}

// FuzzItem decodes any bytes as an item; what is accepted encodes to the same bytes.
func FuzzItem(f *testing.F) {
	f.Add(appendEntry(nil, entry(1<<60, 3, []byte("data"))))
	f.Add(appendEntry(nil, &raftpb.Entry{}))
	f.Add(appendHardState(nil, hardState{1, 2, 3}))
	f.Add(appendReset(nil, Start{4, 5}))
	f.Fuzz(func(t *testing.T, b []byte) {
		it, n, err := parseItem(b)
		if err != nil {
			return
		}
		var again []byte
		switch it.kind {
		case kindEntry:
			again = appendEntry(nil, new(entrySlab).setItem(&it))
		case kindHardState:
			again = appendHardState(nil, it.hard)
		case kindReset:
			again = appendReset(nil, it.start)
		}
		if n > len(b) || string(again) != string(b[:n]) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", b, it, again)
		}
	})
}
