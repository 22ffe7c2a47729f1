package client

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"vigil/client/internal/credential"
	"vigil/client/internal/namespace"
	"vigil/client/internal/pool"
)

// Client talks to a cluster. It is safe for concurrent use, and so are clients derived from it by
// [Client.In] and [Client.At], which share its connection.
type Client struct {
	core *core
	// pin is the only member that calls use, nil if they may use any.
	pin *pool.Member
	// ns is put before keys.
	ns keyspace
	// derived: Close does nothing.
	derived bool
}

// core is the state that derived clients share.
type core struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	// tasks are all goroutines.
	tasks  sync.WaitGroup
	pool   *pool.Pool
	tokens *credential.Cache
	watch  *watchers
}

// New checks the configuration and returns a client. The first call waits for a connection.
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	ctx, cancel := context.WithCancel(context.Background())
	c := &core{cfg: cfg, ctx: ctx, cancel: cancel, pool: pool.New(cfg.pool())}
	c.tokens = credential.NewCache(c.tokenSource(), cfg.Logger)
	c.watch = newWatchers()
	client := &Client{core: c, ns: keyspace{namespace.Prefix(cfg.Namespace)}}
	if err := c.pool.Add(pool.ParseAll(cfg.Endpoints), true); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	if cfg.SyncInterval > 0 {
		c.tasks.Go(func() { keepSynced(client) })
	}
	return client, nil
}

// Connect is [New], and waits until a member is reached and the client has the token that it may
// need.
func Connect(ctx context.Context, cfg Config) (*Client, error) {
	c, err := New(cfg)
	if err != nil {
		return nil, err
	}
	m, err := c.core.pool.Pick(ctx, nil, nil)
	if err == nil {
		m.Release()
		_, err = c.core.tokens.Get(ctx)
	}
	if err != nil {
		return nil, errors.Join(localCause(err), c.Close())
	}
	return c, nil
}

// Close ends all watchers and calls, with [ErrClosed], and the connections. It returns when all
// goroutines of the client have ended. Closing a derived client does nothing.
func (c *Client) Close() error {
	if c.derived {
		return nil
	}
	c.core.cancel()
	c.core.tokens.Close()
	c.core.watch.finishAll()
	c.core.pool.Close()
	c.core.tasks.Wait()
	return nil
}

// In returns a client that puts prefix before every key, after the prefix of c. It removes both
// from the keys of answers and events.
func (c *Client) In(prefix string) *Client {
	d := *c
	d.ns.Prefix += namespace.Prefix(prefix)
	d.derived = true
	return &d
}

// At returns a client that makes all calls at one member, healthy or not: for calls about that
// member, such as Status. It fails only if the endpoint is invalid.
func (c *Client) At(endpoint string) (*Client, error) {
	e, err := pool.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	if secure := c.core.cfg.secure(); e.Scheme == pool.SchemeSecure && !secure ||
		e.Scheme == pool.SchemePlain && secure {
		return nil, otherTLS(endpoint, secure)
	}
	m, err := c.core.pool.Find(e)
	if err != nil {
		return nil, err
	}
	d := *c
	d.pin, d.derived = m, true
	return &d, nil
}

// otherTLS is the error of endpoints that use TLS where the client does not, or the reverse.
func otherTLS(endpoints string, clientSecure bool) error {
	if clientSecure {
		return invalid("endpoint %q is without TLS, but the client uses it: write https:// or unixs://", endpoints)
	}
	return invalid("endpoint %q uses TLS, but the client does not: make a client with TLS",
		endpoints)
}

// Endpoints returns the addresses of the members that the client knows.
func (c *Client) Endpoints() []string {
	return c.core.pool.Names()
}

// SetEndpoints replaces the configured endpoints and those found by [Client.Sync]. Running calls at
// a removed member end there; watchers and keep-alives continue at another.
func (c *Client) SetEndpoints(endpoints ...string) error {
	cfg := c.core.cfg
	cfg.Endpoints = endpoints
	if err := cfg.Validate(); err != nil {
		return err
	}
	secure := cfg.secure()
	if secure != c.core.cfg.secure() {
		return otherTLS(strings.Join(endpoints, ","), !secure)
	}
	c.core.pool.Unseed()
	list := pool.ParseAll(endpoints)
	return errors.Join(c.core.pool.Add(list, false), c.core.pool.Add(list, true))
}

// Member returns the endpoint that calls use now, empty if none is connected.
func (c *Client) Member() string {
	m := c.pin
	if m == nil {
		m = c.core.pool.Current()
	}
	if m == nil || !m.Connected() {
		return ""
	}
	return m.Name()
}

// Sync lists the members of the cluster and adds the client URLs of the voting members that have
// been started. Configured endpoints stay.
func (c *Client) Sync(ctx context.Context) error {
	r, err := c.Cluster().MemberList(ctx)
	if err != nil {
		return err
	}
	secure := c.core.cfg.secure()
	var list []pool.Endpoint
	for _, m := range r.Members {
		if m.IsLearner {
			continue
		}
		for _, u := range m.ClientURLs {
			e, err := pool.Parse(u)
			if err != nil || (e.Scheme == pool.SchemeSecure) != secure {
				c.core.cfg.Logger.Debug("left out an advertised URL", "url", u, "error", err)
				continue
			}
			list = append(list, e)
		}
	}
	return c.core.pool.Add(list, false)
}

// keepSynced lists the members from time to time and adds them to the pool.
func keepSynced(c *Client) {
	t := time.NewTicker(c.core.cfg.SyncInterval)
	defer t.Stop()
	for {
		ctx, cancel := context.WithTimeout(c.core.ctx,
			c.core.cfg.SyncInterval+c.core.cfg.DialTimeout)
		err := c.Sync(ctx)
		cancel()
		if err != nil && c.core.ctx.Err() == nil {
			c.core.cfg.Logger.Warn("cannot list members", "error", err)
		}
		select {
		case <-t.C:
		case <-c.core.ctx.Done():
			return
		}
	}
}
