package history

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"vigil/internal/store/history/format"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// rounds returns the value of an environment variable, or def: how long a long test is.
func rounds(t testing.TB, name string, def int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return def
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// lives runs a log through crashes: at a random operation of each life the power fails or the
// process is killed, and the next life must find what the model allows.
type lives struct {
	rng  *rand.Rand
	disk *memfs.FS
	m    model

	durable   int // the first batches of m that must be there
	committed int // the first batches of m whose Commit returned; at most one more was tried
	powerLoss bool
	// reclaim makes the lives compact and reclaim.
	reclaim bool
	stats   struct {
		lives, batches, lost int
		rewrites             uint64
	}
}

// crasher makes the n-th changing operation the last one that is not done.
func (s *lives) crasher(n int) (decide func(faultfs.Op, string) faultfs.Fault,
	after func() *memfs.FS) {
	var mu sync.Mutex
	var next *memfs.FS
	crash := func() {
		if next == nil && s.powerLoss {
			next = s.disk.Crash(s.rng)
		} else if next == nil {
			next = s.disk.Kill()
		}
	}
	decide = func(op faultfs.Op, _ string) faultfs.Fault {
		mu.Lock()
		defer mu.Unlock()
		if op.Changes() {
			if n--; n == 0 {
				crash()
			}
		}
		return faultfs.None
	}
	after = func() *memfs.FS {
		mu.Lock()
		defer mu.Unlock()
		crash()
		return next
	}
	return decide, after
}

func (s *lives) run(n int) error {
	s.disk = memfs.New()
	for life := range n {
		crashAt := 1 + s.rng.IntN(300)
		if s.rng.IntN(3) == 0 {
			crashAt = 1 + s.rng.IntN(25) // likely in recovery
		}
		s.powerLoss = s.rng.IntN(4) > 0
		// The life draws from a generator of its own: the crash draws from s.rng at a time of its
		// choosing.
		rng := rand.New(rand.NewPCG(s.rng.Uint64(), 2))
		decide, after := s.crasher(crashAt)
		o := testOptions(faultfs.New(s.disk, decide))
		o.SegmentBytes = 4096 << rng.IntN(3)
		err := s.live(o, rng)
		s.disk = after()
		s.stats.lives++
		if err != nil {
			return fmt.Errorf("life %d: %w", life, err)
		}
		if s.powerLoss {
			s.committed = s.durable
		} else if s.rng.IntN(2) == 0 {
			// Nothing that was written is lost with the process, but it is not durable yet. In the
			// other half of the cases the next life has to make it durable.
			if err := s.open(testOptions(s.disk), s.committed); err != nil {
				return fmt.Errorf("life %d, killed: %w", life, err)
			}
		}
	}
	return nil
}

// open opens a log that must hold at least the first n batches, checks it and closes it again
// without keeping anything.
func (s *lives) open(o Options, n int) error {
	if n == 0 {
		return nil
	}
	l, err := Open(o)
	if err != nil {
		return err
	}
	_, err = s.found(l, n)
	_ = l.Close()
	return err
}

// found compares an opened log with the model and returns how many batches it has.
func (s *lives) found(l *Log, least int) (int, error) {
	n := 0
	for n < len(s.m.batches) && s.m.batches[n].applied.Index <= l.Applied().Index {
		n++
	}
	if n < least {
		return 0, fmt.Errorf("%d batches are there, %d should be", n, least)
	}
	if n == 0 {
		return 0, fmt.Errorf("applied %v was never committed", l.Applied())
	}
	prefix := model{batches: s.m.batches[:n]}
	if s.reclaim {
		return n, verifyLeft(l, &prefix)
	}
	return n, verifyLog(l, &prefix)
}

// live opens or creates the log and writes to it until an error, which must be that of the crash.
func (s *lives) live(o Options, rng *rand.Rand) error {
	dead := func(err error) bool { return err != nil && isDead(err) }
	l, err := Open(o)
	switch ok, eerr := Exists(o.FS, o.Dir); {
	case dead(err) || dead(eerr):
		return nil
	case eerr != nil:
		return eerr
	case !ok && s.durable > 0:
		return fmt.Errorf("the log is gone")
	case !ok:
		s.m.batches = []batch{s.m.randomBatch(rng, s.m.last(), 1)}
		s.m.batches[0].recs = nil
		s.committed = 0
		l, err = Create(o, s.m.batches[0].applied, s.m.batches[0].metas)
		if err != nil {
			if dead(err) {
				return nil
			}
			return err
		}
		s.durable, s.committed = 1, 1
	case err != nil:
		return err
	default:
		n, err := s.found(l, s.durable)
		if err != nil && !dead(err) {
			_ = l.Close()
			return err
		}
		if err != nil {
			_ = l.Close()
			return nil
		}
		s.stats.lost += len(s.m.batches) - n
		s.m.batches = s.m.batches[:n]
		s.durable, s.committed = n, n
	}
	if s.reclaim {
		defer func() { s.stats.rewrites += l.ReclaimStats().Rewrites }()
		if err := l.Dead(s.m.dead()); err != nil {
			return err
		}
	}
	err = s.write(l, rng)
	if a := l.Synced(); a.Index > 0 {
		s.hold(a)
	}
	if err == nil {
		err = l.Close()
		if err == nil {
			s.durable = s.committed
		}
	} else {
		_ = l.Close()
	}
	if err != nil && !dead(err) {
		return err
	}
	return nil
}

// hold notes that a is durable.
func (s *lives) hold(a Applied) {
	for i, b := range s.m.batches {
		if b.applied.Index <= a.Index {
			s.durable = max(s.durable, i+1)
		}
	}
}

func (s *lives) write(l *Log, rng *rand.Rand) error {
	for range rng.IntN(150) {
		index := s.m.batches[len(s.m.batches)-1].applied.Index + 1
		b := s.m.randomBatch(rng, s.m.last(), index)
		if s.reclaim && rng.IntN(8) == 0 {
			b.metas = append(b.metas, s.m.compact(rng, s.m.last()))
		}
		if err := appendBatch(l, b); err != nil {
			return err
		}
		s.m.batches = append(s.m.batches, b)
		s.stats.batches++
		if err := l.Commit(b.applied); err != nil {
			return err
		}
		s.committed = len(s.m.batches)
		if s.reclaim && rng.IntN(8) == 0 {
			if err := l.Dead(s.m.dead()); err != nil {
				return err
			}
			if rng.IntN(2) == 0 {
				l.Reclaim()
			}
			if rng.IntN(2) == 0 {
				if err := l.WaitReclaimed(tContext); err != nil {
					return err
				}
			}
		}
		if rng.IntN(12) == 0 {
			a, err := l.Sync()
			if err != nil {
				return err
			}
			if a != b.applied {
				return fmt.Errorf("synced %v after a commit at %v", a, b.applied)
			}
			s.durable = s.committed
		}
		s.hold(l.Synced())
	}
	return nil
}

// TestCrashes runs logs through lives that end at any operation. VIGIL_HISTORY_CRASHES says how
// many seeds, VIGIL_HISTORY_SEED where they begin.
//
//vigil:norace
func TestCrashes(t *testing.T) {
	n, from := rounds(t, "VIGIL_HISTORY_CRASHES", 12), rounds(t, "VIGIL_HISTORY_SEED", 0)
	var total struct{ lives, batches, lost int }
	for seed := from; seed < from+n; seed++ {
		s := lives{rng: rand.New(rand.NewPCG(uint64(seed), 3))}
		if err := s.run(10); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		total.lives += s.stats.lives
		total.batches += s.stats.batches
		total.lost += s.stats.lost
	}
	t.Logf("%d lives, %d batches tried, %d unsynced ones lost", total.lives,
		total.batches, total.lost)
}

// The process is killed when a merged segment has its name, and this is not durable yet, and the
// power fails while the log is opened again. At any operation, the merged segment or all that it
// replaces must be there.
func TestPowerLossAfterAKill(t *testing.T) {
	rng := seeded(t, 6)
	for n := 1; ; n++ {
		disk := memfs.New()
		var killed *memfs.FS
		var mu sync.Mutex // guards the rest
		armed, renamed := false, false
		o := testOptions(faultfs.New(disk, func(op faultfs.Op, name string) faultfs.Fault {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case op == faultfs.OpCreate && armed:
				// The open segment is the last one: Open has none to drop.
				if strings.HasSuffix(name, format.LogSuffix+format.TempSuffix) {
					return faultfs.Errno(syscall.ENOSPC)
				}
			case op == faultfs.OpRename &&
				strings.HasSuffix(name, format.SealedSuffix+format.TempSuffix):
				renamed = true
			case op == faultfs.OpSyncDir && renamed && killed == nil:
				killed = disk.Kill()
			}
			return faultfs.None
		}))
		o.SegmentBytes = minSegmentBytes
		l, m := create(t, o)
		arm := func() {
			mu.Lock()
			defer mu.Unlock()
			armed = true
		}
		dead := compactSome(t, l, m)
		arm()
		for { // the next segment is used up
			if ok, err := l.Roll(); err != nil || !ok {
				break
			}
			b := m.randomBatch(rng, m.last(), m.batches[len(m.batches)-1].applied.Index+1)
			m.batches = append(m.batches, b)
			if err := errors.Join(appendBatch(l, b), l.Commit(b.applied)); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Dead(dead); err != nil {
			t.Fatal(err)
		}
		l.Reclaim()
		if err := l.WaitReclaimed(t.Context()); err == nil || killed == nil {
			t.Fatalf("it was not killed: %v", err)
		}
		_ = l.Close()

		count := 0
		o = testOptions(faultfs.New(killed, func(op faultfs.Op, _ string) faultfs.Fault {
			if op.Changes() {
				if count++; count == n {
					killed.Crash(rng)
				}
			}
			return faultfs.None
		}))
		if l, err := Open(o); err == nil {
			_ = l.Close()
		}
		for range 6 {
			l, err := Open(testOptions(killed.Crash(rng)))
			if err == nil {
				err = verifyLeft(l, m)
				_ = l.Close()
			}
			if err != nil {
				t.Fatalf("operation %d: %v", n, err)
			}
		}
		if count < n {
			t.Logf("%d operations", n-1)
			break
		}
	}
}
