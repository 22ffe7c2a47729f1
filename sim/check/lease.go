package check

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// LeasePrefix is that of the keys of leases. Only the end of a lease deletes them.
const LeasePrefix = "lease/"

// The kinds of calls about leases.
const (
	Grant     Kind = "grant"
	KeepAlive Kind = "keep-alive"
	Attach    Kind = "attach" // a put of a key with the lease, whose value is that of LeaseValue
	TimeLeft  Kind = "time left"
	Revoke    Kind = "revoke"
	// List lists the leases of one member, after it has answered a linearizable read.
	List Kind = "list"
)

// LeaseOp is a call about a lease. That of a keep-alive begins when the first attempt was sent.
type LeaseOp struct {
	Kind  Kind
	Lease int64
	// Client is the one that made the call, and At the slot of the only member that it uses,
	// counted from 1, or 0.
	Client, At int
	Key, Value string
	Call, Ret  time.Duration
	Outcome    outcome
	Err        string

	// The answer of an acknowledged call. Gone: there is no such lease.
	Gone bool
	// of grant and time left: the granted TTL; of keep-alive: the promised one
	TTL, Left time.Duration
	Rev       int64
	Keys      []string // of time left
	Leases    []int64  // of list
}

func (o *LeaseOp) String() string {
	return fmt.Sprintf("%s of lease %x, %s=%s, called %v returned %v: %s %s gone %t, TTL %v, left %v, revision %d, keys %v, %d leases",
		o.Kind, o.Lease, o.Key, o.Value, o.Call, o.Ret, o.Outcome, o.Err, o.Gone, o.TTL, o.Left,
		o.Rev, o.Keys, len(o.Leases))
}

// alive reports whether the call proves that the lease existed during it.
func (o *LeaseOp) alive() bool { return o.Outcome == Acked && !o.Gone && o.Kind != List }

// LeaseValue is the value of a key with a lease. Each has a number of its own.
func LeaseValue(lease int64, n int) string { return fmt.Sprintf("%x %d", uint64(lease), n) }

func leaseOf(value string) int64 {
	id, _, _ := strings.Cut(value, " ")
	n, _ := strconv.ParseUint(id, 16, 64)
	return int64(n)
}

// LeaseTerms is what the members promise about the time of leases.
type LeaseTerms struct {
	Clocks Clocks
	// Election is the election timeout.
	Election time.Duration
	// Stable is the time from which on one leader leads, without faults, and Late how much longer
	// than its TTL and an election timeout a lease can live then.
	Stable, Late time.Duration
}

// slack is how much earlier a lease may end if clocks differ: a leader promises a TTL within an
// election timeout after a quorum has confirmed it, which takes half as long again when its clock
// is the slowest and the next leader's the fastest, and the next leader adds one election timeout.
func (t *LeaseTerms) slack() time.Duration {
	if len(t.Clocks) == 0 {
		return 0
	}
	return t.Election / 2
}

// lease is what is known of one lease.
type lease struct {
	id       int64
	ttl      time.Duration
	granted  *LeaseOp
	renewed  []*LeaseOp // acknowledged grants and keep-alives
	revoked  *LeaseOp   // the first revocation that may have had an effect, nil without one
	gone     *LeaseOp   // the first answer that it does not exist
	lastSign *LeaseOp   // the last call that may have renewed it
	ended    int64      // the revision that deleted its keys, 0 for none
	seen     time.Duration
	keys     map[string]bool // that are attached
	states   []keysAt
}

// keysAt are the keys of a lease from a revision on.
type keysAt struct {
	rev  int64
	keys []string
}

// CheckLeases compares calls about leases with the history:
//
//  1. a lease does not end before the TTL since its grant and each acknowledged keep-alive was sent
//     has passed, by the fastest clock of the members, unless it was revoked; it ends soon after
//     it;
//  2. the end of a lease deletes all its keys, and no others, in one revision; a lease that has
//     ended does not exist again;
//  3. an acknowledged key is in the history once, and one that was rejected is not;
//  4. answers about its TTL and its keys, and the lists of all members, agree with that.
func CheckLeases(h *History, ops []LeaseOp, terms LeaseTerms) Violations {
	var v Violations
	leases := map[int64]*lease{}
	for n := range ops {
		if o := &ops[n]; o.Kind == Grant && o.Outcome == Acked {
			leases[o.Lease] = &lease{id: o.Lease, ttl: o.TTL, granted: o, keys: map[string]bool{}}
		}
	}
	for n := range ops {
		if l := leases[ops[n].Lease]; l != nil {
			l.learn(&ops[n])
		}
	}
	known := moments(ops)
	checkAttached(&v, h, ops)
	followKeys(&v, h, leases, &terms)
	for _, id := range slices.Sorted(maps.Keys(leases)) {
		l := leases[id]
		if l.gone != nil {
			l.checkEnd(&v, &terms, l.gone.Ret, l.gone)
			if keys := slices.Sorted(maps.Keys(l.keys)); len(keys) > 0 {
				v.Add("lease %x: it is gone, but its keys %v remain: %v", id, keys, l.gone)
			}
		}
		if l.revoked != nil && l.revoked.Outcome == Acked && l.ended == 0 && len(l.keys) > 0 {
			v.Add("lease %x: it was revoked, but its keys remain: %v", id, l.revoked)
		}
	}
	for n := range ops {
		o := &ops[n]
		switch l := leases[o.Lease]; {
		case o.Outcome != Acked:
		case o.Kind == List:
			checkList(&v, leases, o, &terms)
		case l != nil && o.alive():
			l.checkAlive(&v, h, o, known, &terms)
		}
	}
	return v
}

