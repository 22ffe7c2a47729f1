package replica

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/replica/freespace"
	"vigil/internal/member/replica/proposal"
	"vigil/internal/store/history"
	"vigil/internal/vfs"
)

const (
	// clearPercent is the part of the quota below which the alarm is cleared. The gap keeps a member
	// whose data is about as large as the quota from raising and clearing by turns.
	clearPercent = 90
	// prepareInterval is how often a segment of the raft log is tried for while the disk is full.
	prepareInterval = time.Second
	// scrubRetry bounds the pause after a round of the scrubber that could not read everything.
	scrubRetry = time.Minute
)

// space watches disk space, the quota, and damage on disk.
type space struct {
	r *Replica
	// trim is the compact revision that the store must be brought to before its live bytes count after a
	// start: math.MaxInt64 until it is known, 0 once they count. Stored by the keeper.
	trim atomic.Int64
	// sample is the size of the live data at the last tick.
	sample atomic.Pointer[sizeSample]
	// crossing is the size of live data when a request was last refused because it would cross the quota.
	crossing atomic.Int64
	// refusal is there while requests that were refused for it wait for the space monitor to raise the alarm.
	refusal atomic.Pointer[refusal]
	// waiting is there while entries that are committed cannot be applied for want of a resource.
	waiting atomic.Pointer[shortWait]
	// custody watches whether the files are where their paths lead.
	custody custody
	// gauge measures what is free on the disks of both logs.
	gauge *freespace.Gauge
	// wake wakes the space monitor. It has room for one.
	wake chan struct{}
	// damage has room for one: data on disk that cannot be read. Further damage that is found while
	// one waits is counted and in the log, and raises the same alarm.
	damage  chan error
	damaged damagePlaces
	logged  atomic.Int64 // when damage that a read met was last logged, unix nanoseconds
	// unread is when it was last logged that a segment could not be read, likewise.
	unread atomic.Int64
	// scrubbed are the bytes that the scrubber read, rounds how often it came to the end.
	scrubbed, rounds atomic.Uint64
}

// refusal is that of requests which would cross the quota. done is closed when the alarm was raised, or could not be.
type refusal struct{ done chan struct{} }

func (sp *space) init(r *Replica) {
	sp.r = r
	sp.gauge = freespace.New(r.cfg.FS, r.cfg.HistoryDir, r.cfg.WALDir)
	sp.wake = make(chan struct{}, 1)
	sp.damage = make(chan error, 1)
	sp.trim.Store(math.MaxInt64)
}

// sampleSpace measures how much room there is. The keeper calls it at every tick, so that requests are rejected or accepted
// again within that time.
func (sp *space) sampleSpace() {
	log, due := sp.r.handle().log, false
	if sp.counted() {
		due = sp.alarmDue(sp.sampleSize(log).live, false) != nil
	}
	// Asking makes the store try again to allocate.
	if sp.room(0, nil) == proposal.ErrUnmeasured {
		sp.gauge.Start() // for diskFull
	}
	if sp.r.raftLog.Room() != nil || due {
		sp.wakeMonitor()
	}
}

func (sp *space) wakeMonitor() {
	select {
	case sp.wake <- struct{}{}:
	default:
	}
}

// counted reports whether the live bytes of the store are what the quota is about. After a start entries
// are applied again, faster than the background carries out the compactions among them: until it has, what
// they free counts as live. It is for the keeper.
func (sp *space) counted() bool {
	trim := &sp.trim
	if trim.Load() == 0 {
		return true
	}
	select {
	case <-sp.r.ready:
	default:
		return false
	}
	store := sp.r.handle().store
	if trim.Load() == math.MaxInt64 {
		trim.Store(store.CompactRevision())
	}
	if store.Stats().Trimmed < trim.Load() {
		return false
	}
	trim.Store(0)
	return true
}

// sizeSample is what a store held at a moment.
type sizeSample struct {
	log            *history.Log
	live, appended int64
}

func (sp *space) sampleSize(log *history.Log) *sizeSample {
	s := &sizeSample{log: log, appended: log.Appended()}
	_, s.live = log.Size()
	sp.sample.Store(s)
	return s
}

// errQuota refuses a request that would cross the quota.
var errQuota = fmt.Errorf("replica: the quota: %w", kv.ErrNoSpace)

