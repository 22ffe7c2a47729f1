package history

import (
	"errors"
	"fmt"
	"path/filepath"

	"vigil/internal/vfs"
)

// syncError is a sync that failed. It is unknown what is on disk then, and another sync cannot
// find out.
type syncError struct{ err error }

func (e *syncError) Error() string { return e.err.Error() }
func (e *syncError) Unwrap() error { return e.err }

// isFinal reports whether err ends the log: a failed sync, or damage, which includes I/O errors:
// after a rename that failed so, it is unknown which of the names is on disk. Any other error of an
// operation on files changes nothing.
func isFinal(err error) bool {
	var failed *syncError
	return errors.As(err, &failed) || vfs.CauseOf(err) == vfs.Damage
}

// directory is the directory of a log, with the operations that every part of the log uses.
type directory struct {
	fs     vfs.FS
	path   string
	noSync bool
}

// join returns the path of a file in the directory.
func (d directory) join(name string) string { return filepath.Join(d.path, name) }

// syncFile makes the content of a file durable.
func (d directory) syncFile(f vfs.File, path string) error {
	if d.noSync {
		return nil
	}
	if err := f.Sync(); err != nil {
		return &syncError{fmt.Errorf("history: sync %s: %w", path, err)}
	}
	return nil
}

// syncNames makes the names in the directory durable.
func (d directory) syncNames() error {
	if d.noSync {
		return nil
	}
	err := d.fs.SyncDir(d.path)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("history: sync %s: %w", d.path, err)
	if c := vfs.CauseOf(err); c == vfs.Exhausted || c == vfs.Away {
		return vfs.MarkShortage(err) // the directory could not even be opened
	}
	return &syncError{err}
}

// discard closes and removes a file without committed batches. If that fails, the next Open
// removes it.
func (d directory) discard(file vfs.File, path string) {
	_ = file.Close()
	_ = d.fs.Remove(path)
}
