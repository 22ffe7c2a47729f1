package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/client"
	"vigil/cmd/vigilctl/probe"
	"vigil/cmd/vigilctl/screen"
	"vigil/internal/health"
)

// explainTimeout limits the questions about a failed call, in addition to --dial-timeout.
const explainTimeout = 500 * time.Millisecond

// explainLimit returns how long the questions about a failed call may take. It is at most the
// call's own limit, but long enough for the client to say why it cannot reach a member: the client
// says so after its dial timeout.
func (e *Env) explainLimit() time.Duration {
	return explainTimeout + min(e.Config.DialTimeout, max(e.CommandTimeout, explainDial))
}

// explainDial is the longest dial timeout to wait for after a call with a shorter timeout: the
// default.
const explainDial = 2 * time.Second

// unansweredError is the error of a call that no member answered in time, with a report of each
// endpoint.
type unansweredError struct {
	error
	members []string
}

// Error begins with the line that etcdctl prints.
func (e *unansweredError) Error() string {
	return e.error.Error() + "\n  " + strings.Join(e.members, "\n  ") + "\n  next: vigilctl doctor"
}

// Unwrap returns the error of the call.
func (e *unansweredError) Unwrap() error { return e.error }

// unanswered reports whether a member received the call and returned no outcome in time.
func unanswered(err error) bool {
	if err == nil || errors.Is(err, client.ErrUnreachable) {
		return false // the error already names the reason for each member
	}
	text := err.Error()
	return errors.Is(err, context.DeadlineExceeded) ||
		strings.Contains(text, "etcdserver: no leader") ||
		strings.Contains(text, "etcdserver: request timed out")
}

// explained adds the members' own reports to the error of a call.
func (e *Env) explained(ctx context.Context, cl *client.Client, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	if r, ok := errors.AsType[*revisionError](err); ok {
		e.explainRevision(ctx, cl, r)
		return err
	}
	if u, ok := errors.AsType[*client.UnreachableError](err); ok {
		e.explainWaits(ctx, u)
		return err
	}
	switch {
	case unanswered(err):
		return e.explain(ctx, cl, err)
	case strings.Contains(err.Error(), rpctypes.ErrorDesc(rpctypes.ErrGRPCNoSpace)):
		return e.explainNoSpace(ctx, cl, err)
	}
	return e.withNextStep(err)
}

// nextSteps advise a person about errors of members. A script gets etcdctl's text alone.
var nextSteps = []struct {
	err  error
	next string
}{
	{rpctypes.ErrGRPCEmptyKey, `with --prefix "" get, del and watch are about all keys`},
	{rpctypes.ErrGRPCKeyNotFound,
		"the key does not exist: put it without --ignore-value and --ignore-lease"},
	{rpctypes.ErrGRPCLeaseNotFound,
		"it may have expired; vigilctl lease list prints the leases that there are"},
	{rpctypes.ErrGRPCUserNotFound, "vigilctl user list prints the users that there are"},
	{rpctypes.ErrGRPCRoleNotFound,
		"vigilctl role list prints the roles that there are; vigilctl role add adds one"},
	{rpctypes.ErrGRPCRoleNotGranted, "vigilctl user get NAME prints the roles of a user"},
	{rpctypes.ErrGRPCPermissionNotGranted,
		"vigilctl role get NAME prints the permissions of a role: give the same key and end, or --prefix"},
	{rpctypes.ErrGRPCInvalidAuthMgmt, "the end of a range is after its first key"},
	{rpctypes.ErrGRPCRootUserNotExist, "vigilctl user add root"},
	{rpctypes.ErrGRPCUserEmpty, "authentication is enabled: give --user NAME"},
	{rpctypes.ErrGRPCAuthNotEnabled,
		"without authentication --user is not needed; vigilctl auth enable turns it on"},
	{rpctypes.ErrGRPCPermissionDenied, "vigilctl user get NAME --detail prints what a user may do"},
	{rpctypes.ErrGRPCMemberNotLearner, "vigilctl member list prints which members are learners"},
	{rpctypes.ErrGRPCLearnerNotReady,
		"wait until it has the data of the leader: vigilctl endpoint status --cluster -w table"},
	{rpctypes.ErrGRPCTooManyLearners,
		"promote or remove the learner that there is: vigilctl member list"},
	{rpctypes.ErrGRPCPeerURLExist, "vigilctl member list prints which member has this URL"},
	{rpctypes.ErrGRPCUnhealthy,
		"every member has to be connected for a few seconds: vigilctl endpoint health --cluster"},
	{rpctypes.ErrGRPCMemberNotEnoughStarted,
		"start the members that do not run, or remove those first: vigilctl endpoint health --cluster"},
	{rpctypes.ErrGRPCWrongDowngradeVersionFormat, "want MAJOR.MINOR, such as 3.6"},
	{rpctypes.ErrGRPCInvalidDowngradeTargetVersion,
		"only the minor version before that of the cluster is possible, such as 3.6 for 3.7"},
	{rpctypes.ErrGRPCRequestTooLarge,
		"a request has at most the bytes of --max-request-bytes of the members, 1.5 MiB by default"},
}

