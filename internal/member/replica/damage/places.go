// Package damage keeps the places on disk that a member has found damaged, and scrubs the store to
// find more.
//
// Damage is counted by place, logged with file and offset, and reported to the goroutine that
// raises the alarm CORRUPT. Clients see that data are corrupt, and no file name.
package damage

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/vfs"
)

const (
	// mostPlaces is how many damaged places are told apart: more are one damaged disk.
	mostPlaces = 1000
	// samePlace is how far apart damage in a file counts as one, after the end of a piece whose
	// size is known: the scrubber names the batch of a record, a read the record.
	samePlace = 64 << 10
)

// Places are the places on disk that were found damaged. The same one is met again and again. The
// methods may be called concurrently.
type Places struct {
	mu struct {
		sync.Mutex
		list []place
	}
	// found has room for one. Damage that is found while one waits there is counted and in the log,
	// and raises the same alarm.
	found chan struct{}
	// loggedAt is when an error of a read was last logged, unix nanoseconds.
	loggedAt atomic.Int64
	logger   *slog.Logger
}

type place struct {
	file        string
	offset, end int64
}

// New returns Places without damage.
func New(logger *slog.Logger) *Places {
	return &Places{found: make(chan struct{}, 1), logger: logger}
}

// near reports whether two places are one.
func (p place) near(o place) bool {
	return p.file == o.file && p.offset < o.end+samePlace && o.offset < p.end+samePlace
}

// add adds the place that an error names, and reports whether it is new.
func (d *Places) add(err error) bool {
	var p place
	var path *fs.PathError
	if c, ok := errors.AsType[*history.CorruptError](err); ok {
		p = place{c.File, c.Offset, c.Offset + c.Length}
	} else if errors.As(err, &path) {
		p.file = path.Path
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, o := range d.mu.list {
		if p.near(o) {
			d.mu.list[i].offset, d.mu.list[i].end = min(o.offset, p.offset), max(o.end, p.end)
			return false
		}
	}
	if len(d.mu.list) == mostPlaces {
		return false
	}
	d.mu.list = append(d.mu.list, p)
	return true
}

// Count returns how many places there are, at most mostPlaces.
func (d *Places) Count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.mu.list)
}

// Forget forgets all places.
func (d *Places) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.list = nil
}

// Found receives when damage was found. One goroutine raises the alarm for it.
func (d *Places) Found() <-chan struct{} { return d.found }

// Report makes Found receive: damage was found, or its alarm could not be raised yet.
func (d *Places) Report() {
	select {
	case d.found <- struct{}{}:
	default:
	}
}

// Note counts, logs and reports an error that is damage on disk. It returns err.
func (d *Places) Note(err error) error {
	if !vfs.Unreadable(err) {
		return err
	}
	d.add(err)
	// A client may ask for the same again and again.
	if onceASecond(&d.loggedAt) {
		d.log(err)
	}
	d.Report()
	return err
}

func (d *Places) log(err error) {
	d.logger.Error("data on disk is damaged; it is not served", slog.Any("error", err))
}

// ErrUnreadable replaces an error about the files of this member for callers.
var ErrUnreadable = errors.New("replica: a file could not be read; the log of the member has the " +
	"cause")

// Translate returns the error that a client sees of a read of the store. Damage is noted; a lack of
// resources rejects the read; other errors of file operations are logged, since clients must not
// see the names of files. The rest is returned as it is.
func (d *Places) Translate(err error) error {
	if vfs.CauseOf(err) == vfs.Damage {
		_ = d.Note(err)
		return kv.ErrCorrupt
	}
	err = vfs.MarkShortage(err)
	var path *fs.PathError
	var link *os.LinkError
	if kv.Shortage(err) || !errors.As(err, &path) && !errors.As(err, &link) {
		return err
	}
	if onceASecond(&d.loggedAt) {
		d.logger.Error("the store could not be read", slog.Any("error", err))
	}
	return ErrUnreadable
}

// onceASecond reports whether a second has passed since it last did.
func onceASecond(last *atomic.Int64) bool {
	was, now := last.Load(), time.Now().UnixNano()
	return now-was >= int64(time.Second) && last.CompareAndSwap(was, now)
}
