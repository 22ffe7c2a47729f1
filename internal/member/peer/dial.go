package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

var errHandshakeTLS = errors.New("TLS handshake")

// dialMember opens a stream to a member. It tries the URL that worked last, then the others, then
// invites the member.
func (t *Transport) dialMember(ctx context.Context, p *remote, k kind) (*link, error) {
	urls := p.urls()
	if len(urls) == 0 {
		return nil, fmt.Errorf("member %x has no peer URL", p.id)
	}
	t.mu.Lock()
	h := t.helloLocked(k, p.id)
	t.mu.Unlock()
	d := t.o.dialer(k)
	d.limits.since = t.began
	var errs []error
	for i, u := range urls {
		l, err := d.dial(ctx, u, &h, &p.stats.sentBytes, &p.stats.receivedBytes)
		if err == nil {
			p.mu.Lock()
			p.mu.good += i
			p.mu.undialed = time.Time{}
			p.mu.Unlock()
			return l, nil
		}
		errs = append(errs, err)
	}
	err := errors.Join(errs...)
	if ctx.Err() != nil {
		return nil, err // the caller gave up, which says nothing about the member
	}
	p.mu.Lock()
	now := time.Now()
	if reached(err) {
		p.mu.undialed = time.Time{}
	} else if p.mu.undialed.IsZero() {
		p.mu.undialed = now
	}
	since := p.mu.undialed
	p.mu.Unlock()
	if !since.IsZero() && now.Sub(since) >= lastingFailure*t.o.BackoffMin {
		p.noteDialFailed(err) // also if the invited member connects
		if l := p.invite(ctx, k, err); l != nil {
			l.invited = true
			return l, nil
		}
	}
	return nil, err
}

// helloLocked returns the hello of this member.
func (t *Transport) helloLocked(k kind, to uint64) hello {
	return hello{minProtocol: minProtocol, maxProtocol: maxProtocol, kind: k,
		cluster: t.o.ClusterID, from: t.o.MemberID,
		to: to, index: t.mu.index, version: t.o.Version, urls: t.mu.self, flags: flagComes}
}

func (o *Options) dialer(k kind) *dialer {
	limits := linkLimits{dead: o.DeadAfter, write: o.DeadAfter, ping: o.PingInterval}
	if k == kindBulk {
		limits.write = o.BulkStall // a receiver that is slow and gives signs of life is not dead
	}
	return &dialer{tls: o.ClientTLS, connect: o.Dial, local: net.ParseIP(o.LocalAddr),
		timeout: o.DialTimeout, handshake: o.HandshakeTimeout,
		limits: limits, limit: max(o.MaxCallBytes+requestHeader, maxFrame)}
}

// dialer makes connections and their handshakes.
type dialer struct {
	tls func() *tls.Config
	// nil: net.Dialer
	connect func(ctx context.Context, network, address string) (net.Conn, error)
	// nil: the system chooses
	local net.IP
	// nil: net.Resolver
	lookup             func(ctx context.Context, host string) ([]net.IPAddr, error)
	timeout, handshake time.Duration
	limits             linkLimits
	limit              int
	// ready, if set, is called before the hello is sent.
	ready func(net.Conn) error
}

func (d *dialer) dial(ctx context.Context, url string, h *hello, sent,
	received *atomic.Uint64) (*link, error) {
	to, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	conn, err := d.open(ctx, to)
	if err != nil {
		return nil, err
	}
	tune(conn, d.limits.write)
	l, err := d.greet(ctx, conn, to, h, sent, received)
	if err != nil {
		conn.Close()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	return l, nil
}

// open makes a connection.
func (d *dialer) open(ctx context.Context, to target) (net.Conn, error) {
	if d.connect != nil {
		ctx, cancel := context.WithTimeout(ctx, d.timeout)
		defer cancel()
		return d.connect(ctx, to.network, to.addr)
	}
	nd := net.Dialer{Timeout: d.timeout, KeepAliveConfig: keepAlive}
	if d.local != nil && to.network == "tcp" {
		nd.LocalAddr = &net.TCPAddr{IP: d.local}
	}
	conn, err := nd.DialContext(ctx, to.network, to.addr)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return d.openEach(ctx, &nd, to, err)
	}
	return conn, err
}

// openEach dials each address of a host separately. The net package returns only the first of
// several errors, which does not show whether all addresses refused.
func (d *dialer) openEach(ctx context.Context, nd *net.Dialer, to target,
	first error) (net.Conn, error) {
	lookup := d.lookup
	if lookup == nil {
		lookup = net.DefaultResolver.LookupIPAddr
	}
	host, port, err := net.SplitHostPort(to.addr)
	if err != nil || to.network != "tcp" {
		return nil, first
	}
	addrs, err := lookup(ctx, host)
	if err != nil || len(addrs) < 2 {
		return nil, errors.Join(first, err)
	}
	var errs []error
	for _, a := range addrs {
		conn, err := nd.DialContext(ctx, to.network, net.JoinHostPort(a.String(), port))
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func (d *dialer) greet(ctx context.Context, conn net.Conn, to target, h *hello, sent,
	received *atomic.Uint64) (*link, error) {
	raw := conn
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(d.handshake)); err != nil {
		return nil, err
	}
	if to.secure {
		c, err := d.secure(ctx, conn, to)
		if err != nil {
			return nil, err
		}
		conn = c
	}
	if d.ready != nil {
		if err := d.ready(conn); err != nil {
			return nil, err
		}
	}
	if _, err := conn.Write(h.encode()); err != nil {
		return nil, err
	}
	g := greet(conn)
	body, err := readSealed(g.br)
	if err != nil {
		return nil, fmt.Errorf("no answer to the handshake: %w", err)
	}
	r, err := decodeReply(body)
	if err != nil {
		return nil, err
	}
	if err := d.check(h, &r); err != nil {
		return nil, err
	}
	return g.open(identity{r.cluster, r.member, r.version, h.flags&flagReversed != 0}, d.limits,
		d.limit, sent, received)
}

func (d *dialer) secure(ctx context.Context, conn net.Conn, to target) (net.Conn, error) {
	var config *tls.Config
	if d.tls != nil {
		config = d.tls()
	}
	if config == nil {
		return nil, errors.New("no certificates are configured for https peer URLs")
	}
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName = to.host
		if to.host == "" {
			config.ServerName = "localhost" // a unix socket
		}
	}
	c := tls.Client(conn, config)
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", errHandshakeTLS, err)
	}
	return c, nil
}

// check compares the identity of the other side with the intended one.
func (d *dialer) check(h *hello, r *reply) error {
	by := func(e *Error) *Error {
		e.cluster, e.member = r.cluster, r.member
		return e
	}
	switch {
	case h.cluster != 0 && r.cluster != h.cluster && r.code != CodeCluster:
		return by(refuse(CodeCluster, "it belongs to cluster %x, this member to %x",
			r.cluster, h.cluster))
	case r.code != 0:
		return fmt.Errorf("refused: %w", by(&Error{Code: r.code, Text: r.text, remote: true}))
	case h.to != 0 && r.member != h.to:
		return by(refuse(CodeMember, "it is member %x, not %x", r.member, h.to))
	case r.protocol < h.minProtocol || r.protocol > h.maxProtocol:
		return by(refuse(CodeVersion, "it chose version %d of the protocol, offered were %d to %d",
			r.protocol, h.minProtocol, h.maxProtocol))
	}
	return nil
}
