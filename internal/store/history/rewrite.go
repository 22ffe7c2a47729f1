package history

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/growing"
	"vigil/internal/store/history/segfile"
	"vigil/internal/store/pace"
	"vigil/internal/vfs"
)

const (
	// mergedBatch is the size at which a batch of a merged segment ends.
	mergedBatch = 256 << 10
	// mergedSync is how much of a merged segment is written between syncs: the log's own syncs
	// do not have to wait for more than that.
	mergedSync = 8 << 20
)

// rewriting writes the merged segment of a plan.
type rewriting struct {
	mergePlan
	dir    directory
	logger *slog.Logger
	member format.Identity
	most   int64 // Options.SegmentBytes
	cat    *catalog
	alloc  *allocator
	stop   context.Context
	pace   pace.Rate

	count int                 // of the records in the merged segment
	metas map[metaRecord]bool // that are kept

	out      *growing.Segment
	name     string // of out when it is whole
	reserved bool   // out is made of the reserve
	batch    []byte
	recs     []format.Entry // of the batch, offsets in it
	locs     []uint32       // of its meta records
	synced   uint32
	// unwritten is an error of writing out, which says nothing about the segments that are read.
	unwritten error
}

// metaRecord is where a meta record is.
type metaRecord struct {
	file *segfile.File
	off  uint32
}

// chooseMetas notes which meta records are kept: a value if it is the newest, a deletion if it is
// the last record of its name in the run and an older segment has a value of that name.
func (w *rewriting) chooseMetas() error {
	type found struct {
		at   metaRecord
		meta Meta
	}
	latest := map[string]found{}
	deletions := false
	for i, f := range w.files {
		err := f.EachMeta(func(off uint32, m Meta) {
			m.Value = nil
			latest[m.Name()] = found{metaRecord{f, off}, m}
			deletions = deletions || m.Deleted
		})
		if err != nil {
			return w.unreadable(w.run[i], err)
		}
	}
	values, unsure := map[string]bool{}, false
	if deletions {
		for _, f := range w.older {
			err := f.EachMeta(func(_ uint32, m Meta) {
				if name := m.Name(); !m.Deleted && latest[name].meta.Deleted {
					values[name] = true
				}
			})
			if err != nil {
				// It may have any value: all deletions stay.
				w.cat.reports.ReportDamage(err)
				w.logger.Warn("cannot determine which deletions in the history are needed",
					"error", err.Error())
				unsure = true
			}
		}
	}
	w.metas = map[metaRecord]bool{}
	for name, f := range latest {
		newest, ok := w.cat.metas.Newest(f.meta.Bucket, f.meta.Key)
		switch {
		case ok && newest > w.last().LastID:
		case f.meta.Deleted:
			if values[name] || unsure {
				w.metas[f.at] = true
			}
		case ok:
			w.metas[f.at] = true
		}
	}
	return nil
}

// writeMerged writes the merged segment under a temporary name, makes it durable and reads it back.
// The file that it returns has the name that the segment will get. If it fails, nothing is left.
func (w *rewriting) writeMerged() (*segfile.File, error) {
	if err := w.writeOutput(); err != nil {
		if w.out != nil {
			w.dir.discard(w.out.File, w.out.Path)
		}
		return nil, err
	}
	file, err := w.readBack()
	if err != nil {
		_ = w.dir.fs.Remove(w.out.Path)
	}
	return file, err
}

// readBack opens the merged segment and compares all of it with its checksums.
func (w *rewriting) readBack() (*segfile.File, error) {
	file, _, err := segfile.Open(w.out.File, w.name)
	if err != nil {
		return nil, err
	}
	if err := file.Check(w.stop); err != nil {
		file.Release()
		return nil, err
	}
	return file, nil
}

// writeOutput writes all of the merged segment and makes it durable.
func (w *rewriting) writeOutput() error {
	first, last := w.first(), w.last()
	foot := &format.Footer{FirstID: first.FirstID, LastID: last.LastID, Before: first.Before,
		After:    last.After,
		Revision: last.Revision, Applied: last.Applied}
	for _, f := range w.files {
		foot.Generation = max(foot.Generation, f.Footer().Generation+1)
	}
	if err := w.createOutput(foot); err != nil {
		return err
	}
	for i, f := range w.files {
		if err := segfile.Guard(func(a *segfile.Access) error {
			return w.copyRecords(a, i,
				f)
		}); err != nil {
			return w.unreadable(w.run[i], err)
		}
	}
	if err := w.flushBatch(); err != nil {
		return err
	}
	if err := w.out.WriteTables(foot); err != nil {
		return w.writeError(err)
	}
	if err := w.dir.syncFile(w.out.File, w.out.Path); err != nil {
		return err
	}
	return w.waitFor(0)
}

func (w *rewriting) writeError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("history: write %s: %w", w.out.Path, err)
}

// unreadable returns err, with which copying s failed, and reports damage of s. A segment that is
// damaged is left as it is, so that it does not keep others from being rewritten again and again.
func (w *rewriting) unreadable(s *segment, err error) error {
	if w.unwritten == nil {
		w.cat.reports.ReportDamage(err)
	}
	if errors.Is(err, kv.ErrCorrupt) {
		w.cat.noteDamaged(s)
	}
	return err
}

