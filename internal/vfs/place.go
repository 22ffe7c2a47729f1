package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"vigil/internal/kv"
	"vigil/internal/spelling"
)

// A user of the machine can move or remove the files of a running member. The member continues with
// its open files, and writes to files that no start finds. So an open file, and a directory that is
// held open, can be compared with the file at its path.
//
// The comparison is os.SameFile, so a path through another mount or another symbolic link is still
// the same. An identity belongs to an open or mapped file: as long as the file is open, no other
// file gets it.

// AwayError means that a path does not lead to the file or directory that is open. errors.Is(err,
// kv.ErrAway) holds.
type AwayError struct {
	Path string
	// Other is set if another file or directory is at the path.
	Other bool
	// Now is the present path of the open file or directory, empty if it is not known. Deleted is
	// set if it has none.
	Now     string
	Deleted bool
	// Locked is set if another process has locked the file that is at the path.
	Locked bool
}

func (e *AwayError) Error() string {
	text := e.Path + " is gone"
	if e.Other {
		text = e.Path + " is not the one that the member has open"
	}
	switch {
	case e.Locked:
		text += "; another process has locked it"
	case e.Deleted:
		text += "; that was deleted"
	case e.Now != "":
		text += "; that is at " + e.Now + " now"
	}
	return text
}

// Brief is Error for those who need not know where the member has its files.
func (e *AwayError) Brief() string {
	text := filepath.Base(e.Path) + " is not at its path"
	switch {
	case e.Locked:
		text += "; another process has locked the one that is there"
	case e.Deleted:
		text += "; it was deleted"
	case e.Now != "":
		text += "; it was moved"
	case e.Other:
		text += "; something else is there"
	}
	return text
}

// Next returns what an operator should do.
func (e *AwayError) Next() string {
	const save = "save the data while it runs: vigilctl snapshot save FILE. Do not stop it before, unless the other members have a majority"
	switch {
	case e.Locked:
		return "stop the other process that uses the directory"
	case e.Deleted:
		return save
	case e.Now != "" && e.Other:
		return "move away what is at " + e.Path + ", then: mv " +
			spelling.QuoteWords(e.Now, e.Path) + ". The member goes on by itself"
	case e.Now != "":
		return "mv " + spelling.QuoteWords(e.Now, e.Path) + ": the member goes on by itself"
	case e.Other:
		return "unmount or move away what is at " + e.Path +
			", and put back what was there: the member goes on by itself. Or " + save
	}
	return "mount the volume again, or put back what was at " + e.Path +
		": the member goes on by itself. Or " + save
}

// Is makes errors.Is(err, kv.ErrAway) true.
func (e *AwayError) Is(target error) bool { return target == kv.ErrAway }

// ErrUnsure means that it cannot be found out where a path leads.
var ErrUnsure = errors.New("it is not known where the path leads")

// Keeper is the lock of a file that others can remove or replace. OS returns such locks.
type Keeper interface {
	// Keep locks the file that is at the path now, if that is another one, and creates it if there
	// is none. It fails with an AwayError if another process has locked that file, and with errors
	// that wrap ErrUnsure.
	Keep() (renewed bool, err error)
}

// Identity returns the identity of an open file, nil if the file system has none.
func Identity(f File) fs.FileInfo {
	if s, ok := f.(interface{ Stat() (fs.FileInfo, error) }); ok {
		if id, err := s.Stat(); err == nil {
			return id
		}
	}
	return nil
}

// CheckPlace checks that a path leads to the file with the identity id. It returns nil if it does
// or id is nil, an AwayError if it does not, or an error that wraps ErrUnsure.
func CheckPlace(fsys FS, path string, id fs.FileInfo) error {
	if id == nil {
		return nil
	}
	is, err := fsys.Stat(path)
	switch {
	case err == nil && os.SameFile(is, id):
		return nil
	case err == nil:
		return &AwayError{Path: path, Other: true}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR),
		errors.Is(err, syscall.ESTALE):
		return &AwayError{Path: path}
	}
	return fmt.Errorf("%w: %w", ErrUnsure, err)
}

// CheckFile checks that a path leads to an open file. Its errors are CheckPlace's.
func CheckFile(fsys FS, path string, f File) error {
	id := Identity(f)
	err := CheckPlace(fsys, path, id)
	if away, ok := errors.AsType[*AwayError](err); ok {
		away.locate(fsys, f, id, nil)
	}
	return err
}

// Pinned is a file system for the names in one directory. While the path of the directory leads
// elsewhere, operations on names fail with an AwayError and do nothing: a file that they made there
// would be lost, or harm somebody else. Operations on open files continue.
type Pinned struct {
	FS
	dir  string
	held File        // the directory; nil if it cannot be compared
	id   fs.FileInfo // its identity
	// above are the directories that it was in, from the inside out.
	above []fs.FileInfo
}

