package wal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"

	"vigil/internal/vfs"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// tracked is a log and the states it may be in on disk, oldest first.
type tracked struct {
	w       *WAL
	created bool
	states  []logState
}

// open opens or makes the log. It checks what it finds against the states.
func (l *tracked) open(o Options) error {
	there, err := Exists(o.FS, o.Dir)
	if err != nil {
		return err
	}
	if there {
		l.w, err = Open(o)
	} else if l.created {
		return errors.New("the log is gone")
	} else {
		l.w, err = Create(o, Start{Index: 1, Term: 1})
	}
	if err != nil {
		l.w = nil
		return err
	}
	l.w.run = func(step func()) { step() }
	l.created = true
	if l.states == nil {
		l.states = []logState{{start: Start{Index: 1, Term: 1}}}
	}
	var errs []error
	for i := len(l.states) - 1; i >= 0; i-- {
		err := l.states[i].matches(l.w)
		if err == nil {
			l.states = []logState{l.states[i]}
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("the log is in none of the states it may be in: %w", errors.Join(errs...))
}

func (l *tracked) append(batches ...Batch) error {
	next := l.states[len(l.states)-1].with(batches)
	err := l.w.Append(batches...)
	if err == nil || l.w.wr.err != nil {
		l.states = append(l.states, next)
	}
	sync := false
	for _, b := range batches {
		sync = sync || b.Sync || b.Snapshot != nil
	}
	if err == nil && sync {
		l.states = l.states[len(l.states)-1:]
	}
	return err
}

func (l *tracked) truncate(index uint64) error {
	for i := range l.states {
		l.states[i].gone = max(l.states[i].gone, index)
	}
	return l.w.TruncateBefore(index)
}

// script takes a log through everything that it does with files. It goes on after errors as long
// as the log is open, and returns the first.
func (l *tracked) script(o Options) error {
	var first error
	note := func(err error) {
		if first == nil {
			first = err
		}
	}
	if err := l.open(o); err != nil {
		return err
	}
	// A refused append leaves the log as it was; after any other error it takes nothing more.
	grow := func(term uint64, back uint64, n, size int, sync bool) {
		last := l.states[len(l.states)-1].last()
		back = min(back, last-1)
		note(l.append(Batch{HardState: hard(term, 1, last-back),
			Entries: entries(last+1-back, term, n, size), Sync: sync}))
	}
	truncate := func(back uint64) {
		if last, _ := l.w.LastIndex(); last > back {
			note(l.truncate(last + 1 - back))
		}
	}
	for i := range 8 {
		grow(1, 0, 3, 700, i%2 == 0)
	}
	grow(2, 8, 4, 500, true)
	truncate(9)
	for range 8 {
		grow(2, 0, 3, 900, true)
	}
	truncate(8)
	grow(2, 0, 3, 9000, true)
	grow(2, 0, 3, 900, false)
	truncate(1)
	note(l.append(Batch{Snapshot: &Start{Index: l.states[len(l.states)-1].last() + 50, Term: 3}}))
	truncate(0)
	grow(3, 0, 2, 100, false)
	failed := l.w.wr.err
	err := l.w.Close()
	note(err)
	if err == nil && failed == nil {
		l.states = l.states[len(l.states)-1:]
	}
	if first != nil {
		return first
	}
	if err := l.open(o); err != nil {
		return err
	}
	for range 6 {
		grow(4, 0, 2, 900, true)
	}
	truncate(0)
	return first
}

// Each operation of the file system in turn fails, is done but reports failure, writes only half
// (one of the three by turns, all with VIGIL_CRASHES in the environment), or loses what it should
// sync; afterwards the process dies, or power is lost. What was acknowledged is there after that,
// and the log takes up work.
func TestEveryFault(t *testing.T) {
	quiet := faultfs.New(memfs.New(), nil)
	if err := new(tracked).script(testOptions(quiet)); err != nil {
		t.Fatal(err)
	}
	total := quiet.Count()
	t.Logf("%d operations", total)
	faults := []faultfs.Fault{faultfs.Fail, faultfs.FailPersisted, faultfs.ShortWrite,
		faultfs.FailLost}
	every := os.Getenv("VIGIL_CRASHES") != ""
	for n := int64(1); n <= total; n++ {
		for i, fault := range faults {
			if !every && n%3 != int64(i) && fault != faultfs.FailLost {
				continue
			}
			mem := memfs.New()
			var op faultfs.Op
			var name string
			nth := faultfs.Nth(n, fault, nil)
			l := &tracked{}
			err := l.script(testOptions(faultfs.New(mem,
				func(o faultfs.Op, s string) faultfs.Fault {
					f := nth(o, s)
					if f != faultfs.None {
						op, name = o, s
					}
					if f == faultfs.FailLost && o != faultfs.OpSync {
						return faultfs.None
					}
					return f
				})))
			if fault == faultfs.FailLost && op != faultfs.OpSync {
				continue
			}
			what := fmt.Sprintf("operation %d, %v of %s, with fault %v (%v)", n, op,
				name, fault, err)
			if err != nil && !errors.Is(err, faultfs.ErrInjected) {
				t.Fatalf("%s: another error", what)
			}
			if l.w != nil && l.w.wr.err != nil && l.w.wr.err != ErrClosed {
				if again := l.w.Append(Batch{Sync: true}); again != l.w.wr.err {
					t.Fatalf("%s: the log went on: %v", what, again)
				}
			}
			afterwards(t, what, mem, l)
		}
	}
}

// afterwards opens what deaths of the process and losses of power leave, and appends to it.
func afterwards(t *testing.T, what string, mem *memfs.FS, before *tracked) {
	t.Helper()
	const tries = 4
	for seed := range uint64(tries) {
		rng := rand.New(rand.NewPCG(seed, 3))
		then := mem.Crash
		how := fmt.Sprintf("loss of power %d", seed)
		if seed == tries-1 { // the last, because it lives on in the same memory
			then, how = func(*rand.Rand) *memfs.FS { return mem.Kill() }, "death"
		}
		fs := then(rng)
		l := &tracked{created: before.created, states: append([]logState(nil), before.states...)}
		for range 2 {
			if err := l.open(testOptions(fs)); err != nil {
				t.Fatalf("%s, after %s: %v\n%s", what, how, err, fs)
			}
			last := l.states[0].last()
			for i := range uint64(4) {
				if err := l.append(Batch{Entries: entries(last+1+i*3, 9, 3, 900),
					Sync: true}); err != nil {
					t.Fatalf("%s, after %s: %v\n%s", what, how, err, fs)
				}
			}
			fs = fs.Crash(rng)
		}
	}
}

// Without room for a new segment an append is refused and the log is as before; with room again it
// goes on.
func TestNoSpace(t *testing.T) {
	mem := memfs.New()
	full := faultfs.New(mem, nil)
	o := testOptions(full)
	l := &tracked{}
	must(t, l.open(o))
	full.SetFree(20 << 10)
	next := uint64(2)
	grow := func() error {
		err := l.append(Batch{Entries: entries(next, 1, 2, 900), Sync: true})
		if err == nil {
			next += 2
		}
		return err
	}
	var err error
	for i := 0; err == nil; i++ {
		if i > 100 {
			t.Fatal("the limit does not hold")
		}
		err = grow()
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err := grow(); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	must(t, l.states[0].matches(l.w))
	if _, err := Open(testOptions(mem)); err != nil {
		t.Fatalf("a full log does not open: %v", err)
	}
	full.SetFree(1 << 20)
	for range 20 {
		must(t, grow())
	}
	must(t, l.w.Close())
	must(t, l.open(o))
}

// crashUntil looks for a loss of power with an outcome that is wanted.
func crashUntil(t *testing.T, mem *memfs.FS, wanted func(*memfs.FS) bool) *memfs.FS {
	t.Helper()
	for seed := range uint64(10000) {
		if fs := mem.Crash(rand.New(rand.NewPCG(seed, 5))); wanted(fs) {
			return fs
		}
	}
	t.Fatal("no crash has the outcome that the test needs")
	return nil
}

func readBlock(t testing.TB, f vfs.FS, id uint64, off int64, n int) []byte {
	t.Helper()
	h, err := f.Open(segmentPath(testDir, id))
	must(t, err)
	b := make([]byte, n)
	_, err = h.ReadAt(b, off)
	must(t, err)
	return b
}

// A group after a torn one that survived must not come back to life when a later group ends exactly
// where it begins.
func TestTornTailStaysDead(t *testing.T) {
	// A whole page, because the zeros that are written up to the end of one would do no harm.
	const size = writeAlign - groupHeaderSize - entryHeadSize
	mem := memfs.New()
	o := testOptions(mem)
	o.SegmentBytes = headerSize + 3*writeAlign
	w := create(t, o, Start{})
	must(t, w.Append(Batch{Entries: entries(1, 1, 1, size)}))
	must(t, w.Append(Batch{Entries: entries(2, 1, 1, size)}))
	second := string(readBlock(t, mem, 1, headerSize+writeAlign, writeAlign))
	o.FS = crashUntil(t, mem, func(f *memfs.FS) bool {
		first := readBlock(t, f, 1, headerSize, writeAlign)
		return bytes.Count(first, []byte{0}) > 512 &&
			string(readBlock(t, f, 1, headerSize+writeAlign, writeAlign)) == second
	})
	w = reopen(t, o)
	if last, _ := w.LastIndex(); last != 0 {
		t.Fatalf("the log ends at %d", last)
	}
	must(t, w.Append(Batch{Entries: entries(1, 1, 1, size), Sync: true}))
	o.FS = o.FS.(*memfs.FS).Crash(rand.New(rand.NewPCG(1, 1)))
	w = reopen(t, o)
	if last, _ := w.LastIndex(); last != 1 {
		t.Fatalf("the log ends at %d", last)
	}
}

// The names of segments may be the work of a process that died before it made them durable.
func TestOpenMakesNamesDurable(t *testing.T) {
	for n := int64(1); ; n++ {
		for _, more := range []int{0, 1, 3, 5, 8, 12, 16} {
			mem := memfs.New()
			f := faultfs.New(mem,
				faultfs.Nth(n, faultfs.Fail,
					func(op faultfs.Op, _ string) bool { return op == faultfs.OpSyncDir }))
			l := &tracked{}
			err := l.open(testOptions(f))
			for i := 0; err == nil && i < 40; i++ {
				last := l.states[len(l.states)-1].last()
				if err = l.append(Batch{Entries: entries(last+1, 1, 1, 900),
					Sync: true}); err == nil && i == 30 {
					err = l.truncate(30)
				}
			}
			if err == nil {
				return
			}
			mem = mem.Kill()
			must(t, l.open(testOptions(mem)))
			for range more {
				must(t, l.append(Batch{Entries: entries(l.states[0].last()+1, 1, 1,
					900), Sync: true}))
			}
			for seed := range uint64(10) {
				crashed := &tracked{created: true, states: append([]logState(nil), l.states...)}
				if err := crashed.open(testOptions(mem.Crash(rand.New(rand.NewPCG(seed,
					1))))); err != nil {
					t.Fatalf("directory sync %d, %d appends, crash %d: %v", n, more, seed, err)
				}
			}
		}
	}
}

// Segments stay as long as what makes them superfluous may be lost in a crash.
func TestTruncateWaitsForSync(t *testing.T) {
	mem := memfs.New()
	l := &tracked{}
	must(t, l.open(testOptions(mem)))
	must(t, l.append(Batch{Entries: entries(2, 1, 20, 150), Sync: true}))
	must(t, l.append(Batch{Entries: entries(22, 1, 5, 150), Sync: true}))
	must(t, l.append(Batch{Entries: entries(15, 2, 5, 100)}))
	if n := l.w.Metrics().Segments; n != 2 {
		t.Fatalf("%d segments", n)
	}
	must(t, l.truncate(17))
	for seed := range uint64(50) {
		crashed := &tracked{created: true, states: append([]logState(nil), l.states...)}
		if err := crashed.open(testOptions(mem.Crash(rand.New(rand.NewPCG(seed, 1))))); err != nil {
			t.Fatalf("crash %d: %v", seed, err)
		}
	}
}

// A group that lies at another place than it was written for is none.
func TestMisplacedGroup(t *testing.T) {
	b := appendHardState(make([]byte, groupHeaderSize), hardState{1, 2, 3})
	sealGroup(b, groupSeed(testID, 1, 0), headerSize, 1, headerSize)
	valid := func(owner Identity, id uint64, off int64) bool {
		seed := groupSeed(owner, id, 0)
		g, ok := parseGroupHeader(b, seed, off, 1<<20)
		return ok && groupCRC(b, seed, off) == g.crc
	}
	if !valid(testID, 1, headerSize) {
		t.Fatal("not valid where it belongs")
	}
	if valid(testID, 1, headerSize+8) || valid(testID, 2, headerSize) ||
		valid(Identity{1, 2}, 1, headerSize) {
		t.Fatal("valid where it does not belong")
	}
	// Nor is it if the magic were right by chance.
	for id := uint64(2); id < 1000; id++ {
		seed := groupSeed(testID, id, 0)
		le.PutUint32(b[4:], groupMagic(seed))
		if valid(testID, id, headerSize) ||
			groupMagic(seed) == groupMagic(groupSeed(testID, 1, 0)) {
			t.Fatalf("valid in segment %d too", id)
		}
	}
}
