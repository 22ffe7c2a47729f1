package diff

import (
	"regexp"
)

// Deviation is a difference that is meant to be there.
type Deviation struct {
	// Call and Path say which differences are meant; both must match.
	Call, Path *regexp.Regexp
	// Why is the reason, for the report.
	Why string
}

// Allowed lists the deviations of the subject.
var Allowed = []Deviation{}

// explain returns the reason why a difference is accepted, or "".
func explain(call string, f Field) string {
	for _, d := range Allowed {
		if d.Call.MatchString(call) && d.Path.MatchString(f.Path) {
			return d.Why
		}
	}
	return ""
}
