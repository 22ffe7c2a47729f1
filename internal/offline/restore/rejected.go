package restore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
)

// Rejected are requests in the raft log of an etcd member that this program rejects for a reason
// that etcd does not have, such as a limit: etcd has applied them and acknowledged them to clients.
// Requests that etcd rejects too are not counted.
type Rejected struct {
	// Kind is the kind of the requests, Reason the limit.
	Kind, Reason string
	Count        int
	// First is the index of the first of them in the raft log.
	First uint64
}

func (r Rejected) String() string {
	return fmt.Sprintf("%d of kind %s, the first at index %d: %s", r.Count, r.Kind,
		r.First, r.Reason)
}

// isOwnLimit reports whether a request was rejected for a limit that etcd does not have.
func isOwnLimit(err error) bool {
	var limit *kv.LimitError
	return errors.As(err, &limit) || errors.Is(err, kv.ErrNameTooLong) ||
		errors.Is(err, kv.ErrAuthRecordTooLarge) ||
		errors.Is(err, kv.ErrTooManyUsers) || errors.Is(err, kv.ErrTooManyRoles)
}

// rejections counts rejected requests by kind and reason.
type rejections []Rejected

// count counts a request that was rejected with err.
func (l *rejections) count(index uint64, req *fsm.Request, err error) {
	kind, reason := kindName(req.Kind()), err.Error()
	i := slices.IndexFunc(*l, func(x Rejected) bool { return x.Kind == kind && x.Reason == reason })
	if i < 0 {
		i = len(*l)
		*l = append(*l, Rejected{Kind: kind, Reason: reason, First: index})
	}
	(*l)[i].Count++
}

func kindName(k fsm.Kind) string {
	switch k {
	case fsm.KindPut:
		return "put"
	case fsm.KindDeleteRange:
		return "delete"
	case fsm.KindTxn:
		return "transaction"
	case fsm.KindAuth:
		return "change of users or roles"
	}
	return "other"
}

// asError returns the error of a restore that would lose these requests.
func (l rejections) asError() error {
	list := slices.SortedFunc(slices.Values(l),
		func(a, b Rejected) int { return cmp.Compare(a.First, b.First) })
	var lines strings.Builder
	for _, r := range list {
		lines.WriteString("\n  " + r.String())
	}
	return fmt.Errorf("the raft log has requests that exceed a limit of this program and cannot be restored; "+
		"--skip-rejected restores without them:%s", lines.String())
}