// checkAttached checks that no put of a key took effect twice, or although it was rejected.
func checkAttached(v *Violations, h *History, ops []LeaseOp) {
	at := map[string]int64{}
	for _, r := range h.Revs {
		for _, e := range r.Events {
			if e.Deleted || !strings.HasPrefix(e.Key, LeasePrefix) {
				continue
			}
			if at[e.Value] != 0 {
				v.Add("lease %x: a key was put twice, at revisions %d and %d: %v", leaseOf(e.Value),
					at[e.Value], e.Mod, e)
			}
			at[e.Value] = e.Mod
		}
	}
	for n := range ops {
		if o := &ops[n]; o.Kind == Attach && at[o.Value] != 0 && (o.Outcome == Refused || o.Gone) {
			v.Add("lease %x: a rejected key was put at revision %d: %v", o.Lease, at[o.Value], o)
		}
	}
}

// learn adds a call to what is known.
func (l *lease) learn(o *LeaseOp) {
	switch o.Kind {
	case Grant, KeepAlive:
		if o.alive() {
			l.renewed = append(l.renewed, o)
		}
		if o.Outcome != Refused && !o.Gone && (l.lastSign == nil || o.Ret > l.lastSign.Ret) {
			l.lastSign = o
		}
	case Revoke:
		if o.Outcome != Refused && !o.Gone && (l.revoked == nil || o.Call < l.revoked.Call) {
			l.revoked = o
		}
	}
	if o.Outcome == Acked && o.Gone && (l.gone == nil || o.Ret < l.gone.Ret) {
		l.gone = o
	}
}

// noteKeys records the attached keys as those from a revision on.
func (l *lease) noteKeys(rev int64) {
	if n := len(l.states); n > 0 && l.states[n-1].rev == rev {
		l.states = l.states[:n-1]
	}
	l.states = append(l.states, keysAt{rev, slices.Sorted(maps.Keys(l.keys))})
}

// keysAt returns the attached keys at a revision.
func (l *lease) keysAt(rev int64) []string {
	for _, s := range slices.Backward(l.states) {
		if s.rev <= rev {
			return s.keys
		}
	}
	return nil
}

// promised returns the renewal that promised the lease for a time, or nil.
func (l *lease) promised(at time.Duration, terms *LeaseTerms) *LeaseOp {
	for _, o := range l.renewed {
		if o.Call <= at && terms.Clocks.count(o.Call, at) < o.TTL-terms.slack() {
			return o
		}
	}
	return nil
}

// checkEnd checks that a lease could end before a time.
func (l *lease) checkEnd(v *Violations, terms *LeaseTerms, before time.Duration, what any) {
	if l.revoked != nil && l.revoked.Call <= before {
		return
	}
	if o := l.promised(before, terms); o != nil {
		v.Add("lease %x ended early: before %v, by %v, although it was promised by %v", l.id,
			before, what, o)
	}
}

// moments returns the revisions that were known to exist, with the times, in order of the times.
func moments(ops []LeaseOp) (out []keysTime) {
	for n := range ops {
		if o := &ops[n]; o.Kind == Attach && o.Outcome == Acked && !o.Gone {
			out = append(out, keysTime{o.Ret, o.Rev})
		}
	}
	slices.SortFunc(out, func(a, b keysTime) int { return int(a.at - b.at) })
	return out
}

type keysTime struct {
	at  time.Duration
	rev int64
}

// followKeys follows the keys of leases through the history.
func followKeys(v *Violations, h *History, leases map[int64]*lease, terms *LeaseTerms) {
	owner := map[string]*lease{}
	for n := range h.Revs {
		r, rev := &h.Revs[n], h.Base+1+int64(n)
		var ended *lease
		for _, e := range r.Events {
			if !strings.HasPrefix(e.Key, LeasePrefix) {
				continue
			}
			was := owner[e.Key]
			if was != nil {
				delete(was.keys, e.Key)
				was.noteKeys(rev)
			}
			delete(owner, e.Key)
			if e.Deleted {
				if was != nil && ended != nil && was != ended {
					v.Add("revision %d deletes keys of the leases %x and %x", rev, ended.id, was.id)
				}
				ended = was
				continue
			}
			l := leases[leaseOf(e.Value)]
			if l == nil {
				continue // its grant has no known outcome
			}
			if l.ended != 0 {
				v.Add("lease %x ended at revision %d, but got the key %s at revision %d", l.id,
					l.ended, e.Key, rev)
			}
			owner[e.Key], l.keys[e.Key] = l, true
			l.noteKeys(rev)
		}
		if ended == nil {
			continue
		}
		if slices.ContainsFunc(r.Events,
			func(e Event) bool { return !e.Deleted || !strings.HasPrefix(e.Key, LeasePrefix) }) {
			v.Add("revision %d deletes keys of lease %x, and changes others: %v", rev,
				ended.id, r.Events)
		}
		if len(ended.keys) > 0 {
			v.Add("revision %d deletes only a part of the keys of lease %x, without %v: %v", rev,
				ended.id, slices.Sorted(maps.Keys(ended.keys)), r.Events)
		}
		ended.ended, ended.seen = rev, r.Seen
		ended.checkEnd(v, terms, r.Seen, fmt.Sprintf("revision %d", rev))
	}
}

