package history

import (
	"errors"
	"os"

	"vigil/internal/store/history/segfile"
	"vigil/internal/vfs"
)

// placesChecked is how many sealed segments a call of CheckPlaces compares.
const placesChecked = 16

// CheckDir checks that the path of the directory still leads to the directory of the log. Its
// errors are vfs.CheckPlace's.
func (l *Log) CheckDir() error { return l.pinned.Check() }

// CheckPlaces checks that the paths of the directory and of the files still lead to the files of
// the log: each time the open segment, and some of the sealed ones, round after round. Its errors
// are vfs.CheckPlace's. It may take as long as the disk does, and is for one goroutine.
func (l *Log) CheckPlaces() error {
	if err := l.pinned.Check(); err != nil {
		return err
	}
	v := l.cat.manifest.Load()
	for i := range min(len(v.segs), placesChecked) {
		file := v.segs[(l.placed+i)%len(v.segs)].file()
		if file == nil {
			continue
		}
		// A file that was replaced since has no name any more.
		if err := vfs.CheckPlace(l.o.FS, file.Path(), file.Identity()); err != nil &&
			l.cat.hasFile(file) && !l.acceptCopy(file, err) {
			return err // the next call checks the same files again
		}
	}
	l.placed += placesChecked
	err := vfs.CheckFile(l.o.FS, v.growing.Path, v.growing.File)
	if err != nil && l.cat.manifest.Load().open != v.open {
		return nil // it is full: it gets the name of a sealed one, or has it
	}
	return err
}

// acceptCopy reports whether the file at the path of a sealed segment is a copy of it, so that a
// start finds the same data. err says that it is another file. An overlay file system makes such a
// copy when a checkpoint links a segment that has several names already, and so does an operator
// who restores a file.
func (l *Log) acceptCopy(file *segfile.File, err error) bool {
	if away, ok := errors.AsType[*vfs.AwayError](err); !ok || !away.Other {
		return false
	}
	is, err := l.o.FS.Stat(file.Path())
	if err != nil || l.noCopy != nil && os.SameFile(is, l.noCopy) &&
		is.ModTime().Equal(l.noCopy.ModTime()) {
		return false
	}
	if !file.AcceptCopy(l.end.ctx, l.o.FS) {
		l.noCopy = is
		return false
	}
	l.o.Logger.Warn("a history segment was replaced by a copy of it, which is accepted",
		"file", file.Path())
	return true
}
