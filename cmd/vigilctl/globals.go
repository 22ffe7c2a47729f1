package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/client"
	"vigil/cmd/vigilctl/show"
)

// app is what the commands that talk to a cluster have in common: the global flags, and how to use them.
type app struct {
	in          io.Reader
	out, errOut io.Writer

	endpoints                []string
	format                   string
	hex, debug               bool
	commandTimeout           time.Duration
	keepAlive, keepAliveWait time.Duration
	insecure, insecureSRV    bool
	user, password, token    string
	srvDomain, srvName       string
	cfg                      client.Config
}

// addTo declares the global flags, which are etcdctl's.
func (a *app) addTo(flags *pflag.FlagSet) {
	flags.StringSliceVar(&a.endpoints, "endpoints", []string{"127.0.0.1:2379"}, "the members to talk to, `HOST:PORT,...` or URLs")
	flags.StringVarP(&a.format, "write-out", "w", string(show.Simple), "how to print: `FORMAT` "+strings.Join(show.Formats, ", "))
	flags.BoolVar(&a.hex, "hex", false, "print keys and values in hexadecimal")
	flags.BoolVar(&a.debug, "debug", false, "tell on stderr what happens to connections")
	flags.DurationVar(&a.cfg.DialTimeout, "dial-timeout", 2*time.Second, "how long members may take to be reached")
	flags.DurationVar(&a.commandTimeout, "command-timeout", 5*time.Second, "how long a short command may take besides")
	flags.DurationVar(&a.keepAlive, "keepalive-time", 10*time.Second, "silence after which a member is asked for a sign of life, at least 10s")
	flags.DurationVar(&a.keepAliveWait, "keepalive-timeout", 6*time.Second, "how long it may take to give one")
	flags.IntVar(&a.cfg.MaxSendBytes, "max-request-bytes", 0, "the largest request in `BYTES`; 0 is 2 MiB")
	flags.IntVar(&a.cfg.MaxReceiveBytes, "max-recv-bytes", 0, "the largest answer in `BYTES`; 0 is 2 GiB")
	flags.BoolVar(&a.insecure, "insecure-transport", true, "talk without TLS, unless a URL or certificate asks for it")
	flags.BoolVar(&a.insecureSRV, "insecure-discovery", true, "accept SRV records of members without TLS")
	flags.BoolVar(&a.cfg.TLSFiles.InsecureSkipVerify, "insecure-skip-tls-verify", false, "accept any certificate of a member, for tests")
	flags.StringVar(&a.cfg.TLSFiles.Cert, "cert", "", "identify with this certificate `FILE`")
	flags.StringVar(&a.cfg.TLSFiles.Key, "key", "", "the `FILE` with the key of --cert")
	flags.StringVar(&a.cfg.TLSFiles.CA, "cacert", "", "verify members' certificates with this `FILE` of authorities")
	flags.StringVar(&a.token, "auth-jwt-token", "", "the `TOKEN` to use instead of --user")
	flags.StringVar(&a.user, "user", "", "the user, `NAME[:PASSWORD]`; the password is asked for if it is not given")
	flags.StringVar(&a.password, "password", "", "the password of --user")
	flags.StringVarP(&a.srvDomain, "discovery-srv", "d", "", "find the members by the SRV records of this `DOMAIN`")
	flags.StringVar(&a.srvName, "discovery-srv-name", "", "the suffix of the records' service `NAME`")
}

// prepare takes what was not given on the command line from the environment.
func (a *app) prepare(c *cobra.Command, _ []string) error {
	return fromEnvironment(c.InheritedFlags())
}

// fromEnvironment sets the flags that were not given and whose environment variable is set: VIGILCTL_ENDPOINTS for
// --endpoints, or ETCDCTL_ENDPOINTS.
func fromEnvironment(flags *pflag.FlagSet) error {
	var err error
	flags.VisitAll(func(f *pflag.Flag) {
		for _, prefix := range []string{"VIGILCTL_", "ETCDCTL_"} {
			name := prefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
			v, ok := os.LookupEnv(name)
			if !ok || f.Changed || err != nil {
				continue
			}
			if e := flags.Set(f.Name, v); e != nil {
				err = fmt.Errorf("%s: %w", name, e)
			}
		}
	})
	return err
}

