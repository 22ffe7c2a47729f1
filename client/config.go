package client

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math"
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

// Config says how to reach a cluster. Only Endpoints must be set; the zero value of the rest is its default.
type Config struct {
	// Endpoints are where members serve clients: host:port, http://host:port, https://host:port, unix:///path
	// or unixs:///path. All of them use TLS or none does: https and unixs ask for it, and so does setting TLS or
	// TLSFiles. One member is enough to begin with if SyncInterval is set or Sync called.
	Endpoints []string
	// SyncInterval is how often the list of members is asked for and added to Endpoints. 0 means never, because
	// what members advertise need not be reachable from here.
	SyncInterval time.Duration

	// TLS is used as it is. TLSFiles is read again when its files change. Only one may be set.
	TLS      *tls.Config
	TLSFiles TLSFiles

	// Username and Password are exchanged for a token when one is needed.
	Username, Password string
	// Token returns a token, of an identity provider for instance, instead. It is asked again before the token
	// expires and when a server refuses it, by one goroutine at a time, and must return when its context ends. While
	// it fails, a token that has not expired is used on.
	Token func(context.Context) (Token, error)

	// DialTimeout is how long a call waits for any member to be reachable before it fails with ErrUnreachable.
	DialTimeout time.Duration
	// KeepAlive is how long a connection is silent before the member is asked for a sign of life, at least
	// 10s, and KeepAliveTimeout how long it may take to give one before the connection is given up.
	KeepAlive, KeepAliveTimeout time.Duration
	// MaxSendBytes and MaxReceiveBytes are the sizes of the largest messages.
	MaxSendBytes, MaxReceiveBytes int
	// MaxAttempts is how often a call is tried in all before its error is returned. Reads are tried again
	// whenever another attempt may help, writes only if it is certain that they were not applied.
	// Between two attempts there is a pause that doubles from 25ms to 1s, with jitter.
	MaxAttempts int
	// WatchBuffer is how many bytes of events wait for a watcher's reader; see Watcher.
	WatchBuffer int

	// Namespace is put before every key and removed from every answer; see Client.In.
	Namespace string

	// Logger gets what happens to connections and tokens, never keys, values or secrets. Default: nothing.
	Logger *slog.Logger
	// Hooks are told what happens, for metrics and traces.
	Hooks Hooks
	// DialOptions are added to those of the client, for a proxy or for grpc's own instrumentation.
	DialOptions []grpc.DialOption
}

// Token is what proves who a client is.
type Token struct {
	Value string
	// Expires is when it stops being valid; zero if that is not known.
	Expires time.Time
}

func (c *Config) setDefaults() {
	def(&c.DialTimeout, DefaultDialTimeout)
	def(&c.KeepAlive, DefaultKeepAlive)
	def(&c.KeepAliveTimeout, DefaultKeepAliveTimeout)
	def(&c.MaxSendBytes, DefaultMaxSendBytes)
	def(&c.MaxReceiveBytes, DefaultMaxReceiveBytes)
	def(&c.MaxAttempts, DefaultMaxAttempts)
	def(&c.WatchBuffer, DefaultWatchBuffer)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate reports everything that is wrong.
func (c *Config) Validate() error {
	var wrong []error
	bad := func(format string, args ...any) { wrong = append(wrong, invalid(format, args...)) }
	if len(c.Endpoints) == 0 {
		bad("no endpoint: give at least one, such as 127.0.0.1:2379")
	}
	var plain, secure string
	for _, s := range c.Endpoints {
		e, err := pool.Parse(s)
		switch {
		case err != nil:
			wrong = append(wrong, err)
		case e.Scheme == pool.SchemeSecure:
			secure = s
		case e.Scheme == pool.SchemePlain:
			plain = s
		}
	}
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
	for name, d := range map[string]time.Duration{"SyncInterval": c.SyncInterval, "DialTimeout": c.DialTimeout, "KeepAlive": c.KeepAlive, "KeepAliveTimeout": c.KeepAliveTimeout} {
		if d < 0 {
			bad("%s is %v: it cannot be negative", name, d)
		}
	}
	for name, n := range map[string]int{"MaxSendBytes": c.MaxSendBytes, "MaxReceiveBytes": c.MaxReceiveBytes, "MaxAttempts": c.MaxAttempts, "WatchBuffer": c.WatchBuffer} {
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
	return pool.Config{
		Secure: c.secure(), Credentials: c.transport(), ServerName: serverName, Codec: newCodec(),
		DialTimeout: c.DialTimeout, KeepAlive: c.KeepAlive, KeepAliveTimeout: c.KeepAliveTimeout,
		MaxSendBytes: c.MaxSendBytes, MaxReceiveBytes: c.MaxReceiveBytes, DialOptions: c.DialOptions, Logger: c.Logger,
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

// SecureHTTP returns what connections that are not this package's need to speak TLS with members as the configuration
// says, for their metrics for instance; nil if they speak it without. The files are read once.
func (c *Config) SecureHTTP() (*tls.Config, error) {
	switch {
	case !c.secure():
		return nil, nil
	case c.TLS != nil:
		return c.TLS.Clone(), nil
	}
	return c.TLSFiles.load()
}
