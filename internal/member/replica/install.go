package replica

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/offline/datadir"
	"vigil/internal/store/history"
	"vigil/internal/store/wal"
	"vigil/internal/vfs"
)

// The names beside the store's directory, behind its name, and the one of datadir.SnapshotName: a state that
// is whole and durable. DESIGN.md says how they replace each other.
const (
	// incomingSuffix: a state that is being received, or what an offer has put aside.
	incomingSuffix = ".incoming"
	// oldSuffix: the store that was replaced.
	oldSuffix = ".old"
	// partialSuffix: what a checkpoint is called before it is whole.
	partialSuffix = incomingSuffix + ".checkpoint.tmp"
)

func (c *Config) readyDir(at history.Applied) string {
	return datadir.SnapshotName(c.HistoryDir, at.Term, at.Index)
}

func (c *Config) syncParent() error {
	if c.NoSync {
		return nil
	}
	return c.FS.SyncDir(filepath.Dir(filepath.Clean(c.HistoryDir)))
}

// removeDir removes a directory of files, if it is there.
func (c *Config) removeDir(dir string) error {
	names, err := c.FS.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, name := range append(names, "") {
		if err == nil {
			err = c.FS.Remove(filepath.Join(dir, name))
		}
	}
	if err != nil {
		return fmt.Errorf("replica: %w", err)
	}
	return nil
}

// dropIncoming removes a state that was received. One that was ready loses its name first, durably:
// it must never be taken for one that was decided on.
func (c *Config) dropIncoming(dir string) error {
	if incoming := c.HistoryDir + incomingSuffix; dir != incoming {
		if err := c.removeDir(incoming); err != nil {
			return err
		}
		if err := c.FS.Rename(dir, incoming); err != nil {
			return err
		}
		if err := c.syncParent(); err != nil {
			return err
		}
		dir = incoming
	}
	return c.removeDir(dir)
}

// swap puts the state in dir in the place of the store. Every step may be the last before a crash, and
// all of it be done again.
func (c *Config) swap(dir string) error {
	switch _, err := c.FS.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return c.syncParent() // an earlier try has come that far
	case err != nil:
		return err
	}
	old := c.HistoryDir + oldSuffix
	switch _, err := c.FS.Stat(c.HistoryDir); {
	case err == nil:
		if err := c.removeDir(old); err != nil {
			return err
		}
		if err := c.FS.Rename(c.HistoryDir, old); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := c.FS.Rename(dir, c.HistoryDir); err != nil {
		return err
	}
	return c.syncParent()
}

// installDecided puts a state that is ready in the place of the store, if it was decided on: the raft log begins
// behind it. It removes nothing but a store that was replaced before.
func installDecided(c *Config, left *datadir.Remains) error {
	if len(left.Snapshots) == 0 || !left.Log {
		return nil
	}
	start, err := logStart(c.FS, c.WALDir)
	if err != nil {
		return fmt.Errorf("replica: the raft log in %s, by which a snapshot is accepted: %w", c.WALDir, err)
	}
	i := slices.Index(left.Snapshots, history.Applied{Term: start.Term, Index: start.Index})
	if i < 0 {
		return nil
	}
	at := left.Snapshots[i]
	c.Logger.Info("installing the snapshot that the last run had accepted", slog.Uint64("index", at.Index), slog.Uint64("term", at.Term))
	if err := c.swap(c.readyDir(at)); err != nil {
		return fmt.Errorf("replica: the snapshot %s: %w", c.readyDir(at), err)
	}
	left.Snapshots = slices.Delete(left.Snapshots, i, i+1)
	left.Store = true
	return nil
}

// removeRemains removes what former runs have left next to a store that is open.
func removeRemains(c *Config, left *datadir.Remains) error {
	for _, at := range left.Snapshots {
		if err := c.dropIncoming(c.readyDir(at)); err != nil {
			return fmt.Errorf("replica: the snapshot %s: %w", c.readyDir(at), err)
		}
	}
	for _, suffix := range []string{incomingSuffix, partialSuffix, oldSuffix} {
		if err := c.removeDir(c.HistoryDir + suffix); err != nil {
			return err
		}
	}
	return nil
}

