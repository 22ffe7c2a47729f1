package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Violations collects the first violations of the guarantees.
type Violations []string

func (v *Violations) Add(format string, args ...any) {
	if len(*v) < 50 {
		*v = append(*v, fmt.Sprintf(format, args...))
	}
}

// Check compares the answers to clients with the history, which must be complete:
//
//  1. revisions follow each other, and versions and creation revisions agree with the events
//     before; each key changes once in a revision, and the writes of listed keys happen once;
//  2. an acknowledged write is the change at its revision, and each change belongs to exactly one
//     operation;
//  3. a read, also that of a transaction whose condition failed, returned the state at its
//     revision;
//  4. revisions agree with the clock: an operation that was called after another one returned, or
//     after an event was received, has no earlier revision, and no event precedes the call of its
//     operation;
//  5. for each key alone, there is an order of the operations that explains their answers (see
//     model.go).
//
// It sets the revision of unknown outcomes from the history.
func Check(h *History, ops []Op, patience time.Duration) Violations {
	var v Violations
	t := h.Timeline()
	checkHistory(&v, h)
	revs := attribute(&v, h, ops)
	checkReads(&v, t, ops)
	checkOrder(&v, h, ops, revs)
	checkLinearizable(&v, h, ops, revs, patience)
	return v
}

func checkHistory(v *Violations, h *History) {
	now := map[string]Item{}
	listed := map[string]int64{} // the revisions of the values of listed keys
	for k, i := range h.Start {
		now[k] = i
	}
	for n, r := range h.Revs {
		rev := h.Base + 1 + int64(n)
		if len(r.Events) == 0 {
			v.Add("nothing happened at revision %d", rev)
		}
		for i, e := range r.Events {
			before, was := now[e.Key]
			switch {
			case slices.ContainsFunc(r.Events[:i], func(o Event) bool { return o.Key == e.Key }):
				v.Add("revision %d changes a key twice: %v", rev, r.Events)
			case e.Mod != rev:
				v.Add("an event of revision %d says %d: %v", rev, e.Mod, e)
			case e.Deleted && (!was || e.Version != 0):
				v.Add("a deletion of nothing at revision %d: %v", rev, e)
			case !e.Deleted && was && (e.Create != before.Create || e.Version != before.Version+1),
				!e.Deleted && !was && (e.Create != rev || e.Version != 1):
				v.Add("at revision %d %v follows %v", rev, e, before)
			}
			if e.Deleted {
				delete(now, e.Key)
				continue
			}
			now[e.Key] = e.Item
			if !strings.HasPrefix(e.Key, PagePrefix) {
				continue
			}
			if listed[e.Value] != 0 {
				v.Add("revisions %d and %d are the same write: %v", listed[e.Value], rev, e)
			}
			listed[e.Value] = rev
		}
	}
}

// attribute finds the operation of each revision and returns the revision of each write that took
// effect, also of writes with an unknown outcome, by index; 0 if it did not, or if a deletion
// of unknown outcome cannot be distinguished from another.
func attribute(v *Violations, h *History, ops []Op) []int64 {
	revs := make([]int64, len(ops))
	byRev := map[int64]*Op{}
	byValue := map[string]int{}
	deletes := map[string][]*Op{} // of unknown outcome
	for n := range ops {
		o := &ops[n]
		if !o.Writes() {
			continue
		}
		if o.Kind != Del {
			byValue[o.Value] = n
		} else if o.Outcome == Unknown {
			deletes[o.Key] = append(deletes[o.Key], o)
		}
		if o.Outcome == Acked && o.Wrote() {
			revs[n] = o.Rev
			if other := byRev[o.Rev]; other != nil {
				v.Add("revision %d was acknowledged twice: %v; %v", o.Rev, o, other)
			}
			byRev[o.Rev] = o
			r := h.at(o.Rev)
			if r == nil {
				v.Add("an acknowledged write is lost: the history ends at %d: %v", h.Last(), o)
			} else if !o.explains(r.Events) {
				v.Add("an acknowledged write is lost: at revision %d there is %v: %v",
					o.Rev, r.Events, o)
			}
		}
	}
	for n, r := range h.Revs {
		rev := h.Base + 1 + int64(n)
		if byRev[rev] != nil || len(r.Events) == 0 {
			continue // compared above
		}
		first := r.Events[0]
		if !slices.ContainsFunc(r.Events,
			func(e Event) bool { return strings.HasPrefix(e.Key, Prefix) }) {
			continue
		}
		if first.Deleted {
			all := deletes[first.Key]
			if i := slices.IndexFunc(all, func(o *Op) bool { return o.Call <= r.Seen }); i < 0 {
				v.Add("no operation made revision %d: %v", rev, r.Events)
			} else {
				deletes[first.Key] = slices.Delete(all, i, i+1)
			}
			continue
		}
		i, ok := byValue[first.Value]
		switch {
		case !ok:
			v.Add("no operation made revision %d: %v", rev, r.Events)
		case ops[i].Outcome != Unknown:
			v.Add("revision %d is by an operation whose answer contradicts it: %v: %v", rev,
				r.Events, &ops[i])
		case revs[i] != 0:
			v.Add("revisions %d and %d are both by %v", revs[i], rev, &ops[i])
		case !ops[i].explains(r.Events):
			v.Add("revision %d is not what was asked for: %v: %v", rev, r.Events, &ops[i])
		default:
			revs[i] = rev
		}
	}
	return revs
}

// explains reports whether the events are those of the operation.
func (o *Op) explains(events []Event) bool {
	keys := o.Keys()
	if len(keys) != len(events) {
		return false
	}
	for n, e := range events {
		if e.Key != keys[n] || e.Deleted != (o.Kind == Del) || !e.Deleted && e.Value != o.Value {
			return false
		}
	}
	return true
}

