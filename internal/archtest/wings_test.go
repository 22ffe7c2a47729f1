package archtest

import (
	"slices"
	"strings"
	"testing"
)

// wings lists the parts of the tree from the top down: a package imports its own wing and later ones, as far as the
// import table allows. The last one holds the small packages that every wing may use.
var wings = []string{"cmd", "examples", "scripts", "server", "client", "internal/member", "internal/offline", "internal/edge", "internal/state", "internal/store", "internal", "docs"}

// maxArrows limits the number of pairs of wings of which one imports the other.
const maxArrows = 33

func wingOf(pkg string) int {
	return slices.IndexFunc(wings, func(w string) bool { return pkg == w || strings.HasPrefix(pkg, w+"/") })
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
				t.Errorf("%s (%s) may import %s, which is above it (%s)", pkg, wings[from], in, wings[to])
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
