// Package doctor has the command doctor: it checks all members and reports problems with the next step.
package doctor

import "cmp"

// severity is the severity of a finding.
type severity string

const (
	critical severity = "critical" // something fails, or soon will
	warning  severity = "warning"  // something will fail without an action
	note     severity = "note"     // for information
)

// finding is a problem and the next step.
type finding struct {
	Severity severity `json:"severity"`
	Check    string   `json:"check"`
	Member   string   `json:"member,omitempty"`
	What     string   `json:"what"`
	Next     string   `json:"next"`
	// Page explains more: a file of the documentation, with the heading.
	Page string `json:"page"`
}

// unchecked is something that a check could not look at.
type unchecked struct {
	// Check is empty if nothing of the member was checked.
	Check  string `json:"check,omitempty"`
	Member string `json:"member,omitempty"`
	Why    string `json:"why"`
}

// report collects what the checks find.
type report struct {
	check     *check // that runs
	findings  []finding
	unchecked []unchecked
}

// find adds a finding, with a page other than that of the check if page is not empty.
func (r *report) find(s severity, member, what, next, page string) {
	r.findings = append(r.findings, finding{s, r.check.name, member, what, next, cmp.Or(page, r.check.page)})
}

// skip notes that the check could not look at a member, or at the whole cluster if member is empty.
func (r *report) skip(member, why string) {
	r.unchecked = append(r.unchecked, unchecked{r.check.name, member, why})
}
