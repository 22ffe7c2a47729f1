package archiver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"vigil/internal/bucket"
	"vigil/internal/debugpage"
	"vigil/internal/store/archive"
)

// Archiver archives for its member. It is safe for concurrent use.
type Archiver struct {
	o     Options
	guard guard
	// changed signals that an order has arrived. Its capacity is one.
	changed chan struct{}
	leader  leader

	mu struct {
		sync.Mutex
		bucket bucket.Bucket
		// identity is the identity of the archive, nil until this member has read it. refused is
		// the reason for not writing to the bucket. vacant: the bucket is reachable and has no
		// archive.
		identity *archive.Identity
		refused  error
		vacant   bool
		// foreign is the time at which a session refused the history in the archive, zero if none
		// did. Only a session can accept it again, for instance after the bucket was replaced: the
		// outcome does not change unless the objects or the lineage do.
		foreign time.Time

		// order is the newest order. orders counts the orders that appointed this member. until is
		// the end of the appointment.
		order  order
		orders uint64
		until  time.Time

		marks marks
		// archived is the position up to which the archive archivedIn is complete, if known is set.
		// Its time is unused.
		archived   mark
		archivedIn archive.ID
		known      bool

		failures [works]failure

		session bool
		base    *archive.Base
		gap     debugpage.ArchiveGap
	}
	counters counters
}

// counters count since the start of the process.
type counters struct {
	objects, bytes, entries, failures, bases, gaps atomic.Uint64
	contents                                       atomic.Uint64
}

// New returns an Archiver. Run begins its work.
func New(o Options) (*Archiver, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	a := &Archiver{o: o, changed: make(chan struct{}, 1)}
	a.leader.init()
	return a, nil
}

// Run archives until ctx ends. It returns within a few seconds after that, whatever the bucket
// does.
func (a *Archiver) Run(ctx context.Context) {
	var wg sync.WaitGroup
	duties := []func(context.Context){a.lead}
	if a.o.Open != nil {
		duties = append(duties, a.sampleMoments, a.watchBucket, a.runSessions)
	}
	for _, run := range duties {
		wg.Go(func() { run(ctx) })
	}
	wg.Wait()
	a.closeBucket()
}

// sampleInterval is the time between two recorded moments.
const sampleInterval = 500 * time.Millisecond

// sampleMoments records a moment in each sampleInterval.
func (a *Archiver) sampleMoments(ctx context.Context) {
	for a.markNow(); wait(ctx, sampleInterval); {
		a.markNow()
	}
}

// markNow records the present moment and returns it.
func (a *Archiver) markNow() mark {
	at, revision := a.o.Source.Position()
	m := mark{at.Index, revision, time.Now()}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.marks.add(m)
	return m
}

// wait waits for a time. It returns false if ctx has ended.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// acceptOrder handles an order for this member, and returns the member's report.
func (a *Archiver) acceptOrder(o order) report {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o.term >= a.mu.order.term {
		a.mu.order = o
		// An order that names another member, or none yet, does not end the appointment at once:
		// this member goes on while its successor reads the archive.
		if o.appointee == a.o.MemberID && a.o.Open != nil {
			a.mu.orders++
			a.mu.until = time.Now().Add(appointment)
		}
		if o.archived > 0 {
			a.noteArchivedLocked(o.id, o.archived)
		}
		select {
		case a.changed <- struct{}{}:
		default:
		}
	}
	return a.reportLocked()
}

func (a *Archiver) reportLocked() report {
	now := time.Now()
	at, _ := a.o.Source.Position()
	r := report{
		has: a.o.Open != nil, appointed: now.Before(a.mu.until), ready: a.readyLocked(now),
		vacant: a.mu.identity == nil && a.mu.vacant,
		first:  a.o.Source.FirstIndex(), applied: at.Index,
		id: a.mu.archivedIn, archived: a.mu.archived.index, revision: a.mu.archived.revision,
		known: a.mu.known,
	}
	if a.mu.refused != nil {
		r.text = oneLine(a.mu.refused.Error())
	}
	if f := a.failingLocked(); f != nil {
		r.failing, r.text = now.Sub(f.since), f.text
	}
	return r
}

