package restore

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"vigil/internal/offline/datadir"
	"vigil/internal/vfs"
)

// buildName is the name of the store in the data directory before it is complete.
var buildName = datadir.RestoringName(datadir.HistoryName)

// directories are the directories of the new member.
type directories struct {
	fs        vfs.FS
	data, wal string
	// made is set if the data directory did not exist.
	made bool
}

func (d *directories) build() string { return filepath.Join(d.data, buildName) }

// create checks that the directories are empty, and creates the data directory.
func (d *directories) create() error {
	if d.wal != "" {
		names, err := d.fs.List(d.wal)
		if err == nil && len(names) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("wal-dir %q not empty or could not be read", d.wal)
		}
	}
	names, err := d.fs.List(d.data)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.made = true
	case err != nil:
		return fmt.Errorf("data-dir %q not empty or could not be read: %w", d.data, err)
	default:
		names = slices.DeleteFunc(names,
			func(n string) bool { return n == buildName || n == "lost+found" })
		if len(names) > 0 {
			return fmt.Errorf("data-dir %q not empty or could not be read: there is %s in it",
				d.data, strings.Join(names[:min(len(names), 3)], ", "))
		}
	}
	// The name of the incomplete store is created first and kept: a member that is started here
	// does not begin without data.
	err = d.fs.MkdirAll(d.build())
	if err == nil {
		err = d.clearBuild()
	}
	if err != nil {
		_ = d.remove() // otherwise the next attempt removes it
	}
	return err
}

// clearBuild removes the files of an incomplete store.
func (d *directories) clearBuild() error {
	names, err := d.fs.List(d.build())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, n := range names {
		if err == nil {
			err = d.fs.Remove(filepath.Join(d.build(), n))
		}
	}
	return err
}

// removeBuild removes an incomplete store.
func (d *directories) removeBuild() error {
	err := d.clearBuild()
	if err == nil {
		err = d.fs.Remove(d.build())
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// remove removes everything that create and the restore have created.
func (d *directories) remove() error {
	err := d.removeBuild()
	if err == nil && d.made {
		err = d.fs.Remove(d.data)
	}
	return err
}

// nameStore renames the complete store.
func (d *directories) nameStore(noSync bool) error {
	if err := d.fs.Rename(d.build(), filepath.Join(d.data, datadir.HistoryName)); err != nil {
		return err
	}
	if noSync {
		return nil
	}
	return d.fs.SyncDir(d.data)
}