// quotaHolds reports whether the quota has room for n bytes. Nothing is refused by the sample of a tick: what compaction
// has freed since then counts.
func (sp *space) quotaHolds(n int64) bool {
	return n <= sp.quotaLeft(false) || n <= sp.quotaLeft(true)
}

// quotaLeft returns how many bytes may be added before the quota is reached. What was written since the last
// sample counts in full.
func (sp *space) quotaLeft(fresh bool) int64 {
	if sp.r.cfg.QuotaBytes <= 0 {
		return math.MaxInt64
	}
	// A batch that is committed meanwhile counts twice, and not never.
	applying := sp.r.queue.Applying()
	if sp.untrimmed() {
		return sp.r.cfg.QuotaBytes - applying // what the store holds does not count yet
	}
	log, s := sp.r.handle().log, sp.sample.Load()
	if fresh || s == nil || s.log != log {
		s = sp.sampleSize(log)
	}
	return sp.r.cfg.QuotaBytes - s.live - (log.Appended() - s.appended) - applying
}

// untrimmed reports whether the live bytes of the store do not count for the quota yet; see counted.
func (sp *space) untrimmed() bool {
	store := sp.r.handle().store
	return sp.trim.Load() != 0 && store.Stats().Trimmed < store.CompactRevision()
}

// awaitAlarm has the alarm raised for a request that the quota has no room for, and returns when that was done or
// tried: a client that was refused finds the alarm.
func (sp *space) awaitAlarm(ctx context.Context) {
	_, live := sp.r.handle().log.Size()
	sp.crossing.Store(live)
	fresh := &refusal{done: make(chan struct{})}
	s := fresh
	for !sp.refusal.CompareAndSwap(nil, fresh) {
		if s = sp.refusal.Load(); s != nil {
			break
		}
		s = fresh
	}
	sp.wakeMonitor()
	select {
	case <-s.done:
	case <-ctx.Done():
	case <-sp.r.stopping:
	}
}

// room returns why there is no room for n bytes that add to the store, with all that is under way: kv.ErrNoSpace for
// want of space, kv.ErrTooManyRequests for want of file descriptors or memory, nil while there is room. What is
// kept for requests that give space back does not count. free is what is free on the disks, nil if it is not known: if room depends
// on it, the error is proposal.ErrUnmeasured.
func (sp *space) room(n int64, free []int64) error {
	if err := sp.Shortage(); err != nil {
		return err
	}
	for i, log := range [...]interface{ Allocated() (bytes, kept int64) }{sp.r.handle().log, sp.r.raftLog} {
		// What fits into what a log has allocated leaves what is kept of it. More than that depends on a disk that has several
		// times as much free: what is taken on must be applied, and it is not known yet whether the log can allocate it. Both
		// logs may be on that disk, and batches leave gaps at the ends of segments.
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

// Shortage returns why a log cannot allocate, as room does. It implements proposal.Space: it asks no file system, so the raft
// goroutine may call it.
func (sp *space) Shortage() error {
	if sp.custody.declared.Load() != nil {
		return kv.ErrAway
	}
	return firstShortage(sp.r.handle().log.Room(), sp.r.raftLog.Room())
}

// Admit implements proposal.Space. Errors: errQuota, and those of room.
func (sp *space) Admit(n int64, free []int64) error {
	if !sp.quotaHolds(n) {
		return errQuota
	}
	return sp.room(n+sp.r.queue.Applying(), free)
}

// Measure implements proposal.Space. It waits no longer than a request for its result.
func (sp *space) Measure(ctx context.Context) ([]int64, error) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, sp.r.cfg.RequestTimeout)
	defer cancel()
	m := sp.gauge.Start()
	select {
	case <-m.Done():
		return m.Free(), nil
	case <-sp.r.stopping:
		return nil, kv.ErrStopped
	case <-ctx.Done():
		return nil, sp.r.ctxError(ctx.Err(), begun)
	}
}

// roomToFree is room for requests that give space back.
func (sp *space) roomToFree() error {
	if sp.custody.declared.Load() != nil {
		return kv.ErrAway
	}
	return firstShortage(sp.r.handle().log.RoomToFree(), sp.r.raftLog.RoomToFree())
}

