package replica

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/replica/proposal"
	"vigil/internal/store/wal"
	"vigil/internal/vfs"
)

// A member whose files were moved or removed goes on with what it has open, and all that it acknowledges then is lost with its process.
// So it compares its directories and open files with what their paths lead to. DESIGN.md has the reasons for what follows:
//
//   - From the first difference on, the raft log takes nothing: the member acknowledges and votes for nothing, as if its disk hung.
//   - When the difference has lasted for some checks, writes are rejected with kv.ErrAway; those that wait for the raft log time out.
//   - Reads and snapshots go on: while the process lives, its open files have all data.
//   - When the same files are in their places again, everything goes on.
const (
	// custodyInterval is the time between two checks.
	custodyInterval = time.Second
	// custodyAgain is the time between two checks after one that found a difference, custodySure how many in a row must find one
	// before writes are rejected.
	custodyAgain = 200 * time.Millisecond
	custodySure  = 3
)

// custody watches whether the files of a member are in their places. A check may take as long as the disk does, so it has a goroutine
// of its own, one at a time.
type custody struct {
	running atomic.Bool
	// suspected is what the last check has found, declared what has lasted; nil if nothing is wrong.
	suspected, declared atomic.Pointer[error]

	// Owned by the keeper.
	checkedAt time.Time
	// Owned by the check.
	found    int       // checks in a row that have found a difference
	logged   string    // what the last line said
	loggedAt time.Time // and when
}

// away returns which files are not in their places, empty if all are. Clients may read it.
func (c *custody) away() string {
	p := c.declared.Load()
	if p == nil {
		return ""
	}
	if away, ok := errors.AsType[*vfs.AwayError](*p); ok {
		return away.Brief()
	}
	return kv.ErrAway.Error()
}

// startCustody starts a check if it is time for one. The keeper calls it at every tick.
func (sp *space) startCustody() {
	c, pause := &sp.custody, custodyInterval
	if c.suspected.Load() != nil {
		pause = custodyAgain
	}
	if time.Since(c.checkedAt) < pause || !c.running.CompareAndSwap(false, true) {
		return
	}
	c.checkedAt = time.Now()
	sp.r.background.Go(func() {
		defer c.running.Store(false)
		sp.noteCustody(sp.checkPlaces())
	})
}

// checkPlaces compares the files with their places.
func (sp *space) checkPlaces() error {
	if err := sp.r.raftLog.CheckPlaces(); err != nil {
		return err
	}
	h := sp.r.handle()
	if err := h.log.CheckPlaces(); err != nil && !h.isRetired() {
		return err
	}
	if sp.r.cfg.Lock == nil {
		return nil
	}
	switch renewed, err := sp.r.cfg.Lock.Keep(); {
	case errors.Is(err, kv.ErrAway):
		return err
	case renewed:
		sp.r.cfg.Logger.Warn("the lock of the data directory was removed or replaced, and is made again: never remove it, because two processes on the same data destroy them")
	}
	return nil
}

// noteCustody notes the result of a check.
func (sp *space) noteCustody(err error) {
	c := &sp.custody
	switch {
	case err == nil:
		c.found = 0
		c.suspected.Store(nil)
		if c.declared.Swap(nil) != nil {
			sp.r.cfg.Logger.Info("the files of this member are in their places again: accepting writes")
		}
		return
	case !errors.Is(err, kv.ErrAway):
		// It is not known. That they are back is not known either.
		p := c.suspected.Load()
		if p == nil {
			return
		}
		err = *p
	}
	c.found++
	c.suspected.Store(&err)
	if c.found < custodySure {
		return
	}
	first := c.declared.Swap(&err) == nil
	if text := err.Error(); first || text != c.logged && time.Since(c.loggedAt) > custodyInterval {
		c.logged, c.loggedAt = text, time.Now()
		next := "vigilctl doctor"
		if away, ok := errors.AsType[*vfs.AwayError](err); ok {
			next = away.Next()
		}
		sp.r.cfg.Logger.Error("the files of this member are not in their places: it accepts no writes", slog.Any("error", err), slog.String("next", next))
	}
	if first {
		// What waits for the raft log need not wait until its time is up.
		sp.r.queue.Reject(kv.ErrAway, func(g *proposal.Group) error { return sp.r.TimeoutCause(g.Begun()) })
		// Another leader need not wait for this disk at the next write.
		sp.r.background.Go(func() { sp.r.Leadership.HandOver(context.Background()) })
	}
}

// guardedLog is the raft log of a member, which takes nothing while its files are not in their places.
type guardedLog struct {
	*wal.WAL
	custody *custody
}

func (l guardedLog) Append(batches ...wal.Batch) error {
	if p := l.custody.suspected.Load(); p != nil {
		return *p
	}
	return l.WAL.Append(batches...)
}
