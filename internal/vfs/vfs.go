// Package vfs is the file system as the log and history see it. It is small, so that a test can
// replace it by one that crashes, tears writes or fails on demand.
//
// Durability follows POSIX at its weakest: bytes that were written to a file are durable only after
// Sync of that file returned nil, and a name that was created, renamed, linked or removed is
// durable only after SyncDir of its directory returned nil. After a Sync that failed, the content
// of the disk is unknown, and Sync must not be called again on that file.
package vfs

import (
	"errors"
	"io"
	"io/fs"
)

// ErrLocked reports that another open file holds the requested lock.
var ErrLocked = errors.New("locked by another process")

// File is an open file. ReadAt and WriteAt may be called concurrently with each other and with
// Sync on distinct byte ranges.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer

	// Name returns the path the file was opened with.
	Name() string
	// Sync makes the content and the size of the file durable (fdatasync).
	Sync() error
	// Preallocate reserves disk space for the first size bytes and extends the file to at least
	// that size with zeros, so that a later write inside them does not fail for lack of space. If
	// the file system cannot reserve, zeros are written. A file system that does not overwrite in
	// place may still run out of space.
	Preallocate(size int64) error
	// Truncate sets the size.
	Truncate(size int64) error
	// Size returns the size in bytes.
	Size() (int64, error)
}

// Mapper is a File whose content can be mapped into memory, read only.
type Mapper interface {
	File
	// Map maps the first size bytes; size must not exceed the file's. Access to the bytes of a
	// page that the disk fails to deliver faults (SIGBUS): read them under
	// debug.SetPanicOnFault.
	Map(size int64) (Mapping, error)
}

// CacheDropper is a File that may be cached in memory by the operating system.
type CacheDropper interface {
	File
	// DropCache drops the cached pages of n bytes at off (of all bytes from off on if n is 0),
	// except pages that were not written yet and mapped pages.
	DropCache(off, n int64) error
}

// Mapping is a read-only view of a file. It outlives the File it came from. No goroutine may hold a
// slice of Bytes when Close is called.
type Mapping interface {
	// Resident reports whether the n bytes at off are known to be in memory, so that reading them
	// waits for no disk. It may return false for bytes that are.
	Resident(off, n int64) bool
	Bytes() []byte
	Close() error
}

// FS is a file system. Names are paths; implementations are safe for concurrent use.
type FS interface {
	// Create makes a new file for reading and writing; it fails with fs.ErrExist if the name is
	// taken.
	Create(name string) (File, error)
	// Open opens an existing file for reading.
	Open(name string) (File, error)
	// OpenWrite opens an existing file for reading and writing.
	OpenWrite(name string) (File, error)
	Remove(name string) error
	// Rename moves a file or a directory, replacing a file that has newname.
	Rename(oldname, newname string) error
	// Link gives a file a second name; it fails with fs.ErrExist if newname is taken.
	Link(oldname, newname string) error
	// MkdirAll makes a directory with its parents, readable by the owner only (0700). It makes
	// the directories durable.
	MkdirAll(dir string) error
	// List returns the names in a directory, sorted, without their path.
	List(dir string) ([]string, error)
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes the names of a directory durable.
	SyncDir(dir string) error
	// Lock takes an exclusive lock on a file, made if need be, for this process until Close. It
	// does not wait: ErrLocked if another holds it.
	Lock(name string) (io.Closer, error)
	// Free returns the bytes that an unprivileged process can still write below dir.
	Free(dir string) (int64, error)
}
