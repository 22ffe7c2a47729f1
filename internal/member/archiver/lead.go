package archiver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"vigil/internal/member/calls"
)

// leader holds a leader's knowledge of the other members.
type leader struct {
	// again, of capacity one, signals that the archiving member does not answer or has not got its
	// order yet.
	again chan struct{}
	mu    struct {
		sync.Mutex
		// term is the term in which this member leads; since is the time at which it learned that.
		term  uint64
		since time.Time
		// reports holds the newest report of each member, asking the members with a call under way,
		// silent the members whose last call failed.
		reports map[uint64]heard
		asking  map[uint64]bool
		late    map[uint64]bool // of asking: appointed since the call began
		silent  map[uint64]bool
		failed  map[uint64]time.Time
		// appointee is the member that archives, since appointed.
		appointee uint64
		appointed time.Time
		// outage: the bucket is away for all members.
		outage bool
		// warned: this member has logged that others have an archive and it has none.
		warned bool
	}
}

func (l *leader) init() {
	l.again = make(chan struct{}, 1)
	l.resetLocked(0)
}

func (l *leader) resetLocked(term uint64) {
	l.mu.term, l.mu.since, l.mu.appointee, l.mu.outage = term, time.Now(), 0, false
	l.mu.reports, l.mu.failed = map[uint64]heard{}, map[uint64]time.Time{}
	l.mu.asking, l.mu.late, l.mu.silent = map[uint64]bool{}, map[uint64]bool{}, map[uint64]bool{}
}

