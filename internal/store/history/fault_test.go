package history

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

func isDead(err error) bool { return errors.Is(err, memfs.ErrDead) }

// commit commits, again when there was no space.
func commit(l *Log, a Applied) error {
	err := l.Commit(a)
	for range 3 {
		if !errors.Is(err, kv.ErrNoSpace) {
			break
		}
		err = l.Commit(a)
	}
	return err
}

// scenario is a short life with seals, syncs and an open on the way. It returns how many batches
// are durable by what the log said, and the error that stopped it.
func scenario(o Options, m *model) (durable int, err error) {
	rng := rand.New(rand.NewPCG(5, 5))
	m.batches = []batch{{metas: []Meta{{Bucket: 1, Key: []byte("a"), Value: []byte("b")}},
		applied: Applied{Term: 1, Index: 1}}}
	l, err := Create(o, m.batches[0].applied, m.batches[0].metas)
	if err != nil {
		return 0, err
	}
	synced := func() {
		for i, b := range m.batches {
			if b.applied.Index <= l.Synced().Index {
				durable = i + 1
			}
		}
	}
	for i := range 90 {
		b := m.randomBatch(rng, m.last(), uint64(i)+2)
		if err = appendBatch(l, b); err != nil {
			break
		}
		m.batches = append(m.batches, b)
		if err = commit(l, b.applied); err != nil {
			break
		}
		if i%20 == 7 {
			if _, err = l.Sync(); err != nil {
				break
			}
		}
		if i == 50 {
			synced()
			if err = l.Close(); err != nil {
				return durable, err
			}
			durable = len(m.batches)
			if l, err = Open(o); err != nil {
				return durable, err
			}
		}
	}
	synced()
	if cerr := l.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		durable = len(m.batches)
	}
	return durable, err
}

// TestFaults fails every operation of a scenario in turn, in every way, and looks at what is there
// afterwards: for the next process, and after a power loss.
//
//vigil:norace
func TestFaults(t *testing.T) {
	var m model
	disk := faultfs.New(memfs.New(), nil)
	if n, err := scenario(testOptions(disk), &m); err != nil || n != len(m.batches) {
		t.Fatal(n, err)
	}
	ops := disk.Count()
	stride := int64(rounds(t, "VIGIL_HISTORY_STRIDE", 23))
	stopped, survived := 0, 0
	for n := int64(1); n <= ops+10; n++ {
		for _, fault := range []faultfs.Fault{faultfs.Fail, faultfs.FailPersisted,
			faultfs.ShortWrite, faultfs.NoSpace} {
			if (n+int64(fault))%stride != 0 {
				continue
			}
			var m model
			disk := memfs.New()
			o := testOptions(faultfs.New(disk, faultfs.Nth(n, fault, nil)))
			durable, err := scenario(o, &m)
			if err != nil {
				stopped++
				if !errors.Is(err, faultfs.ErrInjected) && !errors.Is(err, kv.ErrNoSpace) &&
					fault != faultfs.NoSpace {
					t.Fatalf("%v at %d: %v", fault, n, err)
				}
			} else {
				survived++
			}
			for seed := range uint64(3) {
				after := disk.Kill()
				if seed > 0 {
					after = disk.Crash(rand.New(rand.NewPCG(seed, uint64(n))))
				}
				if err := reopened(testOptions(after), &m, durable); err != nil {
					t.Fatalf("%v at %d, crash %d: %v", fault, n, seed, err)
				}
			}
		}
	}
	t.Logf("%d operations, %d runs stopped by the fault, %d went on", ops, stopped, survived)
}

