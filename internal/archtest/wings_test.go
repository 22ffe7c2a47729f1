package archtest

import (
	"strings"
	"testing"
)

// wings lists the parts of the tree from the top down: a package imports its own wing and later
// ones, as far as the import table allows. The small packages that every wing may use are in
// internal. The package client/pbfield belongs to the module of the client, and is below
// everything.
var wings = []string{"cmd", "examples", "scripts", "server", "client", "internal/member",
	"internal/offline", "internal/edge", "internal/state", "internal/store", "internal", "docs",
	"client/pbfield"}

// maxArrows limits the number of pairs of wings of which one imports the other.
const maxArrows = 33

// wingOf returns the index of the wing of a package, -1 if there is none. The longest name counts.
func wingOf(pkg string) int {
	found := -1
	for i, w := range wings {
		if (pkg == w || strings.HasPrefix(pkg, w+"/")) &&
			(found < 0 || len(w) > len(wings[found])) {
			found = i
		}
	}
	return found
}

// TestWings rejects imports of a wing above.
func TestWings(t *testing.T) {
	type arrow struct{ from, to int }
	arrows := map[arrow]bool{}
	for pkg, r := range table {
		from := wingOf(pkg)
		if from < 0 {
			t.Errorf("%s is in no wing", pkg)
			continue
		}
		for _, in := range r.inside {
			to := wingOf(in)
			if to < from {
				t.Errorf("%s (%s) may import %s, which is above it (%s)", pkg,
					wings[from], in, wings[to])
			}
			if to != from {
				arrows[arrow{from, to}] = true
			}
		}
	}
	if len(arrows) > maxArrows {
		t.Errorf("%d arrows between wings, at most %d", len(arrows), maxArrows)
	}
	t.Logf("%d arrows between %d wings", len(arrows), len(wings))
}