// withNextStep adds advice for a person to an error.
func (e *Env) withNextStep(err error) error {
	if !e.Hints() {
		return err
	}
	for _, s := range nextSteps {
		if strings.Contains(err.Error(), rpctypes.ErrorDesc(s.err)) &&
			!strings.Contains(err.Error(), "\n") {
			return fmt.Errorf("%w\n  next: %s", err, s.next)
		}
	}
	return err
}

// explain adds to the error of a call without an outcome whether each endpoint is alive and knows a
// leader.
func (e *Env) explain(ctx context.Context, cl *client.Client, err error) error {
	ctx, cancel := context.WithTimeout(ctx, e.explainLimit())
	defer cancel()
	out := make([]string, len(e.Config.Endpoints))
	var wg sync.WaitGroup
	for i, at := range e.Config.Endpoints {
		wg.Go(func() {
			text := stateOf(ctx, cl, at)
			if w := e.Waits(ctx, at); w != nil && strings.HasPrefix(text, noAnswer) {
				text = w.Alive()
			}
			out[i] = at + ": " + text
		})
	}
	wg.Wait()
	return &unansweredError{err, out}
}

// revisionError is the error of a call at an unreadable revision.
type revisionError struct {
	error
	key   string // a key of the call, which its user may read
	asked int64
	known string // the known revisions of the store
}

// AtRevision returns the error of a call at a revision. If that revision is compacted or in the
// future, Run and Print add the range of readable revisions.
func AtRevision(err error, key string, rev int64) error {
	if err = CallError(err); err == nil || rev <= 0 {
		return err
	}
	return &revisionError{error: err, key: cmp.Or(key, "\x00"), asked: rev}
}

// Error begins with the line that etcdctl prints.
func (e *revisionError) Error() string {
	if e.known == "" {
		return e.error.Error()
	}
	return fmt.Sprintf("%v\n  revision %d was asked for; %s", e.error, e.asked, e.known)
}

// Unwrap returns the error of the call.
func (e *revisionError) Unwrap() error { return e.error }

// explainRevision adds the range of readable revisions.
func (e *Env) explainRevision(ctx context.Context, cl *client.Client, err *revisionError) {
	ctx, cancel := context.WithTimeout(ctx, e.explainLimit())
	defer cancel()
	switch text := err.error.Error(); {
	case strings.Contains(text, client.ErrCompacted.Error()):
		w := cl.Watch(ctx, err.key, client.FromRevision(1))
		defer w.Close()
		for _, werr := range w.Batches() {
			if gone, ok := errors.AsType[*client.CompactedError](werr); ok && gone.Revision > 0 {
				err.known = fmt.Sprintf("the store was compacted at revision %d", gone.Revision)
			}
			return
		}
	case strings.Contains(text, client.ErrFutureRevision.Error()):
		if r, rerr := cl.Get(ctx, err.key, client.WithCountOnly()); rerr == nil {
			err.known = fmt.Sprintf("the store is at revision %d", r.Header.Revision)
		}
	}
}

// noSpaceError is the error of a write that was rejected for lack of space, with the reason.
type noSpaceError struct {
	error
	reasons []string
}

// Error begins with the line that etcdctl prints.
func (e *noSpaceError) Error() string {
	return e.error.Error() + "\n  " + strings.Join(e.reasons, "\n  ")
}

// Unwrap returns the error of the call.
func (e *noSpaceError) Unwrap() error { return e.error }

