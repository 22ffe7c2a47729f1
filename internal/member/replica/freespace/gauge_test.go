package freespace

import (
	"math"
	"syscall"
	"testing"

	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// A directory whose file system does not answer counts as one with room: nothing is rejected
// because of a number that is not known.
func TestUnknownIsNotEmpty(t *testing.T) {
	inner := memfs.New()
	for _, dir := range []string{"good", "bad"} {
		if err := inner.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	g := New(faultfs.New(inner, func(op faultfs.Op, name string) faultfs.Fault {
		if op == faultfs.OpFree && name == "bad" {
			return faultfs.Errno(syscall.EIO)
		}
		return faultfs.None
	}), "good", "bad")
	if last := g.Last(); last != nil {
		t.Errorf("before the first measurement: %v", last)
	}
	m := g.Start()
	<-m.Done()
	if free := m.Free(); len(free) != 2 || free[0] <= 0 || free[1] != math.MaxInt64 {
		t.Errorf("free: %v", free)
	}
	if last := g.Last(); len(last) != 2 {
		t.Errorf("the last measurement: %v", last)
	}
}
