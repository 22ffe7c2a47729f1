package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/client"
)

// explainTimeout limits the questions about a failed call, besides --dial-timeout.
const explainTimeout = 500 * time.Millisecond

// unansweredError is the error of a call that no member has answered in time, with what each endpoint says of itself.
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

// unanswered reports whether err is that of a call that a member has received and that got no outcome in time.
func unanswered(err error) bool {
	if err == nil || errors.Is(err, client.ErrUnreachable) {
		return false // or it names the reason for each member
	}
	text := err.Error()
	return errors.Is(err, context.DeadlineExceeded) || strings.Contains(text, "etcdserver: no leader") || strings.Contains(text, "etcdserver: request timed out")
}

// explain adds to the error of a call without an outcome whether each endpoint is alive and knows a leader.
func (e *Env) explain(ctx context.Context, cl *client.Client, err error) error {
	ctx, cancel := context.WithTimeout(ctx, explainTimeout+e.Config.DialTimeout)
	defer cancel()
	out := make([]string, len(e.Config.Endpoints))
	var wg sync.WaitGroup
	for i, at := range e.Config.Endpoints {
		wg.Go(func() { out[i] = at + ": " + stateOf(ctx, cl, at) })
	}
	wg.Wait()
	return &unansweredError{err, out}
}

// stateOf returns what a member says of itself.
func stateOf(ctx context.Context, cl *client.Client, endpoint string) string {
	at, err := cl.At(endpoint)
	if err != nil {
		return err.Error()
	}
	r, err := at.Status(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded), status.Code(err) == codes.DeadlineExceeded:
		return "no answer"
	case err != nil:
		if u, ok := errors.AsType[*client.UnreachableError](err); ok && len(u.Errors) > 0 && u.Errors[0] != nil {
			err = u.Errors[0]
		}
		return strings.Join(strings.Fields(err.Error()), " ")
	case r.Leader == 0:
		return "answers, and knows no leader: no majority of the members has elected one"
	case r.IsLearner:
		return "answers, and is a learner, which serves no such request"
	}
	text := fmt.Sprintf("answers, and knows the leader %x", r.Leader)
	if n := r.RaftIndex - r.RaftAppliedIndex; r.RaftIndex > r.RaftAppliedIndex {
		text += fmt.Sprintf("; %d entries are to be applied", n)
	}
	return text
}