// readyLocked reports whether this member may be appointed. After some time it checks a refused
// history again.
func (a *Archiver) readyLocked(now time.Time) bool {
	if a.mu.refused != nil && (a.mu.foreign.IsZero() || now.Sub(a.mu.foreign) < refusedInterval) {
		return false
	}
	return a.mu.identity != nil || a.mu.vacant
}

// noteArchivedLocked notes that an archive needs nothing up to an index. It ignores other archives:
// while --archive changes member by member, another member may use another one.
func (a *Archiver) noteArchivedLocked(id archive.ID, index uint64) {
	if a.mu.identity != nil && a.mu.identity.Archive != id {
		return
	}
	a.o.Hold.noteArchived(index)
	same := a.mu.known && a.mu.archivedIn == id
	if same && index <= a.mu.archived.index {
		return
	}
	m, _ := a.mu.marks.below(index)
	if same {
		m.revision = max(m.revision, a.mu.archived.revision)
	}
	a.mu.archived, a.mu.archivedIn, a.mu.known = mark{index: index, revision: m.revision}, id, true
}

// Handle answers a call of the leader (calls.Archive). It fails if the call is malformed.
func (a *Archiver) Handle(payload []byte) ([]byte, error) {
	o, err := decodeOrder(payload)
	if err != nil {
		return nil, err
	}
	r := a.acceptOrder(o)
	return r.encode(), nil
}

// appointed reports whether this member is to archive now.
func (a *Archiver) appointed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Before(a.mu.until)
}

// errNotAppointed ends a session.
var errNotAppointed = errors.New("archiver: another member archives")

// runSessions archives while this member is appointed.
func (a *Archiver) runSessions(ctx context.Context) {
	b := backoff{}
	for {
		for !a.appointed() {
			select {
			case <-a.changed:
			case <-ctx.Done():
				return
			}
			b = backoff{}
		}
		began, err := a.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if began {
			b = backoff{}
		}
		if !errors.Is(err, errNotAppointed) {
			a.noteFailure(sending, "archiving", err)
			if !wait(ctx, b.next()) {
				return
			}
		}
	}
}

// backoff is the pause after failures.
type backoff struct{ last time.Duration }

// maxPause is the longest pause after a failure.
const maxPause = 5 * time.Second

func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, 250*time.Millisecond), maxPause)
	return b.last
}

// activity is a task that fails or succeeds on its own: bases may fail while entries are sent.
type activity int

const (
	sending activity = iota
	basing
	appointing // on the leader
	works
)

// failure says why an activity fails and since when. The zero value means that it does not.
type failure struct {
	since, logged time.Time
	text          string
}

// failingLocked returns the failure that has lasted longest, nil for none.
func (a *Archiver) failingLocked() (worst *failure) {
	for i := range a.mu.failures {
		if f := &a.mu.failures[i]; !f.since.IsZero() &&
			(worst == nil || f.since.Before(worst.since)) {
			worst = f
		}
	}
	return worst
}

// noteFailure notes an error of the archive, and logs it if it is new.
func (a *Archiver) noteFailure(in activity, what string, err error) {
	if in != appointing { // choosing a member does not use the bucket
		a.counters.failures.Add(1)
	}
	text := oneLine(fmt.Sprintf("%s: %v", what, err))
	a.mu.Lock()
	defer a.mu.Unlock()
	f, now := &a.mu.failures[in], time.Now()
	if f.since.IsZero() {
		f.since = now
	}
	if text != f.text || now.Sub(f.logged) > time.Minute {
		a.o.Logger.Warn("the archive fails; it is tried again", slog.String("archive", a.o.Address),
			slog.String("error", text))
		f.logged = now
	}
	f.text = text
}

// noteSuccess notes that the bucket works for an activity.
func (a *Archiver) noteSuccess(in activity) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if since := a.mu.failures[in].since; !since.IsZero() {
		a.o.Logger.Info("the archive works again", slog.String("archive", a.o.Address),
			slog.Duration("after", time.Since(since)))
	}
	a.mu.failures[in] = failure{}
}

// noteIdle notes that this member no longer tries an activity.
func (a *Archiver) noteIdle(in activity) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.failures[in] = failure{}
}

// maxText limits texts of errors.
const maxText = 500

// oneLine returns a text on one line of limited length.
func oneLine(s string) string {
	b := []byte(s[:min(len(s), maxText)])
	for i, c := range b {
		if c < ' ' || c == 0x7f {
			b[i] = ' '
		}
	}
	return string(b)
}
