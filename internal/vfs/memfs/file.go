package memfs

import (
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"vigil/internal/vfs"
)

const (
	pageSize   = 4096
	sectorSize = 512
)

// page is shared by images; the image that made it may write to it until it is shared.
type page [pageSize]byte

// image is the content of a file at one time. A nil page is zeros, and so are the bytes after size
// in the last page.
type image struct {
	pages []*page
	size  int64
}

func (m *image) clone() image {
	return image{pages: append([]*page(nil), m.pages...), size: m.size}
}

// resize sets the size. Pages that shared also has are copied before they are changed.
func (m *image) resize(size int64, shared *image) {
	if size < m.size {
		n := int((size + pageSize - 1) / pageSize)
		if n < len(m.pages) {
			clear(m.pages[n:])
			m.pages = m.pages[:n]
		}
		if in := size % pageSize; in != 0 && n <= len(m.pages) && m.pages[n-1] != nil {
			clear(m.own(n-1, shared)[in:])
		}
	}
	m.size = size
}

// own returns page i for writing.
func (m *image) own(i int, shared *image) *page {
	for i >= len(m.pages) {
		m.pages = append(m.pages, nil)
	}
	switch p := m.pages[i]; {
	case p == nil:
		m.pages[i] = new(page)
	case i < len(shared.pages) && shared.pages[i] == p:
		q := *p
		m.pages[i] = &q
	}
	return m.pages[i]
}

func (m *image) write(b []byte, off int64, shared *image) {
	m.size = max(m.size, off+int64(len(b)))
	for len(b) > 0 {
		n := copy(m.own(int(off/pageSize), shared)[off%pageSize:], b)
		b = b[n:]
		off += int64(n)
	}
}

// read fills b, which must lie inside the size.
func (m *image) read(b []byte, off int64) {
	for len(b) > 0 {
		in := int(off % pageSize)
		n := min(len(b), pageSize-in)
		if i := int(off / pageSize); i < len(m.pages) && m.pages[i] != nil {
			copy(b[:n], m.pages[i][in:])
		} else {
			clear(b[:n])
		}
		b = b[n:]
		off += int64(n)
	}
}

// fileChange is a write of data at off, or with resize a change of the size to off.
type fileChange struct {
	off    int64
	data   []byte
	resize bool
}

// content is a file, whatever its names.
type content struct {
	mu struct {
		sync.RWMutex
		cur     image
		synced  image        // its pages are never written to
		pending []fileChange // since the last Sync, oldest first
	}
}

type file struct {
	fs       *FS
	name     string
	c        *content
	writable bool
	closed   atomic.Bool
}

// enter checks that the file may be used and keeps the file system from crashing until leave.
func (f *file) enter(op string, write bool) error {
	f.fs.mu.RLock()
	err := error(nil)
	switch {
	case f.fs.mu.dead:
		err = ErrDead
	case f.closed.Load():
		err = fs.ErrClosed
	case write && !f.writable:
		err = syscall.EBADF
	default:
		return nil
	}
	f.fs.mu.RUnlock()
	return pathError(op, f.name, err)
}

func (f *file) leave() { f.fs.mu.RUnlock() }

func (f *file) Name() string { return f.name }

