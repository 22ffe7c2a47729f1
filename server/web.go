package server

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigil/docs"
	"vigil/internal/edge/certs"
	"vigil/internal/edge/console"
	"vigil/internal/edge/gateway"
	"vigil/internal/edge/httpd"
	"vigil/internal/edge/manual"
	"vigil/internal/edge/rpc"
	"vigil/internal/health"
	"vigil/internal/kv"
	"vigil/internal/portmux"
)

// web holds the HTTP servers of a member.
type web struct {
	client *http.Server // HTTP on the client listeners
	admin  *http.Server // the metrics listeners
	peer   *http.Server // HTTP on the peer listeners
	// clients and admins pass requests of client and admin on: to a page that the member starts,
	// then to handlers.
	clients, admins gate
	handlers        *httpd.Handlers
	// console is nil if it is switched off.
	console *console.Console
	// gateway is nil if it is switched off.
	gateway *gateway.Gateway
}

// bodyFactor is the ratio of the largest JSON body to the largest message: base64 turns three bytes
// into four, and names and escapes need space too.
const bodyFactor = 4

func (m *Member) openWeb(view *memberView, registry *prometheus.Registry) error {
	m.registry, m.history = registry, health.NewHistory(time.Now())
	c := httpd.Config{
		Health: view, Waiting: m.waitingText, Await: m.awaitServing, Versions: view.versions,
		Registry: registry, Logger: m.log,
		CORS: m.cfg.CORS, HostWhitelist: m.cfg.HostWhitelist,
		Vars: m.vars, Members: m.showMembers,
		Watchers: m.forRoot(httpd.WatchersHandler(m.replica.Hub().Stats)),
		CertNamesUsers: func() bool {
			return m.cfg.ClientTLS.ClientCertAuth &&
				m.replica.Access.AuthEnabled()
		},
		CheckTimeout: kv.RequestTimeout(m.cfg.ElectionTimeout),
	}
	if a := m.archiverWithBucket(); a != nil {
		c.Archive = m.forRoot(httpd.JSONHandler(func() any { return a.Status() }))
	}
	verbose := m.log.Enabled(context.Background(), slog.LevelDebug)
	c.Profiles, c.Traces = m.cfg.EnablePprof || verbose, verbose
	if !m.cfg.NoGRPCGateway {
		var err error
		if c.Gateway, err = m.openGateway(); err != nil {
			return err
		}
	}
	if m.cfg.Console != console.Off {
		var err error
		if m.web.console, err = m.openConsole(); err != nil {
			return err
		}
		c.Console, c.Manual = m.web.console, manual.Handler(docs.Files)
	}
	h, err := httpd.New(c)
	if err != nil {
		return err
	}
	m.web.handlers = h
	m.web.peer = httpd.Server(h.Peer, portmux.CallMade, m.log)
	return nil
}

// openPages makes the HTTP servers of client and metrics listeners, with the pages served before
// the member's data is open.
func (m *Member) openPages() {
	clients, admins := m.startingHandlers()
	m.web.clients.set(clients)
	m.web.admins.set(admins)
	m.web.client = httpd.Server(&m.web.clients, portmux.CallMade, m.log)
	m.web.client.HTTP2.MaxConcurrentStreams = int(min(m.cfg.MaxConcurrentStreams, httpStreams))
	m.web.admin = httpd.Server(&m.web.admins, portmux.CallMade, m.log)
}

// openHandlers replaces the pages that were served before the data was open.
func (w *web) openHandlers() {
	w.clients.set(w.handlers.Client)
	w.admins.set(w.handlers.Metrics)
}

// httpStreams limits the concurrent requests of an HTTP/2 connection on HTTP-only listeners.
const httpStreams = 250

// httpBesideGRPC returns the handler of requests that are not gRPC on connections of gRPC, nil if
// HTTP has listeners of its own.
func (m *Member) httpBesideGRPC() http.Handler {
	if len(m.cfg.ListenClientHTTPURLs) > 0 {
		return nil
	}
	// The handler is a client of the services, so it is made after them and before they are served.
	return http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		m.web.client.Handler.ServeHTTP(w, r)
	})
}

