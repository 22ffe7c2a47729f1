package history

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/garbage"
	"vigil/internal/store/history/growing"
	"vigil/internal/store/history/segfile"
	"vigil/internal/store/pace"
	"vigil/internal/vfs"
)

const (
	// mergedBatch is the size at which a batch of a merged segment ends.
	mergedBatch = 256 << 10
	// mergedSync is how much of a merged segment is written between syncs: the log's own syncs
	// shall not have to wait for more than that.
	mergedSync = 8 << 20
)

// rewriting is the making of a merged segment.
type rewriting struct {
	r    *reclaimer
	run  []*segment
	stop context.Context
	pace pace.Rate

	dead      []garbage.Set // of the segments of run, as they were at the start
	keepTombs bool
	tombs     []int               // those that are kept though dead, by their number in the merged segment
	count     int                 // of the records in it
	metas     map[metaRecord]bool // that are kept

	out  *growing.Segment
	size int64 // about what out will have
	// reserved says that out is made of the reserve.
	reserved bool
	last     *format.Footer // of the last one of run
	batch    []byte
	recs     []format.Entry // of the batch, offsets in it
	locs     []uint32       // of its meta records
	synced   uint32
	// unwritten is an error of writing out, which says nothing about the segments that are read.
	unwritten error
}

// metaRecord is where a meta record is.
type metaRecord struct {
	seg *segment
	off uint32
}

// rewrite writes one segment that holds what is not dead in the sealed segments of run, neighbors
// all, and puts it in their place. If it fails everything is as it was, or the log has failed.
func (r *reclaimer) rewrite(ctx context.Context, run []*segment, rate int64) (*segment, error) {
	w := &rewriting{r: r, run: run, stop: ctx, pace: pace.Rate{BytesPerSecond: rate}}
	w.last = run[len(run)-1].src.Load().file.Footer()
	if err := w.decide(); err != nil {
		return nil, err
	}
	// What made records dead must not be lost in a crash, or the log that is replayed then would
	// meet a state from which they are missing.
	if _, err := r.seal.sync(); err != nil {
		return nil, err
	}
	defer func() {
		if w.reserved {
			r.alloc.refillReserve()
		}
	}()
	foot, err := w.write()
	if err == nil {
		err = w.wait(0)
	}
	if err != nil {
		if w.out != nil {
			r.abandon(w.out.File, w.out.Path)
		}
		return nil, err
	}
	return w.replace(foot)
}

// write writes the merged segment under a temporary name, makes it durable and reads it back.
func (w *rewriting) write() (*format.Footer, error) {
	r := w.r
	first := w.run[0].src.Load().file.Footer()
	foot := &format.Footer{FirstID: first.FirstID, LastID: w.last.LastID, Before: first.Before, After: w.last.After,
		Revision: w.last.Revision, Applied: w.last.Applied}
	for _, s := range w.run {
		foot.Generation = max(foot.Generation, s.src.Load().file.Footer().Generation+1)
	}
	if err := w.create(foot); err != nil {
		return nil, err
	}
	for i, s := range w.run {
		if err := segfile.Guard(func(a *segfile.Access) error { return w.copy(a, i, s) }); err != nil {
			return nil, w.unreadable(s, err)
		}
	}
	if err := w.flush(); err != nil {
		return nil, err
	}
	seg := w.out
	if err := seg.WriteTables(foot); err != nil {
		return nil, w.wrap(err)
	}
	if err := r.syncFile(seg.File, seg.Path); err != nil {
		return nil, err
	}
	return foot, nil
}

func (w *rewriting) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("history: write %s: %w", w.out.Path, err)
}

// unreadable returns err, which copying s met, and reports damage of s. A segment that is damaged is left as it is, so
// that it does not keep others from being rewritten again and again.
func (w *rewriting) unreadable(s *segment, err error) error {
	if w.unwritten == nil {
		w.r.ReportDamage(err)
	}
	if errors.Is(err, kv.ErrCorrupt) {
		w.r.cat.dead.Lock()
		defer w.r.cat.dead.Unlock()
		s.damaged = true
	}
	return err
}

