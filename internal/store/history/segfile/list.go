package segfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"vigil/internal/store/history/format"
	"vigil/internal/vfs"
)

// Files are the files of a log's directory.
type Files struct {
	// Sealed are the sealed segments that count, oldest first. Obsolete are the names of those that
	// a merged segment replaced: one that has their ids and a higher generation.
	Sealed   []Name
	Obsolete []string
	// Logs are the ids of the other segments, in order.
	Logs []uint64
	// Temp are the names of unfinished files, and Unknown those that do not belong to a log.
	Temp, Unknown []string
}

// Name is the name of a sealed segment, and its parts.
type Name struct {
	Name        string
	First, Last uint64
	Generation  uint32
}

// Exists reports whether dir holds a log. The files of a Create that a crash interrupted do not
// count.
func Exists(fsys vfs.FS, dir string) (bool, error) {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("history: %w", err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, format.LogSuffix) ||
			strings.HasSuffix(name, format.SealedSuffix) {
			return true, nil
		}
	}
	return false, nil
}

// List lists the files of a directory by their names.
func List(fsys vfs.FS, dir string) (Files, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return Files{}, fmt.Errorf("history: %w", err)
	}
	var f Files
	for _, name := range names {
		var s Name
		var id uint64
		switch {
		case name == format.ReserveName:
		case strings.HasSuffix(name, format.TempSuffix):
			f.Temp = append(f.Temp, name)
		case scanName(name, "%016x-%016x-%08x.seg", &s.First, &s.Last, &s.Generation) &&
			format.SealedName(s.First, s.Last, s.Generation) == name:
			s.Name = name
			f.Sealed = append(f.Sealed, s)
		case scanName(name, "%016x.log", &id) && format.SegmentName(id) == name:
			f.Logs = append(f.Logs, id)
		case strings.HasSuffix(name, format.LogSuffix) ||
			strings.HasSuffix(name, format.SealedSuffix):
			return Files{}, format.Corrupt(filepath.Join(dir, name), 0,
				"this is not a name that a segment has")
		default:
			f.Unknown = append(f.Unknown, name)
		}
	}
	slices.SortFunc(f.Sealed, func(a, b Name) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(b.Last, a.Last),
			cmp.Compare(b.Generation, a.Generation))
	})
	slices.Sort(f.Logs)
	f.dropObsolete()
	return f, nil
}

func (f *Files) dropObsolete() {
	all := f.Sealed
	f.Sealed = nil
	for _, s := range all {
		if n := len(f.Sealed); n > 0 && s.Last <= f.Sealed[n-1].Last &&
			s.Generation < f.Sealed[n-1].Generation {
			f.Obsolete = append(f.Obsolete, s.Name)
			continue
		}
		f.Sealed = append(f.Sealed, s)
	}
}

func scanName(name, format string, to ...any) bool {
	n, err := fmt.Sscanf(name, format, to...)
	return err == nil && n == len(to)
}