// logStart returns the position that the raft log begins behind, the zero one if there is none.
func logStart(fsys vfs.FS, dir string) (wal.Start, error) {
	in, err := wal.Inspect(wal.InspectOptions{FS: fsys, Dir: dir})
	if errors.Is(err, fs.ErrNotExist) {
		return wal.Start{}, nil
	}
	if err != nil {
		return wal.Start{}, err
	}
	for f := range in.Files(context.Background()) {
		if f.Err != nil {
			return wal.Start{}, f.Err
		}
	}
	return in.Start, nil
}

// install replaces the state machine by the one of a snapshot. The raft log begins behind it by now, so
// there is no way back: every error is fatal, and the next start goes on.
func (a *applier) install(s *raftpb.Snapshot) error {
	r := a.r
	r.receiving.installing.Store(true)
	defer r.receiving.installing.Store(false)
	began := time.Now()
	at := history.Applied{Term: s.GetMetadata().GetTerm(), Index: s.GetMetadata().GetIndex()}
	fail := func(err error) error {
		return fmt.Errorf("replica: installing the snapshot at index %d: %w", at.Index, err)
	}
	old := r.now()
	a.removal.Wait() // of what the last snapshot replaced
	close(old.retired)
	old.store.Close()
	old.log.Retire()
	log, err := a.moveIn(at)
	if errors.Is(err, errStopped) {
		return err
	}
	if err != nil {
		return fail(err)
	}
	if got := log.Applied(); got != at {
		return fail(errors.Join(fmt.Errorf("the store is at index %d of term %d", got.Index, got.Term), log.Close()))
	}
	h, machine, err := r.build(log)
	if err != nil {
		return fail(errors.Join(err, log.Close()))
	}
	// From here on the new state is what everyone sees. Watchers hear of it when it can be read, and
	// whoever waits for the position after that.
	a.adopt(machine)
	a.at, a.term = at, max(a.term, at.Term)
	a.tokens = a.tokens[:0]
	usersChanged := r.auth.restrict(machine.Auth())
	r.home.Store(h)
	close(old.replaced)
	if usersChanged {
		r.auth.announce(machine.Auth())
	}
	r.members.Store(machine.Members())
	r.membersChanged(at.Index)
	r.Alarms.publish(machine.Alarms())
	r.storeVersions(machine.Versions())
	r.hub.Reset(h.store.Revision())
	r.applied.Store(at.Index)
	r.readers.advance(at.Index)
	for _, g := range r.queue.overtaken() {
		g.resolve(r.TimeoutCause(g.begun))
	}
	r.receiving.done(at)
	r.cfg.Logger.Info("installed a snapshot", slog.Uint64("index", at.Index), slog.Int64("revision", h.store.Revision()),
		slog.Int64("compact-revision", h.store.CompactRevision()), slog.Duration("took", time.Since(began)))
	a.removal.Go(func() {
		err := errors.Join(old.log.Close(), r.cfg.removeDir(r.cfg.HistoryDir+oldSuffix))
		if err != nil {
			r.cfg.Logger.Warn("the store that a snapshot replaced is not gone yet; the next start removes it", slog.Any("error", err))
		}
	})
	return nil
}

// moveIn puts the state that was received in the place of the store and opens it. Nothing else can be applied,
// so a lack of space, file descriptors or memory is waited for. Its error is errStopped, or final.
func (a *applier) moveIn(at history.Applied) (*history.Log, error) {
	r := a.r
	for waited := false; ; waited = true {
		err := r.cfg.swap(r.cfg.readyDir(at))
		if err == nil {
			var log *history.Log
			log, err = history.Open(r.cfg.historyOptions(wal.Identity{ClusterID: r.clusterID, MemberID: r.memberID}))
			if err == nil {
				return log, nil
			}
		}
		if !kv.Shortage(vfs.MarkShortage(err)) {
			return nil, err
		}
		if !waited {
			r.cfg.Logger.Warn("installing a snapshot waits for what the system lacks", slog.Any("error", err))
		}
		select {
		case <-time.After(noSpaceRetry):
		case <-r.stopping:
			return nil, errStopped
		}
	}
}

// done tells who waits that a snapshot is installed.
func (c *receiving) done(at history.Applied) {
	c.installed.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.done != nil && c.mu.waiting == at {
		close(c.mu.done)
		c.mu.done = nil
	}
}
