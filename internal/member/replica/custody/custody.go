// Package custody watches whether the files of a member are in their places.
//
// A member whose files were moved or removed goes on with its open files, and everything that it
// acknowledges then is lost with its process. So the member compares its directories and open files
// with what their paths lead to. The DESIGN.md of package replica has the reasons:
//
//   - From the first difference on, the raft log takes nothing (Log): the member acknowledges and
//     votes for nothing, as if its disk hung.
//   - When the difference has lasted for some checks, it is declared: writes are rejected with
//     kv.ErrAway, and those that wait for the raft log end.
//   - Reads and snapshots go on: while the process lives, its open files have all data.
//   - When the same files are in their places again, everything goes on.
package custody

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/replica/handle"
	"vigil/internal/store/wal"
	"vigil/internal/vfs"
)

const (
	// interval is the time between two checks.
	interval = time.Second
	// again is the time between two checks after one that found a difference.
	again = 200 * time.Millisecond
	// Sure is how many checks in a row must find a difference before it is declared.
	Sure = 3
)

// Options configure a Watch. Lock may be nil.
type Options struct {
	RaftLog interface{ CheckPlaces() error }
	Current *handle.Current
	// Lock is the lock of the data directory.
	Lock   vfs.Keeper
	Logger *slog.Logger
}

// Watch knows whether the files of a member are in their places. A check may take as long as the
// disk does, so each runs on another goroutine, one at a time.
type Watch struct {
	o  Options
	mu struct {
		sync.Mutex
		running, closed bool
	}
	checks sync.WaitGroup
	// suspected is the difference that the last check has found, declared the one that has lasted;
	// nil if nothing is wrong.
	suspected, declared atomic.Pointer[error]

	// Owned by the caller of Due.
	checkedAt time.Time
	// Owned by the check.
	found    int       // checks in a row that have found a difference
	logged   string    // the text of the last line
	loggedAt time.Time // and its time
}

// New returns a Watch.
func New(o Options) *Watch { return &Watch{o: o} }

// Err returns kv.ErrAway while a difference is declared.
func (w *Watch) Err() error {
	if w.declared.Load() != nil {
		return kv.ErrAway
	}
	return nil
}

// Away returns which files are not in their places, empty if all are. Clients may read it.
func (w *Watch) Away() string {
	p := w.declared.Load()
	if p == nil {
		return ""
	}
	if away, ok := errors.AsType[*vfs.AwayError](*p); ok {
		return away.Brief()
	}
	return kv.ErrAway.Error()
}

// Due reports whether it is time for a check. Then Check must follow. One goroutine calls it
// regularly.
func (w *Watch) Due() bool {
	pause := interval
	if w.suspected.Load() != nil {
		pause = again
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.checkedAt) < pause || w.mu.running || w.mu.closed {
		return false
	}
	w.checkedAt, w.mu.running = time.Now(), true
	w.checks.Add(1)
	return true
}

// Check compares the files with their places. It returns true if a difference is declared now that
// was not before.
func (w *Watch) Check() (declared bool) {
	defer w.checks.Done()
	declared = w.Note(w.compare())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.running = false
	return declared
}

// Close lets no check begin any more, and waits for the one that runs.
func (w *Watch) Close() {
	w.mu.Lock()
	w.mu.closed = true
	w.mu.Unlock()
	w.checks.Wait()
}

// compare compares the files with their places.
func (w *Watch) compare() error {
	if err := w.o.RaftLog.CheckPlaces(); err != nil {
		return err
	}
	h := w.o.Current.Load()
	if err := h.Log.CheckPlaces(); err != nil && !h.IsRetired() {
		return err
	}
	if w.o.Lock == nil {
		return nil
	}
	switch renewed, err := w.o.Lock.Keep(); {
	case errors.Is(err, kv.ErrAway):
		return err
	case renewed:
		w.o.Logger.Warn("the lock of the data directory was removed or replaced, and is made " +
			"again: never remove it, because two processes on the same data destroy them")
	}
	return nil
}

// Note notes the result of a check, and returns true if a difference is declared now that was not
// before.
func (w *Watch) Note(err error) (declared bool) {
	switch {
	case err == nil:
		w.found = 0
		w.suspected.Store(nil)
		if w.declared.Swap(nil) != nil {
			w.o.Logger.Info("the files of this member are in their places again: accepting writes")
		}
		return false
	case !errors.Is(err, kv.ErrAway):
		// It is not known whether they are there. After a difference, it is not known that they are
		// back.
		p := w.suspected.Load()
		if p == nil {
			return false
		}
		err = *p
	}
	w.found++
	w.suspected.Store(&err)
	if w.found < Sure {
		return false
	}
	first := w.declared.Swap(&err) == nil
	if text := err.Error(); first || text != w.logged && time.Since(w.loggedAt) > interval {
		w.logged, w.loggedAt = text, time.Now()
		next := "vigilctl doctor"
		if away, ok := errors.AsType[*vfs.AwayError](err); ok {
			next = away.Next()
		}
		w.o.Logger.Error("the files of this member are not in their places: it accepts no writes",
			slog.Any("error", err), slog.String("next", next))
	}
	return first
}

// Log is the raft log of a member, which takes nothing while its files are not in their places.
type Log struct {
	*wal.WAL
	Watch *Watch
}

// Append appends batches, or returns the difference that the last check has found.
func (l Log) Append(batches ...wal.Batch) error {
	if p := l.Watch.suspected.Load(); p != nil {
		return *p
	}
	return l.WAL.Append(batches...)
}
