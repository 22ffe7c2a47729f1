package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// checkTarget reports whether path can be given to a new file: the name is free, or that of a regular file, which the
// new one replaces. A symbolic link, a directory or a device is refused: replacing it is hardly meant.
func checkTarget(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && !st.Mode().IsRegular() {
		err = &fs.PathError{Op: "write", Path: path, Err: fmt.Errorf("it is %s: name a regular file, or one that does not exist", kindOf(st.Mode()))}
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

// writeFile gives the content of r the name path, durably and at once; until then, and after an error, the name stays
// with the file that had it. The content is written to a new file that only its owner can read, with a name that
// cannot be guessed.
func writeFile(path string, r io.Reader, progress func(n int)) error {
	if err := checkTarget(path); err != nil {
		return err
	}
	dir, base := filepath.Split(path)
	f, err := os.CreateTemp(filepath.Clean(dir+"."), base+".*.part") // mode 0600
	if err != nil {
		return err
	}
	if _, err = io.Copy(f, counting{r, progress}); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = publish(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(filepath.Dir(path))
}

// publish gives a whole file its name.
func publish(part, path string) error {
	if err := checkTarget(path); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// openPart opens the file of an unfinished dump, or creates it, for this process alone. The name can be guessed, so a
// file that exists is used only if it is a regular file of this user without other names; its mode becomes 0600.
func openPart(part string) (*os.File, error) {
	const tries = 3 // another dump may finish, and rename the file, between open and lock
	for range tries {
		f, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			// O_NONBLOCK: opening a named pipe must not block.
			f, err = os.OpenFile(part, os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		}
		if errors.Is(err, syscall.ELOOP) {
			return nil, &fs.PathError{Op: "open", Path: part, Err: errors.New("it is a symbolic link: remove it, or dump to another name")}
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
	return nil, &fs.PathError{Op: "open", Path: part, Err: errors.New("it is replaced again and again: is another dump writing it?")}
}

// ownPart locks a file and makes it private; current is false if the name has gone to another file since.
func ownPart(f *os.File) (current bool, err error) {
	refuse := func(format string, args ...any) (bool, error) {
		return false, &fs.PathError{Op: "open", Path: f.Name(), Err: fmt.Errorf(format, args...)}
	}
	st, err := f.Stat()
	if err != nil {
		return false, err
	}
	if !st.Mode().IsRegular() {
		return refuse("it is %s: remove it, or dump to another name", kindOf(st.Mode()))
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		switch {
		case int(sys.Uid) != os.Geteuid():
			return refuse("it belongs to the user with id %d: remove it, or dump to another name", sys.Uid)
		case sys.Nlink > 1:
			return refuse("it has %d names (hard links): remove it, or dump to another name", sys.Nlink)
		}
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	var locked error
	if err := raw.Control(func(fd uintptr) { locked = syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB) }); err != nil {
		return false, err
	}
	if errors.Is(locked, syscall.EWOULDBLOCK) {
		return refuse("another dump is writing it: wait for it, or dump to another name")
	}
	if locked != nil {
		return refuse("lock: %w", locked)
	}
	switch now, err := os.Lstat(f.Name()); {
	case errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(st, now):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, f.Chmod(0o600)
}

// syncDir makes the names of a directory durable, where the system can.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, fs.ErrInvalid) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}
