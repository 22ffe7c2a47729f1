package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"vigil/internal/store/history"
	"vigil/internal/store/wal"
	"vigil/internal/vfs"
)

// restoringSuffix follows the name of a store that a restore builds.
const restoringSuffix = ".restoring"

// RestoringName returns the name of a store while a restore builds it.
func RestoringName(store string) string { return store + restoringSuffix }

// startedSuffix follows the name of a store whose member has had a raft log.
const startedSuffix = ".started"

// StartedName returns the name of an empty file next to a store. The file exists once the member
// has had a raft log, which a store at its first position does not show.
func StartedName(store string) string { return store + startedSuffix }

// Remains are the parts of a member that its directories hold.
type Remains struct {
	// Store and Log: there is a store, a raft log, in any state.
	Store, Log bool
	// Restoring: a restore has begun to build the store and has not finished.
	Restoring bool
	// Started: the member has had a raft log, and may have voted.
	Started bool
	// Snapshots are the positions of the complete received snapshots next to the store.
	Snapshots []history.Applied
	// Aside are the other names next to the store that begin with its name and a dot, left by a
	// replacement of the store by a snapshot.
	Aside []string
}

// None reports whether there are no parts of a member.
func (r *Remains) None() bool {
	return !r.Store && !r.Log && !r.Restoring && !r.Started && len(r.Snapshots) == 0 &&
		len(r.Aside) == 0
}

// FindRemains finds the parts of a member in the directories of its store and its raft log. It only
// reads names.
func FindRemains(fsys vfs.FS, store, log string) (r Remains, err error) {
	store = filepath.Clean(store)
	if r.Store, err = history.Exists(fsys, store); err != nil {
		return r, fmt.Errorf("looking for the store: %w", err)
	}
	if r.Log, err = wal.Exists(fsys, log); err != nil {
		return r, fmt.Errorf("looking for the raft log: %w", err)
	}
	dir, base := filepath.Split(store)
	names, err := fsys.List(filepath.Clean(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return r, fmt.Errorf("looking for what is next to the store: %w", err)
	}
	for _, name := range names {
		suffix, ok := strings.CutPrefix(name, base)
		if !ok || !strings.HasPrefix(suffix, ".") {
			continue
		}
		var at history.Applied
		n, err := fmt.Sscanf(suffix, ".snapshot-%x-%x", &at.Term, &at.Index)
		switch {
		case suffix == restoringSuffix:
			r.Restoring = true
		case suffix == startedSuffix:
			r.Started = true
		case err == nil && n == 2 && SnapshotName(base, at.Term, at.Index) == name:
			r.Snapshots = append(r.Snapshots, at)
		default:
			r.Aside = append(r.Aside, name)
		}
	}
	slices.Sort(r.Aside)
	return r, nil
}

// ErrRestoring is the error of a directory in which a restore has begun to build a store and has
// not finished.
func ErrRestoring(dir string) error {
	return fmt.Errorf("data directory %s: a restore was interrupted before it was complete (%s): run vigilctl snapshot restore again with this --data-dir, or choose another",
		dir, RestoringName(HistoryName))
}
