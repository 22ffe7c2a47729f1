// Package memfs is a vfs.FS in memory that can lose power.
//
// It remembers, next to the content of every file and directory, what of it has been synced, and
// Crash returns a file system such as a disk may hold after power was lost:
//
//  1. Everything that was synced is there exactly: file content and size by File.Sync, names by
//     SyncDir and MkdirAll.
//  2. An arbitrary subset of the unsynced writes of a file is there. Each tears at 512-byte
//     sectors; a sector has the bytes of the file after one of the writes, or before the first.
//  3. An unsynced size is the old one, the new one or one in between; a truncation that was not
//     synced may not have happened.
//  4. An arbitrary subset of the unsynced changes of names has happened, except that changes of the
//     same name stay in order. A rename is one change, across directories too.
//
// After Crash and Kill, the old file system and every file opened from it return ErrDead, so that
// an older goroutine cannot disturb the new one.
//
// Content is kept in pages that are shared until they are written, so that preallocated space costs
// nothing and a crash costs no more than the unsynced writes.
package memfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"vigil/internal/vfs"
)

// ErrDead is returned by a file system that has crashed or was killed, and by its files.
var ErrDead = errors.New("memfs: the file system is gone")

// FS is a file system in memory. It is safe for concurrent use.
type FS struct {
	// mu is held for reading by operations on the content of files and for writing by those on
	// names. Content itself is guarded by each file's own lock.
	mu struct {
		sync.RWMutex
		dead    bool
		root    *node
		pending []change // changes of names not synced yet, oldest first
		locks   map[string]*lock
	}
}

// New returns an empty file system.
func New() *FS {
	f := &FS{}
	f.mu.root = newDir()
	f.mu.locks = map[string]*lock{}
	return f
}

// node is a directory (dir set) or a file (file set).
type node struct {
	dir  *dir
	file *content
}

// dir is guarded by FS.mu.
type dir struct {
	cur    map[string]*node
	synced map[string]*node
}

func newDir() *node {
	return &node{dir: &dir{cur: map[string]*node{}, synced: map[string]*node{}}}
}

// place is a name in a directory.
type place struct {
	dir  *dir
	name string
}

// change is one atomic change of names: to (if it has a directory) becomes a name of node, from (if
// it has one) ceases to exist.
type change struct {
	from, to place
	node     *node
}

func (c *change) touches(p place) bool { return p.dir != nil && (c.from == p || c.to == p) }

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func split(name string) []string {
	name = strings.Trim(filepath.ToSlash(filepath.Clean(name)), "/")
	if name == "" || name == "." {
		return nil
	}
	return strings.Split(name, "/")
}

// lookup finds the node of a name.
func (f *FS) lookup(name string) (*node, error) {
	n := f.mu.root
	for _, part := range split(name) {
		if n.dir == nil {
			return nil, syscall.ENOTDIR
		}
		if n = n.dir.cur[part]; n == nil {
			return nil, fs.ErrNotExist
		}
	}
	return n, nil
}

// locate finds the place of a name, whose directory must exist.
func (f *FS) locate(name string) (place, error) {
	parts := split(name)
	if len(parts) == 0 {
		return place{}, fs.ErrInvalid
	}
	n, err := f.lookup(strings.Join(parts[:len(parts)-1], "/"))
	if err != nil {
		return place{}, err
	}
	if n.dir == nil {
		return place{}, syscall.ENOTDIR
	}
	return place{n.dir, parts[len(parts)-1]}, nil
}

// changeNames carries out a change and remembers it as unsynced.
func (f *FS) changeNames(c change) {
	c.applyTo(func(d *dir) map[string]*node { return d.cur })
	f.mu.pending = append(f.mu.pending, c)
}

func (c *change) applyTo(names func(*dir) map[string]*node) {
	if c.from.dir != nil {
		delete(names(c.from.dir), c.from.name)
	}
	if c.to.dir != nil {
		names(c.to.dir)[c.to.name] = c.node
	}
}

