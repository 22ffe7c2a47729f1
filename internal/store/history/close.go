package history

import (
	"fmt"

	"vigil/internal/kv"
)

// Retire ends writing and the background, without a sync: another log takes the place of this one.
// Reads continue until Close, and no name in the directory is used any more, so that it may be
// renamed or removed. The writer must be idle. Everything that would write returns ErrClosed from
// now on.
func (l *Log) Retire() {
	if l.end.enter(phaseRetired) != phaseOpen {
		return
	}
	l.done.Wait()
	// Earlier checkpoints and syncs still use names in the directory.
	l.checkpointing.Lock()
	defer l.checkpointing.Unlock()
	l.seal.order.Lock()
	defer l.seal.order.Unlock()
}

// Close stops the background, syncs what was committed and closes the files. It returns the error
// that ended the log, if one did. A batch that was not committed is lost. Of a log that was retired
// it closes the files only.
func (l *Log) Close() error {
	before := l.end.enter(phaseClosed)
	if before == phaseClosed {
		return ErrClosed
	}
	l.done.Wait()

	err := error(nil)
	if before == phaseOpen {
		err = l.finalSync()
	}
	l.alloc.closeFiles(err == nil && before == phaseOpen)
	v := l.cat.manifest.Load()
	if _, full := v.unsealed(); full != nil {
		_ = full.File.Close()
	}
	if cerr := v.growing.File.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("history: close %s: %w", v.growing.Path, cerr)
	}
	for _, s := range v.segs {
		if f := s.file(); f != nil {
			f.Release()
		}
	}
	l.pinned.Release()
	return err
}

// finalSync makes everything durable and adds a mark, an empty batch that says so, if the last
// batch does not. Without it a damaged last batch would look like one that a crash tore.
func (l *Log) finalSync() error {
	l.seal.order.Lock()
	defer l.seal.order.Unlock()
	if err := l.seal.sealFull(); err != nil {
		if l.Err() != nil {
			return err
		}
		// The next Open seals it.
		if _, g := l.cat.manifest.Load().unsealed(); g.Synced.Load() < g.End {
			if err := l.dir.syncFile(g.File, g.Path); err != nil {
				return l.end.fail(err)
			}
		}
	}
	w := &l.w
	seg := w.seg
	if seg.Marked && seg.Synced.Load() == seg.End {
		return nil
	}
	if !seg.Marked {
		if err := l.dir.syncFile(seg.File, seg.Path); err != nil {
			return l.end.fail(err)
		}
		l.seal.noteSynced(seg, seg.End, seg.Applied)
		w.clearBatch()
		w.last = l.cat.manifest.Load().last
		w.ensureBuffer(0)
		if err := l.writeBatch(w.applied); kv.Shortage(err) {
			l.o.Logger.Warn("closing the history without a mark that its end is whole",
				"error", err.Error())
			return nil
		} else if err != nil {
			return err
		}
	}
	if err := l.dir.syncFile(seg.File, seg.Path); err != nil {
		return l.end.fail(err)
	}
	l.seal.noteSynced(seg, seg.End, seg.Applied)
	return nil
}
