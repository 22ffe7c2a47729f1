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
		// renaming is a recycled segment that has its new name, but not durably; changed says that some name
		// of the directory has changed and is not durable.
		renaming *segment
		changed  bool
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
	if p.mu.renaming != nil {
		return p.settleNames()
	}
	path := segmentPath(p.o.Dir, p.mu.next)
	file, err := p.o.FS.Create(path)
	if errors.Is(err, fs.ErrExist) {
		// Left by an earlier try that failed half way.
		file, err = p.o.FS.OpenWrite(path)
	}
	if err != nil {
		return err
	}
	err = p.prepareFile(file)
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

// prepareFile gives a spare its size and makes it and its name durable.
func (p *spares) prepareFile(file vfs.File) error {
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

// recycle takes a segment out of the log: it becomes a spare, which it reports, if one is wanted, and else
// goes. Nobody else uses the segment unless it is shared. After an error the segment is where it was. Its
// name is gone durably only when settleNames has succeeded.
func (p *spares) recycle(s *segment, shared bool) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if shared || s.size != p.o.SegmentBytes || len(p.mu.files) >= maxSpares {
		if err := p.o.FS.Remove(s.path); err != nil {
			return false, err
		}
		p.mu.changed = true
		_ = s.release() // nobody reads what is closed there
		return false, nil
	}
	if err := p.o.FS.Rename(s.path, segmentPath(p.o.Dir, p.mu.next)); err != nil {
		return false, err
	}
	p.mu.renaming, p.mu.changed = newSegment(p.o, p.mu.next, s.file, s.size), true
	p.mu.next++
	return true, nil
}

// settle makes the names of the directory durable if some have changed.
func (p *spares) settle() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.settleNames()
}

// settleNames is settle. mu is held.
func (p *spares) settleNames() error {
	if !p.mu.changed {
		return nil
	}
	if err := p.syncDir(); err != nil {
		return err
	}
	p.mu.changed = false
	if p.mu.renaming != nil {
		p.mu.files = append(p.mu.files, p.mu.renaming)
		p.mu.renaming = nil
	}
	return nil
}

func (p *spares) syncDir() error {
	if p.o.NoSync {
		return nil
	}
	err := p.o.FS.SyncDir(p.o.Dir)
	if vfs.CauseOf(err) == vfs.Exhausted {
		return vfs.MarkShortage(err) // the directory could not even be opened
	}
	return err
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
	if p.mu.renaming != nil {
		p.mu.files = append(p.mu.files, p.mu.renaming)
	}
	for _, s := range p.mu.files {
		errs = append(errs, s.release())
	}
	p.mu.files, p.mu.renaming = nil, nil
	return errors.Join(errs...)
}
