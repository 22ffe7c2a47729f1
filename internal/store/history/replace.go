package history

import (
	"fmt"
	"slices"
	"time"
	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/garbage"
	"vigil/internal/store/history/segfile"
)

// replace replaces the segments of the run by the merged one. Once it has its name, it is the valid one.
func (w *rewriting) replace(foot *format.Footer) (*segment, error) {
	r, seg := w.r, w.out
	path := r.path(format.SealedName(foot.FirstID, foot.LastID, foot.Generation))
	file, _, err := segfile.Open(seg.File, path)
	if err == nil {
		if err = file.Check(w.stop); err != nil {
			file.Release()
		}
	}
	if err == nil {
		if err = r.o.FS.Rename(seg.Path, path); err != nil {
			err = r.failFinal(fmt.Errorf("history: %w", err))
			file.Release()
		}
	}
	if err != nil {
		_ = r.o.FS.Remove(seg.Path)
		return nil, err
	}
	if err := w.syncName(); err != nil {
		file.Release()
		return nil, r.failFinal(err) // it is unknown which of them a crash would leave
	}
	merged := &segment{id: foot.FirstID, first: foot.First, last: w.run[len(w.run)-1].last}
	merged.size.Store(foot.FileSize())
	merged.src.Store(&source{file: file})
	for _, old := range w.swap(merged) {
		old.Release()
		// Freeing much at once makes the file system's own log long, and syncs wait for that. An
		// error means that the log is being closed: the next Open removes what is left.
		_ = w.wait(int(old.Footer().FileSize()))
		// The name may reappear after a crash, or stay: the next Open removes it.
		if err := r.o.FS.Remove(old.Path()); err != nil {
			r.o.Logger.Warn("cannot remove a history segment that was rewritten", "file", old.Path(), "error", err.Error())
		}
	}
	r.o.Logger.Debug("rewrote history segments", "file", path, "segments", len(w.run), "bytes", foot.FileSize())
	return merged, nil
}

// syncName makes the name of the merged segment durable. The rename cannot be undone, so a lack of file descriptors
// or memory is retried. Any other error is final, except that the log is being closed: then the next Open finds
// the one name or the other.
func (w *rewriting) syncName() error {
	for {
		err := w.r.syncDir()
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

// swap redirects readers from the segments of the run to merged, and returns the files of the run.
func (w *rewriting) swap(merged *segment) (old []*segfile.File) {
	r := w.r
	to := merged.src.Load().file
	r.cat.dead.Lock()
	defer r.cat.dead.Unlock()
	var late []DeadRecord // records that died meanwhile
	for i, s := range w.run {
		from := s.src.Load().file
		old = append(old, from)
		n := len(late)
		err := segfile.Guard(func(a *segfile.Access) error {
			if err := a.To(from); err != nil {
				return err
			}
			for k := range s.dead.Since(&w.dead[i]) {
				rev, tombstone, err := from.RevisionOf(k)
				if err != nil {
					return err
				}
				late = append(late, DeadRecord{Rev: rev, Tombstone: tombstone})
			}
			return nil
		})
		if err != nil {
			late = late[:n]
			r.ReportDamage(err)
			r.o.Logger.Warn("cannot determine which records of a history segment are dead", "file", from.Path(), "error", err.Error())
		}
		merged.dead.Unsure = merged.dead.Unsure || s.dead.Unsure || err != nil
		s.dead = garbage.Set{}
		s.src.Store(&source{next: merged})
	}
	err := segfile.Guard(func(a *segfile.Access) error {
		a.Borrow(to)
		for _, k := range w.tombs {
			if err := markFile(&merged.dead, to, k, true); err != nil {
				return err
			}
		}
		for _, r := range late {
			k, err := to.Find(r.Rev)
			if err != nil {
				return err
			}
			if k < 0 {
				return format.Corrupt(to.Path(), int64(to.Footer().BodyEnd), "the record of revision %d/%d is missing", r.Rev.Main, r.Rev.Sub)
			}
			if err := markFile(&merged.dead, to, k, r.Tombstone); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		merged.dead.Unsure = true
		r.ReportDamage(err)
		r.o.Logger.Warn("cannot determine which records of a history segment are dead", "file", to.Path(), "error", err.Error())
	}
	r.cat.metas.Clean(to.Footer().FirstID, to.Footer().LastID)

	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.cat.segs, w.run[0])
	segs := append(slices.Clone(r.cat.segs[:i]), merged)
	r.cat.segs = append(segs, r.cat.segs[i+len(w.run):]...)
	return old
}
