package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// Client talks to a cluster. It is safe for concurrent use, and so are clients derived from it by In and At,
// which share its connection.
type Client struct {
	core *core
	// pin is the member that all calls go to, nil if any will do.
	pin *member
	// ns is put before keys.
	ns namespace
	// derived tells that closing it closes nothing.
	derived bool
}

// core is what derived clients share.
type core struct {
	cfg    Config
	creds  credentials.TransportCredentials
	codec  codec
	ctx    context.Context
	cancel context.CancelFunc
	// tasks are all goroutines.
	tasks  sync.WaitGroup
	pool   *pool
	tokens *tokens
	watch  *watches
}

// New returns a client. It checks the configuration and does not wait for a connection; the first call does.
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	ctx, cancel := context.WithCancel(context.Background())
	c := &core{cfg: cfg, creds: cfg.transport(), codec: newCodec(), ctx: ctx, cancel: cancel}
	c.pool = newPool(c)
	c.tokens = newTokens(c)
	c.watch = newWatches(c)
	client := &Client{core: c, ns: namespace(cfg.Namespace)}
	if err := c.pool.add(parseAll(cfg.Endpoints), true); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	c.tasks.Go(c.pool.balance)
	if cfg.SyncInterval > 0 {
		c.tasks.Go(func() { keepSynced(client) })
	}
	return client, nil
}

// Connect is New, and waits until a member is reached and the client has a token if it needs one.
func Connect(ctx context.Context, cfg Config) (*Client, error) {
	c, err := New(cfg)
	if err != nil {
		return nil, err
	}
	m, err := c.core.pool.pick(ctx, nil, nil)
	if err == nil {
		m.release()
		_, err = c.core.tokens.get(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Close ends all watchers and calls, with ErrClosed, and the connections. It returns when nothing of the
// client runs any more. Closing a derived client closes nothing.
func (c *Client) Close() error {
	if c.derived {
		return nil
	}
	c.core.cancel()
	c.core.tokens.close()
	c.core.watch.close()
	c.core.pool.close()
	c.core.tasks.Wait()
	return nil
}

// In returns a client for which prefix is put before every key, behind that of c. Keys in answers and events
// come without it.
func (c *Client) In(prefix string) *Client {
	d := *c
	d.ns += namespace(prefix)
	d.derived = true
	return &d
}

// At returns a client all whose calls go to one member, whether it is healthy or not: for questions about
// that member, such as Status. It fails only if the endpoint makes no sense.
func (c *Client) At(endpoint string) (*Client, error) {
	e, err := parseEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	if secure := c.core.cfg.secure(); e.scheme == schemeSecure && !secure || e.scheme == schemePlain && secure {
		return nil, invalid("endpoint %q: the client is configured with TLS: %v", endpoint, secure)
	}
	m, err := c.core.pool.find(e)
	if err != nil {
		return nil, err
	}
	d := *c
	d.pin, d.derived = m, true
	return &d, nil
}

// Endpoints returns the addresses of the members that the client knows.
func (c *Client) Endpoints() []string {
	list, _ := c.core.pool.list()
	var names []string
	for _, m := range list {
		names = append(names, m.name)
	}
	return names
}

// SetEndpoints replaces the configured endpoints and those found by Sync. Calls that run at one that is gone are
// answered there; watchers and keep-alives go on at another.
func (c *Client) SetEndpoints(endpoints ...string) error {
	cfg := c.core.cfg
	cfg.Endpoints = endpoints
	if err := cfg.Validate(); err != nil {
		return err
	}
	secure := cfg.secure()
	if secure != c.core.cfg.secure() {
		return invalid("endpoints %q: the client is configured with TLS: %v", endpoints, !secure)
	}
	c.core.pool.unseed()
	list := parseAll(endpoints)
	return errors.Join(c.core.pool.add(list, false), c.core.pool.add(list, true))
}

// Member returns the endpoint that calls go to now, empty if none is connected.
func (c *Client) Member() string {
	m := c.pin
	if m == nil {
		m = c.core.pool.current.Load()
	}
	if m == nil || !m.connected() {
		return ""
	}
	return m.name
}

// Sync asks the cluster for its members and adds the client URLs of those that vote and have been started.
// Configured endpoints stay.
func (c *Client) Sync(ctx context.Context) error {
	r, err := c.MemberList(ctx)
	if err != nil {
		return err
	}
	secure := c.core.cfg.secure()
	var list []endpoint
	for _, m := range r.Members {
		if m.IsLearner {
			continue
		}
		for _, u := range m.ClientURLs {
			e, err := parseEndpoint(u)
			if err != nil || (e.scheme == schemeSecure) != secure {
				c.core.cfg.Logger.Debug("left out an advertised URL", "url", u, "error", err)
				continue
			}
			list = append(list, e)
		}
	}
	return c.core.pool.add(list, false)
}

// keepSynced lists the members from time to time and adds them to the pool.
func keepSynced(c *Client) {
	t := time.NewTicker(c.core.cfg.SyncInterval)
	defer t.Stop()
	for {
		ctx, cancel := context.WithTimeout(c.core.ctx, c.core.cfg.SyncInterval+c.core.cfg.DialTimeout)
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
