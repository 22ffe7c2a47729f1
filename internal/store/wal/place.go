package wal

import (
	"slices"

	"vigil/internal/vfs"
)

// placesChecked is how many older segments a call of CheckPlaces compares.
const placesChecked = 16

// CheckPlaces checks that the paths of the directory and of the files still lead to the files of
// the log: each time the active segment, and some of the older ones, round after round. Its errors
// are vfs.CheckPlace's. It may take as long as the disk does, and is for one goroutine.
func (w *WAL) CheckPlaces() error {
	if err := w.dir.Check(); err != nil {
		return err
	}
	w.mu.RLock()
	segs := slices.Clone(w.mu.segs)
	w.mu.RUnlock()
	if len(segs) == 0 {
		return nil
	}
	older := segs[:len(segs)-1]
	for i := range min(len(older), placesChecked) {
		s := older[(w.placed+i)%len(older)]
		if err := w.checkPlace(s); err != nil {
			return err // the next call checks the same segments again
		}
	}
	w.placed += placesChecked
	return w.checkPlace(segs[len(segs)-1])
}

// checkPlace checks the path of a segment. A segment that was released since has another name, or
// none.
func (w *WAL) checkPlace(s *segment) error {
	err := vfs.CheckFile(w.o.FS, s.path, s.file)
	if err == nil {
		return nil
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	if !slices.Contains(w.mu.segs, s) {
		return nil
	}
	return err
}
