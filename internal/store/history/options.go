package history

import (
	"errors"
	"fmt"
	"log/slog"

	"vigil/internal/store/history/format"
	"vigil/internal/store/history/segfile"
	"vigil/internal/vfs"
)

const (
	defaultSegmentBytes = 64 << 20
	minSegmentBytes     = 4 << 10
	maxSegmentBytes     = 1 << 30
)

// Options say where a Log is and how it is kept.
type Options struct {
	// FS is the file system; required.
	FS vfs.FS
	// Dir is the directory of the log. Nothing else may live in it.
	Dir string
	// SegmentBytes is the size at which a segment is sealed; default 64 MiB, at least 4 KiB, at
	// most 1 GiB. Segments are smaller, down to 4 MiB, while the log is small and grows slowly. A
	// batch larger than that gets a larger segment of its own.
	SegmentBytes int64
	// ClusterID and MemberID are written into every segment. Open refuses a directory with other
	// ids with ErrIdentity. If both are 0, it accepts the ids that are there.
	ClusterID, MemberID uint64
	// Logger receives the few events worth a line (a torn tail cut, a segment sealed); default
	// none.
	Logger *slog.Logger
	// NoSync leaves every sync out. A crash of the machine may then lose or corrupt anything.
	NoSync bool
}

func (o Options) withDefaults() Options {
	if o.SegmentBytes == 0 {
		o.SegmentBytes = defaultSegmentBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Validate names every field that is wrong.
func (o *Options) Validate() error {
	var errs []error
	if o.FS == nil {
		errs = append(errs, errors.New("history: Options.FS is not set"))
	}
	if o.Dir == "" {
		errs = append(errs, errors.New("history: Options.Dir is not set"))
	}
	if n := o.SegmentBytes; n != 0 && (n < minSegmentBytes || n > maxSegmentBytes) {
		errs = append(errs, fmt.Errorf("history: Options.SegmentBytes is %d, not between %d and %d",
			n, minSegmentBytes, maxSegmentBytes))
	}
	return errors.Join(errs...)
}

// Package format declares the vocabulary of the files.
type (
	Applied      = format.Applied
	Meta         = format.Meta
	CorruptError = format.CorruptError
)

var (
	// ErrVersion means that this program does not read the version of the format of a file.
	ErrVersion = format.ErrVersion
	// ErrNotFound: there is no record at that revision.
	ErrNotFound = errors.New("history: no record at that revision")
	// ErrClosed: the log is closed.
	ErrClosed = segfile.ErrClosed
	// ErrIdentity: the directory belongs to another cluster or member.
	ErrIdentity = format.ErrIdentity
)