// lead appoints a member in every orderInterval while this member leads. It does so at once when
// the archiving member does not answer or has not got its order.
func (a *Archiver) lead(ctx context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		pause := orderInterval
		if term := a.o.Source.Leading(); term == 0 {
			a.leader.mu.Lock()
			if a.leader.mu.term != 0 {
				a.leader.resetLocked(0)
			}
			a.leader.mu.Unlock()
			a.noteIdle(appointing)
			if a.o.Open == nil {
				pause = askInterval
			}
		} else if !a.wanted(term) {
			// As far as this member knows, no member has an archive.
			pause = askInterval
			a.orderAll(ctx, &calls, order{term: term})
		} else if a.claimTerm(ctx, term) {
			a.orderAll(ctx, &calls, a.nextOrder(term))
		}
		select {
		case <-a.leader.again:
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// wanted reports whether a member has an archive.
func (a *Archiver) wanted(term uint64) bool {
	l := &a.leader
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.term != term {
		l.resetLocked(term)
	}
	if a.o.Open != nil {
		return true
	}
	for _, r := range l.mu.reports {
		if r.has {
			if !l.mu.warned {
				a.o.Logger.Warn("this member has no --archive and others have one: while it " +
					"leads it " +
					"appoints them and archives nothing itself; give all members the same " +
					"--archive")
			}
			l.mu.warned = true
			return true
		}
	}
	return false
}

// claimTerm claims the term, and reports whether the claim is applied. Before that, an entry of the
// term cannot be distinguished from one of another history.
func (a *Archiver) claimTerm(ctx context.Context, term uint64) bool {
	if s, _ := a.o.Source.Lineage(); s.Newest().Term == term {
		return true
	}
	limited, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	err := a.o.Source.Claim(limited, term)
	if s, _ := a.o.Source.Lineage(); s.Newest().Term == term {
		return true
	}
	if err != nil && ctx.Err() == nil && a.o.Source.Leading() == term {
		a.noteFailure(appointing, "claiming the term", err)
	}
	return false
}

// nextOrder makes an order.
func (a *Archiver) nextOrder(term uint64) order {
	o := order{term: term, appointee: a.appoint(term)}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.known {
		o.archived, o.id = a.mu.archived.index, a.mu.archivedIn
	}
	return o
}

// orderAll sends an order to every member.
func (a *Archiver) orderAll(ctx context.Context, wg *sync.WaitGroup, o order) {
	term := o.term
	a.noteReport(term, a.o.MemberID, a.acceptOrder(o))
	if a.o.Calls == nil {
		return
	}
	payload := o.encode()
	members := a.o.Source.Members()
	a.leader.forgetRemoved(term, members.IDs())
	for _, m := range members.Members() {
		if m.ID == a.o.MemberID || !a.leader.beginCall(term, m.ID) {
			continue
		}
		wg.Go(func() {
			defer a.leader.endCall(term, m.ID)
			limited, cancel := context.WithTimeout(ctx, answerWithin)
			defer cancel()
			b, err := a.o.Calls.Call(limited, m.ID, calls.Archive, payload)
			if err != nil {
				// A member that is away, or has no archive.
				a.leader.forget(term, m.ID)
				return
			}
			if r, err := decodeReport(b); err == nil {
				a.noteReport(term, m.ID, r)
			}
		})
	}
}

// forgetRemoved drops the reports of removed members.
func (l *leader) forgetRemoved(term uint64, members []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.term != term {
		return
	}
	maps.DeleteFunc(l.mu.reports,
		func(id uint64, _ heard) bool { return !slices.Contains(members, id) })
	maps.DeleteFunc(l.mu.silent,
		func(id uint64, _ bool) bool { return !slices.Contains(members, id) })
}

// beginCall notes a call to a member. It returns false if one is already under way.
func (l *leader) beginCall(term, id uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.term != term {
		return false
	}
	if l.mu.asking[id] {
		l.mu.late[id] = id == l.mu.appointee
		return false
	}
	l.mu.asking[id] = true
	return true
}

func (l *leader) endCall(term, id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.term != term {
		return
	}
	late := l.mu.late[id]
	delete(l.mu.asking, id)
	delete(l.mu.late, id)
	if late {
		l.wakeLocked()
	}
}

// wakeLocked lets a round of orders begin at once.
func (l *leader) wakeLocked() {
	select {
	case l.again <- struct{}{}:
	default:
	}
}

// forget drops the report of a member that does not answer, so that the leader appoints another one
// at once.
func (l *leader) forget(term, id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.term != term {
		return
	}
	delete(l.mu.reports, id)
	l.mu.silent[id] = true
	if id == l.mu.appointee {
		l.wakeLocked()
	}
}

// heardAllLocked reports whether each voter has answered or failed to, so that the leader can
// choose.
func (l *leader) heardAllLocked(voters []uint64) bool {
	return !slices.ContainsFunc(voters, func(id uint64) bool {
		_, ok := l.mu.reports[id]
		return !ok && !l.mu.silent[id]
	})
}

// noteReport records a member's report.
func (a *Archiver) noteReport(term, id uint64, r report) {
	l := &a.leader
	l.mu.Lock()
	current := l.mu.term == term
	if current {
		l.mu.reports[id] = heard{r, time.Now()}
		delete(l.mu.silent, id)
	}
	l.mu.Unlock()
	if current && r.known && r.appointed {
		a.mu.Lock()
		a.noteArchivedLocked(r.id, r.archived)
		a.mu.Unlock()
	}
}

// noteChoice notes that no member can archive, and why, once all have had time to reach the bucket.
func (a *Archiver) noteChoice(c *candidates, next uint64, leading time.Duration) {
	switch {
	case next != 0:
		a.noteSuccess(appointing)
		return
	case leading < unableAfter:
		return
	}
	text := "no member can archive"
	for _, id := range c.voters {
		r, ok := c.reports[id]
		why := "it has not answered"
		switch {
		case ok && !r.has:
			why = "it has no --archive"
		case ok && r.text != "":
			why = r.text
		case ok && r.ready:
			why = "it lags"
		case ok:
			why = "it has not reached the archive"
		}
		text += fmt.Sprintf("; member %x: %s", id, why)
	}
	a.noteFailure(appointing, "choosing", errors.New(text))
}

// appoint chooses the member to archive and returns it.
func (a *Archiver) appoint(term uint64) uint64 {
	c := candidates{self: a.o.MemberID}
	for _, m := range a.o.Source.Members().Members() {
		if !m.Learner {
			c.voters = append(c.voters, m.ID)
		}
	}
	a.mu.Lock()
	c.archived, c.known = a.mu.archived.index, a.mu.known
	a.mu.Unlock()
	l := &a.leader
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.term != term {
		l.resetLocked(term)
	}
	now := time.Now()
	if l.mu.appointee == 0 && !l.heardAllLocked(c.voters) && now.Sub(l.mu.since) < hearAllWithin {
		// one of them may be archiving, or be the only one with the entries
		return 0
	}
	// What a member reports may be the failure of an earlier appointment.
	if r, ok := l.mu.reports[l.mu.appointee]; ok && r.failing >= rotateAfter &&
		now.Sub(l.mu.appointed) >= rotateAfter &&
		now.Sub(l.mu.failed[l.mu.appointee]) >= rotateAfter {
		l.mu.failed[l.mu.appointee] = now
	}
	c.reports, c.current, c.failed = l.mu.reports, l.mu.appointee, l.mu.failed
	if r, ok := l.mu.reports[l.mu.appointee]; c.allFail(now) {
		l.mu.outage = true
	} else if l.mu.outage && ok && r.appointed && r.failing == 0 {
		// The bucket is back: the outage counts against no member.
		l.mu.outage = false
		clear(l.mu.failed)
	}
	next := c.choose(now)
	a.noteChoice(&c, next, now.Sub(l.mu.since))
	if next != l.mu.appointee {
		a.o.Logger.Info("appointed a member to archive", slog.String("member-id", hexText(next)),
			slog.String("before", hexText(l.mu.appointee)))
		l.mu.appointee, l.mu.appointed = next, now
	}
	return l.mu.appointee
}