// createOutput makes the file.
func (w *rewriting) createOutput(foot *format.Footer) error {
	w.name = w.dir.join(format.SealedName(foot.FirstID, foot.LastID, foot.Generation))
	temp := w.name + format.TempSuffix
	if err := w.dir.fs.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("history: %w", err)
	}
	file, err := w.dir.fs.Create(temp)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	// It gets all of its space before anything is written: on a full disk there is only the
	// reserve.
	if err := file.Preallocate(min(w.size, w.most)); vfs.CauseOf(err) == vfs.NoSpace {
		_ = file.Close()
		if err := w.dir.fs.Remove(temp); err != nil {
			return fmt.Errorf("history: %w", err)
		}
		if file, err = w.takeReserve(temp, err); err != nil {
			return err
		}
	} else if err != nil {
		w.dir.discard(file, temp)
		return fmt.Errorf("history: allocate %s: %w", temp, err)
	}
	if w.out, err = growing.Create(file, temp, format.NewHeader(w.member, foot.FirstID),
		0); err != nil {
		w.dir.discard(file, temp)
		return fmt.Errorf("history: write %s: %w", temp, err)
	}
	w.batch = make([]byte, format.BatchHeaderSize, mergedBatch+4096)
	return nil
}

// takeReserve returns the reserve as the file temp, which could not be allocated because of cause.
func (w *rewriting) takeReserve(temp string, cause error) (vfs.File, error) {
	reserve, size, err := w.alloc.takeReserve(temp)
	if err != nil {
		return nil, err
	}
	if reserve == nil || size < w.size {
		if reserve != nil {
			// It does not suffice: it is given back, to be made again.
			w.dir.discard(reserve, temp)
			w.alloc.refillReserve()
		}
		return nil, fmt.Errorf("history: allocate %s: %w: %w", temp, kv.ErrNoSpace, cause)
	}
	w.reserved = true
	return reserve, nil
}

// copyRecords copies the records of f, file i of the run, that are kept.
func (w *rewriting) copyRecords(a *segfile.Access, i int, f *segfile.File) error {
	if err := a.To(f); err != nil {
		return err
	}
	// The dead records were found by the tables, and the others are found by them now.
	if err := f.CheckTables(); err != nil {
		return err
	}
	dead := &w.dead[i]
	for n, off := range f.Offsets() {
		isDead := n >= 0 && dead.Has(n)
		if n < 0 && !w.metas[metaRecord{f, off}] || isDead && !w.keepTombs {
			continue
		}
		size, kind, err := f.Head(off)
		if err != nil {
			return err
		}
		if isDead {
			// Only its kind was read: a record that is left out may be damaged.
			if kind != format.KindTombstone {
				continue
			}
			w.tombs = append(w.tombs, w.count)
		}
		if err := w.copyRecord(f, n, off, size); err != nil {
			return err
		}
	}
	return nil
}

// copyRecord adds record i of f, which is at off, to the batch; -1 is a meta record.
func (w *rewriting) copyRecord(f *segfile.File, i int, off uint32, size int) error {
	if len(w.batch) > format.BatchHeaderSize && len(w.batch)+size > mergedBatch {
		if w.unwritten = w.flushBatch(); w.unwritten != nil {
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

// flushBatch writes the batch.
func (w *rewriting) flushBatch() error {
	seg := w.out
	if len(w.recs)+len(w.locs) == 0 {
		return nil
	}
	n := int(format.Align8(int64(len(w.batch))))
	w.batch = append(w.batch, make([]byte, n-len(w.batch))...)
	if int64(seg.End)+int64(n) > format.MaxSegment {
		return w.writeError(fmt.Errorf("a merged segment of more than %d bytes is too large",
			int64(format.MaxSegment)))
	}
	h := format.BatchHeader{Synced: format.HeaderSize, Applied: w.last().Applied,
		Revision: w.last().Revision}
	if err := seg.WriteBatch(&h, w.batch, w.recs, w.locs); err != nil {
		return w.writeError(err)
	}
	w.batch, w.recs, w.locs = w.batch[:format.BatchHeaderSize], w.recs[:0], w.locs[:0]
	clear(w.batch)
	if seg.End-w.synced >= mergedSync {
		w.synced = seg.End
		if err := w.dir.syncFile(seg.File, seg.Path); err != nil {
			return err
		}
	}
	return w.waitFor(2 * n)
}

// waitFor returns when n more bytes may be handled. Its error says that the log is being closed.
func (w *rewriting) waitFor(n int) error {
	if err := w.pace.Wait(w.stop, n); err != nil {
		return fmt.Errorf("history: reclaim: %w", err)
	}
	return nil
}

// nameOutput gives the merged segment its name and makes the name durable. From the rename on it is
// the valid one. It cannot be undone, so a lack of file descriptors or memory is retried. Any other
// error of the sync is final, except that the log is being closed: then the next Open finds the one
// name or the other.
func (w *rewriting) nameOutput() error {
	if err := w.dir.fs.Rename(w.out.Path, w.name); err != nil {
		_ = w.dir.fs.Remove(w.out.Path)
		return fmt.Errorf("history: %w", err)
	}
	for {
		err := w.dir.syncNames()
		if !kv.Shortage(err) {
			return err
		}
		select {
		case <-w.stop.Done():
			return fmt.Errorf("history: reclaim: %w", w.stop.Err())
		case <-time.After(retryPause):
		}
	}
}

// removeFiles releases and removes the files that were merged.
func (w *rewriting) removeFiles(old []*segfile.File) {
	for _, f := range old {
		f.Release()
		// Freeing much at once makes the file system's own log long, and syncs wait for that. An
		// error means that the log is being closed: the next Open removes the remaining files.
		_ = w.waitFor(int(f.Footer().FileSize()))
		// The name may reappear after a crash, or stay: the next Open removes it.
		if err := w.dir.fs.Remove(f.Path()); err != nil {
			w.logger.Warn("cannot remove a history segment that was rewritten",
				"file", f.Path(), "error", err.Error())
		}
	}
}
