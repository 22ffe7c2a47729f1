package history

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"vigil/internal/kv"
	"vigil/internal/vfs"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

var shortages = []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE,
	syscall.ENOMEM}

// patiently calls step again as long as it lacks a resource. Its error says when that was for too
// long.
func patiently(step func() error) error {
	err := step()
	for begin := time.Now(); err != nil && lacking(err); err = step() {
		if time.Since(begin) > time.Hour {
			return fmt.Errorf("after an hour still: %w", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// others are errors that say nothing about what is on disk either.
var others = []syscall.Errno{syscall.EACCES, syscall.ENOENT, syscall.EINTR}

// lacking says whether err is an injected one. What a caller tries again by itself, an Open for
// instance, need not be marked as a shortage.
func lacking(err error) bool {
	c := vfs.CauseOf(err)
	var errno syscall.Errno
	return c == vfs.NoSpace || c == vfs.Exhausted || errors.As(err, &errno) &&
		slices.Contains(others, errno)
}

// needyLife is a life with everything that a log does to files: seals, syncs, a checkpoint,
// scrubbing, rewrites, a close and an open. Every step is tried again when it lacks a resource, and
// must then succeed.
func needyLife(o Options, m *model) error {
	rng := rand.New(rand.NewPCG(7, 7))
	m.batches = []batch{{metas: []Meta{{Bucket: 1, Key: []byte("a"), Value: []byte("b")}},
		applied: Applied{Term: 1, Index: 1}}}
	var l *Log
	open := func() error {
		there, err := Exists(o.FS, o.Dir)
		if err != nil {
			return err
		}
		if there {
			l, err = Open(o)
		} else {
			l, err = Create(o, m.batches[0].applied, m.batches[0].metas)
		}
		return err
	}
	if err := patiently(open); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	defer func() {
		if l != nil {
			_ = l.Close()
		}
	}()
	s := l.NewScrubber(1 << 40)
	scrub := func() error {
		for {
			res, err := s.Next(tContext)
			if err != nil || res.File == "" {
				return err
			}
			if res.Damage != nil {
				return fmt.Errorf("no damage: %w", res.Damage)
			}
		}
	}
	for i := range 80 {
		b := m.randomBatch(rng, m.last(), uint64(i)+2)
		b.metas = nil
		if i == 30 {
			b.metas = []Meta{m.compact(rng, m.last())}
		}
		if err := appendBatch(l, b); err != nil {
			return err
		}
		if err := patiently(func() error {
			err := l.Commit(b.applied)
			if err != nil && !kv.Shortage(err) {
				return errors.New(err.Error()) // it must be named
			}
			return err
		}); err != nil {
			return fmt.Errorf("commit %d: %w", i, err)
		}
		m.batches = append(m.batches, b)
		step := func() error { return nil }
		switch i {
		case 10, 50:
			step = func() error { _, err := l.Sync(); return err }
		case 20:
			step = scrub
		case 31:
			step = func() error { return l.Dead(m.dead()) }
		case 40:
			l.Reclaim()
			step = func() error { return l.WaitReclaimed(tContext) }
		case 45:
			// Each try has its own name: while the shortage lasts a finished one may keep it.
			try := 0
			step = func() error {
				try++
				_, err := l.Checkpoint(tContext,
					filepath.Join(filepath.Dir(o.Dir), fmt.Sprint("copy", try)), "")
				return err
			}
		case 60:
			if err := l.Close(); err != nil {
				return fmt.Errorf("close: %w", err)
			}
			step = open
		case 62:
			s = l.NewScrubber(1 << 40)
			step = scrub
		}
		if err := patiently(step); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	if err := l.Err(); err != nil {
		return err
	}
	if err := verifyLeft(l, m); err != nil && !lacking(err) {
		return err
	}
	if err := l.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

// A lack of space, of file descriptors or of memory, at any operation and for a while, costs time
// and nothing else: the log does not end, nothing is called damaged, and everything is there
// afterwards, after a loss of power too. So does any other error that comes once, unless it is one
// of writing or syncing what the log has committed.
//
//vigil:norace
func TestShortages(t *testing.T) {
	stride := int64(rounds(t, "VIGIL_HISTORY_STRIDE", 13))
	runs, hits := 0, 0
	try := func(errno syscall.Errno, width int64, among func(op faultfs.Op, name string) bool) {
		missed := 0
		for n := 1 + int64(errno)%stride; missed < 3; n += stride {
			w := faultfs.NewWindow(n, width, errno, among)
			disk := memfs.New()
			var m model
			err := error(nil)
			synctest.Test(t, func(*testing.T) {
				err = needyLife(testOptions(faultfs.New(disk,
					w.Decide)), &m)
			})
			runs++
			if w.Hit() == "" {
				missed++
			} else {
				hits++
			}
			if err != nil {
				t.Fatalf("%d times %s: %v", width, w.Hit(), err)
			}
			for _, after := range []*memfs.FS{disk.Kill(),
				disk.Crash(rand.New(rand.NewPCG(uint64(n), 1)))} {
				l, err := Open(testOptions(after))
				if err == nil {
					err = errors.Join(verifyLeft(l, &m), l.Close())
				}
				if err != nil {
					t.Fatalf("%d times %s, then: %v", width, w.Hit(), err)
				}
			}
		}
	}
	for _, errno := range shortages {
		for _, width := range []int64{1, 7} {
			try(errno, width, func(op faultfs.Op, _ string) bool { return op.Lacks(errno) })
		}
	}
	for _, errno := range others {
		try(errno, 1, func(op faultfs.Op, _ string) bool {
			if errno == syscall.ENOENT && op == faultfs.OpList {
				return false // that says that there is no log
			}
			return op != faultfs.OpWrite && op != faultfs.OpSync && op != faultfs.OpSyncDir &&
				op != faultfs.OpMap
		})
	}
	t.Logf("%d runs, %d with a failure", runs, hits)
}
