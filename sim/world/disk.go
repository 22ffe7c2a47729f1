package world

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"vigil/internal/vfs"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
	"vigil/sim/world/abi"
)

// disk is the disk of a machine, with faults.
type disk struct {
	m      *Machine
	fs     *memfs.FS
	faulty *faultfs.FS // what the process uses
	faults DiskFaults
	rng    *rand.Rand // of the faults
}

// DiskFaults are the faults of a disk.
type DiskFaults struct {
	// Slow is the longest delay of a sync.
	Slow time.Duration
	// Full rejects everything that needs space, in files whose names do not begin with Roomy if
	// that is not empty.
	Full  bool
	Roomy string
	// Hang lets operations wait until the faults change.
	Hang Hang
	// SyncFails is the probability that a sync fails, having done its work or not.
	SyncFails float64
}

// Hang is what hangs of a disk: the operations Ops (see package abi) on files and directories whose
// names begin with Prefix.
type Hang struct {
	Ops    []uint32
	Prefix string
}

// hangs reports whether an operation waits.
func (d *disk) hangs(op uint32, name string) bool {
	h := &d.faults.Hang
	return slices.Contains(h.Ops, op) && strings.HasPrefix(name, h.Prefix)
}

// SetDiskFaults changes the faults of the disk.
func (m *Machine) SetDiskFaults(f DiskFaults) {
	m.w.Note(m, "disk: syncs take up to %v, full %t but for %q, syncs fail %.2f, %v hang below %q",
		f.Slow, f.Full, f.Roomy, f.SyncFails, f.Hang.Ops, f.Hang.Prefix)
	m.disk.faults = f
}

func (d *disk) open() {
	d.rng = d.m.w.Fork()
	d.faulty = faultfs.New(d.fs, d.decide)
}

// decide chooses the fault of an operation.
func (d *disk) decide(op faultfs.Op, name string) faultfs.Fault {
	switch {
	case d.faults.Full && op.Lacks(syscall.ENOSPC) &&
		(d.faults.Roomy == "" || !strings.HasPrefix(name, d.faults.Roomy)):
		return faultfs.NoSpace
	case d.faults.SyncFails > 0 && (op == faultfs.OpSync || op == faultfs.OpSyncDir) &&
		d.rng.Float64() < d.faults.SyncFails:
		return []faultfs.Fault{faultfs.Fail, faultfs.FailPersisted, faultfs.FailLost}[d.rng.IntN(3)]
	}
	return faultfs.None
}

// delay draws how long a sync takes: the nanoseconds times two, plus one if they pass after it has
// happened.
func (d *disk) delay() int64 {
	most := int64(2 * time.Millisecond)
	if d.faults.Slow > 0 {
		most = int64(d.faults.Slow)
	}
	return d.rng.Int64N(2 * most)
}

// files returns the names of all files below a directory.
func (d *disk) files(dir string) (out []string) {
	names, err := d.fs.List(dir)
	if err != nil {
		return nil
	}
	for _, n := range names {
		name := path.Join(dir, n)
		if st, err := d.fs.Stat(name); err == nil && st.IsDir() {
			out = append(out, d.files(name)...)
		} else if err == nil {
			out = append(out, name)
		}
	}
	return out
}

// used returns how many bytes a file has without the zeros at its end, which may be most of it.
func (d *disk) used(name string) int64 {
	f, err := d.fs.Open(name)
	if err != nil {
		return 0
	}
	defer f.Close()
	end, _ := f.Size()
	b := make([]byte, 64<<10)
	for end > 0 {
		at := max(end-int64(len(b)), 0)
		n, _ := f.ReadAt(b[:end-at], at)
		if n = len(bytes.TrimRight(b[:n], "\x00")); n > 0 {
			return at + int64(n)
		}
		end = at
	}
	return 0
}

// openFile is a descriptor of a file or of a lock.
type openFile struct {
	vfs.File
	lock io.Closer
}

func (f *openFile) readable() bool { return false }
func (f *openFile) writable() bool { return false }

func (f *openFile) close() {
	if f.lock != nil {
		f.lock.Close()
		return
	}
	f.File.Close()
}

// name does an operation on names. The result of List and Stat goes to out.
func (d *disk) name(p *Process, op uint32, a, b string, out []byte) int64 {
	give := func(f vfs.File, err error) int64 {
		if err != nil {
			return code(err)
		}
		return int64(p.open(&openFile{File: f}))
	}
	switch op {
	case abi.Create:
		return give(d.faulty.Create(a))
	case abi.Open:
		return give(d.faulty.Open(a))
	case abi.OpenWrite:
		return give(d.faulty.OpenWrite(a))
	case abi.Remove:
		return code(d.faulty.Remove(a))
	case abi.Rename:
		return code(d.faulty.Rename(a, b))
	case abi.Link:
		return code(d.faulty.Link(a, b))
	case abi.MkdirAll:
		return code(d.faulty.MkdirAll(a))
	case abi.SyncDir:
		return code(d.faulty.SyncDir(a))
	case abi.List:
		names, err := d.faulty.List(a)
		if err != nil {
			return code(err)
		}
		text := strings.Join(names, "\x00")
		copy(out, text)
		return int64(len(text))
	case abi.Stat:
		st, err := d.faulty.Stat(a)
		if err != nil {
			return code(err)
		}
		binary.LittleEndian.PutUint64(out, uint64(st.Size()))
		if st.IsDir() {
			out[8] = 1
		}
		return 0
	case abi.Lock:
		l, err := d.faulty.Lock(a)
		if err != nil {
			return code(err)
		}
		return int64(p.open(&openFile{lock: l}))
	case abi.Free:
		n, err := d.faulty.Free(a)
		if err != nil {
			return code(err)
		}
		return n
	}
	return code(syscall.EINVAL)
}

// file does an operation on an open file.
func (d *disk) file(p *Process, op uint32, fd int32, arg int64) int64 {
	f, ok := p.fds[fd].(*openFile)
	switch {
	case !ok:
		return code(syscall.EBADF)
	case op == abi.Close:
		delete(p.fds, fd)
		f.close()
		return 0
	case f.lock != nil:
		return code(syscall.EBADF)
	case op == abi.Sync:
		return code(f.Sync())
	case op == abi.Preallocate:
		return code(f.Preallocate(arg))
	case op == abi.Truncate:
		return code(f.Truncate(arg))
	case op == abi.Size:
		n, err := f.Size()
		if err != nil {
			return code(err)
		}
		return n
	}
	return code(syscall.EINVAL)
}

// code returns the number of an error, 0 for none.
func code(err error) int64 {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, vfs.ErrLocked):
		return abi.Locked
	case errors.Is(err, io.EOF):
		return abi.Ended
	case errors.Is(err, fs.ErrInvalid):
		err = syscall.EINVAL
	case errors.Is(err, fs.ErrClosed):
		err = syscall.EBADF
	case errors.Is(err, fs.ErrNotExist):
		err = syscall.ENOENT
	case errors.Is(err, fs.ErrExist):
		err = syscall.EEXIST
	}
	return abi.Result(err)
}
