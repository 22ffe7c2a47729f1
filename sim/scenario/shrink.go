package scenario

import (
	"reflect"
	"slices"
	"strings"
	"time"
)

// kindWords is the number of words that a kind of violation has.
const kindWords = 4

// KindOf returns the kind of a violation: its first words that are neither names nor values.
func KindOf(violation string) string {
	var out []string
	for _, w := range strings.Fields(violation) {
		if w = strings.Trim(w, ":,;."); w == "" || strings.ContainsAny(w, "0123456789/\"{}[]") {
			continue
		}
		if out = append(out, w); len(out) == kindWords {
			break
		}
	}
	return strings.Join(out, " ")
}

// Shrink returns a smaller plan for which fails is true as it is for p. It leaves out faults,
// clients and work, and shortens what remains, in an order in which the early steps make the later
// ones cheap. Fails is a run each time.
func Shrink(p Plan, fails func(Plan) bool) Plan {
	try := func(change func(q *Plan)) bool {
		q := p
		q.Faults, q.Work = slices.Clone(p.Faults), slices.Clone(p.Work)
		change(&q)
		if reflect.DeepEqual(p, q) || !fails(q) {
			return false
		}
		p = q
		return true
	}
	faults := func() {
		reduce(p.Faults, func(some []Fault) bool { return try(func(q *Plan) { q.Faults = some }) })
	}
	faults()
	try(func(q *Plan) { q.Faulty = min(q.Faulty, q.lastEnd()+time.Second) })
	try(func(q *Plan) { q.Clients = 1 })
	reduce(p.Work, func(some []string) bool { return try(func(q *Plan) { q.Work = some }) })
	for p.Workers > 1 && try(func(q *Plan) { q.Workers /= 2 }) {
	}
	for p.Watchers > 1 && try(func(q *Plan) { q.Watchers /= 2 }) {
	}
	try(func(q *Plan) { q.Places = q.Members })
	try(func(q *Plan) { q.resize(3) })
	for n := range p.Faults {
		for p.Faults[n].For > time.Millisecond && try(func(q *Plan) { q.Faults[n].For /= 4 }) {
		}
	}
	faults()
	try(func(q *Plan) { q.Faulty = min(q.Faulty, q.lastEnd()+time.Second) })
	return p
}

// reduce leaves out parts of a list, from all of it to single elements, as long as keep accepts the
// rest.
func reduce[T any](list []T, keep func([]T) bool) {
	for size := len(list); size > 0; size /= 2 {
		for at := 0; at < len(list); {
			rest := slices.Delete(slices.Clone(list), at, min(at+size, len(list)))
			if keep(rest) {
				list = rest
			} else {
				at += size
			}
		}
	}
}

// lastEnd is when the last fault ends.
func (p *Plan) lastEnd() (end time.Duration) {
	for _, f := range p.Faults {
		end = max(end, f.At+f.For)
	}
	return end
}

// resize changes the number of members. Faults of members that do not exist any more hit others.
func (p *Plan) resize(members int) {
	p.Members, p.Places = members, max(p.Places-p.Members, 0)+members
	for n := range p.Faults {
		if f := &p.Faults[n]; f.A >= members || f.B >= members {
			f.A, f.B = min(f.A, members-1), f.B%members
		}
	}
}
