// Package doctor has the command doctor: it checks all members and reports problems with the next step.
package doctor

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
}
