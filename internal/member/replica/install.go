package replica

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/store/wal"
	"vigil/internal/vfs"
)

// install replaces the state machine by the one of a snapshot. The raft log begins after it by now,
// so there is no way back: every error is fatal, and the next start continues.
func (a *applier) install(s *raftpb.Snapshot) error {
	r := a.r
	r.receiver.SetInstalling(true)
	defer r.receiver.SetInstalling(false)
	began := time.Now()
	at := history.Applied{Term: s.GetMetadata().GetTerm(), Index: s.GetMetadata().GetIndex()}
	fail := func(err error) error {
		return fmt.Errorf("replica: installing the snapshot at index %d: %w", at.Index, err)
	}
	old := r.current.Load()
	a.removal.Wait() // of the store that the last snapshot replaced
	old.Retire()
	old.Store.Close()
	old.Log.Retire()
	log, err := a.moveIn(at)
	if errors.Is(err, errStopped) {
		return err
	}
	if err != nil {
		return fail(err)
	}
	if got := log.Applied(); got != at {
		return fail(errors.Join(fmt.Errorf("the store is at index %d of term %d", got.Index,
			got.Term), log.Close()))
	}
	h, machine, err := openStore(&r.cfg, r.memberID, log)
	if err != nil {
		return fail(errors.Join(err, log.Close()))
	}
	// From here on reads see the new state. Watchers are notified when it can be read, and after
	// that the readers that wait for the position.
	a.adopt(machine)
	a.at, a.term = at, max(a.term, at.Term)
	a.tokens, a.tokensEnd = a.tokens[:0], 0
	a.prepareCommit()
	r.current.Replace(h)
	a.last.Revision, a.last.Installed = h.Store.Revision(), true
	a.emitCommit()
	for _, g := range r.queue.TakePending() {
		g.Fail(r.TimeoutCause(g.Begun()))
	}
	r.receiver.NoteInstalled(at)
	r.cfg.Logger.Info("installed a snapshot", slog.Uint64("index", at.Index),
		slog.Int64("revision", h.Store.Revision()),
		slog.Int64("compact-revision", h.Store.CompactRevision()),
		slog.Duration("took", time.Since(began)))
	place := r.cfg.place()
	a.removal.Go(func() {
		err := errors.Join(old.Log.Close(), place.RemoveOld())
		if err != nil {
			r.cfg.Logger.Warn("the store that a snapshot replaced is not gone yet; the next start removes it", slog.Any("error", err))
		}
	})
	return nil
}

// moveIn puts the received state in the place of the store and opens it. Nothing else can be
// applied, so it waits while space, file descriptors or memory are short. Its error is errStopped,
// or final.
func (a *applier) moveIn(at history.Applied) (*history.Log, error) {
	r, place := a.r, a.r.cfg.place()
	defer r.stall.End(a.committed)
	for {
		err := place.Swap(at)
		if err == nil {
			var log *history.Log
			log, err = history.Open(r.cfg.historyOptions(wal.Identity{ClusterID: r.clusterID,
				MemberID: r.memberID}))
			if err == nil {
				return log, nil
			}
		}
		if !kv.Shortage(vfs.MarkShortage(err)) {
			return nil, err
		}
		r.stall.Begin(fmt.Errorf("installing a snapshot: %w", vfs.MarkShortage(err)),
			r.applied.Load(), a.committed())
		select {
		case <-time.After(noSpaceRetry):
		case <-r.stopping:
			return nil, errStopped
		}
	}
}
