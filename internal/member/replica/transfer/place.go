package transfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"

	"vigil/internal/offline/datadir"
	"vigil/internal/store/history"
	"vigil/internal/store/wal"
	"vigil/internal/vfs"
)

// Suffixes of the name of the store's directory. datadir.SnapshotName is the name of a state that
// is whole and durable. DESIGN.md of package replica says how the directories replace each other.
const (
	// incomingSuffix: a state that is being received, or the copy that an offer has put aside.
	incomingSuffix = ".incoming"
	// oldSuffix: the store that was replaced.
	oldSuffix = ".old"
	// partialSuffix: a checkpoint that is not complete.
	partialSuffix = incomingSuffix + ".checkpoint.tmp"
)

// Place locates the store on disk and the state that is received next to it.
type Place struct {
	FS                 vfs.FS
	HistoryDir, WALDir string
	// NoSync skips every sync.
	NoSync bool
	Logger *slog.Logger
}

// ReadyDir returns the directory of a state that is whole and durable, by its position.
func (p *Place) ReadyDir(at history.Applied) string {
	return datadir.SnapshotName(p.HistoryDir, at.Term, at.Index)
}

func (p *Place) incomingDir() string { return p.HistoryDir + incomingSuffix }

// SyncParent makes changes of the names next to the store durable.
func (p *Place) SyncParent() error {
	if p.NoSync {
		return nil
	}
	return p.FS.SyncDir(filepath.Dir(filepath.Clean(p.HistoryDir)))
}

// RemoveDir removes a directory of files, if it is there.
func (p *Place) RemoveDir(dir string) error {
	names, err := p.FS.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, name := range append(names, "") {
		if err == nil {
			err = p.FS.Remove(filepath.Join(dir, name))
		}
	}
	if err != nil {
		return err
	}
	return nil
}

// DropIncoming removes a state that was received. It first renames a whole state, durably: a
// restart must never take half of it for a state that raft has accepted.
func (p *Place) DropIncoming(dir string) error {
	if incoming := p.incomingDir(); dir != incoming {
		if err := p.RemoveDir(incoming); err != nil {
			return err
		}
		if err := p.FS.Rename(dir, incoming); err != nil {
			return err
		}
		if err := p.SyncParent(); err != nil {
			return err
		}
		dir = incoming
	}
	return p.RemoveDir(dir)
}

// Swap replaces the store with the state of a position. A crash may follow any step; then the next
// start repeats the call.
func (p *Place) Swap(at history.Applied) error {
	dir := p.ReadyDir(at)
	switch _, err := p.FS.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return p.SyncParent() // an earlier attempt got this far
	case err != nil:
		return err
	}
	old := p.HistoryDir + oldSuffix
	switch _, err := p.FS.Stat(p.HistoryDir); {
	case err == nil:
		if err := p.RemoveDir(old); err != nil {
			return err
		}
		if err := p.FS.Rename(p.HistoryDir, old); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := p.FS.Rename(dir, p.HistoryDir); err != nil {
		return err
	}
	return p.SyncParent()
}

// InstallDecided replaces the store with a whole state if raft has accepted that state: the raft
// log, which o opens, then begins after its position. It removes only a store that was replaced
// before.
func (p *Place) InstallDecided(left *datadir.Remains, o wal.Options) error {
	if len(left.Snapshots) == 0 || !left.Log {
		return nil
	}
	start, err := logStart(p.FS, p.WALDir)
	if err != nil {
		return fmt.Errorf("the raft log in %s, by which a snapshot is accepted: %w", p.WALDir, err)
	}
	i := slices.Index(left.Snapshots, history.Applied{Term: start.Term, Index: start.Index})
	if i < 0 {
		return nil
	}
	at := left.Snapshots[i]
	p.Logger.Info("installing the snapshot that the last run had accepted",
		slog.Uint64("index", at.Index), slog.Uint64("term", at.Term))
	// If the last run was killed before it had synced the decision, only the page cache holds it.
	// Opening the log makes it durable.
	o.Applied = start
	log, err := wal.Open(o)
	if err == nil {
		err = log.Close()
	}
	if err == nil {
		err = p.Swap(at)
	}
	if err != nil {
		return fmt.Errorf("the snapshot %s: %w", p.ReadyDir(at), err)
	}
	left.Snapshots = slices.Delete(left.Snapshots, i, i+1)
	left.Store = true
	return nil
}

// RemoveOld removes the store that was replaced.
func (p *Place) RemoveOld() error { return p.RemoveDir(p.HistoryDir + oldSuffix) }

// RemoveRemains removes directories that former runs have left next to a store that is open.
func (p *Place) RemoveRemains(left *datadir.Remains) error {
	for _, at := range left.Snapshots {
		if err := p.DropIncoming(p.ReadyDir(at)); err != nil {
			return fmt.Errorf("the snapshot %s: %w", p.ReadyDir(at), err)
		}
	}
	for _, suffix := range []string{incomingSuffix, partialSuffix, oldSuffix} {
		if err := p.RemoveDir(p.HistoryDir + suffix); err != nil {
			return err
		}
	}
	return nil
}

// logStart returns the position after which the raft log begins, zero if there is no log.
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
