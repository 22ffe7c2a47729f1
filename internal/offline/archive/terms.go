package archive

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"vigil/internal/store/archive"
)

// termAt is the term of an entry, by an object.
type termAt struct {
	index, term uint64
	name        string
}

// compareTerms notes objects of another history. In one history an entry has one term, and no later entry a lower one.
func (a *Archive) compareTerms(list []termAt) {
	slices.SortFunc(list, func(x, y termAt) int {
		return cmp.Or(cmp.Compare(x.index, y.index), cmp.Compare(x.term, y.term), strings.Compare(x.name, y.name))
	})
	for i := 1; i < len(list); i++ {
		p, before := list[i], list[i-1]
		if p.term >= before.term && (p.index > before.index || p.term == before.term) {
			continue
		}
		_ = a.note(p.name, fmt.Errorf("%w: it has term %d at entry %d, and %s has term %d at entry %d: they are of two histories",
			archive.ErrForeign, p.term, p.index, before.name, before.term, before.index))
	}
}
