// Package space knows how many bytes a member may still accept: by its quota, its disks, and the
// space allocated on them.
//
// Room answers at once, for each request. Monitor does the slow work: it raises and clears the
// alarms of the member, and keeps room in the raft log.
package space

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/replica/freespace"
	"vigil/internal/member/replica/handle"
	"vigil/internal/member/replica/proposal"
	"vigil/internal/store/history"
)

// Log is a log that allocates space ahead of its writes.
type Log interface {
	// CheckRoom returns why the log cannot allocate, CheckRoomForRemovals why there is not even
	// room for requests that give space back.
	CheckRoom() error
	CheckRoomForRemovals() error
	// Allocated returns how many bytes are allocated, and how many of them are kept for requests
	// that give space back.
	Allocated() (bytes, kept int64)
}

// Custody tells whether the files of the member are in their places.
type Custody interface {
	// Err returns kv.ErrAway if they are not.
	Err() error
}

// RoomOptions configure a Room. All fields are required.
type RoomOptions struct {
	Current *handle.Current
	RaftLog Log
	Custody Custody
	// Gauge measures the disks of the history and of the raft log, in this order.
	Gauge *freespace.Gauge
	// QuotaBytes is the most live bytes of the store; 0 or less means no limit.
	QuotaBytes int64
	// Ready is closed when the member serves, Stopping when it stops.
	Ready, Stopping <-chan struct{}
	// RequestTimeout limits how long a request waits for a measurement.
	RequestTimeout time.Duration
}

// Room is the room that a member has. It implements proposal.Space.
type Room struct {
	o RoomOptions
	// trim is the compact revision that the store must be brought to before its live bytes count
	// after a start: math.MaxInt64 until it is known, 0 once they count. Stored by the caller of
	// Monitor.Tick.
	trim atomic.Int64
	// sample is the size of the live data at the last tick.
	sample atomic.Pointer[sizeSample]
}

// NewRoom returns a Room.
func NewRoom(o RoomOptions) *Room {
	r := &Room{o: o}
	r.Recount()
	return r
}

// Recount lets the live bytes of the store count only when all compactions are carried out that are
// applied at the next tick.
func (r *Room) Recount() { r.trim.Store(math.MaxInt64) }

// Counted reports whether the live bytes of the store count.
func (r *Room) Counted() bool { return r.trim.Load() == 0 }

// ErrQuota rejects a request that would cross the quota.
var ErrQuota = fmt.Errorf("replica: the quota: %w", kv.ErrNoSpace)

// ErrUnmeasured reports that a file system has not said in time how much is free.
var ErrUnmeasured = errors.New("replica: free space was not measured in time")

// updateCounted reports whether the live bytes of the store count for the quota. After a start
// entries are applied again, faster than the background carries out the compactions among them:
// until it has, the space that they free counts as live.
func (r *Room) updateCounted() bool {
	trim := &r.trim
	if trim.Load() == 0 {
		return true
	}
	select {
	case <-r.o.Ready:
	default:
		return false
	}
	store := r.o.Current.Load().Store
	if trim.Load() == math.MaxInt64 {
		trim.Store(store.CompactRevision())
	}
	if store.Stats().Trimmed < trim.Load() {
		return false
	}
	trim.Store(0)
	return true
}

// sizeSample is the size of a store at a moment.
type sizeSample struct {
	log            *history.Log
	live, appended int64
}

func (r *Room) sampleSize(log *history.Log) *sizeSample {
	s := &sizeSample{log: log, appended: log.Appended()}
	_, s.live = log.Size()
	r.sample.Store(s)
	return s
}

// quotaHolds reports whether the quota has room for n bytes. No request is rejected by the sample
// of a tick: space that a compaction has freed since then counts.
func (r *Room) quotaHolds(n int64, q proposal.Applying) bool {
	return n <= r.quotaLeft(q, false) || n <= r.quotaLeft(q, true)
}

