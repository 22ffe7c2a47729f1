package vfs

import (
	"io"
	"io/fs"
	"syscall"
)

// ReadOnly returns a read-only view of fsys. OpenWrite opens for reading, so that code that repairs
// files can read them; every operation that would change anything fails with EROFS.
func ReadOnly(fsys FS) FS { return readOnly{fsys} }

type readOnly struct{ inner FS }

func refuse(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: syscall.EROFS} }

func (r readOnly) Open(name string) (File, error) {
	f, err := r.inner.Open(name)
	if err != nil {
		return nil, err
	}
	if m, ok := f.(Mapper); ok {
		return readOnlyMapper{Mapper: m}, nil
	}
	return readOnlyFile{File: f}, nil
}

func (r readOnly) OpenWrite(name string) (File, error)   { return r.Open(name) }
func (r readOnly) Stat(name string) (fs.FileInfo, error) { return r.inner.Stat(name) }
func (r readOnly) List(dir string) ([]string, error)     { return r.inner.List(dir) }
func (r readOnly) Free(dir string) (int64, error)        { return r.inner.Free(dir) }

func (r readOnly) Create(name string) (File, error)    { return nil, refuse("create", name) }
func (r readOnly) Remove(name string) error            { return refuse("remove", name) }
func (r readOnly) Rename(oldname, _ string) error      { return refuse("rename", oldname) }
func (r readOnly) Link(oldname, _ string) error        { return refuse("link", oldname) }
func (r readOnly) MkdirAll(dir string) error           { return refuse("mkdir", dir) }
func (r readOnly) SyncDir(dir string) error            { return refuse("sync", dir) }
func (r readOnly) Lock(name string) (io.Closer, error) { return nil, refuse("lock", name) }

type readOnlyFile struct{ File }

func (f readOnlyFile) WriteAt([]byte, int64) (int, error) { return 0, refuse("write", f.Name()) }
func (f readOnlyFile) Sync() error                        { return refuse("sync", f.Name()) }
func (f readOnlyFile) Preallocate(int64) error            { return refuse("fallocate", f.Name()) }
func (f readOnlyFile) Truncate(int64) error               { return refuse("truncate", f.Name()) }

type readOnlyMapper struct{ Mapper }

func (f readOnlyMapper) WriteAt([]byte, int64) (int, error) { return 0, refuse("write", f.Name()) }
func (f readOnlyMapper) Sync() error                        { return refuse("sync", f.Name()) }
func (f readOnlyMapper) Preallocate(int64) error            { return refuse("fallocate", f.Name()) }
func (f readOnlyMapper) Truncate(int64) error               { return refuse("truncate", f.Name()) }