// makeDurable makes the pending changes that want accepts durable, and all before them that they
// depend on because they concern the same names.
func (f *FS) makeDurable(want func(*change) bool) {
	needed := make([]bool, len(f.mu.pending))
	names := map[place]bool{}
	for i := len(f.mu.pending) - 1; i >= 0; i-- {
		c := &f.mu.pending[i]
		if want(c) || names[c.from] || names[c.to] {
			needed[i] = true
			if c.from.dir != nil {
				names[c.from] = true
			}
			if c.to.dir != nil {
				names[c.to] = true
			}
		}
	}
	rest := f.mu.pending[:0]
	for i := range f.mu.pending {
		c := f.mu.pending[i]
		if needed[i] {
			c.applyTo(func(d *dir) map[string]*node { return d.synced })
		} else {
			rest = append(rest, c)
		}
	}
	clear(f.mu.pending[len(rest):])
	f.mu.pending = rest
}

// Create implements vfs.FS.
func (f *FS) Create(name string) (vfs.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.dead {
		return nil, pathError("create", name, ErrDead)
	}
	p, err := f.locate(name)
	if err != nil {
		return nil, pathError("create", name, err)
	}
	if p.dir.cur[p.name] != nil {
		return nil, pathError("create", name, fs.ErrExist)
	}
	n := &node{file: &content{}}
	f.changeNames(change{to: p, node: n})
	return &file{fs: f, name: name, c: n.file, writable: true}, nil
}

// Open implements vfs.FS.
func (f *FS) Open(name string) (vfs.File, error) { return f.open(name, false) }

// OpenWrite implements vfs.FS.
func (f *FS) OpenWrite(name string) (vfs.File, error) { return f.open(name, true) }

func (f *FS) open(name string, writable bool) (vfs.File, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.mu.dead {
		return nil, pathError("open", name, ErrDead)
	}
	n, err := f.lookup(name)
	if err == nil && n.dir != nil {
		err = syscall.EISDIR
	}
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return &file{fs: f, name: name, c: n.file, writable: writable}, nil
}

// Remove implements vfs.FS.
func (f *FS) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.dead {
		return pathError("remove", name, ErrDead)
	}
	p, err := f.locate(name)
	if err != nil {
		return pathError("remove", name, err)
	}
	n := p.dir.cur[p.name]
	if n == nil {
		return pathError("remove", name, fs.ErrNotExist)
	}
	if n.dir != nil && len(n.dir.cur) > 0 {
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	f.changeNames(change{from: p})
	return nil
}

// Rename implements vfs.FS.
func (f *FS) Rename(oldname, newname string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.dead {
		return pathError("rename", oldname, ErrDead)
	}
	from, err := f.locate(oldname)
	if err != nil {
		return pathError("rename", oldname, err)
	}
	to, err := f.locate(newname)
	if err != nil {
		return pathError("rename", newname, err)
	}
	n, old := from.dir.cur[from.name], to.dir.cur[to.name]
	switch {
	case n == nil:
		return pathError("rename", oldname, fs.ErrNotExist)
	case n == old:
		return nil
	case old != nil && old.dir != nil:
		return pathError("rename", newname, fs.ErrExist)
	case old != nil && n.dir != nil:
		return pathError("rename", newname, syscall.ENOTDIR)
	case n.dir != nil && within(n, to.dir):
		return pathError("rename", newname, fs.ErrInvalid)
	}
	f.changeNames(change{from: from, to: to, node: n})
	return nil
}

// within reports whether d is n's own directory or below it.
func within(n *node, d *dir) bool {
	if n.dir == nil {
		return false
	}
	if n.dir == d {
		return true
	}
	for _, c := range n.dir.cur {
		if within(c, d) {
			return true
		}
	}
	return false
}

// Link implements vfs.FS.
func (f *FS) Link(oldname, newname string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.dead {
		return pathError("link", oldname, ErrDead)
	}
	n, err := f.lookup(oldname)
	if err == nil && n.dir != nil {
		err = fs.ErrPermission
	}
	if err != nil {
		return pathError("link", oldname, err)
	}
	to, err := f.locate(newname)
	if err == nil && to.dir.cur[to.name] != nil {
		err = fs.ErrExist
	}
	if err != nil {
		return pathError("link", newname, err)
	}
	f.changeNames(change{to: to, node: n})
	return nil
}

