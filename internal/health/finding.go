package health

import "cmp"

// Severity is the severity of a finding.
type Severity string

// The severities.
const (
	Critical Severity = "critical" // something fails, or soon will
	Warning  Severity = "warning"  // something will fail unless somebody acts
	Note     Severity = "note"     // for information
)

// Finding is a problem and the next step.
type Finding struct {
	Severity Severity `json:"severity"`
	Check    string   `json:"check"`
	Member   string   `json:"member,omitempty"`
	What     string   `json:"what"`
	Next     string   `json:"next"`
	// Page explains the finding: a file of the documentation and the heading.
	Page string `json:"page"`
}

// Unchecked is something that a check could not cover.
type Unchecked struct {
	// Check is empty if nothing of the member could be checked.
	Check  string `json:"check,omitempty"`
	Member string `json:"member,omitempty"`
	Why    string `json:"why"`
}

// Limits: members send parts of the texts.
const (
	maxMemberText  = 256
	maxFindingText = 2000
)

// report collects the findings of the checks.
type report struct {
	check     *Check // the running check
	findings  []Finding
	unchecked []Unchecked
}

// addFinding adds a finding. page replaces the page of the check unless it is empty.
func (r *report) addFinding(s Severity, member, what, next, page string) {
	r.findings = append(r.findings,
		Finding{s, r.check.Name, clip(member, maxMemberText), clip(what, maxFindingText),
			clip(next, maxFindingText), cmp.Or(page, r.check.Page)})
}

// skipMember notes that the check could not cover a member, or the whole cluster if member is
// empty.
func (r *report) skipMember(member, why string) {
	r.unchecked = append(r.unchecked,
		Unchecked{r.check.Name, clip(member, maxMemberText), clip(why, maxFindingText)})
}
