package history

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// await waits until ok says so, looking whenever the allocator changed.
func (l *Log) await(ok func() bool) {
	l.alloc.mu.Lock()
	defer l.alloc.mu.Unlock()
	for !ok() && l.Err() == nil {
		l.alloc.mu.changed.Wait()
	}
}

// awaitAllocated waits until the next segment and the reserve exist: the allocator is idle then.
func (l *Log) awaitAllocated() {
	l.await(l.alloc.bothLocked)
}

// retry has the allocator try again now rather than when the pause is over.
func (l *Log) retry() error {
	a := l.alloc
	a.mu.Lock()
	a.mu.wanted, a.mu.triedAt = true, time.Time{}
	a.mu.changed.Broadcast()
	for a.mu.wanted && !a.bothLocked() && l.Err() == nil {
		a.mu.changed.Wait()
	}
	a.mu.Unlock()
	return l.CheckRoom()
}

// fill commits small batches until ok says that it is enough, or Commit fails.
func fill(t *testing.T, l *Log, m *model, rng *rand.Rand, enough func() bool) error {
	t.Helper()
	for !enough() {
		b := batch{applied: Applied{Term: 1, Index: m.batches[len(m.batches)-1].applied.Index + 1}}
		b.recs = []rec{{rev: kv.Rev{Main: m.last().Main + 1}, data: make([]byte, 50+rng.IntN(300))}}
		if err := appendBatch(l, b); err != nil {
			t.Fatal(err)
		}
		err := commit(l, b.applied)
		if err != nil {
			return err
		}
		m.batches = append(m.batches, b)
		// The allocator is quicker than a disk is full, in life.
		l.await(func() bool { return !l.alloc.mu.wanted || l.alloc.bothLocked() })
	}
	return nil
}

