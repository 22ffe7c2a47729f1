package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"vigil/internal/edge/certs"
	"vigil/internal/portmux"
)

// door is an address that clients connect to.
type door struct {
	l   net.Listener
	mux *portmux.Mux // owns l once it is there
	// plain and secure say whether http:// and https:// URLs lead here, or their likes of sockets.
	plain, secure bool
	// grpc and http are what is served here; metrics is a door for what operators look at, alone.
	grpc, http, metrics bool
}

// openDoors listens on every client and metrics URL. URLs of one address are one door. What is returned
// is open, also with an error.
func (c *Config) openDoors() ([]*door, error) {
	var doors []*door
	known := map[string]*door{}
	split := len(c.ListenClientHTTPURLs) > 0
	for _, group := range []struct {
		urls []string
		as   door
	}{
		{c.ListenClientURLs, door{grpc: true, http: !split}},
		{c.ListenClientHTTPURLs, door{http: true}},
		{c.ListenMetricsURLs, door{metrics: true}},
	} {
		for _, u := range group.urls {
			network, addr, secure, err := listenAddr(u)
			if err != nil {
				return doors, err
			}
			d := known[network+addr]
			if d == nil {
				ls, err := c.listen([]string{u})
				if err != nil {
					return doors, err
				}
				d = &door{l: ls[0], grpc: group.as.grpc, http: group.as.http, metrics: group.as.metrics}
				known[network+addr] = d
				doors = append(doors, d)
			} else if d.grpc != group.as.grpc || d.metrics != group.as.metrics {
				return doors, fmt.Errorf("%s is given twice, for different things: --listen-client-urls, --listen-client-http-urls and --listen-metrics-urls need addresses of their own", u)
			}
			d.secure = d.secure || secure
			d.plain = d.plain || !secure
		}
	}
	return doors, nil
}

// openMux puts what tells protocols apart at a door.
func (d *door) openMux(store *certs.Store, log *slog.Logger) (err error) {
	o := portmux.Options{Logger: log, SplitHTTP2: d.grpc && d.http}
	if d.secure {
		o.TLS, o.RefusePlain = store.Server, !d.plain
	}
	d.mux, err = portmux.New(d.l, o)
	return err
}

// traffic says what is served at a door, as etcd's log does.
func (d *door) traffic() string {
	switch {
	case d.grpc && d.http:
		return "grpc+http"
	case d.grpc:
		return "grpc"
	}
	return "http"
}

// serveMetrics lets operators in, who want to know how a member is before it serves.
func (m *Member) serveMetrics() {
	for _, d := range m.doors {
		if d.metrics {
			m.serveHTTP(d, m.web.admin)
		}
	}
}

// serveHTTP serves HTTP and nothing else.
func (m *Member) serveHTTP(d *door, s *http.Server) {
	m.serve(d.mux.Serve)
	m.serve(func() error { return s.Serve(d.mux.HTTP1()) })
	m.serve(func() error { return s.Serve(d.mux.HTTP2()) })
}

// serveClients waits until the member can answer and then lets clients in.
func (m *Member) serveClients(ctx context.Context) {
	select {
	case <-m.replica.Ready():
	case <-m.replica.Stopping():
		return
	case <-ctx.Done():
		return
	}
	for _, d := range m.doors {
		switch {
		case d.metrics:
			continue
		case d.grpc:
			m.serve(d.mux.Serve)
			m.serve(func() error { return m.rpc.Serve(d.mux.HTTP2()) })
			if d.http {
				m.serve(func() error { return m.web.client.Serve(d.mux.HTTP1()) })
			} else {
				d.mux.HTTP1().Close()
			}
		default:
			m.serveHTTP(d, m.web.client)
		}
		if d.plain {
			m.log.Info("serving client traffic insecurely", "traffic", d.traffic(), "address", d.l.Addr().String())
		}
		if d.secure {
			m.log.Info("serving client traffic securely", "traffic", d.traffic(), "address", d.l.Addr().String())
		}
	}
	h := m.replica.Header()
	m.log.Info("ready to serve client requests",
		"cluster-id", fmt.Sprintf("%x", h.ClusterID), "member-id", fmt.Sprintf("%x", h.MemberID),
		"name", m.cfg.Name, "data-dir", m.cfg.DataDir, "revision", h.Revision)
	close(m.served)
}

// ClientAddrs returns the addresses that clients are served on by gRPC.
func (m *Member) ClientAddrs() []net.Addr {
	var addrs []net.Addr
	for _, d := range m.doors {
		if d.grpc {
			addrs = append(addrs, d.l.Addr())
		}
	}
	return addrs
}