// diskFull says that there is no room for want of space, by the last measurement.
func (sp *space) diskFull() bool { return errors.Is(sp.room(0, sp.gauge.Last()), kv.ErrNoSpace) }

// shortWait is that of a goroutine for what the system lacks.
type shortWait struct {
	since time.Time
	err   error
}

// beginWait notes that committed entries cannot be applied for want of a resource. It is for the apply goroutine, like endWait.
func (sp *space) beginWait(err error) {
	if sp.waiting.Load() != nil {
		return
	}
	sp.waiting.Store(&shortWait{time.Now(), err})
	next := "free it: what waits goes on by itself"
	switch {
	case errors.Is(err, kv.ErrAway):
		next = "put back the files of this member: what waits goes on by itself"
	case errors.Is(err, kv.ErrNoSpace):
		next = "remove files that are not of this member, or enlarge the volume: deletions and compactions wait too"
	}
	sp.r.cfg.Logger.Warn("nothing is applied: committed entries wait for what the system lacks", slog.Uint64("applied", sp.r.applied.Load()), slog.Uint64("committed", sp.r.node.Status().Committed),
		slog.Any("error", err), slog.String("next", next))
}

// endWait notes that entries are applied again.
func (sp *space) endWait() {
	if w := sp.waiting.Swap(nil); w != nil {
		sp.r.cfg.Logger.Info("committed entries are applied again", slog.Duration("waited", time.Since(w.since)),
			slog.Uint64("committed", sp.r.node.Status().Committed))
	}
}

// waits returns since when committed entries wait for disk space before they can be applied, and since when the raft log refuses
// entries for want of it; zero if they do not.
func (sp *space) waits() (apply, log time.Time) {
	if w := sp.waiting.Load(); w != nil && errors.Is(w.err, kv.ErrNoSpace) {
		apply = w.since
	}
	if since, err := sp.r.raftLog.Starved(); errors.Is(err, kv.ErrNoSpace) {
		log = since
	}
	return apply, log
}

// firstShortage returns what requests are refused with for the first shortage among errs. Another error of
// an allocation ahead refuses nothing: it is tried again.
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

// alarmDue returns the change that the alarm for want of space needs, nil for none; refused says that a request was
// refused because it would cross the quota. A member whose data have grown to the quota without a refusal, by what
// others wrote, raises the alarm only if no other member has: writes are stopped by any. The alarm is cleared when the
// data have really become less, and not because the request that was refused was large.
func (sp *space) alarmDue(live int64, refused bool) *kv.AlarmChange {
	own := kv.Alarm{MemberID: sp.r.memberID, Type: kv.AlarmNoSpace}
	quota := sp.r.cfg.QuotaBytes
	full := quota
	if at := sp.crossing.Load(); at > 0 {
		full = min(full, at)
	}
	switch raised := sp.r.Alarms.Raised(own); {
	case !raised && quota > 0 && (refused || live >= quota && !sp.r.Alarms.anyNoSpace()):
		return &kv.AlarmChange{Alarm: own}
	case raised && (quota <= 0 || live < full/100*clearPercent):
		return &kv.AlarmChange{Alarm: own, Clear: true}
	}
	return nil
}

// monitor is the space monitor goroutine: it does what takes time about space and damage, and proposes this
// member's alarms.
func (sp *space) monitor(ctx context.Context) {
	var prepared time.Time
	corrupt := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-sp.r.stopping:
			return
		case <-sp.damage:
			corrupt = true
		case <-sp.wake:
		}
		refusal := sp.refusal.Swap(nil)
		_, live := sp.r.handle().log.Size()
		if c := sp.alarmDue(live, refusal != nil); c != nil && (refusal != nil || sp.trim.Load() == 0) {
			sp.r.Alarms.Propose(ctx, c, slog.Int64("live-bytes", live), slog.Int64("quota-bytes", sp.r.cfg.QuotaBytes))
		}
		if refusal != nil {
			close(refusal.done)
		}
		if sp.r.raftLog.Room() != nil && time.Since(prepared) >= prepareInterval {
			if sp.r.raftLog.PrepareSpare() != nil {
				// Else recycle a segment that is no longer needed.
				if err := sp.r.shorten(true); err != nil {
					sp.r.fail(err)
					return
				}
			}
			prepared = time.Now()
		}
		if corrupt {
			own := kv.Alarm{MemberID: sp.r.memberID, Type: kv.AlarmCorrupt}
			corrupt = !sp.r.Alarms.Raised(own) && !sp.r.Alarms.Propose(ctx, &kv.AlarmChange{Alarm: own})
			if corrupt {
				sp.raiseDamage(nil) // tried again
			}
		}
	}
}

