package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"

	"vigil/internal/edge/certs"
	"vigil/internal/edge/listen"
	"vigil/internal/portmux"
)

// clientListener is an address that clients connect to.
type clientListener struct {
	listener net.Listener
	mux      *portmux.Mux // owns listener if it is not nil
	host     string       // of its first URL, as written there
	// plain is set for http:// and unix:// URLs of the address, secure for https:// and unixs://
	// URLs.
	plain, secure bool
	// grpc and http are the served protocols. A listener with metrics serves only metrics and
	// health.
	grpc, http, metrics bool
}

// openClientListeners listens on every client and metrics URL. URLs with the same address share a
// listener. The returned listeners are open, also with an error.
func (c *Config) openClientListeners() ([]*clientListener, error) {
	var listeners []*clientListener
	known := map[string]*clientListener{}
	split := len(c.ListenClientHTTPURLs) > 0
	for _, group := range []struct {
		flag string
		urls []string
		as   clientListener
	}{
		{"--listen-client-urls", c.ListenClientURLs, clientListener{grpc: true, http: !split}},
		{"--listen-client-http-urls", c.ListenClientHTTPURLs, clientListener{http: true}},
		{"--listen-metrics-urls", c.ListenMetricsURLs, clientListener{metrics: true}},
	} {
		for _, u := range group.urls {
			network, addr, secure, err := listen.Address(u)
			if err != nil {
				return listeners, err
			}
			l := known[network+addr]
			if l == nil {
				opened, err := c.listen(group.flag, u)
				if err != nil {
					return listeners, err
				}
				l = &clientListener{listener: opened, grpc: group.as.grpc, http: group.as.http,
					metrics: group.as.metrics}
				if parsed, err := url.Parse(u); err == nil {
					l.host = parsed.Hostname()
				}
				known[network+addr] = l
				listeners = append(listeners, l)
			} else if l.grpc != group.as.grpc || l.metrics != group.as.metrics {
				return listeners, fmt.Errorf("%s is given twice, for different things: "+
					"--listen-client-urls, --listen-client-http-urls and --listen-metrics-urls "+
					"need addresses of their own", u)
			}
			l.secure = l.secure || secure
			l.plain = l.plain || !secure
		}
	}
	return listeners, nil
}

// listen opens a listener for a URL of a flag.
func (c *Config) listen(flag, u string) (net.Listener, error) {
	o := listen.Options{Flag: flag, ReuseAddress: c.SocketReuseAddress,
		ReusePort: c.SocketReusePort}
	if c.Network != nil {
		o.Listen = c.Network.Listen
	}
	return listen.Open(u, o)
}

// limit returns the limit of connections of the listener.
func (l *clientListener) limit(limits *listen.Limits) *portmux.Limit {
	if l.metrics {
		return limits.Metrics
	}
	return limits.Clients
}

// openMux opens the multiplexer that separates the protocols of the listener.
func (l *clientListener) openMux(store *certs.Store, log *slog.Logger) (err error) {
	o := portmux.Options{Logger: log}
	if l.secure {
		o.TLS, o.RefusePlain = store.Server, !l.plain
	}
	l.mux, err = portmux.New(l.listener, o)
	return err
}

// traffic returns the served protocols in the words of etcd's log.
func (l *clientListener) traffic() string {
	switch {
	case l.grpc && l.http:
		return "grpc+http"
	case l.grpc:
		return "grpc"
	}
	return "http"
}

// servePages serves pages that say what the member waits for, on every client and metrics listener.
// Later steps of the start replace their handlers. The API is not served yet, and a listener for
// gRPC alone accepts nothing.
func (m *Member) servePages(ctx context.Context) error {
	ctx, m.reporting = context.WithCancel(context.WithoutCancel(ctx))
	m.closed = ctx.Done()
	m.openPages()
	for _, l := range m.listeners {
		if err := l.openMux(m.clientTLS, m.log); err != nil {
			return err
		}
	}
	m.serving.Go(func() { m.reportWaiting(ctx) })
	for _, l := range m.listeners {
		switch {
		case l.metrics:
			m.serveHTTP(l, m.web.admin)
		case !l.grpc:
			m.serveHTTP(l, m.web.client)
		case l.http:
			l.mux.Hold()
			m.serve(l.mux.Serve)
			m.serve(func() error { return m.web.client.Serve(l.mux.HTTP1()) })
		}
	}
	return nil
}

// serveHTTP serves HTTP only.
func (m *Member) serveHTTP(l *clientListener, s *http.Server) {
	m.serve(l.mux.Serve)
	m.serve(func() error { return s.Serve(l.mux.HTTP1()) })
	m.serve(func() error { return s.Serve(l.mux.HTTP2()) })
}

// serveClients waits until the member can answer, and then serves clients.
func (m *Member) serveClients(ctx context.Context) {
	select {
	case <-m.replica.Ready():
	case <-m.replica.Stopping():
		return
	case <-ctx.Done():
		return
	}
	for _, l := range m.listeners {
		if l.metrics {
			continue
		}
		if l.plain {
			m.log.Info("serving client traffic insecurely", "traffic", l.traffic(), "address",
				l.listener.Addr().String())
		}
		if l.secure {
			m.log.Info("serving client traffic securely", "traffic", l.traffic(), "address",
				l.listener.Addr().String())
		}
	}
	h := m.replica.Header()
	m.log.Info("ready to serve client requests",
		"cluster-id", fmt.Sprintf("%x", h.ClusterID), "member-id", fmt.Sprintf("%x", h.MemberID),
		"name", m.cfg.Name, "data-dir", m.cfg.DataDir, "revision", h.Revision)
	// Do this before the first gRPC answer: after that no page may say that the member waits.
	close(m.served)
	for _, l := range m.listeners {
		if !l.grpc {
			continue
		}
		m.serve(func() error { return m.rpc.Serve(l.mux.HTTP2()) })
		if l.http {
			l.mux.Release()
		} else {
			m.serve(l.mux.Serve)
			l.mux.HTTP1().Close()
		}
	}
}

// ClientAddrs returns the addresses of gRPC.
func (m *Member) ClientAddrs() []net.Addr {
	var addrs []net.Addr
	for _, l := range m.listeners {
		if l.grpc {
			addrs = append(addrs, l.listener.Addr())
		}
	}
	return addrs
}

// warnAdvertised warns about advertised URLs with an unspecified address, which other programs
// cannot dial.
func (m *Member) warnAdvertised() {
	for _, s := range slices.Concat(m.cfg.AdvertiseClientURLs, m.cfg.InitialAdvertisePeerURLs) {
		if u, err := url.Parse(s); err == nil && net.ParseIP(u.Hostname()).IsUnspecified() {
			m.log.Warn("the advertised URL has an address that others cannot dial: set "+
				"--advertise-client-urls or --initial-advertise-peer-urls", "url", s)
		}
	}
}
