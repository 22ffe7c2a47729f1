package wal

import (
	"errors"
	"io/fs"
	"sync"

	"vigil/internal/vfs"
)

// maxSpares is how many unused segments are kept for later.
const maxSpares = 2

// spares are the files that the next segments will be written to. They already have the names of
// those segments, durably, so that taking one into use touches no directory; what tells a spare from
// a segment is that it has no header with its own id.
type spares struct {
	o *Options

	// mu is held across the I/O that makes a spare, so that ids are given out in order.
	mu struct {
		sync.Mutex
		files []*segment // of consecutive ids; the first is the next to be used
		next  uint64     // the id of the spare to be made next
	}
}

// take returns the file for the next segment, making it if there is none.
func (p *spares) take() (*segment, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mu.files) == 0 {
		if err := p.make(); err != nil {
			return nil, err
		}
	}
	s := p.mu.files[0]
	p.mu.files = p.mu.files[1:]
	return s, nil
}

// prepare makes a spare if there is none.
func (p *spares) prepare() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mu.files) > 0 {
		return nil
	}
	return p.make()
}

// make creates the file of id next. mu is held.
func (p *spares) make() (err error) {
	path := segmentPath(p.o.Dir, p.mu.next)
	file, err := p.o.FS.Create(path)
	if errors.Is(err, fs.ErrExist) {
		// Left by an earlier try that failed half way.
		file, err = p.o.FS.OpenWrite(path)
	}
	if err != nil {
		return err
	}
	err = p.settle(file)
	if err != nil {
		// Give the space back if that is possible; a file that stays is used by the next try.
		_ = file.Close()
		_ = p.o.FS.Remove(path)
		return err
	}
	p.mu.files = append(p.mu.files, newSegment(p.o, p.mu.next, file, p.o.SegmentBytes))
	p.mu.next++
	return nil
}

// settle gives a spare its size and makes it and its name durable.
func (p *spares) settle(file vfs.File) error {
	if err := file.Preallocate(p.o.SegmentBytes); err != nil {
		return err
	}
	if p.o.NoSync {
		return nil
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return p.o.FS.SyncDir(p.o.Dir)
}

// recycle takes a segment out of the log, durably: it becomes a spare, which it reports, if one is
// wanted, and else goes. Nobody else uses the segment unless it is shared.
func (p *spares) recycle(s *segment, shared bool) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if shared || s.size != p.o.SegmentBytes || len(p.mu.files) >= maxSpares {
		return false, errors.Join(s.release(), p.o.FS.Remove(s.path), p.syncDir())
	}
	err := p.o.FS.Rename(s.path, segmentPath(p.o.Dir, p.mu.next))
	if err == nil {
		err = p.syncDir()
	}
	if err != nil {
		return false, errors.Join(err, s.release())
	}
	p.mu.files = append(p.mu.files, newSegment(p.o, p.mu.next, s.file, s.size))
	p.mu.next++
	return true, nil
}

func (p *spares) syncDir() error {
	if p.o.NoSync {
		return nil
	}
	return p.o.FS.SyncDir(p.o.Dir)
}

func (p *spares) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.files)
}

func (p *spares) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, s := range p.mu.files {
		errs = append(errs, s.release())
	}
	p.mu.files = nil
	return errors.Join(errs...)
}
