package wal

import (
	"errors"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// A full disk is met when a spare is made, with nearly a whole segment left for what was taken on;
// it ends when there is room, or when truncation gives a segment back.
func TestRoom(t *testing.T) {
	for _, recycle := range []bool{false, true} {
		disk := faultfs.New(memfs.New(), nil)
		o := Options{FS: disk, Dir: "w", ID: Identity{1, 2}, SegmentBytes: 64 << 10}
		w, err := Create(o, Start{})
		if err != nil {
			t.Fatal(err)
		}
		w.run = func(step func()) { step() }
		index := uint64(0)
		add := func() error {
			err := w.Append(Batch{Entries: entries(index+1, 1, 1, 500), Sync: true})
			if err == nil {
				index++
			}
			return err
		}
		if err := add(); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.CheckRoom(), w.CheckRoomForRemovals()); err != nil {
			t.Fatal(err)
		}
		if n, kept := w.Allocated(); n != o.SegmentBytes || kept != o.SegmentBytes/4 {
			t.Errorf("%d bytes are allocated, %d kept", n, kept)
		}
		disk.SetFree(0)
		for w.CheckRoom() == nil {
			if err := add(); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.CheckRoom(); !errors.Is(err, kv.ErrNoSpace) {
			t.Fatal(err)
		}
		if n, _ := w.Allocated(); n != w.left.Load() {
			t.Errorf("%d bytes are allocated, %d are left", n, w.left.Load())
		}
		if left := w.left.Load(); left < o.SegmentBytes*7/8 {
			t.Errorf("%d bytes are left when it is known", left)
		}
		for w.CheckRoomForRemovals() == nil {
			if err := add(); err != nil {
				t.Fatal(err)
			}
		}
		if left := w.left.Load(); left > o.SegmentBytes/8 || left < o.SegmentBytes/16 {
			t.Errorf("%d bytes are left when all is refused", left)
		}
		if err := w.PrepareSpare(); !errors.Is(err, kv.ErrNoSpace) {
			t.Fatal(err)
		}
		if recycle {
			if err := w.TruncateBefore(index); err != nil {
				t.Fatal(err)
			}
		} else {
			disk.SetFree(o.SegmentBytes)
			if err := w.PrepareSpare(); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.CheckRoom(), w.CheckRoomForRemovals()); err != nil {
			t.Fatal(err)
		}
		// With the last space used up nothing is lost and nothing written by half.
		disk.SetFree(0)
		for err = nil; err == nil; err = add() {
		}
		if last, _ := w.LastIndex(); last != index {
			t.Errorf("%d entries, want %d: %v", last, index, err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if w, err = Open(o); err != nil {
			t.Fatal(err)
		}
		if last, _ := w.LastIndex(); last != index {
			t.Errorf("%d entries after opening, want %d", last, index)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
