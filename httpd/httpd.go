// Package httpd is what a member says over plain HTTP: health, version and metrics, under the paths
// and with the answers of etcd. It sees the member through the interface Health.
//
//  1. Only GET has an answer on the health and version paths, others get 405; unknown paths 404.
//  2. A check asks the member when it is asked itself: nothing is cached, and a check that takes
//     longer than Config.CheckTimeout has failed.
//  3. The text of a failed check is that of the API's error.
package httpd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Health is what the checks ask of the member.
type Health interface {
	// Alarms lists the active alarms by their names in the API, such as NOSPACE and CORRUPT.
	Alarms() []string
	// Leader is the id of the leader, 0 if there is none.
	Leader() uint64
	IsLearner() bool
	// Read reads something, from this member's state if serializable, with the agreement of the
	// cluster otherwise. The texts of its errors are shown as they are.
	Read(ctx context.Context, serializable bool) error
}

// Versions is the answer of /version.
type Versions struct {
	// Server, Cluster and Storage are levels of etcd's API and data, which clients look at.
	Server  string `json:"etcdserver"`
	Cluster string `json:"etcdcluster"`
	Storage string `json:"storage"`
	// Vigil is this program's own version.
	Vigil string `json:"vigil"`
}

// Config says what is served. Logger and CheckTimeout may be zero.
type Config struct {
	Health   Health
	Versions func() Versions
	// Registry is what /metrics shows; the metrics of this package are added to it.
	Registry *prometheus.Registry
	// CheckTimeout bounds a read of a health check, default 7 s: what a request may take.
	CheckTimeout time.Duration
	Logger       *slog.Logger
}

// Validate says every field that is wrong.
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
	if c.CheckTimeout < 0 {
		errs = append(errs, fmt.Errorf("CheckTimeout is %v", c.CheckTimeout))
	}
	return errors.Join(errs...)
}

// Handler serves the paths. It is made once a member and used on all its listeners: its metrics can
// be registered only once.
func Handler(c Config) (http.Handler, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("httpd: %w", err)
	}
	if c.CheckTimeout == 0 {
		c.CheckTimeout = 7 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	m := newMetrics()
	if err := c.Registry.Register(m); err != nil {
		return nil, fmt.Errorf("httpd: %w", err)
	}
	h := &handler{Config: c, metrics: m}
	mux := http.NewServeMux()
	mux.HandleFunc("/health", onlyGet(h.health))
	mux.HandleFunc("/version", onlyGet(h.version))
	mux.Handle("/metrics", promhttp.InstrumentMetricHandler(c.Registry, promhttp.HandlerFor(c.Registry, promhttp.HandlerOpts{})))
	h.install(mux, "livez", h.serializableRead())
	h.install(mux, "readyz", h.noAlarm("data_corruption", "CORRUPT"), h.serializableRead(), h.linearizableRead(), h.nonLearner())
	return mux, nil
}

// Server returns a server for a handler with bounds on what a client may make it wait for and keep. It
// speaks HTTP/2 too. Connections come to it with their TLS handshake, if any, behind them and tell of it
// by a method TLSState.
func Server(h http.Handler, logger *slog.Logger) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           withTLS(h),
		ConnContext:       noteTLS,
		Protocols:         &protocols,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}

type handler struct {
	Config
	metrics *metrics
}

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
