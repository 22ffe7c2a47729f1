package check

import (
	"fmt"
	"slices"
	"time"
)

// PermitSpan is a time in which a user certainly had a permission, or certainly had not: the change
// before it was acknowledged at From, and the one after it was not called before To. What has a
// later revision than FromRev happened after the change before it; FromRev is 0 if that is not
// known.
type PermitSpan struct {
	User     string
	Allowed  bool
	From, To time.Duration
	FromRev  int64
}

// Access is an operation that needs the permission: a write of Value, or a linearizable read if
// that is empty. A refused operation was answered that the user has no permission.
type Access struct {
	User, Value string
	Call, Ret   time.Duration
	Outcome     outcome
	Err         string
}

func (s *PermitSpan) String() string {
	return fmt.Sprintf("%s allowed %t from %v, revision %d, to %v", s.User, s.Allowed, s.From,
		s.FromRev, s.To)
}

func (a *Access) String() string {
	return fmt.Sprintf("access of %s value %q, called %v returned %v: %s %s", a.User, a.Value,
		a.Call, a.Ret, a.Outcome, a.Err)
}

// CheckPermits checks that no user did what it had no permission for, and that none was refused
// what it had permission for. A write of unknown outcome happened before a watcher received it. A
// write that was called while there was a permission must not happen when there is none any more:
// its revision shows that. An acknowledged write is in the history, and each write at most once.
func CheckPermits(h *History, all []Access, spans []PermitSpan) Violations {
	var v Violations
	seen, revs := map[string]time.Duration{}, map[string]int64{}
	for _, r := range h.Revs {
		for _, e := range r.Events {
			if !e.Deleted {
				if revs[e.Value] != 0 &&
					slices.ContainsFunc(all,
						func(a Access) bool { return a.Value != "" && a.Value == e.Value }) {
					v.Add("revisions %d and %d are the same write of a user: %v",
						revs[e.Value], e.Mod, e)
				}
				seen[e.Value], revs[e.Value] = r.Seen, e.Mod
			}
		}
	}
	by := map[string][]PermitSpan{}
	for _, s := range spans {
		by[s.User] = append(by[s.User], s)
	}
	for n := range all {
		a := &all[n]
		when, happened := seen[a.Value]
		happened = happened && a.Value != ""
		rev := int64(0)
		if happened {
			rev = revs[a.Value]
		}
		if a.Outcome == Acked && a.Value != "" && !happened {
			v.Add("an acknowledged write of a user is lost: %v", a)
		}
		if a.Outcome == Refused && happened {
			v.Add("a write was made that was refused for want of permission: %v", a)
		}
		if a.Outcome == Acked && (!happened || a.Ret < when) {
			when, happened = a.Ret, true
		}
		for i := range by[a.User] {
			s := &by[a.User][i]
			switch {
			case s.FromRev > 0 && rev > s.FromRev && !s.Allowed && when < s.To:
				v.Add("a role was exceeded at revision %d: %v: %v", rev, s, a)
			case s.From >= a.Call:
			case happened && !s.Allowed && when < s.To:
				v.Add("a role was exceeded: %v: %v", s, a)
			case a.Outcome == Refused && s.Allowed && a.Ret < s.To:
				v.Add("an operation was refused in spite of a permission: %v: %v", s, a)
			}
		}
	}
	return v
}
