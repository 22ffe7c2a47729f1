package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// others are errors that say nothing about what is on disk, as a lack of something does.
var others = []syscall.Errno{syscall.EACCES, syscall.ENOENT, syscall.EINTR}

// patiently calls step again as long as an error was injected.
func patiently(errno syscall.Errno, step func() error) error {
	err := step()
	for range 40 {
		if !errors.Is(err, errno) {
			break
		}
		err = step()
	}
	return err
}

// needyLife is a life of a log in which every step that fails is tried again, and must then
// succeed.
func (l *tracked) needyLife(o Options, errno syscall.Errno) error {
	open := func() error { return l.open(o) }
	if err := patiently(errno, open); err != nil {
		return fmt.Errorf("open: %w", err)
	}
	grow := func(term uint64, n, size int, sync bool) error {
		return patiently(errno, func() error {
			last := l.states[len(l.states)-1].last()
			err := l.append(Batch{HardState: hard(term, 1, last),
				Entries: entries(last+1, term, n, size), Sync: sync})
			if err != nil && !slices.Contains(others, errno) && !kv.Shortage(err) {
				return errors.New(err.Error()) // it must be named
			}
			return err
		})
	}
	for i := range 40 {
		if err := grow(uint64(1+i/20), 3, 100+i*50, i%3 != 0); err != nil {
			return fmt.Errorf("append %d: %w", i, err)
		}
		if last, _ := l.w.LastIndex(); i%6 == 5 {
			if err := l.truncate(last - 3); err != nil {
				return fmt.Errorf("truncate %d: %w", i, err)
			}
		}
		switch i {
		case 15:
			if err := grow(1, 2, 9000, true); err != nil {
				return fmt.Errorf("a large group: %w", err)
			}
		case 25:
			start := &Start{Index: l.states[len(l.states)-1].last() + 50, Term: 2}
			if err := patiently(errno,
				func() error { return l.append(Batch{Snapshot: start}) }); err != nil {
				return fmt.Errorf("reset: %w", err)
			}
		case 30:
			err := l.w.Close()
			l.states = l.states[len(l.states)-1:]
			if err == nil {
				err = patiently(errno, open)
			}
			if err != nil {
				return fmt.Errorf("close and open: %w", err)
			}
		}
	}
	err := l.w.Close()
	l.states = l.states[len(l.states)-1:]
	return err
}

// A lack of space, of file descriptors or of memory, at any operation and for a while, costs time
// and nothing else, and so does another error that comes once and not while what was appended is
// written or synced: the log goes on and has everything, after a loss of power too.
//
//vigil:norace
func TestShortages(t *testing.T) {
	stride, runs, hits := int64(7), 0, 0
	if os.Getenv("VIGIL_CRASHES") != "" {
		stride = 1
	}
	try := func(errno syscall.Errno, width int64, among func(op faultfs.Op, name string) bool) {
		missed := 0
		for n := 1 + int64(errno)%stride; missed < 3; n += stride {
			w := faultfs.NewWindow(n, width, errno, among)
			mem := memfs.New()
			l := &tracked{}
			err := l.needyLife(testOptions(faultfs.New(mem, w.Decide)), errno)
			runs++
			if w.Hit() == "" {
				missed++
			} else {
				hits++
			}
			if err != nil {
				t.Fatalf("%d times %s: %v", width, w.Hit(), err)
			}
			for _, then := range []*memfs.FS{mem.Crash(rand.New(rand.NewPCG(uint64(n), 1))),
				mem.Kill()} {
				after := &tracked{created: true, states: slices.Clone(l.states)}
				if err := after.open(testOptions(then)); err != nil {
					t.Fatalf("%d times %s, then: %v", width, w.Hit(), err)
				}
				must(t, after.w.Close())
			}
		}
	}
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE,
		syscall.ENFILE, syscall.ENOMEM} {
		for _, width := range []int64{1, 7} {
			try(errno, width, func(op faultfs.Op, _ string) bool { return op.Lacks(errno) })
		}
	}
	for _, errno := range others {
		try(errno, 1, func(op faultfs.Op, _ string) bool {
			if errno == syscall.ENOENT && op == faultfs.OpList {
				return false // that says that there is no log
			}
			return op != faultfs.OpWrite && op != faultfs.OpSync && op != faultfs.OpSyncDir
		})
	}
	t.Logf("%d runs, %d with a failure", runs, hits)
}
