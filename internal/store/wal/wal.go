package wal

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/vfs"
)

// keepBuffer is the largest write buffer that is kept between appends.
const keepBuffer = 4 << 20

// WAL is an open log.
type WAL struct {
	o   Options
	dir *vfs.Pinned // Options.FS

	// wr belongs to the appender: only Append and Close lock it.
	wr struct {
		sync.Mutex
		active *segment
		off    int64  // where the next group is written
		synced int64  // below this the active segment is durable
		salt   uint64 // of the segments that are begun
		clean  bool   // the last group only records that all before it is durable
		asked  bool   // a spare has been requested since this segment was started
		buf    []byte
		locs   []loc // of the entries in buf, in order
		err    error // set when the log accepts nothing more
		// next is a segment whose header is not written yet. Nothing is written to the active one
		// any more.
		next *segment
		// begun is when the active segment was started.
		begun time.Time
	}

	// mu guards the state that readers see. It is never held over I/O.
	mu struct {
		sync.RWMutex
		start      Start // the position before the first entry
		slots      ring[slot]
		cache      ring[*raftpb.Entry] // the newest entries
		cacheBytes int64
		bytes      int64 // the size on disk of the entries in slots
		hard       hardState
		segs       []*segment // consecutive ids, the active one last
		oldest     uint64     // segments with lower ids are not needed to open the log
		durable    place      // of the active segment
		closed     bool
	}

	spares spares
	// truncating is held through TruncateBefore.
	truncating struct {
		sync.Mutex
		err     error // set when no more segments can be released
		delayed bool  // the last try to release one failed
	}
	background sync.WaitGroup
	placed     int // segments that CheckPlaces has compared
	// short is why there is no spare, if a resource is lacking. left is about how many bytes fit
	// into the active segment.
	short atomic.Pointer[error]
	left  atomic.Int64
	// starved is the time since which groups are refused for lack of a resource, in Unix
	// nanoseconds; 0 if the last group was written.
	starved atomic.Int64
	// run starts the step that makes a spare. Tests make it synchronous.
	run   func(step func())
	stats stats
}

// place is an offset in a segment.
type place struct {
	seg uint64
	off int64
}

// slot is the place of an entry on disk.
type slot struct {
	term  uint64
	off   int64
	seg   uint32 // the lower half of the segment's id
	size  uint32 // with its head
	crc   uint32 // of the item
	flags byte
	typ   byte // of the entry
}

// loc is the part of a slot that encodeGroup knows.
type loc struct {
	at    int // in the buffer
	size  uint32
	crc   uint32
	flags byte
}

// Append writes the batches as one group: after a crash, all of the group is there or nothing. If a
// batch requests Sync, all is durable when it returns nil.
//
// An error wrapping ErrInvalid means that the batches contradict the log. A kv.Shortage means that
// space, a file descriptor or memory is lacking. After either, and after any error of allocating a
// segment except the error of a sync, the log is as before and may be used further. After any other
// error, also one of the background or of TruncateBefore, the content of the disk is unknown, and
// every later call returns the same error. Only one call runs at a time.
func (w *WAL) Append(batches ...Batch) error {
	w.wr.Lock()
	defer w.wr.Unlock()
	if w.wr.err == nil {
		w.wr.err = w.spares.failure()
	}
	if w.wr.err != nil {
		return w.wr.err
	}
	p, err := w.planGroup(batches)
	if err != nil {
		return err
	}
	if p.count == 0 {
		if p.sync {
			return w.syncUnsynced()
		}
		return nil
	}
	size := groupSize(p.length)
	if err := w.makeRoom(size); err != nil {
		return w.noteStarved(err)
	}
	w.encodeGroup(batches, p)
	if err := w.writeGroup(size); err != nil {
		return w.noteStarved(err)
	}
	w.starved.Store(0)
	if p.sync {
		if err := w.syncActive(); err != nil {
			return err
		}
	}
	w.showGroup(batches)
	w.wr.off += size
	w.left.Store(w.wr.active.size - w.wr.off)
	w.wr.clean = false
	if p.sync {
		w.noteDurable()
	}
	w.requestSpare()
	return nil
}

// plan is the size of what a call of Append writes.
type plan struct {
	length int // of the items
	count  int
	sync   bool
}