// raiseDamage reports unreadable data to the space monitor.
func (sp *space) raiseDamage(err error) {
	select {
	case sp.damage <- err:
	default:
	}
}

// errUnreadable is what callers see of an error that is about the files of this member.
var errUnreadable = errors.New("replica: a file could not be read; the log of the member has the cause")

// unreadable translates an error of a read of the store for the client. Damage is noted; a lack of resources rejects the
// read; other errors of file operations are logged, since clients must not see the names of files. The rest is returned as
// it is.
func (sp *space) unreadable(err error) error {
	if vfs.CauseOf(err) == vfs.Damage {
		_ = sp.noteDamage(err)
		return kv.ErrCorrupt
	}
	err = vfs.MarkShortage(err)
	var path *fs.PathError
	var link *os.LinkError
	if kv.Shortage(err) || !errors.As(err, &path) && !errors.As(err, &link) {
		return err
	}
	if due(&sp.logged) {
		sp.r.cfg.Logger.Error("the store could not be read", slog.Any("error", err))
	}
	return errUnreadable
}

// noteDamage returns an error of a read of the store. Damage is counted and logged, and raises the alarm.
func (sp *space) noteDamage(err error) error {
	if !vfs.Unreadable(err) {
		return err
	}
	sp.damaged.add(err)
	// A client may ask for the same again and again.
	if due(&sp.logged) {
		sp.logDamage(err)
	}
	sp.raiseDamage(err)
	return err
}

// due reports, once a second, that it is time for another line of the log.
func due(last *atomic.Int64) bool {
	was, now := last.Load(), time.Now().UnixNano()
	return now-was >= int64(time.Second) && last.CompareAndSwap(was, now)
}

func (sp *space) logDamage(err error) {
	sp.r.cfg.Logger.Error("data on disk is damaged; it is not served", slog.Any("error", err))
}

// source is the store as the hub reads it.
type source struct{ r *Replica }

func (s source) Revision() int64        { return s.r.handle().store.Revision() }
func (s source) CompactRevision() int64 { return s.r.handle().store.CompactRevision() }

func (s source) EventsIn(buf *kv.EventBuffer, from, to int64, maxBytes int) (events []kv.Event, next int64, err error) {
	events, err = onStore(context.Background(), s.r, func(h *handle) (ev []kv.Event, err error) {
		ev, next, err = h.store.EventsIn(buf, from, to, maxBytes)
		return ev, err
	})
	return events, next, err
}

func (s source) Get(key []byte, rev int64) ([]byte, error) {
	b, err := onStore(context.Background(), s.r, func(h *handle) ([]byte, error) { return h.store.Get(key, rev) })
	return b, err
}

// scrub is the scrubber goroutine.
func (sp *space) scrub(ctx context.Context) {
	h := sp.r.handle()
	s := h.log.NewScrubber(sp.r.cfg.ScrubBytesPerSecond)
	for {
		if now := sp.r.handle(); now != h {
			h, s = now, now.log.NewScrubber(sp.r.cfg.ScrubBytesPerSecond)
		}
		res, err := s.Next(ctx)
		if err != nil {
			return
		}
		if h.isRetired() {
			// Its names may be those of other files by now.
			select {
			case <-h.replaced:
			case <-ctx.Done():
				return
			}
			continue
		}
		if res.File != "" {
			sp.scrubbed.Add(uint64(res.Bytes))
			if res.Damage != nil {
				sp.damaged.add(res.Damage)
				sp.logDamage(res.Damage)
				sp.raiseDamage(res.Damage)
			}
			if res.Unread != nil && due(&sp.unread) {
				sp.r.cfg.Logger.Warn("the scrubber could not read a segment of the history and tries again in the next round",
					slog.String("file", res.File), slog.Any("error", res.Unread))
			}
			continue
		}
		pause := sp.r.cfg.ScrubPause
		if res.Skipped > 0 {
			pause = min(pause, scrubRetry)
		} else {
			sp.rounds.Add(1)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}
