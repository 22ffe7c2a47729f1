package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"vigil/client"
	"vigil/cmd/vigilctl/show"
	"vigil/internal/member/discovery"
)

// app is what the commands that talk to a cluster have in common: the global flags, and how to use them.
type app struct {
	in     io.Reader
	out    *output
	errOut io.Writer

	endpoints                []string
	format                   string
	hex, debug               bool
	commandTimeout           time.Duration
	keepAlive, keepAliveWait time.Duration
	insecure, insecureSRV    bool
	user, password, token    string
	srvDomain, srvName       string
	cfg                      client.Config
	// completed tells that cfg has been made of the flags.
	completed bool
}

// addTo declares the global flags, which are etcdctl's.
func (a *app) addTo(flags *pflag.FlagSet) {
	flags.StringSliceVar(&a.endpoints, "endpoints", []string{"127.0.0.1:2379"}, "the members to talk to, `HOST:PORT,...` or URLs")
	flags.StringVarP(&a.format, "write-out", "w", string(show.Simple), "how to print: `FORMAT` "+strings.Join(show.Formats, ", "))
	flags.BoolVar(&a.hex, "hex", false, "print keys and values in hexadecimal")
	flags.BoolVar(&a.debug, "debug", false, "tell on stderr what happens to connections")
	flags.DurationVar(&a.cfg.DialTimeout, "dial-timeout", 2*time.Second, "how long members may take to be reached")
	flags.DurationVar(&a.commandTimeout, "command-timeout", 5*time.Second, "how long a short command may take besides")
	flags.DurationVar(&a.keepAlive, "keepalive-time", 2*time.Second, "silence after which a member is asked for a sign of life; less than 10s is 10s")
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
	if err := a.fromEnvironment(c.InheritedFlags()); err != nil {
		return err
	}
	for _, name := range []string{"cert", "key", "cacert"} {
		if f := c.InheritedFlags().Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
			return badArgs("empty string is passed to --%s option", name)
		}
	}
	if a.debug {
		c.InheritedFlags().VisitAll(func(f *pflag.Flag) {
			v := f.Value.String()
			if v != "" && slices.Contains([]string{"user", "password", "auth-jwt-token"}, f.Name) {
				v = "(not shown)"
			}
			fmt.Fprintf(a.errOut, "%s=%s\n", variable("VIGILCTL_", f.Name), v)
		})
	}
	return nil
}

// prefixes are those of environment variables; the first counts most.
var prefixes = []string{"VIGILCTL_", "ETCDCTL_"}

// variable returns the environment variable of a flag.
func variable(prefix, flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// notFlags are variables with our prefixes that are no global flags.
var notFlags = []string{"API", "WATCH_KEY", "WATCH_RANGE_END"}

// fromEnvironment sets the flags that were not given and whose environment variable is set: VIGILCTL_ENDPOINTS for
// --endpoints, or ETCDCTL_ENDPOINTS. Both a flag and its variable are a mistake.
func (a *app) fromEnvironment(flags *pflag.FlagSet) error {
	var wrong error
	known := map[string]bool{}
	for _, prefix := range prefixes {
		for _, name := range notFlags {
			known[prefix+name] = true
		}
	}
	flags.VisitAll(func(f *pflag.Flag) {
		given, taken := f.Changed, false
		for _, prefix := range prefixes {
			name := variable(prefix, f.Name)
			known[name] = true
			v, ok := os.LookupEnv(name)
			switch {
			case ok && given && wrong == nil:
				wrong = fmt.Errorf("--%s is given and %s is set, too: leave one of them out", f.Name, name)
			case v != "" && !taken && wrong == nil:
				taken = true
				if err := flags.Set(f.Name, v); err != nil {
					wrong = fmt.Errorf("%s: %w", name, err)
				}
			}
		}
	})
	for _, env := range os.Environ() {
		name, _, _ := strings.Cut(env, "=")
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) && !known[name] {
			fmt.Fprintf(a.errOut, "warning: the environment variable %s is not that of any flag\n", name)
		}
	}
	return wrong
}

// open returns a client of all endpoints. Nothing is dialed yet.
func (a *app) open(ctx context.Context) (*client.Client, error) {
	if err := a.complete(ctx); err != nil {
		return nil, err
	}
	c, err := client.New(a.cfg)
	if err != nil {
		return nil, &exit{exitBadConnection, err}
	}
	return c, nil
}