// create makes the file.
func (w *rewriting) create(foot *format.Footer) error {
	r := w.r
	temp := r.path(format.SealedName(foot.FirstID, foot.LastID, foot.Generation) + format.TempSuffix)
	if err := r.o.FS.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("history: %w", err)
	}
	file, err := r.o.FS.Create(temp)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	// All of the space before anything is written: on a full disk the reserve is what there is.
	if err := file.Preallocate(min(w.size, r.o.SegmentBytes)); vfs.CauseOf(err) == vfs.NoSpace {
		_ = file.Close()
		if err := r.o.FS.Remove(temp); err != nil {
			return fmt.Errorf("history: %w", err)
		}
		reserve, size, rerr := r.alloc.takeReserve(temp)
		if rerr != nil {
			return rerr
		}
		if reserve == nil || size < w.size {
			if reserve != nil {
				// It does not suffice: what there is is given back, to be made again.
				_ = reserve.Close()
				_ = r.o.FS.Remove(temp)
				r.alloc.refillReserve()
			}
			return fmt.Errorf("history: allocate %s: %w: %w", temp, kv.ErrNoSpace, err)
		}
		file, w.reserved = reserve, true
	} else if err != nil {
		_ = file.Close()
		_ = r.o.FS.Remove(temp)
		return fmt.Errorf("history: allocate %s: %w", temp, err)
	}
	if w.out, err = growing.Create(file, temp, format.NewHeader(r.identity(), foot.FirstID), 0); err != nil {
		r.abandon(file, temp)
		return fmt.Errorf("history: write %s: %w", temp, err)
	}
	w.batch = make([]byte, format.BatchHeaderSize, mergedBatch+4096)
	return nil
}

// copy copies what is kept of segment i of the run.
func (w *rewriting) copy(a *segfile.Access, i int, s *segment) error {
	f := s.src.Load().file
	if err := a.To(f); err != nil {
		return err
	}
	// The dead records were found by the tables, and those that are not are found by them now.
	if err := f.CheckTables(); err != nil {
		return err
	}
	dead := &w.dead[i]
	for n, off := range f.Offsets() {
		isDead := n >= 0 && dead.Has(n)
		if n < 0 && !w.metas[metaRecord{s, off}] || isDead && !w.keepTombs {
			continue
		}
		size, kind, err := f.Head(off)
		if err != nil {
			return err
		}
		if isDead {
			// Only its kind was read: what is left out may be damaged.
			if kind != format.KindTombstone {
				continue
			}
			w.tombs = append(w.tombs, w.count)
		}
		if err := w.addRecord(f, n, off, size); err != nil {
			return err
		}
	}
	return nil
}

// addRecord adds record i of f, which is at off, to the batch; -1 is a meta record.
func (w *rewriting) addRecord(f *segfile.File, i int, off uint32, size int) error {
	if len(w.batch) > format.BatchHeaderSize && len(w.batch)+size > mergedBatch {
		if w.unwritten = w.flush(); w.unwritten != nil {
			return w.unwritten
		}
	}
	from := len(w.batch)
	batch, rev, err := f.AppendRecord(w.batch, i, off, size)
	if err != nil {
		return err
	}
	w.batch = batch
	if i < 0 {
		w.locs = append(w.locs, uint32(from))
		return nil
	}
	w.recs = append(w.recs, format.Entry{Main: rev.Main, Sub: uint32(rev.Sub), Off: uint32(from)})
	w.count++
	return nil
}

// flush writes the batch.
func (w *rewriting) flush() error {
	seg := w.out
	if len(w.recs)+len(w.locs) == 0 {
		return nil
	}
	n := int(format.Align8(int64(len(w.batch))))
	w.batch = append(w.batch, make([]byte, n-len(w.batch))...)
	if int64(seg.End)+int64(n) > format.MaxSegment {
		return w.wrap(fmt.Errorf("a merged segment of more than %d bytes is too large", int64(format.MaxSegment)))
	}
	h := format.BatchHeader{Synced: format.HeaderSize, Applied: w.last.Applied, Revision: w.last.Revision}
	if err := seg.WriteBatch(&h, w.batch, w.recs, w.locs); err != nil {
		return w.wrap(err)
	}
	w.batch, w.recs, w.locs = w.batch[:format.BatchHeaderSize], w.recs[:0], w.locs[:0]
	clear(w.batch)
	if seg.End-w.synced >= mergedSync {
		w.synced = seg.End
		if err := w.r.syncFile(seg.File, seg.Path); err != nil {
			return err
		}
	}
	return w.wait(2 * n)
}

// wait returns when n more bytes may be handled. Its error says that the log is being closed.
func (w *rewriting) wait(n int) error {
	if err := w.pace.Wait(w.stop, n); err != nil {
		return fmt.Errorf("history: reclaim: %w", err)
	}
	return nil
}
