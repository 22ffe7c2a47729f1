package replica

import "slices"

// verdict is what members' answers about one point come to.
type verdict struct {
	// decided: a majority of the voters have the same, which is right.
	decided bool
	right   hashAnswer
	// differ are the findings that are not right; if nothing is decided, all of them, as soon as two
	// differ.
	differ []finding
	// asked is how many members count, heard how many have said what they have.
	asked, heard int
}

// unanimous says that all members have the same.
func (v *verdict) unanimous() bool { return v.asked == v.heard && len(v.differ) == 0 }

// wrong reports whether a member is known to differ from what is right.
func (v *verdict) wrong(id uint64) bool {
	return v.decided && slices.ContainsFunc(v.differ, func(f finding) bool { return f.id == id })
}

// judge compares what members have said. A majority is one of all voters, not of those that answered: two
// members of five are none, whatever the others have.
func judge(voters, members []uint64, found []finding) verdict {
	v := verdict{asked: len(members)}
	votes := map[hashAnswer]int{}
	var all []finding
	for _, f := range found {
		if !f.comparable() || !slices.Contains(members, f.id) {
			continue
		}
		all = append(all, f)
		if slices.Contains(voters, f.id) {
			if votes[f.hashAnswer]++; votes[f.hashAnswer] > len(voters)/2 {
				v.decided, v.right = true, f.hashAnswer
			}
		}
	}
	v.heard = len(all)
	for _, f := range all {
		if v.decided && f.hashAnswer != v.right || !v.decided && f.hashAnswer != all[0].hashAnswer {
			v.differ = append(v.differ, f)
		}
	}
	if !v.decided && len(v.differ) > 0 {
		v.differ = all
	}
	return v
}
