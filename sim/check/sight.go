package check

import (
	"fmt"
	"time"
)

// Sight is that the watch of a user received an event at a time, or was denied then.
type Sight struct {
	User   string
	At     time.Duration
	Denied bool
}

func (s *Sight) String() string {
	return fmt.Sprintf("watch of %s at %v: denied %t", s.User, s.At, s.Denied)
}

// noticing is how long after a change of permissions watches may still be as they were before: a
// member applies the change, and reviews its watchers then.
const noticing = time.Second

// CheckSights checks that no watch received an event while its user had no permission, nor was
// denied while it had it. Only what was certain for some time is judged, and only from a time on at
// which no member lags.
func CheckSights(sights []Sight, spans []PermitSpan, from time.Duration) Violations {
	var v Violations
	by := map[string][]PermitSpan{}
	for _, s := range spans {
		by[s.User] = append(by[s.User], s)
	}
	for n := range sights {
		s := &sights[n]
		for i := range by[s.User] {
			p := &by[s.User][i]
			if s.Denied == p.Allowed && s.At > max(p.From, from)+noticing && s.At < p.To {
				v.Add("a watch is not as permitted: %v: %v", p, s)
			}
		}
	}
	return v
}