// planGroup checks the batches against the log and adds them up.
func (w *WAL) planGroup(batches []Batch) (plan, error) {
	w.mu.RLock()
	start, last, term := w.mu.start, w.last(), w.lastTerm()
	w.mu.RUnlock()
	var p plan
	length := int64(0)
	for i := range batches {
		b := &batches[i]
		p.sync = p.sync || b.Sync
		if b.Snapshot != nil {
			start, last, term = *b.Snapshot, b.Snapshot.Index, b.Snapshot.Term
			p.sync = true
			p.count++
			length += resetSize
		}
		if hardOf(b.HardState) != (hardState{}) {
			p.count++
			length += hardStateSize
		}
		for j, e := range b.Entries {
			index := e.GetIndex()
			switch {
			case j == 0 && (index <= start.Index || index > last+1):
				return p, fmt.Errorf("%w: entry %d for a log from %d to %d", ErrInvalid, index,
					start.Index+1, last)
			case j > 0 && index != last+1:
				return p, fmt.Errorf("%w: entry %d after %d", ErrInvalid, index, last)
			case len(e.Data) > MaxEntryBytes:
				return p, fmt.Errorf("%w: entry %d has %d bytes, the limit is %d",
					ErrInvalid, index,
					len(e.Data), MaxEntryBytes)
			case uint32(e.GetType()) > 255:
				return p, fmt.Errorf("%w: entry %d has type %d", ErrInvalid, index, e.GetType())
			}
			if j == 0 && index <= last {
				// A new suffix. The entry before it stays and has the term before it.
				var err error
				if term, err = w.termBefore(batches[:i], index); err != nil {
					return p, err
				}
			}
			if e.GetTerm() < term {
				return p, fmt.Errorf("%w: entry %d has term %d after term %d", ErrInvalid, index,
					e.GetTerm(), term)
			}
			last, term = index, e.GetTerm()
			length += entryHeadSize + int64(len(e.Data))
		}
		p.count += len(b.Entries)
	}
	if length > MaxGroupBytes {
		return p, fmt.Errorf("%w: a group of %d bytes, the limit is %d", ErrInvalid, length,
			int64(MaxGroupBytes))
	}
	p.length = int(length)
	return p, nil
}

// termBefore returns the term of the entry before index as it is after the batches.
func (w *WAL) termBefore(batches []Batch, index uint64) (uint64, error) {
	for i := len(batches) - 1; i >= 0; i-- {
		b := &batches[i]
		if n := len(b.Entries); n > 0 && b.Entries[0].GetIndex() < index {
			return b.Entries[index-1-b.Entries[0].GetIndex()].GetTerm(), nil
		}
		if b.Snapshot != nil {
			return b.Snapshot.Term, nil
		}
	}
	return w.Term(index - 1)
}

func hardOf(h *raftpb.HardState) hardState {
	return hardState{h.GetTerm(), h.GetVote(), h.GetCommit()}
}

// makeRoom makes room for a group in the active segment.
func (w *WAL) makeRoom(size int64) error {
	if w.wr.next != nil || w.wr.off+size > w.wr.active.size && w.wr.off > headerSize {
		if err := w.startNext(); err != nil {
			return err
		}
	}
	if need := w.wr.off + size; need > w.wr.active.size {
		need = (need + writeAlign - 1) &^ (writeAlign - 1)
		if err := w.wr.active.file.Preallocate(need); err != nil {
			return w.noteShortage(fmt.Errorf("wal: allocate a larger segment: %w", err))
		}
		w.wr.active.size = need
	}
	return nil
}

// startNext makes the next segment the active one. First all of this one is made durable, then the
// header of the next, and only then a group may be written there.
func (w *WAL) startNext() error {
	if w.wr.next == nil {
		next, err := w.spares.takeFirst()
		if err != nil {
			return w.noteShortage(fmt.Errorf("wal: new segment: %w", err))
		}
		w.wr.next = next
	}
	next := w.wr.next
	if w.wr.synced < w.wr.off {
		if err := w.syncActive(); err != nil {
			return err
		}
		w.noteDurable()
	}
	w.mu.RLock()
	h := segmentHeader{version: Version, id: next.id, owner: w.o.ID,
		start:   Start{w.last(), w.lastTerm()},
		prevEnd: w.wr.off, hard: w.mu.hard, salt: w.wr.salt}
	w.mu.RUnlock()
	next.seed = groupSeed(h.owner, h.id, h.salt)
	if err := w.writeHeader(next, &h); err != nil {
		return err
	}
	w.wr.next = nil
	w.mu.Lock()
	w.mu.segs = append(w.mu.segs, next)
	w.mu.durable = place{next.id, headerSize}
	w.mu.Unlock()
	now := time.Now()
	w.spares.adaptSize(w.wr.off, now.Sub(w.wr.begun))
	w.wr.begun = now
	w.wr.active, w.wr.off, w.wr.synced, w.wr.asked = next, headerSize, headerSize, false
	w.stats.rolled.Add(1)
	return nil
}

func (w *WAL) writeHeader(s *segment, h *segmentHeader) error {
	if _, err := s.file.WriteAt(h.encode(), 0); err != nil {
		return w.failWrite(fmt.Errorf("wal: new segment: %w", err))
	}
	if w.o.NoSync {
		return nil
	}
	if err := s.file.Sync(); err != nil {
		w.wr.err = fmt.Errorf("wal: new segment: %w", err)
	}
	return w.wr.err
}