// explainNoSpace adds whether the disk of a member is full or the quota is used up: etcd has one
// error for both.
func (e *Env) explainNoSpace(ctx context.Context, cl *client.Client, err error) error {
	ctx, cancel := context.WithTimeout(ctx, e.explainLimit())
	defer cancel()
	var reasons []string
	for _, at := range e.Config.Endpoints {
		one, aerr := cl.At(at)
		if aerr != nil {
			continue
		}
		if r, serr := one.Maintenance().Status(ctx); serr == nil {
			if why := noSpaceReason(r); why != "" {
				reasons = append(reasons, at+": "+why)
			}
		}
	}
	if len(reasons) == 0 {
		return err
	}
	return &noSpaceError{err, append(reasons, "next: vigilctl doctor")}
}

// diskFull returns what a member cannot do because its disk is full, "" if the disk is not full.
func diskFull(r *client.Status) string {
	for _, text := range r.Errors {
		if text, ok := strings.CutPrefix(text, "vigil: "); ok &&
			strings.HasPrefix(text, "the disk is full") {
			return text
		}
	}
	return ""
}

// noSpaceReason returns why a member rejects puts, "" if unknown.
func noSpaceReason(r *client.Status) string {
	if full := diskFull(r); full != "" {
		return full + ". Free space on the volume of the data directory, or enlarge it: the member goes on within a second"
	}
	if r.DBSizeQuota > 0 &&
		slices.ContainsFunc(r.Errors,
			func(s string) bool { return strings.Contains(s, "NOSPACE") }) {
		return fmt.Sprintf("the quota of %d bytes is used up (the alarm NOSPACE is raised): delete keys, run compaction, then alarm disarm; or start the members with a larger --quota-backend-bytes", r.DBSizeQuota)
	}
	return ""
}

// noAnswer describes a member that does not answer.
const noAnswer = "no answer"

// Waits returns what the member at an endpoint waits for before it serves clients. It returns nil
// if the member serves clients or does not say so.
func (e *Env) Waits(ctx context.Context, endpoint string) *health.Wait {
	secure, err := e.Config.SecureHTTP()
	if err != nil {
		return nil
	}
	timeout := e.explainLimit()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	m := probe.New(endpoint, e.Token, secure, timeout)
	defer m.Close()
	state, err := m.State(ctx)
	if err != nil {
		return nil
	}
	return state.Waits
}

// explainWaits replaces the errors of endpoints whose members are alive but still waiting.
func (e *Env) explainWaits(ctx context.Context, u *client.UnreachableError) {
	var wg sync.WaitGroup
	for i, at := range u.Endpoints {
		wg.Go(func() {
			if w := e.Waits(ctx, at); w != nil {
				u.Errors[i] = errors.New(w.Alive())
			}
		})
	}
	wg.Wait()
}

// stateOf returns a member's description of itself.
func stateOf(ctx context.Context, cl *client.Client, endpoint string) string {
	at, err := cl.At(endpoint)
	if err != nil {
		return err.Error()
	}
	r, err := at.Maintenance().Status(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded), status.Code(err) == codes.DeadlineExceeded:
		return noAnswer
	case err != nil:
		if u, ok := errors.AsType[*client.UnreachableError](err); ok && len(u.Errors) > 0 &&
			u.Errors[0] != nil {
			err = u.Errors[0]
		}
		return strings.Join(strings.Fields(err.Error()), " ")
	case r.Leader == 0:
		return "answers, and " + health.NoLeader("knows no leader", r.Errors) +
			": no majority of the members has elected one"
	case r.IsLearner:
		return "answers, and is a learner, which serves no such request"
	}
	text := fmt.Sprintf("answers, and knows the leader %x", r.Leader)
	if list, lerr := at.Cluster().MemberListSerializable(ctx); lerr == nil {
		for _, m := range list.Members {
			if m.ID == r.Leader && m.Name != "" {
				text += " (" + screen.SafeLine(0, m.Name) + ")"
			}
		}
	}
	if n := r.RaftIndex - r.RaftAppliedIndex; r.RaftIndex > r.RaftAppliedIndex {
		text += fmt.Sprintf("; %d entries are to be applied", n)
	}
	if full := diskFull(r); full != "" {
		text += "; " + full
	}
	return text
}
