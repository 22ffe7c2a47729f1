package scenario

import (
	"slices"

	"vigil/sim/world"
)

// Shrink returns a smaller plan that fails too: it leaves out faults and clients as long as there is a violation. Each
// try is a run; report is called after each.
func Shrink(g *world.Guest, p Plan, report func(Plan, Result)) Plan {
	fails := func(q Plan) bool {
		r := Run(g, q, nil)
		report(q, r)
		return len(r.Violations) > 0
	}
	// Large parts first, then single faults.
	for size := max(len(p.Faults)/2, 1); ; size /= 2 {
		for at := 0; at < len(p.Faults); {
			q := p
			q.Faults = slices.Delete(slices.Clone(p.Faults), at, min(at+size, len(p.Faults)))
			if fails(q) {
				p = q
			} else {
				at += size
			}
		}
		if size <= 1 {
			break
		}
	}
	for p.Clients > 1 {
		q := p
		q.Clients--
		if !fails(q) {
			break
		}
		p = q
	}
	return p
}