// openGateway makes the gateway, which calls the services without a transport. There is no TLS in
// between, so that only the token of a request identifies a user.
func (m *Member) openGateway() (http.Handler, error) {
	services := m.rpc.InProcess()
	h, err := gateway.New(gateway.Config{Conn: gateway.NewConn(services),
		MaxBodyBytes: bodyFactor * int64(rpc.MaxMessageBytes(m.cfg.MaxRequestBytes))})
	if err != nil {
		return nil, err
	}
	m.web.gateway = h
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		h.ServeHTTP(w, r.WithContext(services.WithReader(ctx, r.RemoteAddr, cancel)))
	}), nil
}

// endStreams ends the streams of the console. They would last, and the gRPC server serves them too.
func (w *web) endStreams() {
	if w.console != nil {
		w.console.Close()
	}
}

// stop stops the servers.
func (w *web) stop(ctx context.Context) {
	if w.gateway != nil {
		w.gateway.Close()
	}
	for _, s := range []*http.Server{w.client, w.admin, w.peer} {
		if s != nil && s.Shutdown(ctx) != nil {
			s.Close()
		}
	}
}

// settings returns the values of the flags that doctor and the console check. Anybody who reaches
// the client port may read them.
func (m *Member) settings() map[string]string {
	c := &m.cfg
	onOff := map[bool]string{true: "on", false: "off"}
	kind, _, _ := strings.Cut(c.Auth.Token, ",")
	return map[string]string{
		"heartbeat-interval": fmt.Sprint(c.HeartbeatInterval.Milliseconds()),
		"election-timeout":   fmt.Sprint(c.ElectionTimeout.Milliseconds()),
		"unsafe-no-fsync":    fmt.Sprint(c.UnsafeNoSync), "pre-vote": fmt.Sprint(!c.NoPreVote),
		"quota-backend-bytes":       fmt.Sprint(c.QuotaBackendBytes),
		"max-request-bytes":         fmt.Sprint(c.MaxRequestBytes),
		"max-txn-ops":               fmt.Sprint(c.MaxTxnOps),
		"max-learners":              fmt.Sprint(c.MaxLearners),
		"auto-compaction-mode":      c.AutoCompactionMode,
		"auto-compaction-retention": c.AutoCompactionRetention,
		"auth-token":                kind,
		"client-cert-auth":          fmt.Sprint(c.ClientTLS.ClientCertAuth),
		health.ClientTLS:            onOff[c.ClientTLS.Serves()],
	}
}

// certificates returns the certificates in use, without the names of their files: anybody may read
// them.
func (m *Member) certificates() (out []health.Certificate) {
	for kind, store := range map[certs.Kind]*certs.Store{certs.Clients: m.clientTLS,
		certs.Peers: m.peerTLS} {
		for _, c := range store.Expiries() {
			out = append(out, health.Certificate{Listener: kind.String(), Use: c.Use,
				Subject: c.Subject, End: c.End, Generated: c.Generated})
		}
	}
	slices.SortFunc(out, func(a, b health.Certificate) int {
		return cmp.Or(cmp.Compare(a.Listener, b.Listener), -cmp.Compare(a.Use, b.Use))
	})
	return out
}

// recordCounts records the member's counters periodically, for doctor and the console.
func (m *Member) recordCounts(ctx context.Context) {
	t := time.NewTicker(health.RecordInterval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			families, _ := m.registry.Gather() // some metrics of a process may be missing
			m.history.Record(time.Now(), health.GatheredMetrics(families))
		case <-ctx.Done():
			return
		}
	}
}

// recentCounts returns the recent counters of the member.
func (m *Member) recentCounts() []health.Window {
	families, _ := m.registry.Gather()
	return m.history.Recent(time.Now(), health.GatheredMetrics(families))
}

// vars returns the variables of /debug/vars. All names but the last line's are etcd's.
func (m *Member) vars() map[string]any {
	s := m.replica.Status()
	role := "StateFollower"
	if s.Leader == s.MemberID {
		role = "StateLeader"
	}
	out := map[string]any{"raft.status": struct {
		ID      string `json:"id"`
		Term    uint64 `json:"term"`
		Commit  uint64 `json:"commit"`
		Lead    string `json:"lead"`
		State   string `json:"raftState"`
		Applied uint64 `json:"applied"`
	}{fmt.Sprintf("%x", s.MemberID), s.Term, s.RaftIndex, fmt.Sprintf("%x", s.Leader),
		role, s.Applied},
		"settings": m.settings(), "recent": m.recentCounts(), "certificates": m.certificates()}
	maps.Copy(out, m.waitingVars())
	if limit, ok := openFileLimit(); ok {
		out["file_descriptor_limit"] = limit
	}
	return out
}