// quotaLeft returns how many bytes may be added before the quota is reached. Bytes that were
// written since the last sample count in full.
func (r *Room) quotaLeft(q proposal.Applying, fresh bool) int64 {
	if r.o.QuotaBytes <= 0 {
		return math.MaxInt64
	}
	// A batch that is committed at the same time counts twice, and not never.
	applying := q.Applying()
	if r.untrimmed() {
		return r.o.QuotaBytes - applying // the bytes of the store do not count yet
	}
	log, s := r.o.Current.Load().Log, r.sample.Load()
	if fresh || s == nil || s.log != log {
		s = r.sampleSize(log)
	}
	return r.o.QuotaBytes - s.live - (log.Appended() - s.appended) - applying
}

// untrimmed reports whether the live bytes of the store do not count for the quota yet; see
// updateCounted.
func (r *Room) untrimmed() bool {
	store := r.o.Current.Load().Store
	return r.trim.Load() != 0 && store.Stats().Trimmed < store.CompactRevision()
}

// findRoom returns why there is no room for n bytes that add to the store, with all requests under
// way: kv.ErrNoSpace if space is short, kv.ErrTooManyRequests if file descriptors or memory are,
// nil while there is room. Space that is kept for requests that give space back does not count.
// free is the free space on the disks, nil if it is not known: if room depends on it, the error is
// proposal.ErrUnmeasured.
func (r *Room) findRoom(n int64, free []int64) error {
	if err := r.Shortage(); err != nil {
		return err
	}
	for i, log := range [...]Log{r.o.Current.Load().Log, r.o.RaftLog} {
		// A request that fits into the space that a log has allocated leaves the space that is kept
		// of it. More than that depends on a disk that has several times as much free: a request
		// that is accepted must be applied, and it is not known yet whether the log can allocate
		// space for it. Both logs may be on that disk, and batches leave gaps at the ends of
		// segments.
		switch bytes, kept := log.Allocated(); {
		case n+kept <= bytes:
		case free == nil:
			return proposal.ErrUnmeasured
		case 4*n+16*kept > free[i]:
			return kv.ErrNoSpace
		}
	}
	return nil
}

// Shortage returns why a log cannot allocate. It asks no file system, so a turn of raft may
// call it.
func (r *Room) Shortage() error {
	if err := r.o.Custody.Err(); err != nil {
		return err
	}
	return firstShortage(r.o.Current.Load().Log.CheckRoom(), r.o.RaftLog.CheckRoom())
}

// ShortageToFree returns why there is no room for requests that give space back.
func (r *Room) ShortageToFree() error {
	if err := r.o.Custody.Err(); err != nil {
		return err
	}
	return firstShortage(r.o.Current.Load().Log.CheckRoomForRemovals(),
		r.o.RaftLog.CheckRoomForRemovals())
}

// Admit returns why n bytes cannot be added to the store. Errors: ErrQuota, kv.ErrAway,
// kv.ErrNoSpace, kv.ErrTooManyRequests, proposal.ErrUnmeasured.
func (r *Room) Admit(n int64, q proposal.Applying, free []int64) error {
	if !r.quotaHolds(n, q) {
		return ErrQuota
	}
	return r.findRoom(n+q.Applying(), free)
}

// Measure returns how much is free on the disks. It waits no longer than a request for its result.
// Errors: from ctx, ErrUnmeasured, kv.ErrStopped.
func (r *Room) Measure(ctx context.Context) ([]int64, error) {
	timer := time.NewTimer(r.o.RequestTimeout)
	defer timer.Stop()
	m := r.o.Gauge.Start()
	select {
	case <-m.Done():
		return m.Free(), nil
	case <-r.o.Stopping:
		return nil, kv.ErrStopped
	case <-timer.C:
		return nil, ErrUnmeasured
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, ErrUnmeasured
		}
		return nil, ctx.Err()
	}
}

// DiskFull reports whether a lack of disk space leaves no room, by the last measurement.
func (r *Room) DiskFull() bool { return errors.Is(r.findRoom(0, r.o.Gauge.Last()), kv.ErrNoSpace) }

// firstShortage returns the error that rejects requests for the first shortage among errs. Another
// error of an allocation ahead rejects nothing: it is tried again.
func firstShortage(errs ...error) error {
	for _, err := range errs {
		switch {
		case errors.Is(err, kv.ErrNoSpace):
			return kv.ErrNoSpace
		case errors.Is(err, kv.ErrAway):
			return kv.ErrAway
		case kv.Shortage(err):
			return kv.ErrTooManyRequests
		}
	}
	return nil
}
