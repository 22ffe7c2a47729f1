// Package httpd serves health, version, metrics and debugging over plain HTTP, under the paths and
// with the answers of etcd. It uses the member through the interface Health.
//
//  1. The paths of health, version and variables answer GET only; other methods receive 405,
//     unknown paths 404.
//  2. A check queries the member at the time of the request: nothing is cached, and a check that
//     takes longer than Config.CheckTimeout fails.
//  3. A failed check has the text of the API's error.
//  4. On the client listeners, hosts and origins are checked before the path. The metrics and peer
//     listeners have no such checks, and neither the gateway nor debugging.
//  5. A page is sent within a minute after its health checks, or its connection is closed. Profiles
//     and the gateway, whose answers may be streams, have no such limit.
//  6. The memory that clients hold without reading is limited: a few pages are made at a time, the
//     pages that wait for their clients have at most maxPageBytes together, and the number of
//     concurrent requests is limited, half of them from one address. Health checks, pages, and
//     requests that may last each have their own limit.
//  7. On Linux, a request that lasts ends soon after its client closed the connection, even if the
//     client sent more than its request.
package httpd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Health is the part of the member that the checks use.
type Health interface {
	// Alarms lists the active alarms by their API names, such as NOSPACE and CORRUPT.
	Alarms() []string
	// Leader is the id of the leader, 0 if there is none.
	Leader() uint64
	IsLearner() bool
	// Read reads a key, from this member's state if serializable, linearizably otherwise. Its error
	// texts are sent to clients.
	Read(ctx context.Context, serializable bool) error
}

// Versions is the answer of /version.
type Versions struct {
	// Server, Cluster and Storage are versions of etcd's API and data format, which clients check.
	Server  string `json:"etcdserver"`
	Cluster string `json:"etcdcluster"`
	Storage string `json:"storage"`
	// Vigil is the version of this program.
	Vigil string `json:"vigil"`
}

// Any in Config.CORS and Config.HostWhitelist means all origins and host names.
const Any = "*"

// Config is what New needs. The zero value of every field after Registry is its default, unless
// noted.
type Config struct {
	Health   Health
	Versions func() Versions
	// Registry holds the metrics for /metrics; New adds its own.
	Registry *prometheus.Registry

	// Waiting returns what the member waits for before it serves clients, "" once it serves:
	// readiness fails with it at once, and the console and the gateway answer with it. Default
	// always "". Await waits until the member serves clients or is about to stop, or the context
	// ends; the gateway calls it, for CheckTimeout at most.
	Waiting func() string
	Await   func(context.Context)
	// Console serves everything below /console/; nil if it is switched off. It checks hosts and
	// origins itself, too.
	Console http.Handler
	// Manual serves everything below /console/docs/, on the metrics listeners too; nil if there is
	// none.
	Manual http.Handler
	// Gateway serves everything below /v3/; nil if there is none.
	Gateway http.Handler
	// CertNamesUsers reports whether the common name of a client certificate names a user. The
	// gateway ignores it, so that its requests with such a certificate are rejected. Default never.
	CertNamesUsers func() bool
	// CORS are the origins that a browser may send requests from, HostWhitelist the names that a
	// request without TLS may be for. An empty list, or a list with Any, allows all.
	CORS, HostWhitelist []string

	// Vars returns the variables of the member for /debug/vars, in addition to the variables of the
	// process.
	Vars func() map[string]any
	// Archive answers /debug/archive, if it is set.
	Archive http.Handler
	// Watchers answers /debug/watch, if it is set; Profiles serves /debug/pprof/, Traces
	// /debug/requests and /debug/events.
	Watchers         http.Handler
	Profiles, Traces bool

	// Members answers GET of /members on the peer listeners, if it is set.
	Members http.HandlerFunc

	// CheckTimeout limits a read of a health check, and how long a call waits until the member
	// serves. It is required.
	CheckTimeout time.Duration
	Logger       *slog.Logger
}

// Validate reports every missing or invalid field.
func (c *Config) Validate() error {
	var errs []error
	if c.Health == nil {
		errs = append(errs, errors.New("Health is missing"))
	}
	if c.Versions == nil {
		errs = append(errs, errors.New("Versions is missing"))
	}
	if c.Registry == nil {
		errs = append(errs, errors.New("Registry is missing"))
	}
	if c.CheckTimeout <= 0 {
		errs = append(errs, fmt.Errorf("CheckTimeout is %v", c.CheckTimeout))
	}
	return errors.Join(errs...)
}

// Paths of handlers in Config.
const (
	gatewayPrefix = "/v3/"
	consolePrefix = "/console/"
	manualPrefix  = "/console/docs/"
)