// connect is open, and has the client log in if it has a password: that it is wrong has an exit code of its own.
func (a *app) connect(ctx context.Context) (*client.Client, error) {
	if err := a.complete(ctx); err != nil || a.cfg.Username == "" {
		if err != nil {
			return nil, err
		}
		return a.open(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.DialTimeout+a.commandTimeout)
	defer cancel()
	c, err := client.Connect(ctx, a.cfg)
	if err != nil {
		if e, ok := errors.AsType[*client.Error](err); ok {
			err = e.GRPCStatus().Err()
		}
		return nil, &exit{exitBadConnection, failed(err)}
	}
	return c, nil
}

// complete makes the client's configuration of the flags.
func (a *app) complete(ctx context.Context) error {
	if a.completed {
		return nil
	}
	if err := a.addressing(ctx); err != nil {
		return err
	}
	if err := a.secure(&a.cfg, a.insecure, "--"); err != nil {
		return err
	}
	a.cfg.KeepAlive, a.cfg.KeepAliveTimeout = max(a.keepAlive, 10*time.Second), a.keepAliveWait
	if a.debug {
		a.cfg.Logger = slog.New(slog.NewTextHandler(a.errOut, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if a.token != "" {
		a.cfg.Token = func(context.Context) (client.Token, error) { return client.Token{Value: a.token}, nil }
	} else if err := a.identify(ctx, &a.cfg, a.user, a.password, "Password: "); err != nil {
		return err
	}
	a.completed = true
	return nil
}

// identify sets who the user is; the password is asked for if it is not given.
func (a *app) identify(ctx context.Context, cfg *client.Config, user, password, prompt string) error {
	if user == "" {
		return nil
	}
	cfg.Username, cfg.Password = user, password
	if password != "" {
		return nil
	}
	if name, rest, ok := strings.Cut(user, ":"); ok {
		cfg.Username, cfg.Password = name, rest
		return nil
	}
	var err error
	if cfg.Password, err = a.askPassword(ctx, prompt); err != nil {
		return &exit{exitFailure, err}
	}
	return nil
}

// secure decides about TLS, as etcdctl does: what a URL says counts most, then that files are given. flags is what the flags
// for them begin with.
func (a *app) secure(cfg *client.Config, insecure bool, flags string) error {
	all := func(prefixes ...string) bool {
		for _, ep := range cfg.Endpoints {
			if !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(ep, p) }) {
				return false
			}
		}
		return true
	}
	probe := *cfg
	probe.Endpoints, probe.Username = []string{"localhost:2379"}, ""
	if err := probe.Validate(); err != nil {
		words := strings.NewReplacer("invalid argument: ", "", "TLSFiles: CA:", flags+"cacert:", "TLSFiles: certificate", flags+"cert: certificate",
			"TLSFiles: Cert is", flags+"cert is", "and Key is", "and "+flags+"key is")
		return &exit{exitBadArgs, errors.New(words.Replace(err.Error()))}
	}
	switch files := cfg.TLSFiles != (client.TLSFiles{}); {
	case all("http://", "unix://", "unix:"):
		if files {
			fmt.Fprintln(a.errOut, "warning: http:// and unix:// endpoints are talked to without TLS; the certificates that were given are not used")
		}
		cfg.TLSFiles = client.TLSFiles{}
	case !files && !insecure:
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return nil
}

// tlsConfig returns what other connections than those of the client use, nil for none.
func tlsConfig(cfg *client.Config) (*tls.Config, error) {
	if cfg.TLS != nil || cfg.TLSFiles == (client.TLSFiles{}) {
		return cfg.TLS, nil
	}
	return cfg.TLSFiles.Config()
}

// addressing finds out where the members are.
func (a *app) addressing(ctx context.Context) error {
	a.cfg.Endpoints = nil
	for _, ep := range a.endpoints {
		a.cfg.Endpoints = append(a.cfg.Endpoints, strings.TrimSpace(ep))
	}
	if a.srvDomain == "" {
		return nil
	}
	found, err := discovery.Clients(ctx, net.DefaultResolver, a.srvDomain, a.srvName)
	if err != nil {
		return &exit{exitFailure, err}
	}
	var list []string
	for _, ep := range found {
		if !a.insecureSRV && strings.HasPrefix(ep, "http://") {
			fmt.Fprintf(a.errOut, "ignoring discovered insecure endpoint %q\n", ep)
			continue
		}
		list = append(list, ep)
	}
	if !a.insecureSRV {
		a.cfg.TLSFiles.ServerName = a.srvDomain
	}
	if len(list) > 0 {
		a.cfg.Endpoints = list
	}
	return nil
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
	cl, err := a.connect(c.Context())
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := a.short(c)
	defer cancel()
	return failed(run(session{ctx, cl, cl.Conn()}))
}

// during runs a command that lasts, and decides itself what an interrupt means.
func (a *app) during(c *cobra.Command, run func(s session) error) error {
	cl, err := a.connect(c.Context())
	if err != nil {
		return err
	}
	defer cl.Close()
	return failed(run(session{c.Context(), cl, cl.Conn()}))
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
			// Scripts that were written for etcdctl look for its words.
			return &exit{exitFailure, fmt.Errorf("%w: %w", context.DeadlineExceeded, err)}
		}
		if s.Code() == codes.DeadlineExceeded && !strings.HasPrefix(s.Message(), "etcdserver:") {
			return &exit{exitFailure, context.DeadlineExceeded}
		}
		return &exit{exitFailure, rpctypes.Error(s.Err())}
	}
	return &exit{exitFailure, err}
}

// long runs a command that takes as long as it needs, until it is interrupted.
func (a *app) long(c *cobra.Command, run func(ctx context.Context, cl *client.Client) error) error {
	cl, err := a.connect(c.Context())
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