// checkAlive checks an answer of a lease that exists.
func (l *lease) checkAlive(v *Violations, h *History, o *LeaseOp, known []keysTime,
	terms *LeaseTerms) {
	if l.gone != nil && l.gone.Ret < o.Call {
		v.Add("lease %x exists again: %v after %v", l.id, o, l.gone)
	}
	if l.revoked != nil && l.revoked.Outcome == Acked && l.revoked.Ret < o.Call &&
		o.Kind != Revoke {
		v.Add("lease %x exists after its revocation: %v after %v", l.id, o, l.revoked)
	}
	if l.ended != 0 && l.seen < o.Call && o.Kind != Revoke {
		v.Add("lease %x exists after revision %d, which deleted its keys and was received at %v: %v", l.id, l.ended, l.seen, o)
	}
	last := max(terms.Stable, l.lastSign.Ret) + l.ttl + terms.Election + terms.Late
	if o.Call > last {
		v.Add("lease %x did not end by %v, after the last renewal %v: %v", l.id,
			last, l.lastSign, o)
	}
	switch o.Kind {
	case KeepAlive:
		if o.TTL != l.ttl {
			v.Add("lease %x was granted for %v: %v", l.id, l.ttl, o)
		}
	case Attach:
		if r := h.at(o.Rev); r == nil ||
			!slices.ContainsFunc(r.Events,
				func(e Event) bool { return e.Key == o.Key && e.Value == o.Value }) {
			v.Add("lease %x: an acknowledged key is lost: %v", l.id, o)
		}
	case Revoke:
		if keys := l.keysAt(o.Rev); len(keys) > 0 {
			v.Add("lease %x: its keys %v outlive its revocation: %v", l.id, keys, o)
		}
	case TimeLeft:
		l.checkTime(v, o, last, terms)
		l.checkKeys(v, o, known)
	}
}

// checkTime checks the TTL and the time left of a lease that ends at last.
func (l *lease) checkTime(v *Violations, o *LeaseOp, last time.Duration, terms *LeaseTerms) {
	if o.Call+o.Left > last {
		v.Add("lease %x has too much time, it ends by %v, after the last renewal %v: %v", l.id,
			last, l.lastSign, o)
	}
	if o.TTL != l.ttl || o.Left > l.ttl+terms.Election {
		v.Add("lease %x has too much time, it was granted for %v: %v", l.id, l.ttl, o)
	}
	for _, r := range l.renewed {
		// The answer is in whole seconds.
		if r.Ret <= o.Call &&
			o.Left < r.TTL-terms.Clocks.count(r.Call, o.Ret)-terms.slack()-time.Second {
			v.Add("lease %x has too little time, %v after %v", l.id, o, r)
		}
	}
}

// checkKeys checks that the keys of an answer are those at some revision since the call.
func (l *lease) checkKeys(v *Violations, o *LeaseOp, known []keysTime) {
	var floor int64
	for _, m := range known {
		if m.at < o.Call {
			floor = max(floor, m.rev)
		}
	}
	at := l.keysAt(floor)
	right := slices.Equal(at, o.Keys)
	for _, s := range l.states {
		right = right || s.rev > floor && slices.Equal(s.keys, o.Keys)
	}
	if !right {
		v.Add("lease %x had the keys %v at revision %d, and those of the answer neither then nor later: %v", l.id, at, floor, o)
	}
}

// checkList checks a list of a member: it has the leases that exist during the call, and none that
// has ended before it.
func checkList(v *Violations, leases map[int64]*lease, o *LeaseOp, terms *LeaseTerms) {
	for _, id := range slices.Sorted(maps.Keys(leases)) {
		l := leases[id]
		switch listed := slices.Contains(o.Leases, id); {
		case listed && (l.gone != nil && l.gone.Ret < o.Call || l.ended != 0 && l.seen < o.Call ||
			l.revoked != nil && l.revoked.Outcome == Acked && l.revoked.Ret < o.Call):
			v.Add("lease %x had ended, but a member lists it: %v", id, o)
		case !listed && l.granted.Ret < o.Call && (l.revoked == nil || l.revoked.Call > o.Ret):
			if p := l.promised(o.Ret, terms); p != nil {
				v.Add("lease %x exists, by %v, but a member does not list it: %v", id, p, o)
			}
		}
	}
}