// Pin holds a directory open. Only paths of the operating system can lead elsewhere: other file
// systems are not compared.
func Pin(fsys FS, dir string) (*Pinned, error) {
	p := &Pinned{FS: fsys, dir: dir}
	if _, ok := fsys.(interface{ namesChange() }); !ok {
		return p, nil
	}
	held, err := fsys.Open(dir)
	if err != nil {
		return nil, err
	}
	p.held, p.id = held, Identity(held)
	if p.Check() != nil {
		p.id = nil // the identities of this file system do not last
	}
	for parent := filepath.Dir(dir); ; parent = filepath.Dir(parent) {
		is, err := fsys.Stat(parent)
		if err != nil {
			break // it is for advice only
		}
		if p.above = append(p.above, is); parent == filepath.Dir(parent) {
			break
		}
	}
	return p, nil
}

// LockDir locks the directory for this process, as FS.Lock locks a file. It fails with ErrLocked if
// another one holds it. Where directories cannot be locked it does nothing.
func (p *Pinned) LockDir() error {
	if p.held == nil {
		return nil
	}
	return lockOpen(p.held, p.dir)
}

// Release closes the directory. It is not compared any more.
func (p *Pinned) Release() {
	if p.held != nil {
		_ = p.held.Close() // nothing was written to it
	}
}

// Check checks that the path of the directory leads to it. Its errors are CheckPlace's.
func (p *Pinned) Check() error {
	err := CheckPlace(p.FS, p.dir, p.id)
	if err != nil && p.id != nil {
		// The open directory may have a new identity: an overlay file system gives one to each file
		// that it copies.
		err = CheckPlace(p.FS, p.dir, Identity(p.held))
	}
	if away, ok := errors.AsType[*AwayError](err); ok {
		away.locate(p.FS, p.held, p.id, p.above)
	}
	return err
}

// locate finds out where an open file is now, and which of the directories above it is missing.
// above are these directories as they were: one that is elsewhere now is named only if it is the
// same.
func (e *AwayError) locate(fsys FS, f File, id fs.FileInfo, above []fs.FileInfo) {
	path, deleted := whereabouts(f)
	if deleted {
		e.Deleted = true
	} else if path != "" && CheckPlace(fsys, path, id) == nil {
		e.Now = path
	}
	another := false // at most one directory is named as another one: its content moves with it
	for _, was := range above {
		parent := filepath.Dir(e.Path)
		is, err := fsys.Stat(parent)
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist), err == nil && os.SameFile(is, was):
		case e.Now == "" && err != nil && !e.Other:
			e.Path = parent
			continue
		case e.Now != "" && !another && filepath.Base(e.Now) == filepath.Base(e.Path) &&
			CheckPlace(fsys, filepath.Dir(e.Now), was) == nil:
			e.Path, e.Now, e.Other = parent, filepath.Dir(e.Now), err == nil
			another = e.Other
			continue
		}
		break
	}
	// The path is logged, for a shell with another working directory.
	if abs, err := filepath.Abs(e.Path); err == nil {
		e.Path = abs
	}
}

// away is Check without ErrUnsure, for an operation, whose own error is better then.
func (p *Pinned) away() error {
	if err := p.Check(); errors.Is(err, kv.ErrAway) {
		return err
	}
	return nil
}

// Create implements FS.
func (p *Pinned) Create(name string) (File, error) {
	if err := p.away(); err != nil {
		return nil, err
	}
	return p.FS.Create(name)
}

// Open implements FS.
func (p *Pinned) Open(name string) (File, error) {
	if err := p.away(); err != nil {
		return nil, err
	}
	return p.FS.Open(name)
}

// OpenWrite implements FS.
func (p *Pinned) OpenWrite(name string) (File, error) {
	if err := p.away(); err != nil {
		return nil, err
	}
	return p.FS.OpenWrite(name)
}

// Remove implements FS.
func (p *Pinned) Remove(name string) error {
	if err := p.away(); err != nil {
		return err
	}
	return p.FS.Remove(name)
}

// Rename implements FS.
func (p *Pinned) Rename(oldname, newname string) error {
	if err := p.away(); err != nil {
		return err
	}
	return p.FS.Rename(oldname, newname)
}

// Link implements FS.
func (p *Pinned) Link(oldname, newname string) error {
	if err := p.away(); err != nil {
		return err
	}
	return p.FS.Link(oldname, newname)
}

// List implements FS.
func (p *Pinned) List(dir string) ([]string, error) {
	if err := p.away(); err != nil {
		return nil, err
	}
	return p.FS.List(dir)
}

// SyncDir implements FS.
func (p *Pinned) SyncDir(dir string) error {
	if err := p.away(); err != nil {
		return err
	}
	return p.FS.SyncDir(dir)
}