// connect returns a client of all endpoints.
func (a *app) connect() (*client.Client, error) {
	if err := a.complete(); err != nil {
		return nil, err
	}
	c, err := client.New(a.cfg)
	if err != nil {
		return nil, &exit{exitBadConnection, err}
	}
	return c, nil
}

// complete makes the client's configuration of the flags.
func (a *app) complete() error {
	cfg := &a.cfg
	cfg.Endpoints, cfg.KeepAlive, cfg.KeepAliveTimeout = a.endpoints, max(a.keepAlive, 10*time.Second), a.keepAliveWait
	if a.token != "" {
		if a.user != "" || a.password != "" {
			return badArgs("--auth-jwt-token cannot be used with --user and --password")
		}
		cfg.Token = func(context.Context) (client.Token, error) { return client.Token{Value: a.token}, nil }
		return nil
	}
	cfg.Username, cfg.Password = a.user, a.password
	if name, password, ok := strings.Cut(a.user, ":"); ok && a.password == "" {
		cfg.Username, cfg.Password = name, password
	} else if a.user != "" && a.password == "" {
		password, err := a.askPassword("Password: ")
		if err != nil {
			return &exit{exitFailure, err}
		}
		cfg.Password = password
	}
	return nil
}

// askPassword reads a password from the terminal, or a line from a standard input that is none.
func (a *app) askPassword(prompt string) (string, error) {
	if f, ok := a.in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprint(a.errOut, prompt)
		b, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(a.errOut)
		return string(b), err
	}
	return "", errors.New("a password is needed, and standard input is no terminal: give --password or --user NAME:PASSWORD")
}

// short returns the context of a short command.
func (a *app) short(c *cobra.Command) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.Context(), a.commandTimeout+a.cfg.DialTimeout)
}

// printer returns what prints answers.
func (a *app) printer() (*show.Printer, error) {
	for _, f := range show.Formats {
		if f == a.format {
			return &show.Printer{Out: a.out, Format: show.Format(f), Hex: a.hex}, nil
		}
	}
	return nil, &exit{exitBadFeature, fmt.Errorf("unsupported output format %q: --write-out takes %s", a.format, strings.Join(show.Formats, ", "))}
}

// print prints an answer.
func (a *app) print(answer show.Answer) error {
	p, err := a.printer()
	if err != nil {
		return err
	}
	var no *show.UnsupportedError
	if err = p.Print(answer); errors.As(err, &no) {
		return &exit{exitBadFeature, err}
	}
	return err
}

// session is a connection to a cluster for one short command.
type session struct {
	ctx    context.Context
	client *client.Client
	// conn makes calls with the messages of the API, as printing needs them.
	conn grpc.ClientConnInterface
}

// do runs a short command.
func (a *app) do(c *cobra.Command, run func(s session) error) error {
	cl, err := a.connect()
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := a.short(c)
	defer cancel()
	return failed(run(session{ctx, cl, cl.Conn()}))
}

// call runs a short command that prints an answer.
func (a *app) call(c *cobra.Command, run func(s session) (show.Answer, error)) error {
	return a.do(c, func(s session) error {
		answer, err := run(s)
		if err != nil {
			return err
		}
		return a.print(answer)
	})
}

// failed gives an error of a call the words of the member alone, and an exit code.
func failed(err error) error {
	var e *exit
	if err == nil || errors.As(err, &e) {
		return err
	}
	if s, ok := status.FromError(err); ok && s.Code() != codes.OK {
		if errors.Is(err, client.ErrUnreachable) {
			return &exit{exitFailure, err}
		}
		if s.Code() == codes.DeadlineExceeded && !strings.HasPrefix(s.Message(), "etcdserver:") {
			return &exit{exitFailure, context.DeadlineExceeded}
		}
		return &exit{exitFailure, errors.New(s.Message())}
	}
	return &exit{exitFailure, err}
}

// long runs a command that takes as long as it needs, until it is interrupted.
func (a *app) long(c *cobra.Command, run func(ctx context.Context, cl *client.Client) error) error {
	cl, err := a.connect()
	if err != nil {
		return err
	}
	defer cl.Close()
	err = run(c.Context(), cl)
	if c.Context().Err() != nil {
		return &exit{exitInterrupted, errors.New("interrupted")}
	}
	return failed(err)
}
