package history

import (
	"fmt"

	"vigil/internal/kv"
)

// start starts the goroutines. They end when the log is closed or has failed.
func (l *Log) start() {
	l.alloc.wanted = true
	l.done.Go(l.seal.run)
	l.done.Go(l.alloc.run)
	l.done.Go(l.alloc.runResizer)
	l.done.Go(l.rec.run)
}

// Retire ends writing and the background, without a sync: another log takes the place of this one.
// Reads continue until Close, and no name in the directory is used any more, so that it may be renamed
// or removed. The writer must be idle. Everything that would write returns ErrClosed from now on.
func (l *Log) Retire() {
	l.mu.Lock()
	if l.mu.closed {
		l.mu.Unlock()
		return
	}
	l.endLocked(true)
	l.mu.Unlock()
	l.rec.halt()
	l.done.Wait()
	// Earlier checkpoints and syncs still use names in the directory.
	l.checkpointing.Lock()
	defer l.checkpointing.Unlock()
	l.seal.syncMu.Lock()
	defer l.seal.syncMu.Unlock()
}

// Close stops the background, syncs what was committed and closes the files. It returns the error
// that ended the log, if one did. A batch that was not committed is lost. Of a log that
// was retired it closes the files only.
func (l *Log) Close() error {
	l.mu.Lock()
	retired := l.mu.retired
	if l.mu.closed && !retired {
		l.mu.Unlock()
		return ErrClosed
	}
	l.endLocked(false)
	l.mu.Unlock()
	l.rec.halt()
	l.done.Wait()

	err := error(nil)
	if !retired {
		err = l.finalSync()
	}
	switch next := l.alloc.next; {
	case next != nil && err == nil && !retired:
		l.abandon(next.File, next.Path)
	case next != nil:
		_ = next.File.Close()
	}
	if l.seal.pending != nil {
		_ = l.seal.pending.File.Close()
	}
	if l.alloc.reserve != nil {
		_ = l.alloc.reserve.Close()
	}
	if cerr := l.w.seg.File.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("history: close %s: %w", l.w.seg.Path, cerr)
	}
	for _, s := range l.cat.segs {
		if src := s.src.Load(); src.file != nil {
			src.file.Release()
		}
	}
	l.dir.Release()
	return err
}

// finalSync makes everything durable and adds a mark, an empty batch that says so, if the last batch
// does not. Without it a damaged last batch would look like one that a crash tore.
func (l *Log) finalSync() error {
	l.seal.syncMu.Lock()
	defer l.seal.syncMu.Unlock()
	if err := l.seal.sealPending(); err != nil {
		if l.Err() != nil {
			return err
		}
		// The next Open seals it.
		if seg := l.seal.pending; seg.Synced.Load() < seg.End {
			if err := l.syncFile(seg.File, seg.Path); err != nil {
				return l.fail(err)
			}
		}
	}
	w := &l.w
	seg := w.seg
	if seg.Marked && seg.Synced.Load() == seg.End {
		return nil
	}
	if !seg.Marked {
		if err := l.syncFile(seg.File, seg.Path); err != nil {
			return l.fail(err)
		}
		l.seal.noteSynced(seg, seg.End, seg.Applied)
		w.drop()
		w.last = l.cat.view.Load().last
		w.beginBatch(0)
		if err := l.write(w.applied); kv.Shortage(err) {
			l.o.Logger.Warn("closing the history without a mark that its end is whole", "error", err.Error())
			return nil
		} else if err != nil {
			return err
		}
	}
	if err := l.syncFile(seg.File, seg.Path); err != nil {
		return l.fail(err)
	}
	l.seal.noteSynced(seg, seg.End, seg.Applied)
	return nil
}
