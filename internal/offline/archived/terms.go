package archived

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"vigil/internal/state/lineage"
	"vigil/internal/store/archive"
)

// termAt is the term of an entry, by an object, and the claim of the object.
type termAt struct {
	index, term uint64
	claim       archive.Claim
	name        string
}

// compareTerms notes objects of another history. In one history an entry has one term, no later
// entry a lower one, and a term one claim.
func (a *Archive) compareTerms(list []termAt) {
	slices.SortFunc(list, func(x, y termAt) int {
		return cmp.Or(cmp.Compare(x.index, y.index), cmp.Compare(x.term, y.term),
			strings.Compare(x.name, y.name))
	})
	claims := map[archive.Hex64]termAt{}
	for i, p := range list {
		if first, ok := claims[p.claim.Term]; !ok {
			claims[p.claim.Term] = p
		} else if first.claim != p.claim {
			_ = a.noteDamage(p.name,
				fmt.Errorf("%w: it claims term %d as %s, and %s as %s: they are of two histories",
					archive.ErrForeign, p.claim.Term, p.claim.ID, first.name, first.claim.ID))
			continue
		}
		if i == 0 {
			continue
		}
		before := list[i-1]
		if p.term >= before.term && (p.index > before.index || p.term == before.term) {
			continue
		}
		_ = a.noteDamage(p.name,
			fmt.Errorf("%w: it has term %d at entry %d, and %s has term %d at entry %d: they are of two histories",
				archive.ErrForeign, p.term, p.index, before.name, before.term, before.index))
	}
}

// foreign returns an error if a history does not have the entries up to an index of an object with
// a claim.
func foreign(history *lineage.State, c archive.Claim, last, applied uint64) error {
	if history.Judge(lineage.Mark{Term: uint64(c.Term), ID: lineage.ID(c.ID)}, last,
		applied) == lineage.Foreign {
		return fmt.Errorf("%w: it has the claim %s of term %d, and the state before it another one: they are of two histories", archive.ErrForeign, c.ID, c.Term)
	}
	return nil
}