// MkdirAll implements vfs.FS.
func (f *FS) MkdirAll(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.dead {
		return pathError("mkdir", name, ErrDead)
	}
	n := f.mu.root
	for _, part := range split(name) {
		if n.dir == nil {
			return pathError("mkdir", name, syscall.ENOTDIR)
		}
		p := place{n.dir, part}
		next := n.dir.cur[part]
		if next == nil {
			next = newDir()
			f.changeNames(change{to: p, node: next})
		}
		f.makeDurable(func(c *change) bool { return c.touches(p) })
		n = next
	}
	if n.dir == nil {
		return pathError("mkdir", name, syscall.ENOTDIR)
	}
	return nil
}

// List implements vfs.FS.
func (f *FS) List(name string) ([]string, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.mu.dead {
		return nil, pathError("list", name, ErrDead)
	}
	n, err := f.lookup(name)
	if err == nil && n.dir == nil {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathError("list", name, err)
	}
	names := make([]string, 0, len(n.dir.cur))
	for s := range n.dir.cur {
		names = append(names, s)
	}
	slices.Sort(names)
	return names, nil
}

// Stat implements vfs.FS.
func (f *FS) Stat(name string) (fs.FileInfo, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.mu.dead {
		return nil, pathError("stat", name, ErrDead)
	}
	n, err := f.lookup(name)
	if err != nil {
		return nil, pathError("stat", name, err)
	}
	st := info{name: filepath.Base(name), dir: n.dir != nil}
	if n.file != nil {
		n.file.mu.Lock()
		st.size = n.file.mu.cur.size
		n.file.mu.Unlock()
	}
	return st, nil
}

// SyncDir implements vfs.FS.
func (f *FS) SyncDir(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.dead {
		return pathError("sync", name, ErrDead)
	}
	n, err := f.lookup(name)
	if err == nil && n.dir == nil {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return pathError("sync", name, err)
	}
	f.makeDurable(func(c *change) bool { return c.from.dir == n.dir || c.to.dir == n.dir })
	return nil
}

// Lock implements vfs.FS.
func (f *FS) Lock(name string) (io.Closer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.dead {
		return nil, pathError("lock", name, ErrDead)
	}
	p, err := f.locate(name)
	if err != nil {
		return nil, pathError("lock", name, err)
	}
	name = filepath.Clean(name)
	if f.mu.locks[name] != nil {
		return nil, pathError("lock", name, vfs.ErrLocked)
	}
	if p.dir.cur[p.name] == nil {
		f.changeNames(change{to: p, node: &node{file: &content{}}})
	}
	l := &lock{fs: f, name: name}
	f.mu.locks[name] = l
	return l, nil
}

type lock struct {
	fs   *FS
	name string
}

// Close releases the lock. It may be called on a dead file system, which holds no locks.
func (l *lock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	if l.fs.mu.locks[l.name] == l {
		delete(l.fs.mu.locks, l.name)
	}
	return nil
}

// Free implements vfs.FS: memory has room. Limits are faultfs's matter.
func (f *FS) Free(name string) (int64, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.mu.dead {
		return 0, pathError("statfs", name, ErrDead)
	}
	if _, err := f.lookup(name); err != nil {
		return 0, pathError("statfs", name, err)
	}
	return 1 << 40, nil
}

// String describes the file system, for messages of failed tests.
func (f *FS) String() string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var b strings.Builder
	var walk func(path string, n *node)
	walk = func(path string, n *node) {
		if n.file != nil {
			n.file.mu.Lock()
			fmt.Fprintf(&b, "%s %d bytes, %d unsynced changes\n", path, n.file.mu.cur.size,
				len(n.file.mu.pending))
			n.file.mu.Unlock()
			return
		}
		names := make([]string, 0, len(n.dir.cur))
		for s := range n.dir.cur {
			names = append(names, s)
		}
		slices.Sort(names)
		for _, s := range names {
			walk(path+"/"+s, n.dir.cur[s])
		}
	}
	walk("", f.mu.root)
	return b.String()
}
