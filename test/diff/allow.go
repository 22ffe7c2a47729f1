package diff

import "regexp"

// Deviation is a difference that is meant to be there.
type Deviation struct {
	// Call, Path, Want and Got say which differences are meant; all that are set must match.
	Call, Path, Want, Got *regexp.Regexp
	// Why is the reason, for the report.
	Why string
}

func (d Deviation) covers(call string, f Field) bool {
	match := func(re *regexp.Regexp, s string) bool { return re == nil || re.MatchString(s) }
	return match(d.Call, call) && match(d.Path, f.Path) && match(d.Want, f.Want) &&
		match(d.Got, f.Got)
}

// Allowed lists the deviations of the subject.
var Allowed = []Deviation{
	{
		Path: regexp.MustCompile(`^(message|responses)$`),
		Want: regexp.MustCompile(`grpc: error unmarshalling request: `),
		Got:  regexp.MustCompile(`grpc: failed to unmarshal the received message: `),
		Why:  "the text of a request that cannot be decoded is grpc-go's, and not the same in all its versions; the code is",
	},
	{
		Call: regexp.MustCompile(`^Maintenance/Status `),
		Path: regexp.MustCompile(`^errors\[\d+\]$`),
		Want: regexp.MustCompile(`^"(memberID:\d+ {1,2})?alarm:\w+"$`),
		Got:  regexp.MustCompile(`^"(memberID:\d+ {1,2})?alarm:\w+"$`),
		Why:  "the text form of a message has one blank or two between fields, by the build of the program",
	},
	{
		Call: regexp.MustCompile(`^HTTP (peer )?GET /version$`),
		Path: regexp.MustCompile(`^body$`),
		Got:  regexp.MustCompile(`"storage":"3\.[67]\.0","vigil":"[^"]+"}$`),
		Why:  "the version of the program is returned with that of the API",
	},
	{
		Call: regexp.MustCompile(`^HTTP peer GET /(health|livez)$`),
		Why:  "the health paths are served to peers, too",
	},
	{
		Call: regexp.MustCompile(`^HTTP .*"bad\.example"`),
		Path: regexp.MustCompile(`^body$`),
		Want: regexp.MustCompile(`the Host header was unrecognized`),
		Got:  regexp.MustCompile(`the Host header was unrecognized`),
		Why:  "what to do about it is said in other words",
	},
}

// explain returns the reason why a difference is accepted, or "".
func explain(call string, f Field) string {
	for _, d := range Allowed {
		if d.covers(call, f) {
			return d.Why
		}
	}
	return ""
}
