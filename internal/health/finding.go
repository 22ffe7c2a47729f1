package health

import "cmp"

// Severity is the severity of a finding.
type Severity string

// The severities.
const (
	Critical Severity = "critical" // something fails, or soon will
	Warning  Severity = "warning"  // something will fail without an action
	Note     Severity = "note"     // for information
)

// Finding is a problem and the next step.
type Finding struct {
	Severity Severity `json:"severity"`
	Check    string   `json:"check"`
	Member   string   `json:"member,omitempty"`
	What     string   `json:"what"`
	Next     string   `json:"next"`
	// Page explains more: a file of the documentation, with the heading.
	Page string `json:"page"`
}

// Unchecked is something that a check could not look at.
type Unchecked struct {
	// Check is empty if nothing of the member was checked.
	Check  string `json:"check,omitempty"`
	Member string `json:"member,omitempty"`
	Why    string `json:"why"`
}

// Members send parts of the texts.
const (
	maxMemberText  = 256
	maxFindingText = 2000
)

// report collects what the checks find.
type report struct {
	check     *Check // that runs
	findings  []Finding
	unchecked []Unchecked
}

// find adds a finding, with a page other than that of the check if page is not empty.
func (r *report) find(s Severity, member, what, next, page string) {
	r.findings = append(r.findings,
		Finding{s, r.check.Name, clip(member, maxMemberText), clip(what, maxFindingText),
			clip(next, maxFindingText), cmp.Or(page, r.check.Page)})
}

// skip notes that the check could not look at a member, or at the whole cluster if member is empty.
func (r *report) skip(member, why string) {
	r.unchecked = append(r.unchecked,
		Unchecked{r.check.Name, clip(member, maxMemberText), clip(why, maxFindingText)})
}