func (f *file) ReadAt(b []byte, off int64) (int, error) {
	if err := f.enter("read", false); err != nil {
		return 0, err
	}
	defer f.leave()
	if off < 0 {
		return 0, pathError("read", f.name, fs.ErrInvalid)
	}
	m := &f.c.mu
	m.RLock()
	defer m.RUnlock()
	if off >= m.cur.size {
		if len(b) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := int(min(int64(len(b)), m.cur.size-off))
	m.cur.read(b[:n], off)
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *file) WriteAt(b []byte, off int64) (int, error) {
	if err := f.enter("write", true); err != nil {
		return 0, err
	}
	defer f.leave()
	if off < 0 {
		return 0, pathError("write", f.name, fs.ErrInvalid)
	}
	if len(b) == 0 {
		return 0, nil
	}
	m := &f.c.mu
	m.Lock()
	defer m.Unlock()
	m.pending = append(m.pending, fileChange{off: off, data: append([]byte(nil), b...)})
	m.cur.write(b, off, &m.synced)
	return len(b), nil
}

func (f *file) Truncate(size int64) error { return f.resize("truncate", size, false) }

func (f *file) Preallocate(size int64) error { return f.resize("fallocate", size, true) }

func (f *file) resize(op string, size int64, growOnly bool) error {
	if err := f.enter(op, true); err != nil {
		return err
	}
	defer f.leave()
	if size < 0 {
		return pathError(op, f.name, fs.ErrInvalid)
	}
	m := &f.c.mu
	m.Lock()
	defer m.Unlock()
	if size == m.cur.size || growOnly && size < m.cur.size {
		return nil
	}
	m.pending = append(m.pending, fileChange{off: size, resize: true})
	m.cur.resize(size, &m.synced)
	return nil
}

func (f *file) Sync() error {
	if err := f.enter("sync", false); err != nil {
		return err
	}
	defer f.leave()
	m := &f.c.mu
	m.Lock()
	defer m.Unlock()
	for _, c := range m.pending {
		if c.resize {
			// A truncation may have changed any page.
			m.synced = m.cur.clone()
			break
		}
	}
	for i := range m.pending {
		c := &m.pending[i]
		if c.resize || len(c.data) == 0 {
			continue
		}
		last := int((c.off + int64(len(c.data)) - 1) / pageSize)
		for p := int(c.off / pageSize); p <= last && p < len(m.cur.pages); p++ {
			for p >= len(m.synced.pages) {
				m.synced.pages = append(m.synced.pages, nil)
			}
			m.synced.pages[p] = m.cur.pages[p]
		}
	}
	m.synced.size = m.cur.size
	m.pending = nil
	return nil
}

// LoseSync is a Sync on a failing disk: nothing becomes durable, and the bytes written so far are
// never written again. They can be read until a crash.
func (f *file) LoseSync() error {
	if err := f.enter("sync", false); err != nil {
		return err
	}
	defer f.leave()
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	f.c.mu.pending = nil
	return nil
}

func (f *file) Size() (int64, error) {
	if err := f.enter("stat", false); err != nil {
		return 0, err
	}
	defer f.leave()
	f.c.mu.RLock()
	defer f.c.mu.RUnlock()
	return f.c.mu.cur.size, nil
}

// Close may be called on a dead file system.
func (f *file) Close() error {
	if f.closed.Swap(true) {
		return pathError("close", f.name, fs.ErrClosed)
	}
	return nil
}

// Map implements vfs.Mapper. The mapping is a copy: it does not show later writes.
func (f *file) Map(size int64) (vfs.Mapping, error) {
	if err := f.enter("mmap", false); err != nil {
		return nil, err
	}
	defer f.leave()
	m := &f.c.mu
	m.RLock()
	defer m.RUnlock()
	if size < 0 || size > m.cur.size {
		return nil, pathError("mmap", f.name,
			fmt.Errorf("%d bytes of a file of %d: %w", size, m.cur.size, fs.ErrInvalid))
	}
	b := make([]byte, size)
	m.cur.read(b, 0)
	return mapping{b}, nil
}

type mapping struct{ b []byte }

func (m mapping) Bytes() []byte { return m.b }
func (m mapping) Close() error  { return nil }

// Resident implements vfs.Mapping: all is in memory.
func (m mapping) Resident(off, n int64) bool {
	return off >= 0 && n > 0 && off <= int64(len(m.b))-n
}

type info struct {
	name string
	size int64
	dir  bool
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.dir }
func (i info) Sys() any           { return nil }
func (i info) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o700
	}
	return 0o600
}