// reopened opens what a scenario left, which must be a prefix of m with at least n batches, twice.
func reopened(o Options, m *model, n int) error {
	ok, err := Exists(o.FS, o.Dir)
	if err != nil || !ok && n > 0 {
		return fmt.Errorf("the log is not there: %w", err)
	}
	if !ok {
		return nil
	}
	for range 2 {
		l, err := Open(o)
		if err != nil {
			return err
		}
		s := lives{m: *m}
		if n, err = s.found(l, n); err != nil {
			return err
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}

// TestOpenFaults fails every operation of an Open that has all kinds of work, which must then fail
// or succeed in full, and leave a log that opens.
//
//vigil:norace
func TestOpenFaults(t *testing.T) {
	for seed := range uint64(rounds(t, "VIGIL_HISTORY_OPENS", 2)) {
		var m model
		disk := memfs.New()
		// The life ends in the middle, so that there is something to recover. It has a write for
		// each of its 90 batches.
		half := faultfs.Nth(20+int64(seed)*37%70, faultfs.FailPersisted,
			func(op faultfs.Op, _ string) bool { return op == faultfs.OpWrite })
		durable, err := scenario(testOptions(faultfs.New(disk, half)), &m)
		if err == nil {
			t.Fatal("nothing failed")
		}
		rng := seeded(t, seed)
		for n := int64(1); ; n++ {
			after := disk.Crash(rng)
			faulty := faultfs.New(after, faultfs.Nth(n, faultfs.Fault(1+n%4), nil))
			l, err := Open(testOptions(faulty))
			if err == nil {
				s := lives{m: m}
				if _, err := s.found(l, durable); err != nil &&
					!errors.Is(err, faultfs.ErrInjected) {
					t.Fatalf("%d: %v", n, err)
				}
				_ = l.Close()
			}
			if err := reopened(testOptions(after), &m, durable); err != nil {
				t.Fatalf("seed %d, fault at %d: %v", seed, n, err)
			}
			if faulty.Count() < n {
				break
			}
		}
	}
}

// TestFailedSync sees that a sync that failed is the last one and readers go on.
func TestFailedSync(t *testing.T) {
	syncs := 0
	failing := false
	o := testOptions(faultfs.New(memfs.New(), func(op faultfs.Op, name string) faultfs.Fault {
		if op != faultfs.OpSync || !failing {
			return faultfs.None
		}
		syncs++
		return faultfs.Fail
	}))
	o.SegmentBytes = 1 << 20
	l, m := create(t, o)
	l.awaitAllocated() // the allocator syncs too
	b := batch{recs: []rec{{rev: kv.Rev{Main: 2}, data: []byte("x")}},
		applied: Applied{Term: 1, Index: 2}}
	if err := appendBatch(l, b); err != nil {
		t.Fatal(err)
	}
	if err := l.Commit(b.applied); err != nil {
		t.Fatal(err)
	}
	m.batches = append(m.batches, b)
	failing = true
	if _, err := l.Sync(); !errors.Is(err, faultfs.ErrInjected) {
		t.Fatal(err)
	}
	<-l.Failed()
	for range 3 {
		if _, err := l.Sync(); !errors.Is(err, faultfs.ErrInjected) {
			t.Fatal(err)
		}
		if err := l.Commit(Applied{Term: 1, Index: 3}); !errors.Is(err, faultfs.ErrInjected) {
			t.Fatal(err)
		}
	}
	if l.Synced() != (Applied{Term: 1, Index: 1}) {
		t.Fatal(l.Synced())
	}
	if err := verify(l.View(), m.recs()); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); !errors.Is(err, faultfs.ErrInjected) {
		t.Fatal(err)
	}
	if syncs != 1 {
		t.Fatalf("%d syncs", syncs)
	}
}

// TestNoSpace fills a disk, sees that what is there stays readable, and goes on when there is room.
func TestNoSpace(t *testing.T) {
	disk := faultfs.New(memfs.New(), nil)
	o := testOptions(disk)
	disk.SetFree(5*o.SegmentBytes + 100)
	l, m := create(t, o)
	rng := seeded(t, 8)
	refused := false
	for i := 0; ; i++ {
		b := m.randomBatch(rng, m.last(), uint64(i)+2)
		if err := appendBatch(l, b); err != nil {
			t.Fatal(err)
		}
		err := l.Commit(b.applied)
		for err != nil {
			if !errors.Is(err, kv.ErrNoSpace) {
				t.Fatal(err)
			}
			if err := l.CheckRoom(); err != nil {
				if !errors.Is(err, kv.ErrNoSpace) {
					t.Fatalf("Room: %v", err)
				}
				break
			}
			// The rewriter joined small segments in between and gave back space.
			err = l.Commit(b.applied)
		}
		if err != nil {
			if err := verify(l.View(), m.recs()); err != nil {
				t.Fatal(err)
			}
			if refused {
				break
			}
			refused = true
			disk.SetFree(3*o.SegmentBytes + 100)
			if err = l.Commit(b.applied); err != nil {
				t.Fatalf("Commit with room again: %v", err)
			}
			if err := l.CheckRoom(); err != nil {
				t.Fatal(err)
			}
		}
		m.batches = append(m.batches, b)
	}
	if l.Err() != nil {
		t.Fatal(l.Err())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	// A full disk does not keep a log from being opened and read.
	disk.SetFree(0)
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := verifyLog(l, m); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if names, err := disk.List(o.Dir); err != nil ||
		slices.ContainsFunc(names,
			func(s string) bool { return s[len(s)-4:] == format.TempSuffix }) {
		t.Fatal(names, err)
	}
}

// TestNoSpaceForALargeBatch: while a batch waits that is larger than a segment, there is no room
// for more, although the next segment and the reserve exist.
func TestNoSpaceForALargeBatch(t *testing.T) {
	disk := faultfs.New(memfs.New(), nil)
	o := testOptions(disk)
	l, _ := create(t, o)
	defer l.Close()
	l.awaitAllocated()
	disk.SetFree(2 * o.SegmentBytes) // for the next segment, not for the batch
	if _, err := l.AppendKV(kv.Rev{Main: 2}, false, make([]byte, 4*o.SegmentBytes)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.Commit(Applied{Term: 1, Index: 2}); !errors.Is(err, kv.ErrNoSpace) {
			t.Fatalf("Commit: %v", err)
		}
		l.awaitAllocated()
		if err := l.CheckRoom(); !errors.Is(err, kv.ErrNoSpace) {
			t.Errorf("Room: %v", err)
		}
	}
	if err := l.CheckRoomForRemovals(); err != nil {
		t.Errorf("CheckRoomForRemovals: %v", err)
	}
	disk.SetFree(20 * o.SegmentBytes)
	if err := l.Commit(Applied{Term: 1, Index: 2}); err != nil {
		t.Fatal(err)
	}
	if err := l.CheckRoom(); err != nil {
		t.Errorf("CheckRoom after the batch: %v", err)
	}
}

// TestCreateCrashes ends the power or the process at every operation of a Create. What is there
// then must be whole, and what the next process syncs must stay, though it never made the names
// durable.
func TestCreateCrashes(t *testing.T) {
	for n := 1; ; n++ {
		for seed := range uint64(24) {
			rng := seeded(t, seed)
			s := lives{rng: rng, disk: memfs.New(), powerLoss: seed%2 == 0}
			decide, after := s.crasher(n)
			meta := []Meta{{Bucket: 1, Key: []byte("a"), Value: []byte("b")}}
			m := &model{batches: []batch{{metas: meta, applied: Applied{Term: 1, Index: 1}}}}
			l, err := Create(testOptions(faultfs.New(s.disk, decide)),
				Applied{Term: 1, Index: 1}, meta)
			if err == nil {
				if err := l.Close(); err == nil {
					return // n is more than all operations
				}
			}
			disk := after()
			ok, eerr := Exists(disk, testOptions(disk).Dir)
			if eerr != nil || !ok && err == nil {
				t.Fatalf("operation %d: Create: %v, Exists: %v %v", n, err, ok, eerr)
			}
			if !ok {
				if l, err = Create(testOptions(disk), Applied{Term: 1, Index: 1},
					meta); err != nil {
					t.Fatal(err)
				}
			} else if l, err = Open(testOptions(disk)); err != nil {
				t.Fatalf("operation %d: %v", n, err)
			}
			b := batch{recs: []rec{{rev: kv.Rev{Main: 2}, data: []byte("x")}},
				applied: Applied{Term: 1, Index: 2}}
			if err := appendBatch(l, b); err != nil {
				t.Fatal(err)
			}
			if err := l.Commit(b.applied); err != nil {
				t.Fatal(err)
			}
			m.batches = append(m.batches, b)
			if _, err := l.Sync(); err != nil {
				t.Fatal(err)
			}
			disk = disk.Crash(rng)
			_ = l.Close()
			if l, err = Open(testOptions(disk)); err != nil {
				t.Fatalf("operation %d: %v", n, err)
			}
			if err := verifyLog(l, m); err != nil {
				t.Fatalf("operation %d: %v", n, err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestRewrite sees that Open writes again what is not known to be synced, which after a clean end
// is only the mark: a sync that failed in the process before may have left it in memory, marked
// clean.
func TestRewrite(t *testing.T) {
	for _, clean := range []bool{false, true} {
		disk := memfs.New()
		l, m := create(t, testOptions(disk))
		b := batch{recs: []rec{{rev: kv.Rev{Main: 2}, data: []byte("x")}},
			applied: Applied{Term: 1, Index: 2}}
		if err := appendBatch(l, b); err != nil {
			t.Fatal(err)
		}
		if err := l.Commit(b.applied); err != nil {
			t.Fatal(err)
		}
		m.batches = append(m.batches, b)
		if clean {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		} else {
			defer func() { _ = l.Close() }()
		}
		disk = disk.Kill()
		var mu sync.Mutex
		var ops []faultfs.Op
		again, err := Open(testOptions(faultfs.New(disk,
			func(op faultfs.Op, name string) faultfs.Fault {
				mu.Lock()
				defer mu.Unlock()
				if filepath.Base(name) == format.SegmentName(1) &&
					(op == faultfs.OpWrite || op == faultfs.OpSync) {
					ops = append(ops, op)
				}
				return faultfs.None
			})))
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		want := []faultfs.Op{faultfs.OpWrite, faultfs.OpSync}
		if !slices.Equal(ops, want) {
			t.Errorf("clean %v: operations %v, want %v", clean, ops, want)
		}
		mu.Unlock()
		if err := verifyLog(again, m); err != nil {
			t.Fatal(err)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDropCrashes ends the power at every operation of an Open that cuts a torn tail and drops two
// segments after it, then opens again. In the end what was cut is zeros.
//
//vigil:norace
func TestDropCrashes(t *testing.T) {
	d, m := small(t, 9)
	open := format.SegmentName(3)
	b := d[open]
	end := len(bytes.TrimRight(b, "\x00"))
	copy(b[end+100:], "torn "+format.BatchMagic)
	for id := uint64(4); id <= 5; id++ {
		h := format.Header{Version: format.Version, ClusterID: 7, MemberID: 9, ID: id, Salt: id}
		d[format.SegmentName(id)] = append(h.Encode(),
			make([]byte, minSegmentBytes-format.HeaderSize)...)
	}
	for n := 1; ; n++ {
		for seed := range uint64(24) {
			disk := memfs.New()
			o := testOptions(disk)
			o.SegmentBytes = minSegmentBytes
			d.write(t, disk, o.Dir)
			for name := range d {
				f, err := disk.OpenWrite(filepath.Join(o.Dir, name))
				if err == nil {
					err = f.Sync()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := disk.SyncDir(o.Dir); err != nil {
				t.Fatal(err)
			}
			s := lives{rng: seeded(t, seed), disk: disk, powerLoss: true}
			decide, after := s.crasher(n)
			o.FS = faultfs.New(disk, decide)
			l, err := Open(o)
			if err == nil {
				// The end of the power in the background, after Open, fails nothing.
				err = l.Close()
				if _, dead := disk.List(o.Dir); err == nil && dead == nil {
					got := readDir(t, disk, o.Dir)[open]
					if i := bytes.Index(got, []byte("torn")); i >= 0 {
						t.Fatalf("what was cut is still there at %d", i)
					}
					return // n is more than all operations
				}
			} else if !isDead(err) {
				t.Fatal(err)
			}
			o.FS = after()
			if l, err = Open(o); err != nil {
				t.Fatalf("operation %d: %v", n, err)
			}
			if err := verifyLog(l, m); err != nil {
				t.Fatalf("operation %d: %v", n, err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
