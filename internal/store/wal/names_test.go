package wal

import (
	"errors"
	"testing"

	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// After a failed sync of a spare or of the directory, and after a failed change of a name, it is
// unknown what is on disk. A later sync that succeeds does not say either. So the log takes nothing
// more, and does nothing with names.
func TestFailedNamesEndTheLog(t *testing.T) {
	prepare := func(w *WAL) error {
		if _, err := w.spares.takeFirst(); err != nil {
			return err
		}
		return w.PrepareSpare()
	}
	truncate := func(w *WAL) error { return w.TruncateBefore(21) }
	for _, c := range []struct {
		name string
		op   faultfs.Op
		step func(*WAL) error
	}{
		{"sync of a new spare", faultfs.OpSync, prepare},
		{"sync of the directory with a new spare", faultfs.OpSyncDir, prepare},
		{"rename of a recycled segment", faultfs.OpRename, truncate},
		{"removal of a segment", faultfs.OpRemove, truncate},
		{"sync of the directory with a recycled segment", faultfs.OpSyncDir, truncate},
	} {
		for _, fault := range []faultfs.Fault{faultfs.Fail, faultfs.FailPersisted} {
			armed, changes := false, 0
			o := testOptions(faultfs.New(memfs.New(), func(op faultfs.Op, _ string) faultfs.Fault {
				if armed && op == c.op {
					armed = false
					return fault
				}
				if op == faultfs.OpSyncDir || op == faultfs.OpCreate || op == faultfs.OpRename ||
					op == faultfs.OpRemove {
					changes++
				}
				return faultfs.None
			}))
			w := create(t, o, Start{})
			w.run = func(step func()) { step() }
			for i := range uint64(20) {
				must(t, w.Append(Batch{Entries: entries(1+i, 1, 1, 900), Sync: true}))
			}
			if n := w.Metrics().Segments; n < 4 {
				t.Fatalf("%d segments", n)
			}
			armed = true
			if err := c.step(w); !errors.Is(err, faultfs.ErrInjected) {
				t.Fatalf("%s: %v", c.name, err)
			}
			changes = 0
			for range 2 {
				if err := w.Append(Batch{Entries: entries(21, 1, 1, 10),
					Sync: true}); !errors.Is(err, faultfs.ErrInjected) {
					t.Errorf("%s, %v: Append after it: %v", c.name, fault, err)
				}
				if err := w.TruncateBefore(21); !errors.Is(err, faultfs.ErrInjected) {
					t.Errorf("%s, %v: TruncateBefore after it: %v", c.name, fault, err)
				}
				if _, err := w.spares.takeFirst(); err == nil {
					_ = w.PrepareSpare()
				}
			}
			if changes > 0 {
				t.Errorf("%s, %v: %d changes of names and syncs after it", c.name, fault, changes)
			}
			_ = w.Close()
		}
	}
}
