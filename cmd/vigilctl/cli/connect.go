package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"vigil/client"
	"vigil/cmd/vigilctl/exit"
	"vigil/internal/health"
	"vigil/internal/member/discovery"
)

// minKeepAlive is the shortest interval of pings that members accept.
const minKeepAlive = 10 * time.Second

// Open returns a client of all endpoints. It does not dial a member yet.
func (e *Env) Open(ctx context.Context) (*client.Client, error) {
	if err := e.configure(ctx); err != nil {
		return nil, err
	}
	cfg := e.reachable()
	c, err := client.New(cfg)
	switch {
	case err != nil && len(cfg.Endpoints) > 0 && usable(cfg.Endpoints[0]) != nil:
		return nil, exit.With(exit.Failure, err) // as etcdctl does, which finds no member there
	case err != nil:
		return nil, exit.With(exit.BadConnection, err)
	}
	return c, nil
}

// reachable removes endpoints that cannot be members, such as dns:///HOST, if others remain.
// etcdctl treats each of them as a member that it cannot reach.
func (e *Env) reachable() client.Config {
	cfg := e.Config
	cfg.Endpoints = nil
	var wrong []error
	for _, ep := range e.Config.Endpoints {
		if err := usable(ep); err != nil {
			wrong = append(wrong, err)
			continue
		}
		cfg.Endpoints = append(cfg.Endpoints, ep)
	}
	if len(cfg.Endpoints) == 0 {
		return e.Config
	}
	for _, err := range wrong {
		fmt.Fprintf(e.Stderr, "warning: %v; it is left out\n", err)
	}
	return cfg
}

// usable returns why an endpoint cannot be a member.
func usable(endpoint string) error {
	probe := client.Config{Endpoints: []string{endpoint}}
	return probe.Validate()
}

