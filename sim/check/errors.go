package check

import (
	"slices"
	"strings"
)

// The texts of etcd's errors for revisions that a member cannot read, for writes while an alarm
// NOSPACE is active, and for two large values in one request.
const (
	compactedText = "etcdserver: mvcc: required revision has been compacted"
	futureText    = "etcdserver: mvcc: required revision is a future revision"
	noSpaceText   = "etcdserver: mvcc: database space exceeded"
	tooLargeText  = "etcdserver: request is too large"
)

// CheckRevisions checks the errors of reads: a revision is not compacted before a higher one was
// requested to be, so that the state at a compact revision stays readable, and a linearizable read
// of a revision that is known finds it. The newest revision always can be read.
func CheckRevisions(ops []Op, compactions Compactions) Violations {
	var v Violations
	known := newFloor(ops)
	for n := range ops {
		o := &ops[n]
		floor := known.before(o.Call)
		compacted, future := strings.Contains(o.Err, compactedText),
			strings.Contains(o.Err, futureText)
		if o.Outcome == Acked || !compacted && !future {
			continue
		}
		rev := int64(0)
		switch {
		case o.Kind == Pinned:
			rev = o.Expect
		case o.Kind == Page:
			rev = o.Page.Rev
		}
		switch {
		case rev == 0:
			v.Add("it asked for no revision: %v", o)
		case compacted && rev >= compactions.highest(o.Ret):
			v.Add("revision %d was not requested to be compacted: %v", rev, o)
		case future && o.Linearizable() && rev <= floor:
			v.Add("revision %d was there, and %d was known: %v", rev, floor, o)
		}
	}
	return v
}

// explained are the beginnings of the errors by which a member may reject a valid request during
// faults.
var explained = []string{"leader changed", "no leader", "request timed out", "request canceled",
	"server stopped", "too many requests",
	// for the last one see CheckRevisions
	"rpc not supported for learner", "mvcc: required revision"}

// The causes of other errors.
var (
	FullDisks    = []string{strings.TrimPrefix(noSpaceText, etcdPrefix)}
	DamagedFiles = []string{"corrupt cluster"}
	// UserTokens are errors of members that do not know yet that authentication is enabled, or have
	// forgotten a token.
	UserTokens = []string{"invalid auth token", "revision of auth store is old",
		"authentication is not enabled", "authentication failed"}
)

const etcdPrefix = "etcdserver: "

// CheckErrors checks that members reject an operation only with errors that faults explain, or one
// of some causes: all requests are valid.
func CheckErrors(ops []Op, causes ...[]string) Violations {
	var v Violations
	allowed := slices.Concat(append(causes, explained)...)
	for n := range ops {
		o := &ops[n]
		for _, text := range strings.Split(o.Err, etcdPrefix)[1:] {
			if o.Outcome != Acked && !o.tooLarge() &&
				!slices.ContainsFunc(allowed,
					func(a string) bool { return strings.HasPrefix(text, a) }) {
				v.Add("an error that nothing explains: %v", o)
				break
			}
		}
	}
	return v
}

// tooLarge reports whether two large values were rejected together.
func (o *Op) tooLarge() bool { return o.Kind == Pair && strings.Contains(o.Err, tooLargeText) }