// TestReserve fills the disk, and sees in turn: puts refused and deletions not, the reserve used,
// all refused, a restart in this state, and everything back when there is room.
func TestReserve(t *testing.T) {
	mem := memfs.New()
	disk := faultfs.New(mem, nil)
	o := testOptions(disk)
	l, m := create(t, o)
	rng := seeded(t, 3)
	l.awaitAllocated()
	if err := l.CheckRoom(); err != nil {
		t.Fatal(err)
	}
	if n, kept := l.Allocated(); n != o.SegmentBytes || kept != o.SegmentBytes/4 {
		t.Errorf("%d bytes are allocated, %d kept", n, kept)
	}
	disk.SetFree(0)

	// The next segment is in use, and there is none after it.
	if err := fill(t, l, m, rng, func() bool { return l.CheckRoom() != nil }); err != nil {
		t.Fatal(err)
	}
	if err := l.CheckRoom(); !errors.Is(err, kv.ErrNoSpace) {
		t.Fatal(err)
	}
	first := l.w.seg.Head.ID
	// The reserve does not count, nor do the tables that the seal will add.
	left := func() int64 {
		return o.SegmentBytes - format.SealedSize(int64(l.View().end),
			l.w.seg.Memory.Size())
	}
	if n, _ := l.Allocated(); n > left() || n < left()-100 {
		t.Errorf("%d bytes are allocated, %d are left", n, left())
	}
	if err := fill(t, l, m, rng, func() bool {
		if err := l.CheckRoomForRemovals(); err != nil {
			t.Fatalf("with the reserve there: %v", err)
		}
		return l.w.seg.Head.ID != first
	}); err != nil {
		t.Fatal(err)
	}
	if ok, _ := l.hasReserve(); ok {
		t.Fatal("the segment was not made of the reserve")
	}
	// A part of the last segment is for what makes room, and all of it for what was taken on.
	if err := l.CheckRoomForRemovals(); err != nil {
		t.Fatal(err)
	}
	if err := fill(t, l, m, rng,
		func() bool { return l.CheckRoomForRemovals() != nil }); err != nil {
		t.Fatal(err)
	}
	if left := o.SegmentBytes - int64(l.View().end); left > o.SegmentBytes/4 ||
		left < o.SegmentBytes/16 {
		t.Errorf("%d bytes are left when deletions are refused", left)
	}
	if err := l.retry(); !errors.Is(err, kv.ErrNoSpace) {
		t.Fatal(err)
	}

	// Restart while it is full.
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := verifyLog(l, m); err != nil {
		t.Fatal(err)
	}
	if err := l.retry(); !errors.Is(err, kv.ErrNoSpace) {
		t.Fatal(err)
	}
	// Room for a segment is not room for the reserve too.
	disk.SetFree(o.SegmentBytes)
	if err := l.retry(); !errors.Is(err, kv.ErrNoSpace) {
		t.Fatal(err)
	}
	if err := l.CheckRoomForRemovals(); err != nil {
		t.Fatal(err)
	}
	disk.SetFree(o.SegmentBytes)
	if err := l.retry(); err != nil {
		t.Fatal(err)
	}
	if ok, _ := l.hasReserve(); !ok {
		t.Fatal("no reserve")
	}

	// It stays over a restart, even on a disk that is full.
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	disk.SetFree(o.SegmentBytes)
	if l, err = Open(o); err != nil {
		t.Fatal(err)
	}
	l.awaitAllocated()
	if err := verifyLog(l, m); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func (l *Log) hasReserve() (bool, error) {
	_, err := l.o.FS.Stat(l.dir.join(format.ReserveName))
	return err == nil, err
}

// The reserve is handed out whole to a rewriter, and made again when it says so.
func TestTakeReserve(t *testing.T) {
	disk := faultfs.New(memfs.New(), nil)
	o := testOptions(disk)
	l, _ := create(t, o)
	l.awaitAllocated()
	disk.SetFree(0)
	path := l.dir.join("output" + format.TempSuffix)
	file, size, err := l.alloc.takeReserve(path)
	if err != nil || file == nil || size != o.SegmentBytes {
		t.Fatal(file, size, err)
	}
	if size, err := file.Size(); size != o.SegmentBytes || err != nil {
		t.Fatal(size, err)
	}
	if _, err := file.WriteAt(make([]byte, 100), o.SegmentBytes-100); err != nil {
		t.Fatal(err)
	}
	if file, _, err := l.alloc.takeReserve(path); file != nil || err != nil {
		t.Fatal(file, err)
	}
	l.alloc.refillReserve()
	if err := l.retry(); !errors.Is(err, kv.ErrNoSpace) {
		t.Fatal(err)
	}
	if err := errors.Join(file.Close(), o.FS.Remove(path)); err != nil {
		t.Fatal(err)
	}
	l.alloc.refillReserve()
	l.await(func() bool { return l.alloc.mu.reserve != nil })
	if err := l.retry(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	// A crash leaves the output, which goes, and no reserve, which is made again; and a file of
	// another size is none.
	if f, err := o.FS.OpenWrite(l.dir.join(format.ReserveName)); err != nil ||
		f.Truncate(5) != nil || f.Close() != nil {
		t.Fatal(err)
	}
	if l, err = Open(o); err != nil {
		t.Fatal(err)
	}
	disk.SetFree(10 * o.SegmentBytes)
	l.await(func() bool { return l.alloc.mu.reserve != nil })
	if size, err := l.alloc.mu.reserve.Size(); size != o.SegmentBytes || err != nil {
		t.Fatal(size, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// While a rewriter takes the reserve, the allocator must not take the same file for a reserve that
// an earlier life left: the next one to need it would find a file that is somebody else's.
func TestTakeReserveAlone(t *testing.T) {
	var l *Log
	touched := make(chan struct{}, 1)
	taking := false
	disk := faultfs.New(memfs.New(), nil)
	o := testOptions(disk)
	reserve := filepath.Join(o.Dir, format.ReserveName)
	o.FS = faultfs.New(disk, func(op faultfs.Op, name string) faultfs.Fault {
		switch {
		case op == faultfs.OpRename && name == reserve && !taking:
			taking = true
			l.alloc.refillReserve()
			select {
			case <-touched:
				t.Error("the allocator opens the reserve while it is handed out")
			case <-time.After(50 * time.Millisecond): // it waits, as it should
			}
		case op == faultfs.OpOpenWrite && name == reserve:
			select {
			case touched <- struct{}{}:
			default:
			}
		}
		return faultfs.None
	})
	l, _ = create(t, o)
	l.awaitAllocated()
	select {
	case <-touched: // it looked for one when it began
	default:
	}
	disk.SetFree(0)
	file, _, err := l.alloc.takeReserve(l.dir.join("output" + format.TempSuffix))
	if err != nil || file == nil || !taking {
		t.Fatal(file, err, taking)
	}
	disk.SetFree(10 * o.SegmentBytes)
	// The attempt that waited may have found the disk full, and no request to try again is kept.
	for !l.alloc.hasReserve() {
		l.alloc.refillReserve()
		time.Sleep(time.Millisecond)
	}
	if err := errors.Join(file.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestReserveReturns: a rewrite on a full disk takes the reserve, and what it frees becomes the
// reserve again, though nothing is written.
func TestReserveReturns(t *testing.T) {
	disk := faultfs.New(memfs.New(), nil)
	o := testOptions(disk)
	o.SegmentBytes = minSegmentBytes
	l, m := create(t, o)
	dead := compactSome(t, l, m)
	if _, err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	l.awaitAllocated()
	disk.SetFree(0)
	if err := l.Dead(dead); err != nil {
		t.Fatal(err)
	}
	l.Reclaim()
	waitReclaimed(t, l)
	if st := l.ReclaimStats(); st.Rewrites == 0 {
		t.Fatalf("%+v", st)
	}
	for until := time.Now().Add(time.Minute); !l.alloc.hasReserve(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("there is no reserve after the rewrite")
		}
	}
	if err := errors.Join(l.CheckRoom(), verifyLeft(l, m), l.Close()); err != nil {
		t.Fatal(err)
	}
}

func (a *allocator) hasReserve() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.reserve != nil
}

// TestReclaimWithoutProgress: the oldest segment with garbage is too large for what room there is,
// and the deletions that are dead after it have to stay for as long. Reclaim rests until something
// has changed.
func TestReclaimWithoutProgress(t *testing.T) {
	var full atomic.Bool
	var disk *faultfs.FS
	disk = faultfs.New(memfs.New(), func(op faultfs.Op, _ string) faultfs.Fault {
		if full.Load() && (op == faultfs.OpFree || op == faultfs.OpPreallocate) {
			disk.SetFree(2 * minSegmentBytes) // others take what becomes free
		}
		return faultfs.None
	})
	o := testOptions(disk)
	o.SegmentBytes = minSegmentBytes
	l, m := create(t, o)
	large := batch{applied: Applied{Term: 1, Index: 2}}
	for i, size := range []int{100, 10 * minSegmentBytes} {
		large.recs = append(large.recs,
			rec{rev: kv.Rev{Main: 1, Sub: int64(i)}, data: make([]byte, size)})
	}
	large.recs[0].data[0] = 3
	large.recs[1].data[0] = 6
	m.batches = append(m.batches, large)
	if err := errors.Join(appendBatch(l, large), l.Commit(large.applied)); err != nil {
		t.Fatal(err)
	}
	dead := slices.DeleteFunc(churn(t, l, m),
		func(d DeadRecord) bool { return d.Rev == large.recs[1].rev })
	l.awaitAllocated()
	full.Store(true)
	if err := l.Dead(dead); err != nil {
		t.Fatal(err)
	}
	for _, thorough := range []bool{false, true} {
		if thorough {
			l.Reclaim()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for again := true; again; { // the reserve may still be being made again
			err := l.WaitReclaimed(ctx)
			if err != nil && !errors.Is(err, kv.ErrNoSpace) {
				t.Fatalf("%v after %+v", err, l.ReclaimStats())
			}
			if again = err != nil; again {
				l.tryAgain()
			}
		}
		if st := l.ReclaimStats(); st.Rewrites == 0 || st.Rewrites > 100 {
			t.Errorf("%+v", st)
		}
		if err := verifyLeft(l, m); err != nil {
			t.Fatal(err)
		}
	}
	if l.View().segmentOf(kv.Rev{Main: 1}).dead.Dead.Records == 0 {
		t.Error("the large segment was rewritten without room for it")
	}
	// With room it goes on by itself.
	before := l.ReclaimStats().Rewrites
	full.Store(false)
	disk.SetFree(1 << 30)
	l.Reclaim()
	if err := l.retry(); err != nil {
		t.Fatal(err)
	}
	for l.View().segmentOf(kv.Rev{Main: 1}).deadRecords(l) > 0 {
		waitReclaimed(t, l)
	}
	if l.ReclaimStats().Rewrites == before {
		t.Error("nothing was rewritten when there was room")
	}
	if err := errors.Join(verifyLeft(l, m), l.Close()); err != nil {
		t.Fatal(err)
	}
}

func (s *segment) deadRecords(l *Log) int {
	l.cat.dead.Lock()
	defer l.cat.dead.Unlock()
	return s.dead.Dead.Records
}

// TestReclaimThinGarbage: on a nearly full disk too, segments of which each has only a little
// garbage are not rewritten one after the other for the little that it wins, unless all is asked
// for.
func TestReclaimThinGarbage(t *testing.T) {
	disk := faultfs.New(memfs.New(), nil)
	o := testOptions(disk)
	o.SegmentBytes = 64 << 10
	l, m := create(t, o)
	if err := fill(t, l, m, seeded(t, 11),
		func() bool { return len(m.recs()) == 2500 }); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	l.awaitAllocated()
	disk.SetFree(3 * o.SegmentBytes)
	for i, r := range m.recs() {
		if i%20 != 0 {
			continue
		}
		if err := l.Dead([]DeadRecord{{Rev: r.rev}}); err != nil {
			t.Fatal(err)
		}
		waitReclaimed(t, l)
	}
	if st := l.ReclaimStats(); st.Rewrites > 0 {
		t.Errorf("%+v", st)
	}
	l.Reclaim()
	waitReclaimed(t, l)
	if st := l.ReclaimStats(); st.Rewrites == 0 {
		t.Error("nothing was rewritten when all was asked for")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