func checkReads(v *Violations, t *timeline, ops []Op) {
	for n := range ops {
		o := &ops[n]
		if o.Outcome != Acked {
			continue
		}
		rev := o.Rev
		switch {
		case o.Kind == Pinned:
			rev = o.Expect
		case o.Kind == Page && o.Page.Rev != 0:
			rev = o.Page.Rev
		}
		if rev > o.Rev {
			v.Add("it has a revision that the member did not have: %v", o)
		}
		if o.Wrote() {
			rev-- // what a write found was there before it
		}
		if rev > t.h.Last() {
			v.Add("it saw a revision that does not exist: %v", o)
			continue
		}
		if rev < t.h.Base {
			if o.Linearizable() && rev == o.Rev {
				v.Add("it saw a revision from before it was called: %v", o)
			}
			continue
		}
		switch o.Kind {
		case Get:
			compare(v, o, t.one(o.Key, rev))
		case Page:
			checkPage(v, t, o, rev)
		case Scan, Local, Pinned, Mirror:
			compare(v, o, slices.DeleteFunc(t.states(rev),
				func(i Item) bool { return !strings.HasPrefix(i.Key, Prefix) }))
		case Cas:
			was, _ := t.state(o.Key, rev)
			if o.Done != (was.Mod == o.Expect) {
				v.Add("the condition was judged wrongly, %v was there: %v", was, o)
			} else if !o.Done {
				compare(v, o, t.one(o.Key, rev))
			}
		case Del:
			if _, ok := t.state(o.Key, rev); ok != (o.Deleted == 1) {
				v.Add("the number of deleted keys is wrong: %v", o)
			}
		}
	}
}

func (t *timeline) one(key string, rev int64) []Item {
	if i, ok := t.state(key, rev); ok {
		return []Item{i}
	}
	return nil
}

func compare(v *Violations, o *Op, want []Item) {
	if !slices.Equal(o.Found, want) {
		v.Add("it found what was not there, want %v: %v", want, o)
	}
}

// checkOrder compares revisions with the clock.
func checkOrder(v *Violations, h *History, ops []Op, revs []int64) {
	// The moments at which a revision was known to exist, in order.
	type moment struct {
		at  time.Duration
		rev int64
		by  *Op
	}
	var known []moment
	// the write of each revision, later: the one up to it that was called last
	called := map[int64]*Op{}
	for n := range ops {
		o := &ops[n]
		if o.Outcome == Acked && o.Kind != Pinned {
			known = append(known, moment{o.Ret, o.Rev, o})
		}
		if revs[n] != 0 {
			called[revs[n]] = o
		}
	}
	for n, r := range h.Revs {
		rev := h.Base + 1 + int64(n)
		known = append(known, moment{r.Seen, rev, nil})
		if before := called[rev-1]; before != nil &&
			(called[rev] == nil || before.Call > called[rev].Call) {
			called[rev] = before
		}
	}
	slices.SortFunc(known, func(a, b moment) int { return int(a.at - b.at) })
	order := make([]int, len(ops))
	for n := range order {
		order[n] = n
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(ops[a].Call - ops[b].Call) })
	floor := moment{rev: h.Base}
	next := 0
	for _, n := range order {
		o := &ops[n]
		for ; next < len(known) && known[next].at < o.Call; next++ {
			if known[next].rev > floor.rev {
				floor = known[next]
			}
		}
		rev, least := o.Rev, floor.rev
		if revs[n] != 0 {
			rev, least = revs[n], floor.rev+1
		} else if o.Outcome != Acked {
			continue
		}
		if o.Linearizable() && rev < least {
			by := "a watcher"
			if floor.by != nil {
				by = floor.by.String()
			}
			v.Add("stale: revision %d was known at %v, by %s: %v", floor.rev, floor.at, by, o)
		}
		if w := called[rev]; w != nil && o.Outcome == Acked && w.Call > o.Ret {
			v.Add("it saw revision %d before one up to it was asked for by %v: %v", rev, w, o)
		}
	}
}

// CheckLocal checks serializable reads: the revision of one run of a member never decreases, and is
// not below that of an answer of this run to any client. check compares their results.
func CheckLocal(ops []Op) Violations {
	var v Violations
	type process struct{ member, run, client int }
	answers := map[process][]*Op{}
	var processes []process // in order of their first calls
	for n := range ops {
		o := &ops[n]
		if o.Outcome != Acked {
			continue
		}
		p := process{member: o.Member, run: o.Run}
		if o.Member < 0 {
			if !o.local() {
				continue // of any member
			}
			p.client = o.Client
		}
		if answers[p] == nil {
			processes = append(processes, p)
		}
		answers[p] = append(answers[p], o)
	}
	for _, p := range processes {
		all := answers[p]
		byRet := slices.SortedStableFunc(slices.Values(all),
			func(a, b *Op) int { return cmp.Compare(a.Ret, b.Ret) })
		slices.SortStableFunc(all, func(a, b *Op) int { return cmp.Compare(a.Call, b.Call) })
		var newest *Op
		for _, o := range all {
			for ; len(byRet) > 0 && byRet[0].Ret < o.Call; byRet = byRet[1:] {
				if newest == nil || byRet[0].Rev > newest.Rev {
					newest = byRet[0]
				}
			}
			if newest != nil && o.Rev < newest.Rev && (o.local() || o.Kind == Pinned) {
				v.Add("member %d went back: %v after %v", p.member, o, newest)
			}
		}
	}
	return v
}
