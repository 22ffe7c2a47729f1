package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"vigil/client/internal/pool"
)

// Defaults of Config.
const (
	DefaultDialTimeout      = 5 * time.Second
	DefaultKeepAlive        = 10 * time.Second
	DefaultKeepAliveTimeout = 5 * time.Second
	DefaultMaxSendBytes     = 2 << 20
	DefaultMaxReceiveBytes  = math.MaxInt32
	DefaultMaxAttempts      = 12
	DefaultWatchBuffer      = 4 << 20
)

// Config configures a client. Only Endpoints must be set; the zero value of every other field means
// its default.
type Config struct {
	// Endpoints are the addresses at which members serve clients: host:port, http://host:port,
	// https://host:port, unix:///path or unixs:///path. All of them use TLS or none does: https and
	// unixs select it, and so does setting TLS or [TLSFiles]. One member is enough if SyncInterval
	// is set or [Client.Sync] is called.
	Endpoints []string
	// SyncInterval is how often the client lists the members and adds them to Endpoints. 0 means
	// never, because the advertised addresses need not be reachable from the client.
	SyncInterval time.Duration

	// TLS is used unchanged. [TLSFiles] is read again when its files change. Only one may be set.
	TLS      *tls.Config
	TLSFiles TLSFiles

	// Username and Password are exchanged for a token when one is needed.
	Username, Password string
	// Token returns a token instead, for instance of an identity provider. It is called again
	// before the token expires and when a server refuses it, by one goroutine at a time, and must
	// return when its context ends. While it fails, a token that has not expired stays in use.
	Token func(context.Context) (Token, error)

	// DialTimeout is how long a call waits for any member to be reachable before it fails with
	// [ErrUnreachable].
	DialTimeout time.Duration
	// KeepAlive is how long a connection is silent before the client pings the member, at least
	// 10s. KeepAliveTimeout is how long the member may take to answer before the connection is
	// closed.
	KeepAlive, KeepAliveTimeout time.Duration
	// MaxSendBytes and MaxReceiveBytes are the sizes of the largest messages.
	MaxSendBytes, MaxReceiveBytes int
	// MaxAttempts bounds the attempts of a call before its error is returned. Reads are retried
	// whenever another attempt may help, writes only if it is certain that they were not applied.
	// The pause between attempts doubles from 25ms to 1s, with jitter.
	MaxAttempts int
	// WatchBuffer is the size of a watcher's buffer of events in bytes; see Watcher.
	WatchBuffer int

	// Namespace is put before every key and removed from every answer; see [Client.In].
	Namespace string

	// Logger receives messages about connections and tokens, never keys, values or secrets. By
	// default nothing is logged.
	Logger *slog.Logger
	// Hooks are called for metrics and traces.
	Hooks Hooks
	// DialOptions are added to the client's, for instance for a proxy or for instrumentation of
	// gRPC.
	DialOptions []grpc.DialOption
}

// Token proves the identity of a client.
type Token struct {
	Value string
	// Expires is the end of its validity; zero if that is not known.
	Expires time.Time
}

func (c *Config) setDefaults() {
	c.DialTimeout = cmp.Or(c.DialTimeout, DefaultDialTimeout)
	c.KeepAlive = cmp.Or(c.KeepAlive, DefaultKeepAlive)
	c.KeepAliveTimeout = cmp.Or(c.KeepAliveTimeout, DefaultKeepAliveTimeout)
	c.MaxSendBytes = cmp.Or(c.MaxSendBytes, DefaultMaxSendBytes)
	c.MaxReceiveBytes = cmp.Or(c.MaxReceiveBytes, DefaultMaxReceiveBytes)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, DefaultMaxAttempts)
	c.WatchBuffer = cmp.Or(c.WatchBuffer, DefaultWatchBuffer)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// Validate reports all invalid fields.
func (c *Config) Validate() error {
	var wrong []error
	bad := func(format string, args ...any) { wrong = append(wrong, invalid(format, args...)) }
	if len(c.Endpoints) == 0 {
		bad("no endpoint: give at least one, such as 127.0.0.1:2379")
	}
	plain, secure, errs := pool.Check(c.Endpoints)
	wrong = append(wrong, errs...)
	switch {
	case plain != "" && secure != "":
		bad("endpoint %q is without TLS and %q with: use one or the other", plain, secure)
	case plain != "" && (c.TLS != nil || c.TLSFiles.set()):
		bad("endpoint %q is without TLS, but TLS is configured: write https:// or unixs://, or leave TLS out", plain)
	}
	if c.TLS != nil && c.TLSFiles.set() {
		bad("TLS and TLSFiles are both set: use one")
	}
	wrong = append(wrong, c.TLSFiles.validate()...)
	if c.Token != nil && c.Username != "" {
		bad("Token and Username are both set: use one")
	}
	if c.Username == "" && c.Password != "" {
		bad("Password is set and Username is not")
	}
	for name, d := range map[string]time.Duration{"SyncInterval": c.SyncInterval,
		"DialTimeout": c.DialTimeout, "KeepAlive": c.KeepAlive,
		"KeepAliveTimeout": c.KeepAliveTimeout} {
		if d < 0 {
			bad("%s is %v: it cannot be negative", name, d)
		}
	}
	for name, n := range map[string]int{"MaxSendBytes": c.MaxSendBytes,
		"MaxReceiveBytes": c.MaxReceiveBytes, "MaxAttempts": c.MaxAttempts,
		"WatchBuffer": c.WatchBuffer} {
		if n < 0 {
			bad("%s is %d: it cannot be negative", name, n)
		}
	}
	return errors.Join(wrong...)
}

// pool returns the configuration of the connections. Defaults are set.
func (c *Config) pool() pool.Config {
	serverName := c.TLSFiles.ServerName
	if c.TLS != nil && c.TLS.ServerName != "" {
		serverName = c.TLS.ServerName
	}
	demanded := new(atomic.Bool)
	return pool.Config{
		Secure: c.secure(), Credentials: c.transport(demanded), Demanded: demanded.Load,
		ServerName: serverName, Codec: newCodec(),
		DialTimeout: c.DialTimeout, KeepAlive: c.KeepAlive, KeepAliveTimeout: c.KeepAliveTimeout,
		MaxSendBytes: c.MaxSendBytes, MaxReceiveBytes: c.MaxReceiveBytes,
		DialOptions: c.DialOptions, Logger: c.Logger,
		Changed: func(endpoint string, s pool.State, err error) {
			if c.Hooks.Member != nil {
				c.Hooks.Member(endpoint, MemberState(s), err)
			}
		},
	}
}

// secure reports whether connections use TLS. The configuration is valid.
func (c *Config) secure() bool {
	if c.TLS != nil || c.TLSFiles.set() {
		return true
	}
	e, _ := pool.Parse(c.Endpoints[0])
	return e.Scheme == pool.SchemeSecure
}

// SecureHTTP returns the TLS configuration for other connections to the members, for instance for
// their metrics. It is nil if the client does not use TLS. The files are read once.
func (c *Config) SecureHTTP() (*tls.Config, error) {
	switch {
	case !c.secure():
		return nil, nil
	case c.TLS != nil:
		return c.TLS.Clone(), nil
	}
	return c.TLSFiles.load()
}
