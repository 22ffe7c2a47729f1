// Package install replaces the store of a member by the state of a snapshot that was received.
package install

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/replica/apply"
	"vigil/internal/member/replica/handle"
	"vigil/internal/member/replica/transfer"
	"vigil/internal/state/fsm"
	"vigil/internal/store/history"
	"vigil/internal/vfs"
)

// Receiver is the receiver of snapshots.
type Receiver interface {
	// SetInstalling notes whether the store is being replaced, NoteInstalled that a state serves.
	SetInstalling(bool)
	NoteInstalled(at history.Applied)
}

// Options configure an Installer. All fields are required.
type Options struct {
	Current  *handle.Current
	Receiver Receiver
	Place    transfer.Place
	// History are the options of the store.
	History history.Options
	// Load reads the index and the state machine of a store.
	Load func(*history.Log) (*handle.Handle, *fsm.Machine, error)
	// Stall notes while the installation waits for what the system lacks.
	Stall interface {
		Begin(err error, applied, committed uint64)
		End(committed func() uint64)
	}
	Applied interface{ Load() uint64 }
	// Committed returns the newest index that is known to be committed.
	Committed func() uint64
	// Stopping is closed when the member stops.
	Stopping <-chan struct{}
	Logger   *slog.Logger
}

// Installer replaces the store. It implements apply.Installer, and belongs to the apply stage.
type Installer struct {
	o Options
	// The installation under way.
	began     time.Time
	at        history.Applied
	old, next *handle.Handle
	// removal is the goroutine that closes and removes a store that was replaced.
	removal sync.WaitGroup
}

// New returns an Installer.
func New(o Options) *Installer { return &Installer{o: o} }

// Close waits until a store that was replaced is closed and removed.
func (i *Installer) Close() { i.removal.Wait() }

// Open retires the present store, puts the received state of a position in its place, and returns
// its state machine. Readers go on with the old store. Its error is apply.ErrStopped, or final.
func (i *Installer) Open(at history.Applied) (_ *fsm.Machine, err error) {
	i.o.Receiver.SetInstalling(true)
	defer func() {
		if err != nil {
			i.o.Receiver.SetInstalling(false)
		}
	}()
	i.began, i.at, i.old = time.Now(), at, i.o.Current.Load()
	i.removal.Wait() // of the store that the last snapshot replaced
	i.old.Retire()
	i.old.Store.Close()
	i.old.Log.Retire()
	fail := func(err error) (*fsm.Machine, error) {
		return nil, fmt.Errorf("replica: installing the snapshot at index %d: %w", at.Index, err)
	}
	log, err := i.moveIn(at)
	if errors.Is(err, apply.ErrStopped) {
		return nil, err
	}
	if err != nil {
		return fail(err)
	}
	if got := log.Applied(); got != at {
		err := fmt.Errorf("the store is at index %d of term %d", got.Index, got.Term)
		return fail(errors.Join(err, log.Close()))
	}
	next, machine, err := i.o.Load(log)
	if err != nil {
		return fail(errors.Join(err, log.Close()))
	}
	i.next = next
	return machine, nil
}

// moveIn replaces the store by the received state and opens it. Nothing else can be applied, so it
// waits while space, file descriptors or memory are short. Its error is apply.ErrStopped, or final.
func (i *Installer) moveIn(at history.Applied) (*history.Log, error) {
	defer i.o.Stall.End(i.o.Committed)
	for {
		err := i.o.Place.Swap(at)
		if err == nil {
			var log *history.Log
			if log, err = history.Open(i.o.History); err == nil {
				return log, nil
			}
		}
		short := vfs.MarkShortage(err)
		if !kv.Shortage(short) {
			return nil, err
		}
		i.o.Stall.Begin(fmt.Errorf("installing a snapshot: %w", short), i.o.Applied.Load(),
			i.o.Committed())
		select {
		case <-time.After(apply.RetryPause):
		case <-i.o.Stopping:
			return nil, apply.ErrStopped
		}
	}
}

// Serve lets reads see the new state, and returns its newest revision.
func (i *Installer) Serve() int64 {
	i.o.Current.Replace(i.next)
	return i.next.Store.Revision()
}

// Finish ends the installation, and removes the old store in the background.
func (i *Installer) Finish() {
	i.o.Receiver.NoteInstalled(i.at)
	i.o.Logger.Info("installed a snapshot", slog.Uint64("index", i.at.Index),
		slog.Int64("revision", i.next.Store.Revision()),
		slog.Int64("compact-revision", i.next.Store.CompactRevision()),
		slog.Duration("took", time.Since(i.began)))
	i.o.Receiver.SetInstalling(false)
	old := i.old
	i.old, i.next = nil, nil
	i.removal.Go(func() {
		if err := errors.Join(old.Log.Close(), i.o.Place.RemoveOld()); err != nil {
			i.o.Logger.Warn("the store that a snapshot replaced is not gone yet; the next start "+
				"removes it", slog.Any("error", err))
		}
	})
}
