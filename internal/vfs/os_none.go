//go:build !unix

package vfs

import (
	"errors"
	"io"
	"io/fs"
	"syscall"
)

// OS returns a file system without files: on this system a program provides its own file system.
func OS() FS { return noFS{} }

func damaged(errno syscall.Errno) bool { return errno == syscall.EIO }

type noFS struct{}

func none(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: errors.ErrUnsupported}
}

func (noFS) Create(name string) (File, error)      { return nil, none("create", name) }
func (noFS) Open(name string) (File, error)        { return nil, none("open", name) }
func (noFS) OpenWrite(name string) (File, error)   { return nil, none("open", name) }
func (noFS) Remove(name string) error              { return none("remove", name) }
func (noFS) Rename(name, _ string) error           { return none("rename", name) }
func (noFS) Link(name, _ string) error             { return none("link", name) }
func (noFS) MkdirAll(name string) error            { return none("mkdir", name) }
func (noFS) List(name string) ([]string, error)    { return nil, none("list", name) }
func (noFS) Stat(name string) (fs.FileInfo, error) { return nil, none("stat", name) }
func (noFS) SyncDir(name string) error             { return none("sync", name) }
func (noFS) Lock(name string) (io.Closer, error)   { return nil, none("lock", name) }
func (noFS) Free(name string) (int64, error)       { return 0, none("statfs", name) }

// Locked reports that no file is locked.
func Locked(string) (bool, error) { return false, nil }

func whereabouts(File) (path string, deleted bool) { return "", false }

func lockOpen(File, string) error { return nil }
