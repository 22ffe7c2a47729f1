package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"syscall"

	"vigil/internal/kv"
	"vigil/internal/member/discovery"
	"vigil/internal/store/history"
	"vigil/internal/store/wal"
	"vigil/internal/vfs"
)

// stepped is an error of a start with advice what to do about it.
type stepped struct {
	error
	step string
}

// Error implements error.
func (e *stepped) Error() string { return e.error.Error() + ": " + e.step }

// Unwrap returns the error.
func (e *stepped) Unwrap() error { return e.error }

// WithNextStep adds advice to an error of a start whose cause is outside the program: files, their
// permissions, and system limits. Other errors contain their advice already.
func WithNextStep(err error) error { return withStep(err, nextStep) }

// withDataStep is WithNextStep for an error from reading the member's data. Other files, and
// answers of other members, can be damaged or unreadable too, which says nothing about the data.
func withDataStep(err error) error {
	return withStep(err, func(err error) string {
		if errors.Is(err, kv.ErrCorrupt) || vfs.Unreadable(err) {
			return "keep the directory, and see the damage with vigilctl check; if other members " +
				"have the data, replace this one, otherwise restore a backup " +
				"(docs/operations/corruption.md)"
		}
		return nextStep(err)
	})
}

// withStep adds a step to an error that has none.
func withStep(err error, stepOf func(error) string) error {
	var known *stepped
	if err == nil || errors.As(err, &known) {
		return err
	}
	if step := stepOf(err); step != "" {
		return &stepped{err, step}
	}
	return err
}

func nextStep(err error) string {
	switch {
	case errors.Is(err, ErrRemoved):
		return "to add it again, empty --data-dir and --wal-dir, run vigilctl member add, and " +
			"start it with --initial-cluster-state=existing"
	case errors.Is(err, history.ErrVersion), errors.Is(err, wal.ErrVersion):
		return "run the version of vigil that wrote it, or a newer one; nothing was changed"
	case errors.Is(err, history.ErrIdentity), errors.Is(err, wal.ErrIdentity):
		return "give this member the --data-dir and the --wal-dir that belong together; nothing " +
			"was changed"
	case errors.Is(err, discovery.ErrSizeNotFound), errors.Is(err, discovery.ErrBadSize):
		return "put the number of members at /_etcd/registry/TOKEN/_config/size in the cluster " +
			"of --discovery-endpoints"
	case errors.Is(err, discovery.ErrFull):
		return "add this member to the running cluster (vigilctl member add), or use another " +
			"--discovery-token for another cluster"
	}
	var path *fs.PathError
	isPath := errors.As(err, &path)
	switch vfs.CauseOf(err) {
	case vfs.NoSpace:
		if isPath {
			return fmt.Sprintf("free space on the file system of %s (df and df -i show it), or "+
				"choose a larger one", path.Path)
		}
		return "free space on the file system of --data-dir and --wal-dir (df shows it), or move " +
			"them to a larger one"
	case vfs.Exhausted:
		return "allow the process more open files or memory: ulimit -n, or LimitNOFILE= and " +
			"MemoryMax= in its unit" + fileLimit()
	}
	if isPath {
		return fileStep(path)
	}
	return ""
}

func fileLimit() string {
	if n, ok := openFileLimit(); ok {
		return fmt.Sprintf("; it may have %d files open", n)
	}
	return ""
}

// fileStep returns the advice for an unusable file or directory.
func fileStep(e *fs.PathError) string {
	switch {
	case errors.Is(e, fs.ErrNotExist):
		step := "create it, or correct the path"
		if e.Op == "mkdir" {
			step = "choose a directory in which directories can be made"
		}
		return step + relativeTo(e.Path)
	case errors.Is(e, syscall.EROFS):
		return "mount it writable (after an error of the disk, the log of the kernel says why it " +
			"is not), or choose another path"
	case errors.Is(e, syscall.EPERM):
		return "the file or its directory may be immutable (lsattr), or a rule of the system " +
			"forbids it: allow it, or choose another path"
	case errors.Is(e, fs.ErrPermission):
		return fmt.Sprintf("let %s use it (chown, chmod), or run vigil as the user that may",
			processUser())
	case errors.Is(e, syscall.ENOTDIR):
		return "a part of the path is a file: correct the path" + relativeTo(e.Path)
	case errors.Is(e, syscall.EISDIR):
		return "name a file in it"
	case errors.Is(e, syscall.ENAMETOOLONG), errors.Is(e, syscall.ELOOP):
		return "choose another path"
	case errors.Is(e, syscall.EIO):
		return "the disk has failed: see the log of the kernel, and docs/operations/disks.md"
	}
	return ""
}

// relativeTo returns a note on the directory to which a relative path refers.
func relativeTo(path string) string {
	dir, err := os.Getwd()
	if err != nil || filepath.IsAbs(path) {
		return ""
	}
	return ", which begins in " + dir
}

func processUser() string {
	id := os.Geteuid()
	if u, err := user.LookupId(fmt.Sprint(id)); err == nil {
		return fmt.Sprintf("user %s (%d)", u.Username, id)
	}
	return fmt.Sprintf("user %d", id)
}
