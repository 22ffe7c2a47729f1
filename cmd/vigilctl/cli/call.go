package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"vigil/client"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/show"
)

// Session is a connection to a cluster for one command.
type Session struct {
	Ctx    context.Context
	Client *client.Client
	// Conn makes calls with the API's own messages, which package show prints.
	Conn grpc.ClientConnInterface
}

// Timeout limits a short command.
func (e *Env) Timeout() time.Duration { return e.CommandTimeout + e.Config.DialTimeout }

// Run runs a short command.
func (e *Env) Run(c *cobra.Command, run func(s Session) error) error {
	return e.connected(c, func(cl *client.Client) error {
		ctx, cancel := context.WithTimeout(c.Context(), e.Timeout())
		defer cancel()
		return run(Session{ctx, cl, cl.Conn()})
	})
}

// Call runs a short command and prints its answer.
func (e *Env) Call(c *cobra.Command, run func(s Session) (show.Answer, error)) error {
	return e.Run(c, func(s Session) error {
		answer, err := run(s)
		if err != nil {
			return err
		}
		return e.Print(answer)
	})
}

// RunUntilInterrupted runs a command without a time limit. run decides what an interrupt means.
func (e *Env) RunUntilInterrupted(c *cobra.Command, run func(s Session) error) error {
	return e.connected(c,
		func(cl *client.Client) error { return run(Session{c.Context(), cl, cl.Conn()}) })
}

// RunAnyway is RunLong for commands that inspect members which may not serve clients. If logging in
// is impossible, because there is no leader or no member can be reached, the client has no
// credentials, and noLogin is the reason.
func (e *Env) RunAnyway(c *cobra.Command,
	run func(ctx context.Context, cl *client.Client, noLogin error) error) error {
	cl, noLogin, err := e.ConnectAnyway(c.Context())
	if _, ok := errors.AsType[*client.UnreachableError](err); ok && e.Config.Username != "" {
		noLogin = err
		cl, err = e.anonymous()
	}
	if err != nil {
		return err
	}
	defer cl.Close()
	err = run(c.Context(), cl, noLogin)
	if c.Context().Err() != nil {
		err = ErrInterrupted
	}
	return e.explained(c.Context(), cl, CallError(err))
}

// RunLong runs a command without a time limit. An interrupt returns an error with its own exit
// code.
func (e *Env) RunLong(c *cobra.Command,
	run func(ctx context.Context, cl *client.Client) error) error {
	return e.connected(c, func(cl *client.Client) error {
		err := run(c.Context(), cl)
		if c.Context().Err() != nil {
			return ErrInterrupted
		}
		return err
	})
}

func (e *Env) connected(c *cobra.Command, run func(cl *client.Client) error) error {
	cl, err := e.Connect(c.Context())
	if err != nil {
		return err
	}
	defer cl.Close()
	return e.explained(c.Context(), cl, CallError(run(cl)))
}

// CallError reduces the error of a call to the member's message, and adds an exit code and the
// flags that may help.
func CallError(err error) error {
	var e *exit.Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	return Advise(callError(err))
}

// Advise adds the flags or steps that may help to an error.
func Advise(err error) error {
	for _, a := range advice {
		if strings.Contains(err.Error(), a.text) {
			return &advisedError{err, a.flags}
		}
	}
	return err
}

// advice has the flags that help against errors of the client.
var advice = []struct{ text, flags string }{
	{"the member demands a certificate of its clients", "give --cert and --key"},
	{"the authority of the member's certificate is not known", "give --cacert"},
	{"the member does not know the authority of the client's certificate",
		"give --cert and --key of an authority that the member trusts"},
	{"the client's certificate has expired", "give --cert and --key of a newer one"},
	{"the member rejects the client's certificate",
		"give --cert and --key of one for clients that the member allows; its log has the reason"},
	{"the client's certificate is revoked", "give --cert and --key of another one"},
	{"unexpected HTTP status code received from server",
		"no member answers so: check the address, and the proxy on the way"},
}

// advisedError is an error with the flags that may help.
type advisedError struct {
	error
	flags string
}

// Error ends with the flags.
func (e *advisedError) Error() string { return e.error.Error() + ": " + e.flags }

// Unwrap returns the error of the call.
func (e *advisedError) Unwrap() error { return e.error }

func callError(err error) error {
	if s, ok := status.FromError(err); ok && s.Code() != codes.OK {
		if errors.Is(err, client.ErrUnreachable) {
			// Scripts written for etcdctl look for the text of this error.
			return exit.With(exit.Failure, fmt.Errorf("%w: %w", context.DeadlineExceeded, err))
		}
		if s.Code() == codes.DeadlineExceeded && !strings.HasPrefix(s.Message(), "etcdserver:") {
			return exit.With(exit.Failure, context.DeadlineExceeded)
		}
		return exit.With(exit.Failure, rpctypes.Error(s.Err()))
	}
	return exit.With(exit.Failure, err)
}

// Permanent reports whether repeating the call is useless.
func Permanent(err error) bool {
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument, codes.Unimplemented:
		return true
	}
	return false
}
