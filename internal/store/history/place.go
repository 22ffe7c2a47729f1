package history

import "vigil/internal/vfs"

// placesChecked is how many sealed segments a call of CheckPlaces compares.
const placesChecked = 16

// CheckPlaces compares the directory and the files of the log with what their paths lead to: each time the open segment, and some of
// the sealed ones, round after round. Errors: those of vfs.CheckPlace. It may take as long as the disk does, and is for one goroutine.
func (l *Log) CheckPlaces() error {
	if err := l.dir.Check(); err != nil {
		return err
	}
	segs, v := l.cat.state()
	for i := range min(len(segs), placesChecked) {
		file := segs[(l.placed+i)%len(segs)].src.Load().file
		if file == nil {
			continue
		}
		// A file that was replaced meanwhile has no name any more.
		if err := vfs.CheckPlace(l.o.FS, file.Path(), file.Identity()); err != nil && l.cat.uses(file) {
			return err // the same ones again the next time
		}
	}
	l.placed += placesChecked
	open := v.open
	err := vfs.CheckFile(l.o.FS, open.Path, open.File)
	if err == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if src := open.seg.src.Load(); l.seal.pending == open || src != nil && src.mem == nil {
		return nil // it gets the name of a sealed one, or has it
	}
	return err
}
