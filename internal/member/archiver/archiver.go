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
	// changed has room for one: an order has arrived.
	changed chan struct{}
	leader  leader

	mu struct {
		sync.Mutex
		bucket bucket.Bucket
		// identity is that of the archive, nil while this member has not read it. refused is why
		// nothing is written to the bucket; vacant: the bucket is reachable and has no archive.
		identity *archive.Identity
		refused  error
		vacant   bool
		// foreign is when a session has refused the history in the archive, zero if none has. Only
		// a session can accept it again, for instance after the bucket was replaced: while the
		// objects and the lineage are what they are, the outcome is the same.
		foreign time.Time

		// order is the newest order, orders the number of those that appoint this member, until
		// when the appointment ends.
		order  order
		orders uint64
		until  time.Time

		marks marks
		// archived is up to where the archive archivedIn has what it needs, if known is set. Its
		// time is not used.
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

// Run works until ctx ends. It returns within a few seconds after that, whatever the bucket does.
func (a *Archiver) Run(ctx context.Context) {
	var wg sync.WaitGroup
	duties := []func(context.Context){a.lead}
	if a.o.Open != nil {
		duties = append(duties, a.sample, a.watchBucket, a.work)
	}
	for _, run := range duties {
		wg.Go(func() { run(ctx) })
	}
	wg.Wait()
	a.closeBucket()
}

// sampleInterval is how often a moment is remembered.
const sampleInterval = 500 * time.Millisecond

// sample remembers moments.
func (a *Archiver) sample(ctx context.Context) {
	for a.mark(); wait(ctx, sampleInterval); {
		a.mark()
	}
}

// mark remembers the present moment and returns it.
func (a *Archiver) mark() mark {
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

// accept takes an order for this member, and returns the member's report.
func (a *Archiver) accept(o order) report {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o.term >= a.mu.order.term {
		a.mu.order = o
		// An order that names another member, or none yet, does not end the appointment at once:
		// this member goes on while its successor finds out what is there.
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

// readyLocked reports whether this member may be appointed. A history that was refused is looked at
// again after some time.
func (a *Archiver) readyLocked(now time.Time) bool {
	if a.mu.refused != nil && (a.mu.foreign.IsZero() || now.Sub(a.mu.foreign) < refusedInterval) {
		return false
	}
	return a.mu.identity != nil || a.mu.vacant
}

// noteArchivedLocked notes that an archive needs nothing up to an index. While --archive is changed
// member by member, others may speak of another archive than this member's.
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

// Handle answers a call of the leader (calls.Archive). Errors: a malformed call.
func (a *Archiver) Handle(payload []byte) ([]byte, error) {
	o, err := decodeOrder(payload)
	if err != nil {
		return nil, err
	}
	r := a.accept(o)
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

// work archives while this member is appointed.
func (a *Archiver) work(ctx context.Context) {
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

// activity is what can fail by itself: while entries are sent, bases may fail all the time.
type activity int

const (
	sending activity = iota
	basing
	appointing // on the leader
	works
)

// failure is why an activity fails, and since when; the zero value if it does not.
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
	if in != appointing { // that is no operation on the bucket
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

// noteIdle notes that this member does not try an activity any more.
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
