package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"vigil/internal/vfs"
)

// maxSpares is how many unused segments are kept for later.
const maxSpares = 2

// spares are the files that the next segments will be written to. They already have the names of
// these segments, durably, so that using one changes no directory. Unlike a segment, a spare has no
// header with its own id.
type spares struct {
	o *Options
	// size is the size of the spares to be made.
	size atomic.Int64
	// ready is len(mu.files) and first the size of the first of them, 0 if there is none, for
	// readers that must not wait for a disk.
	ready, first atomic.Int64
	// failed is the first error after which it is unknown which names and bytes are on disk: the
	// error of a sync, or an EIO of a change of a name. The next sync may succeed and prove
	// nothing. So no name is changed any more, and the log ends.
	failed atomic.Pointer[error]

	// mu is held across the I/O that makes a spare, so that ids are given out in order.
	mu struct {
		sync.Mutex
		files []*segment // of consecutive ids; the first is the next to be used
		next  uint64     // the id of the spare to be made next
		// renaming is a recycled segment whose new name is not durable yet; changed is set while a
		// name of the directory has changed and is not durable.
		renaming *segment
		changed  bool
	}
}

// takeFirst returns the file for the next segment. It makes one if there is none.
func (p *spares) takeFirst() (*segment, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mu.files) == 0 {
		if err := p.makeSpare(); err != nil {
			return nil, err
		}
	}
	s := p.mu.files[0]
	p.setReady(p.mu.files[1:])
	return s, nil
}

// ensureSpare makes a spare if there is none.
func (p *spares) ensureSpare() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mu.files) > 0 {
		return nil
	}
	return p.makeSpare()
}

// fail keeps the error of a step after which the content of the disk is unknown, and returns it.
func (p *spares) fail(err error) error {
	p.failed.CompareAndSwap(nil, &err)
	return err
}

// failure returns the error that ended the log here, nil if there is none.
func (p *spares) failure() error {
	if err := p.failed.Load(); err != nil {
		return fmt.Errorf("wal: the files of the log: %w", *err)
	}
	return nil
}

// makeSpare creates the file of id next. mu is held.
func (p *spares) makeSpare() (err error) {
	if err := p.failure(); err != nil {
		return err
	}
	if p.mu.renaming != nil {
		return p.syncNamesLocked()
	}
	path := segmentPath(p.o.Dir, p.mu.next)
	file, err := p.o.FS.Create(path)
	if errors.Is(err, fs.ErrExist) {
		// An earlier try failed half way and left it.
		file, err = p.o.FS.OpenWrite(path)
	}
	if err != nil {
		return err
	}
	size := p.size.Load()
	err = p.prepareFile(file, size)
	if err != nil {
		// Give the space back if that is possible. The next try uses a file that stays.
		_ = file.Close()
		_ = p.o.FS.Remove(path)
		return err
	}
	p.setReady(append(p.mu.files, newSegment(p.o, p.mu.next, file, size)))
	p.mu.next++
	return nil
}

// prepareFile gives a spare its size and makes it and its name durable.
func (p *spares) prepareFile(file vfs.File, size int64) error {
	if err := file.Preallocate(size); err != nil {
		return err
	}
	if p.o.NoSync {
		return nil
	}
	if err := file.Sync(); err != nil {
		return p.fail(err)
	}
	return p.syncDir()
}

// adaptSize chooses the size of the spares to be made: enough for segmentTime at the rate of the
// last segment, which got n bytes in the time took. It grows at once and shrinks by halves, so that
// most released segments have the size of a spare.
func (p *spares) adaptSize(n int64, took time.Duration) {
	due := float64(n) * float64(segmentTime) / float64(max(took, time.Millisecond))
	size, least := p.size.Load(), p.o.leastSegment()
	for float64(size) < due && size < p.o.SegmentBytes {
		size = min(2*size, p.o.SegmentBytes)
	}
	if float64(size) > 4*due {
		size = max(size/2, least) &^ (writeAlign - 1)
	}
	p.size.Store(size)
}

// recycle releases a segment of the log. With keep set and too few spares, the segment becomes a
// spare and recycle returns true; otherwise the segment is removed. Only the log uses a kept
// segment. After an error, the segment is unchanged. The removal of its name is durable only after
// syncNamesLocked succeeded.
func (p *spares) recycle(s *segment, keep bool) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !keep || len(p.mu.files) >= maxSpares {
		if err := p.o.FS.Remove(s.path); err != nil {
			return false, p.nameError(err)
		}
		p.mu.changed = true
		_ = s.release() // if that closes the file, no read uses it
		return false, nil
	}
	if err := p.o.FS.Rename(s.path, segmentPath(p.o.Dir, p.mu.next)); err != nil {
		return false, p.nameError(err)
	}
	p.mu.renaming, p.mu.changed = newSegment(p.o, p.mu.next, s.file, s.size), true
	p.mu.next++
	return true, nil
}

// nameError returns the error of a change of a name. The name is as it was, unless the disk has
// failed.
func (p *spares) nameError(err error) error {
	if vfs.CauseOf(err) == vfs.Damage {
		return p.fail(err)
	}
	return err
}

// syncNames makes the names of the directory durable if some have changed.
func (p *spares) syncNames() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.syncNamesLocked()
}

// syncNamesLocked is syncNames. mu is held.
func (p *spares) syncNamesLocked() error {
	if err := p.failure(); err != nil || !p.mu.changed {
		return err
	}
	if err := p.syncDir(); err != nil {
		return err
	}
	p.mu.changed = false
	if p.mu.renaming != nil {
		p.setReady(append(p.mu.files, p.mu.renaming))
		p.mu.renaming = nil
	}
	return nil
}

func (p *spares) syncDir() error {
	if p.o.NoSync {
		return nil
	}
	err := p.o.FS.SyncDir(p.o.Dir)
	switch {
	case err == nil:
		return nil
	case vfs.CauseOf(err) == vfs.Exhausted, vfs.CauseOf(err) == vfs.Away:
		return vfs.MarkShortage(err) // the directory could not even be opened
	}
	return p.fail(err)
}

// setReady sets the spares that are ready. mu is held.
func (p *spares) setReady(files []*segment) {
	p.mu.files = files
	p.ready.Store(int64(len(files)))
	first := int64(0)
	if len(files) > 0 {
		first = files[0].size
	}
	p.first.Store(first)
}

func (p *spares) count() int { return int(p.ready.Load()) }

func (p *spares) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	if p.mu.renaming != nil {
		p.mu.files = append(p.mu.files, p.mu.renaming)
	}
	for _, s := range p.mu.files {
		errs = append(errs, s.release())
	}
	p.setReady(nil)
	p.mu.renaming = nil
	return errors.Join(errs...)
}
