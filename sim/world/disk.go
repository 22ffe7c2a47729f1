package world

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	"vigil/internal/vfs"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
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
	// Full rejects everything that needs space.
	Full bool
	// SyncFails is the probability that a sync fails, having done its work or not.
	SyncFails float64
}

// SetDiskFaults changes the faults of the disk.
func (m *Machine) SetDiskFaults(f DiskFaults) {
	m.w.Note(m, "disk: syncs take up to %v, full %t, syncs fail %.2f", f.Slow, f.Full, f.SyncFails)
	m.disk.faults = f
}

func (d *disk) open() {
	d.rng = d.m.w.Fork()
	d.faulty = faultfs.New(d.fs, d.decide)
}

// decide chooses the fault of an operation.
func (d *disk) decide(op faultfs.Op, _ string) faultfs.Fault {
	switch {
	case d.faults.Full && op.Lacks(syscall.ENOSPC):
		return faultfs.NoSpace
	case d.faults.SyncFails > 0 && (op == faultfs.OpSync || op == faultfs.OpSyncDir) && d.rng.Float64() < d.faults.SyncFails:
		return []faultfs.Fault{faultfs.Fail, faultfs.FailPersisted, faultfs.FailLost}[d.rng.IntN(3)]
	}
	return faultfs.None
}

// delay draws how long a sync takes: the nanoseconds times two, plus one if they pass after it has happened.
func (d *disk) delay() int64 {
	most := int64(2 * time.Millisecond)
	if d.faults.Slow > 0 {
		most = int64(d.faults.Slow)
	}
	return d.rng.Int64N(2 * most)
}

// The operations of the disk, in the order of package sys of the guest.
const (
	opCreate = iota
	opOpen
	opOpenWrite
	opRemove
	opRename
	opLink
	opMkdirAll
	opList
	opStat
	opSyncDir
	opLock
	opFree
	opClose
	opSync
	opPreallocate
	opTruncate
	opSize
)

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
	case opCreate:
		return give(d.faulty.Create(a))
	case opOpen:
		return give(d.faulty.Open(a))
	case opOpenWrite:
		return give(d.faulty.OpenWrite(a))
	case opRemove:
		return code(d.faulty.Remove(a))
	case opRename:
		return code(d.faulty.Rename(a, b))
	case opLink:
		return code(d.faulty.Link(a, b))
	case opMkdirAll:
		return code(d.faulty.MkdirAll(a))
	case opSyncDir:
		return code(d.faulty.SyncDir(a))
	case opList:
		names, err := d.faulty.List(a)
		if err != nil {
			return code(err)
		}
		text := strings.Join(names, "\x00")
		copy(out, text)
		return int64(len(text))
	case opStat:
		st, err := d.faulty.Stat(a)
		if err != nil {
			return code(err)
		}
		binary.LittleEndian.PutUint64(out, uint64(st.Size()))
		if st.IsDir() {
			out[8] = 1
		}
		return 0
	case opLock:
		l, err := d.faulty.Lock(a)
		if err != nil {
			return code(err)
		}
		return int64(p.open(&openFile{lock: l}))
	case opFree:
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
	case op == opClose:
		delete(p.fds, fd)
		f.close()
		return 0
	case f.lock != nil:
		return code(syscall.EBADF)
	case op == opSync:
		return code(f.Sync())
	case op == opPreallocate:
		return code(f.Preallocate(arg))
	case op == opTruncate:
		return code(f.Truncate(arg))
	case op == opSize:
		n, err := f.Size()
		if err != nil {
			return code(err)
		}
		return n
	}
	return code(syscall.EINVAL)
}

// The codes of errors, in the order of package sys of the guest.
var codes = []error{
	1: syscall.EIO, 2: fs.ErrNotExist, 3: fs.ErrExist, 4: syscall.ENOTDIR, 5: syscall.ENOSPC, 6: syscall.EBADF, 7: syscall.EINVAL,
	8: syscall.EAGAIN, 9: syscall.ECONNREFUSED, 10: syscall.ECONNRESET, 11: syscall.EADDRINUSE, 12: syscall.EISDIR, 13: syscall.ENOTEMPTY,
	14: syscall.EMFILE, 15: syscall.ENOMEM,
}

const (
	codeLocked = -100
	codeEnded  = -101
)

// code returns the number of an error, 0 for none.
func code(err error) int64 {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, vfs.ErrLocked):
		return codeLocked
	case errors.Is(err, io.EOF):
		return codeEnded
	case errors.Is(err, fs.ErrInvalid):
		return -7
	case errors.Is(err, fs.ErrClosed):
		return -6
	}
	for i, c := range codes {
		if c != nil && errors.Is(err, c) {
			return int64(-i)
		}
	}
	return -1
}
