package peer

import (
	"errors"
	"syscall"
	"time"
)

// probePause is the shortest time between the two refusals that make a member count as absent. A
// live member whose connections were reset has dialed this one by then.
const probePause = 20 * time.Millisecond

// absence distinguishes a member whose process has ended from one that is slow or unreachable.
// Guarded by remote.mu.
type absence struct {
	// probing is set from the end of a stream until a dial shows why it may have ended. Dials then
	// do not wait for BackoffMin.
	probing bool
	// refused is the time of the first refused dial since a stream ended. Any other result of a
	// dial clears it.
	refused time.Time
	// reported is the last report to raft.
	reported bool
}

// noteEndLocked notes that a stream of messages with the member has ended, in one direction:
// earlier refusals say nothing about the reason. Only a stream that was open for BackoffMin is
// dialed again at once, so that members do not dial in a loop.
func (p *remote) noteEndLocked(l *link) {
	p.mu.absence.refused = time.Time{}
	if l != nil && time.Since(l.began) >= p.t.o.BackoffMin {
		p.mu.absence.probing = true
		select {
		case p.ended <- struct{}{}:
		default:
		}
	}
}

// noteDial notes the result of a dial for a stream of messages.
func (p *remote) noteDial(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := &p.mu.absence
	now := time.Now()
	switch {
	case !refusedEverywhere(err):
		a.refused, a.probing = time.Time{}, false
	case a.refused.IsZero():
		a.refused = now
	case now.Sub(a.refused) >= probePause:
		a.probing = false
		p.reportLocked(true)
	}
}

// reportLocked reports to raft whether the member is absent, if that has changed. A member is
// absent if its ports refuse connections and no stream of messages is open in either direction; one
// that was given up is not. The lock keeps the reports in order.
func (p *remote) reportLocked(refuses bool) {
	absent := refuses && p.ctx.Err() == nil && p.mu.link == nil && p.mu.in[kindMessages] == nil
	if absent != p.mu.absence.reported {
		p.mu.absence.reported = absent
		p.t.receivers.Raft.ReportAbsent(p.id, absent)
	}
}

// nextProbe returns how long to wait before the next dial. probing is set while the reason for the
// end of a stream is unknown.
func (p *remote) nextProbe() (wait time.Duration, probing bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := &p.mu.absence
	if a.probing && !a.refused.IsZero() {
		wait = probePause - time.Since(a.refused)
	}
	return wait, a.probing
}

// refusedEverywhere reports whether all dialed addresses refused: nothing listens at any of them. A
// host that is down, a program that does not accept, and a connection that is reset give other
// errors.
func refusedEverywhere(err error) bool {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range all.Unwrap() {
			if !refusedEverywhere(e) {
				return false
			}
		}
		return true
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
