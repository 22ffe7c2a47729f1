package audit

import "slices"

// verdict is the result of comparing the answers of members at one point.
type verdict struct {
	// decided: a majority of the voters gave the same answer, which is right.
	decided bool
	right   answer
	// differ are the findings that are not right; without a decision all of them, if any two
	// differ.
	differ []finding
	// asked is the number of members that count, answered how many of them gave a comparable
	// answer.
	asked, answered int
}

// unanimous reports whether all members gave the same answer.
func (v *verdict) unanimous() bool { return v.asked == v.answered && len(v.differ) == 0 }

// wrong reports whether a member is known to have wrong data.
func (v *verdict) wrong(id uint64) bool {
	return v.decided && slices.ContainsFunc(v.differ, func(f finding) bool { return f.id == id })
}

// judge compares the answers of members. A majority is a majority of all voters, not of the members
// that answered: two of five are not a majority, whatever the others have.
func judge(voters, members []uint64, found []finding) verdict {
	v := verdict{asked: len(members)}
	votes := map[answer]int{}
	var all []finding
	for _, f := range found {
		if !f.comparable() || !slices.Contains(members, f.id) {
			continue
		}
		all = append(all, f)
		if slices.Contains(voters, f.id) {
			if votes[f.answer]++; votes[f.answer] > len(voters)/2 {
				v.decided, v.right = true, f.answer
			}
		}
	}
	v.answered = len(all)
	for _, f := range all {
		if v.decided && f.answer != v.right || !v.decided && f.answer != all[0].answer {
			v.differ = append(v.differ, f)
		}
	}
	if !v.decided && len(v.differ) > 0 {
		v.differ = all
	}
	return v
}