// failWrite returns the error of a write. If a resource was lacking, the next write uses the same
// place. Otherwise the log accepts nothing more.
func (w *WAL) failWrite(err error) error {
	if err = w.noteShortage(err); !kv.Shortage(err) {
		w.wr.err = err
	}
	return err
}

// noteShortage returns the error of a step that left the log as it was. If a resource was lacking,
// there is no room until PrepareSpare has succeeded.
func (w *WAL) noteShortage(err error) error {
	if err = vfs.MarkShortage(err); kv.Shortage(err) {
		w.short.Store(&err)
	}
	return err
}

// noteStarved records the time of the first group that is refused for lack of a resource. It
// returns err.
func (w *WAL) noteStarved(err error) error {
	if kv.Shortage(err) {
		w.starved.CompareAndSwap(0, time.Now().UnixNano())
	}
	return err
}

// Starved returns the time since which groups are refused for lack of a resource, and the error of
// CheckRoom; nil if the last group was written.
func (w *WAL) Starved() (since time.Time, err error) {
	if ns := w.starved.Load(); ns != 0 {
		since, err = time.Unix(0, ns), w.CheckRoom()
	}
	return since, err
}

// encodeGroup encodes the group into the buffer, with zeros up to the end of the page.
func (w *WAL) encodeGroup(batches []Batch, p plan) {
	b := slices.Grow(w.wr.buf[:0], groupHeaderSize+p.length+writeAlign)[:groupHeaderSize]
	clear(b)
	w.wr.locs = w.wr.locs[:0]
	for i := range batches {
		if s := batches[i].Snapshot; s != nil {
			b = appendReset(b, *s)
		}
		if h := hardOf(batches[i].HardState); h != (hardState{}) {
			b = appendHardState(b, h)
		}
		for _, e := range batches[i].Entries {
			at := len(b)
			b = appendEntry(b, e)
			w.wr.locs = append(w.wr.locs,
				loc{at: at, size: uint32(len(b) - at), crc: itemCRC(b[at:]), flags: b[at+1]})
		}
	}
	sealGroup(b, w.wr.active.seed, w.wr.off, p.count, w.wr.synced)
	end := (w.wr.off + int64(len(b)) + writeAlign - 1) &^ (writeAlign - 1)
	pad := int(min(end, w.wr.active.size) - w.wr.off - int64(len(b)))
	w.wr.buf = append(b, make([]byte, max(pad, 0))...)
}

// writeGroup writes the buffer to the file.
func (w *WAL) writeGroup(size int64) error {
	begin := time.Now()
	_, err := w.wr.active.file.WriteAt(w.wr.buf, w.wr.off)
	w.stats.write.Observe(time.Since(begin))
	w.stats.written.Add(uint64(size))
	if cap(w.wr.buf) > keepBuffer {
		w.wr.buf = nil
	}
	if err != nil {
		return w.failWrite(fmt.Errorf("wal: write at offset %d: %w", w.wr.off, err))
	}
	return nil
}

func (w *WAL) syncActive() error {
	if w.o.NoSync {
		return nil
	}
	begin := time.Now()
	err := w.wr.active.file.Sync()
	took := time.Since(begin)
	w.stats.sync.Observe(took)
	w.stats.noteSync(took)
	if err != nil {
		w.wr.err = fmt.Errorf("wal: sync: %w", err)
	}
	return w.wr.err
}

// noteDurable notes that everything written is durable. Without syncs nothing ever is.
func (w *WAL) noteDurable() {
	if w.o.NoSync {
		return
	}
	w.wr.synced = w.wr.off
	w.mu.Lock()
	w.mu.durable = place{w.wr.active.id, w.wr.off}
	w.mu.Unlock()
}

// syncUnsynced makes the groups durable that were appended without Sync.
func (w *WAL) syncUnsynced() error {
	if w.wr.synced == w.wr.off {
		return nil
	}
	if err := w.syncActive(); err != nil {
		return err
	}
	w.noteDurable()
	return nil
}

// showGroup lets readers see the group at the end of the active segment.
func (w *WAL) showGroup(batches []Batch) {
	locs := w.wr.locs
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range batches {
		b := &batches[i]
		if b.Snapshot != nil {
			w.resetTo(*b.Snapshot)
			w.mu.oldest = w.wr.active.id
		}
		if h := hardOf(b.HardState); h != (hardState{}) {
			w.mu.hard = h
		}
		for _, e := range b.Entries {
			l := locs[0]
			locs = locs[1:]
			w.putSlot(e.GetIndex(),
				slot{term: e.GetTerm(), off: w.wr.off + int64(l.at), seg: uint32(w.wr.active.id),
					size: l.size, crc: l.crc, flags: l.flags, typ: byte(e.GetType())})
			w.mu.cache.push(e)
			w.mu.cacheBytes += int64(l.size)
		}
	}
	w.shrinkCache()
}

