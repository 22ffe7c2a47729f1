// Package outfile writes the files that commands produce. A file gets its name when it is complete
// and on disk. Until then, and after an error, an existing file of that name stays unchanged. Only
// the owner can read the file.
package outfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Check reports whether a new file can get the name path: the directory must exist, and the name
// must be free or belong to a regular file, which the new one replaces. It rejects a symbolic link,
// a directory and a device: the user hardly means to replace one.
func Check(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Stat(filepath.Dir(path))
		return err
	}
	if err == nil && !st.Mode().IsRegular() {
		err = &fs.PathError{Op: "write", Path: path,
			Err: fmt.Errorf("it is %s: name a regular file, or one that does not exist",
				kindOf(st.Mode()))}
	}
	return err
}

func kindOf(m fs.FileMode) string {
	switch {
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m.IsDir():
		return "a directory"
	case m&fs.ModeDevice != 0:
		return "a device"
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	}
	return "not a regular file"
}

// Write writes the content of r to a new file, as Create does. It calls progress after each read
// with the number of bytes.
func Write(path string, r io.Reader, progress func(n int)) error {
	return Create(path, func(w io.Writer) error {
		_, err := io.Copy(w, countingReader{r, progress})
		return err
	})
}

// Create creates a file with an unpredictable name, calls write to fill it, and then renames it to
// path.
func Create(path string, write func(io.Writer) error) error {
	if err := Check(path); err != nil {
		return err
	}
	dir, base := filepath.Split(path)
	f, err := os.CreateTemp(filepath.Clean(dir+"."), base+".*.part") // mode 0600
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = Publish(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return SyncDir(filepath.Dir(path))
}

// countingReader reports how many bytes it has read.
type countingReader struct {
	r      io.Reader
	report func(n int)
}

func (c countingReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.report(n)
	return n, err
}

// Publish renames a complete file to its final name.
func Publish(part, path string) error {
	if err := Check(path); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// OpenPart opens the file of an unfinished dump, or creates it, and locks it for this process. The
// name is predictable, so an existing file is used only if it is a regular file of this user
// without other names. Its mode becomes 0600.
func OpenPart(part string) (*os.File, error) {
	const tries = 3 // another dump may finish, and rename the file, between open and lock
	for range tries {
		f, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			// O_NONBLOCK: opening a named pipe must not block.
			f, err = os.OpenFile(part, os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		}
		if errors.Is(err, syscall.ELOOP) {
			return nil, &fs.PathError{Op: "open", Path: part,
				Err: errors.New("it is a symbolic link: remove it, or dump to another name")}
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		current, err := ownPart(f)
		if err == nil && current {
			return f, nil
		}
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, &fs.PathError{Op: "open", Path: part,
		Err: errors.New("it is replaced again and again: is another dump writing it?")}
}

// ownPart locks a file and makes it private. current is false if the name now belongs to another
// file.
func ownPart(f *os.File) (current bool, err error) {
	reject := func(format string, args ...any) (bool, error) {
		return false, &fs.PathError{Op: "open", Path: f.Name(), Err: fmt.Errorf(format, args...)}
	}
	st, err := f.Stat()
	if err != nil {
		return false, err
	}
	if !st.Mode().IsRegular() {
		return reject("it is %s: remove it, or dump to another name", kindOf(st.Mode()))
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		switch {
		case int(sys.Uid) != os.Geteuid():
			return reject("it belongs to the user with id %d: remove it, or dump to another name",
				sys.Uid)
		case sys.Nlink > 1:
			return reject("it has %d names (hard links): remove it, or dump to another name",
				sys.Nlink)
		}
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	var locked error
	if err := raw.Control(func(fd uintptr) {
		locked = syscall.Flock(int(fd),
			syscall.LOCK_EX|syscall.LOCK_NB)
	}); err != nil {
		return false, err
	}
	if errors.Is(locked, syscall.EWOULDBLOCK) {
		return reject("another dump is writing it: wait for it, or dump to another name")
	}
	if locked != nil {
		return reject("lock: %w", locked)
	}
	switch now, err := os.Lstat(f.Name()); {
	case errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(st, now):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, f.Chmod(0o600)
}

// SyncDir makes the names in a directory durable if the system supports it.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, fs.ErrInvalid) &&
		!errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}