// Connect opens a client as Open does, and authenticates if there is a password. A wrong password
// has its own exit code.
func (e *Env) Connect(ctx context.Context) (*client.Client, error) {
	if err := e.configure(ctx); err != nil {
		return nil, err
	}
	if e.Config.Username == "" {
		return e.Open(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, e.Timeout())
	defer cancel()
	c, err := client.Connect(ctx, e.reachable())
	if err != nil {
		if e, ok := errors.AsType[*client.Error](err); ok {
			err = e.GRPCStatus().Err()
		}
		return nil, exit.With(exit.BadConnection, CallError(err))
	}
	return c, nil
}

// ConnectAnyway is Connect for commands that can do part of their work without logging in. Without
// a leader logging in is impossible: then the client has no credentials, and noLogin is
// health.ErrNoLogin.
func (e *Env) ConnectAnyway(ctx context.Context) (cl *client.Client, noLogin, err error) {
	cl, err = e.Connect(ctx)
	if err == nil || ctx.Err() != nil || e.Config.Username == "" ||
		!strings.Contains(err.Error(), rpctypes.ErrorDesc(rpctypes.ErrGRPCNoLeader)) {
		return cl, nil, err
	}
	cl, err = e.anonymous()
	return cl, health.ErrNoLogin, err
}

// Refused returns why a member has not answered. If it requires a user and logging in was
// impossible, that is the reason.
func Refused(err, noLogin error) error {
	if noLogin != nil && health.NeedsUser(err) {
		return noLogin
	}
	return err
}

// anonymous returns a client without credentials after Connect has failed.
func (e *Env) anonymous() (*client.Client, error) {
	cfg := e.reachable()
	cfg.Username, cfg.Password = "", ""
	return client.New(cfg)
}

// configure builds the client's configuration from the flags.
func (e *Env) configure(ctx context.Context) error {
	if e.configured {
		return nil
	}
	if err := e.checkFormat(); err != nil {
		return err
	}
	if err := e.setEndpoints(ctx); err != nil {
		return err
	}
	if err := Secure(&e.Config, e.insecure, "--", e.Stderr); err != nil {
		return err
	}
	e.Config.KeepAlive, e.Config.KeepAliveTimeout = max(e.keepAlive, minKeepAlive), e.keepAliveWait
	if e.debug {
		e.Config.Logger = slog.New(slog.NewTextHandler(e.Stderr,
			&slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if e.Token != "" {
		e.Config.Token = func(context.Context) (client.Token,
			error) {
			return client.Token{Value: e.Token}, nil
		}
	} else if err := e.Identify(ctx, &e.Config, e.user, e.password, "--",
		"Password: "); err != nil {
		return err
	}
	e.configured = true
	return nil
}

// setEndpoints sets the members to connect to.
func (e *Env) setEndpoints(ctx context.Context) error {
	e.Config.Endpoints = nil
	for _, ep := range e.Endpoints {
		e.Config.Endpoints = append(e.Config.Endpoints, strings.TrimSpace(ep))
	}
	if e.srvDomain == "" {
		return nil
	}
	found, err := discovery.Clients(ctx, net.DefaultResolver, e.srvDomain, e.srvName)
	if err != nil {
		return exit.With(exit.Failure, errors.New(strings.ReplaceAll(err.Error(), "\n", "; ")))
	}
	var list []string
	for _, ep := range found {
		if !e.insecureSRV && strings.HasPrefix(ep, "http://") {
			fmt.Fprintf(e.Stderr, "ignoring discovered insecure endpoint %q\n", ep)
			continue
		}
		list = append(list, ep)
	}
	if !e.insecureSRV {
		e.Config.TLSFiles.ServerName = e.srvDomain
	}
	if len(list) > 0 {
		e.Config.Endpoints = list
	}
	return nil
}

// Identify sets the user, NAME or NAME:PASSWORD, and the password. It asks for a missing password.
// flagPrefix is the prefix of the flag names in errors.
func (e *Env) Identify(ctx context.Context, cfg *client.Config, user, password, flagPrefix,
	prompt string) error {
	if user == "" {
		if password != "" {
			e.Note("%spassword is given without %suser, and not used", flagPrefix, flagPrefix)
		}
		return nil
	}
	cfg.Username, cfg.Password = user, password
	if password != "" {
		return nil
	}
	if name, rest, ok := strings.Cut(user, ":"); ok {
		if name == "" {
			return exit.With(exit.BadConnection,
				fmt.Errorf("%suser has no name before the colon: want NAME or NAME:PASSWORD",
					flagPrefix))
		}
		cfg.Username, cfg.Password = name, rest
		return nil
	}
	var err error
	if cfg.Password, err = e.AskPassword(ctx, prompt,
		fmt.Sprintf("give %spassword or %suser %s:PASSWORD", flagPrefix, flagPrefix,
			user)); err != nil {
		return exit.With(exit.Failure, err)
	}
	return nil
}

// Secure decides about TLS as etcdctl does: first by the schemes of the endpoints, then by the
// given files. flagPrefix is the prefix of the flag names in errors.
func Secure(cfg *client.Config, insecure bool, flagPrefix string, stderr io.Writer) error {
	all := func(prefixes ...string) bool {
		for _, ep := range cfg.Endpoints {
			if !slices.ContainsFunc(prefixes,
				func(p string) bool { return strings.HasPrefix(strings.ToLower(ep), p) }) {
				return false
			}
		}
		return true
	}
	probe := *cfg
	probe.Endpoints, probe.Username = []string{"localhost:2379"}, ""
	if err := probe.Validate(); err != nil {
		fields := strings.NewReplacer("invalid argument: ", "", "TLSFiles: CA:",
			flagPrefix+"cacert:", "TLSFiles: certificate", flagPrefix+"cert: certificate",
			"TLSFiles: Cert is", flagPrefix+"cert is", "and Key is", "and "+flagPrefix+"key is")
		return exit.With(exit.BadArgs, errors.New(fields.Replace(err.Error())))
	}
	switch files := cfg.TLSFiles != (client.TLSFiles{}); {
	case all("http://", "unix://", "unix:"):
		if files {
			fmt.Fprintln(stderr,
				"warning: http:// and unix:// endpoints are connected to without TLS; the given certificates are not used")
		}
		cfg.TLSFiles = client.TLSFiles{}
	case !files && !insecure:
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return nil
}