// requestSpare starts making a spare in the background as soon as a segment was started. A lack of
// space is then known while nearly all of this segment is left for accepted requests.
func (w *WAL) requestSpare() {
	if w.wr.asked {
		return
	}
	w.wr.asked = true
	w.run(func() { _ = w.PrepareSpare() })
}

// PrepareSpare makes a spare if there is none, which may take as long as the disk does. The
// background calls it when a segment was started; if there was no space then, the caller must try
// again. It must not be called concurrently with Close.
func (w *WAL) PrepareSpare() error {
	err := w.spares.ensureSpare()
	switch was := w.short.Load(); {
	case err == nil:
		if w.short.Swap(nil) != nil {
			w.o.Logger.Info("preallocated a segment of the raft log again: accepting writes")
		}
	case w.spares.failure() != nil:
		w.o.Logger.Error("cannot prepare a segment of the raft log: the log accepts nothing more",
			"error", err.Error())
	case kv.Shortage(vfs.MarkShortage(err)):
		err = vfs.MarkShortage(fmt.Errorf("wal: prepare a segment: %w", err))
		w.short.Store(&err)
		if errors.Is(err, kv.ErrAway) {
			if was == nil {
				w.o.Logger.Warn("cannot make a segment of the raft log: rejecting writes until its directory is back", "error", err.Error())
			}
		} else if was == nil {
			w.o.Logger.Warn("cannot preallocate a segment of the raft log: rejecting writes until disk space is available", "error", err.Error())
		}
	default:
		w.o.Logger.Warn("cannot prepare a segment of the raft log: retrying when it is needed",
			"error", err.Error())
	}
	return err
}

// CheckRoom returns nil while there is room for more: the segment after the active one exists, or
// there was no shortage when one was last requested. Otherwise the error is a kv.Shortage. Nearly a
// whole segment is left for requests that were accepted before. It costs an atomic load.
func (w *WAL) CheckRoom() error {
	if p := w.short.Load(); p != nil {
		return *p
	}
	return nil
}

// Allocated returns how many bytes fit without another allocation: the size of the next segment, or
// while there is none the rest of the active one. kept of them are for requests that free space. It
// takes no lock.
func (w *WAL) Allocated() (bytes, kept int64) {
	if bytes = w.spares.first.Load(); bytes == 0 {
		bytes = w.left.Load()
	}
	return bytes, w.o.leastSegment() / 4
}

// CheckRoomForRemovals is CheckRoom for requests that free space and are few and small: half of the
// bytes that are kept for them are enough, unless a group that was refused must be written before
// them.
func (w *WAL) CheckRoomForRemovals() error {
	err := w.CheckRoom()
	bytes, kept := w.Allocated()
	if err != nil && w.starved.Load() == 0 && bytes >= kept/2 {
		return nil
	}
	return err
}

// Close makes everything durable, records that on disk, and closes the files. Reads fail after it.
func (w *WAL) Close() error {
	w.wr.Lock()
	defer w.wr.Unlock()
	if errors.Is(w.wr.err, ErrClosed) {
		return nil
	}
	var errs []error
	if w.wr.err == nil {
		errs = append(errs, w.writeEndMark())
	}
	w.wr.err = ErrClosed
	w.background.Wait()
	w.truncating.Lock()
	defer w.truncating.Unlock()
	w.truncating.err = ErrClosed
	w.mu.Lock()
	segs := w.mu.segs
	w.mu.closed = true
	w.mu.segs = nil
	w.mu.Unlock()
	if w.wr.next != nil {
		segs = append(segs, w.wr.next)
	}
	for _, s := range segs {
		errs = append(errs, s.release())
	}
	errs = append(errs, w.spares.close())
	w.dir.Release()
	return errors.Join(errs...)
}

// writeEndMark makes everything durable and writes an empty group that records that. It
// distinguishes damage of the last real group from a torn tail.
func (w *WAL) writeEndMark() error {
	if err := w.syncUnsynced(); err != nil {
		return err
	}
	if w.wr.clean || w.wr.next != nil || w.o.NoSync || w.wr.off+groupSize(0) > w.wr.active.size {
		return nil
	}
	w.encodeGroup(nil, plan{})
	if err := w.writeGroup(groupSize(0)); kv.Shortage(err) {
		w.o.Logger.Warn("closing the raft log without a mark that its end is whole",
			"error", err.Error())
		return nil
	} else if err != nil {
		return err
	}
	return w.syncActive()
}