// Handlers are the handlers of the three kinds of listeners of a member.
type Handlers struct {
	// Client serves everything.
	Client http.Handler
	// Metrics serves the health paths, /metrics and the manual.
	Metrics http.Handler
	// Peer serves the health paths, /version and /members.
	Peer http.Handler
}

// New makes the handlers of a member. It is called once: its metrics can be registered only once.
func New(c Config) (*Handlers, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("httpd: %w", err)
	}
	c = c.withDefaults()
	m := newMetrics()
	if err := c.Registry.Register(m); err != nil {
		return nil, fmt.Errorf("httpd: %w", err)
	}
	h := &handler{Config: c, metrics: m}
	client, simple, metrics, peer := http.NewServeMux(), http.NewServeMux(), http.NewServeMux(),
		http.NewServeMux()
	client.Handle("/", page(simple))
	if c.Members != nil {
		peer.HandleFunc("/members", onlyGet(c.Members))
	}
	for _, mux := range []*http.ServeMux{simple, metrics, peer} {
		mux.HandleFunc("/health", onlyGet(h.health))
		h.installChecks(mux, "livez", h.serializableRead())
		h.installChecks(mux, "readyz", h.noAlarm("data_corruption", "CORRUPT"),
			h.serializableRead(), h.linearizableRead(), h.nonLearner())
	}
	made := newPages(maxPageBytes)
	show := made.shared(promhttp.InstrumentMetricHandler(c.Registry,
		promhttp.HandlerFor(c.Registry, promhttp.HandlerOpts{})))
	for _, mux := range []*http.ServeMux{simple, metrics} {
		mux.Handle("/metrics", show)
	}
	if c.Manual != nil {
		manual := page(made.shared(c.Manual))
		client.Handle(manualPrefix, manual)
		metrics.Handle(manualPrefix, manual)
	}
	for _, mux := range []*http.ServeMux{simple, peer} {
		mux.HandleFunc("/version", onlyGet(h.version))
	}
	simple.Handle("/debug/vars", made.handler(onlyGet(h.vars)))
	if c.Watchers != nil {
		simple.Handle("/debug/watch", made.handler(c.Watchers))
	}
	if c.Archive != nil {
		simple.Handle("/debug/archive", made.handler(c.Archive))
	}
	if c.Profiles {
		installProfiles(client)
	}
	if c.Traces {
		installTraces(simple)
	}
	if c.Console != nil {
		client.Handle(consolePrefix, h.onceServing(c.Console))
	}
	if c.Gateway != nil {
		client.Handle(gatewayPrefix, h.awaitServing(c.Gateway))
	}
	return &Handlers{Client: boundRequests(&access{&h.Config, client}),
		Metrics: boundRequests(page(metrics)), Peer: boundRequests(page(peer))}, nil
}

// pageTimeout is how long it may take to receive an ignored body, or to send a page.
const pageTimeout = time.Minute

// page limits the time of requests whose handlers read no body and write no stream.
func page(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		boundTime(w, r)
		next.ServeHTTP(w, r)
	})
}

// boundTime limits the time of a request. The server reads the rest of a body and sends the end of
// the page after the handler returns.
func boundTime(w http.ResponseWriter, r *http.Request) {
	c, end := http.NewResponseController(w), time.Now().Add(pageTimeout)
	// Not every writer has a connection.
	if r.Body != http.NoBody {
		_ = c.SetReadDeadline(end)
	}
	_ = c.SetWriteDeadline(end)
}

func (c Config) withDefaults() Config {
	if c.CertNamesUsers == nil {
		c.CertNamesUsers = func() bool { return false }
	}
	if c.Waiting == nil {
		c.Waiting = func() string { return "" }
	}
	if c.Await == nil {
		c.Await = func(context.Context) {}
	}
	if c.Vars == nil {
		c.Vars = func() map[string]any { return nil }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Server returns a server that limits the time and memory that a client can use. It serves HTTP/2
// too. The listener completes the TLS handshake of a connection, which then has a method TLSState.
// callMade receives each connection with a request. A handler that reads bodies limits their time
// itself.
func Server(h http.Handler, callMade func(net.Conn), logger *slog.Logger) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           withConn(h),
		ConnContext:       noteConn(callMade),
		Protocols:         &protocols,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		HTTP2:             &http.HTTP2Config{WriteByteTimeout: pageTimeout},
		MaxHeaderBytes:    http.DefaultMaxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}

type handler struct {
	Config
	metrics *metrics
}

// onlyGet rejects other methods.
func onlyGet(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
			return
		}
		f(w, r)
	}
}

func (h *handler) version(w http.ResponseWriter, _ *http.Request) {
	b, err := json.Marshal(h.Versions())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(b)
}
