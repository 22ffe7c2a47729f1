package rpc

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"time"

	"vigil/internal/edge/rpc/authapi"
	"vigil/internal/edge/rpc/clusterapi"
	"vigil/internal/edge/rpc/gate"
	"vigil/internal/edge/rpc/healthapi"
	"vigil/internal/edge/rpc/kvapi"
	"vigil/internal/edge/rpc/leaseapi"
	"vigil/internal/edge/rpc/maintenanceapi"
	"vigil/internal/edge/rpc/timesapi"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/edge/rpc/watchapi"
	"vigil/internal/kv"
	"vigil/internal/store/ration"
	"vigil/internal/store/watch"
)

// Member is the state of the member itself.
type Member interface {
	gate.Member
	healthapi.Member
	clusterapi.Member
	maintenanceapi.Member
}

// Cluster changes the membership and moves leadership.
type Cluster interface {
	clusterapi.Changer
	maintenanceapi.Mover
}

// Auth is the part of the member that knows users, roles and rights.
type Auth interface {
	gate.Rights
	watchapi.Rights
	authapi.Users
}

// KV is the part of the member that reads and writes keys.
type KV interface {
	kvapi.Store
	gate.Proposer
}

// Config is what a server needs. The zero value of every field from Logger on is its default,
// unless noted.
type Config struct {
	KV     KV
	Member Member
	// Cluster may be nil; then its calls answer Unimplemented.
	Cluster Cluster
	Hasher  maintenanceapi.Hasher
	// Snapshots may be nil; then there are none.
	Snapshots maintenanceapi.Snapshots
	Alarms    maintenanceapi.Alarms
	// Versions may be nil; then there is no downgrade.
	Versions maintenanceapi.Versions
	// Leases may be nil; then there is no such service.
	Leases leaseapi.Leases
	// Times may be nil; then there is no such service, and times in the metadata of calls are
	// ignored.
	Times timesapi.Source
	// Auth may be nil; then there are no users, and everyone may do everything.
	Auth Auth
	// WatchHub is required with Auth.
	WatchHub watchapi.Hub
	// CertificateUsers makes the common name of a client's certificate its user, if the call has no
	// token.
	CertificateUsers bool
	// NewWatchStream makes the hub's side of a new watch stream. A stream whose Next and Take
	// return kv.ErrCorrupt is rejected.
	NewWatchStream func(watch.StreamInfo) watchapi.HubStream

	// Ranges is the budget for the memory of large results; default none.
	Ranges *ration.Budget

	Logger  *slog.Logger
	Metrics *Metrics
	// Stats, if set, is notified of the beginning and the end of each call.
	Stats transport.StatsHandler

	// CallMade, if set, receives each connection on which a client makes a call, once.
	CallMade func(net.Conn)

	// HTTP serves requests that are not gRPC on connections of HTTP/2; nil rejects them.
	HTTP http.Handler

	// MaxRequestBytes is the largest request that may be proposed, default 1.5 MiB. A message may
	// be half a MiB larger before the transport refuses it.
	MaxRequestBytes int
	// MaxTxnOps is the largest number of operations on one level of a transaction, default 128.
	MaxTxnOps int
	// MaxConcurrentStreams is the largest number of calls at once on a connection, default no
	// limit.
	MaxConcurrentStreams uint32
	// ElectionTimeout is the election timeout of the member. It is required.
	// Streams that require a leader end when there has been none for three times as long.
	ElectionTimeout time.Duration
	// Ticking is when the clock of raft began. The server looks for a leader at the same moments,
	// so that an idle member is woken once for both. Default: now.
	Ticking time.Time
	// WarnUnaryDuration is how long a unary call may take before a line about it is logged, default
	// 300 ms; negative means never.
	WarnUnaryDuration time.Duration

	// KeepAliveMinTime is the shortest allowed interval of a client's pings, default 5 s. After
	// KeepAliveInterval of silence the server pings, default 2 h, and waits KeepAliveTimeout for
	// the answer, default 20 s. A negative value means the default of the transport.
	KeepAliveMinTime  time.Duration
	KeepAliveInterval time.Duration
	KeepAliveTimeout  time.Duration
}

// overhead is how much larger a message may be than the largest request.
const overhead = 512 << 10

// MaxMessageBytes returns the largest message that a server with this Config.MaxRequestBytes
// receives.
func MaxMessageBytes(maxRequestBytes int) int { return maxRequestBytes + overhead }

// Validate reports every missing or invalid field.
func (c *Config) Validate() error {
	var errs []error
	if c.KV == nil {
		errs = append(errs, errors.New("KV is missing"))
	}
	if c.Member == nil {
		errs = append(errs, errors.New("Member is missing"))
	}
	if c.Hasher == nil {
		errs = append(errs, errors.New("Hasher is missing"))
	}
	if c.Alarms == nil {
		errs = append(errs, errors.New("Alarms is missing"))
	}
	if c.Auth != nil && c.WatchHub == nil {
		errs = append(errs, errors.New("WatchHub is missing"))
	}
	if c.NewWatchStream == nil {
		errs = append(errs, errors.New("NewWatchStream is missing"))
	}
	if c.MaxRequestBytes < 0 || c.MaxRequestBytes > math.MaxInt32-overhead {
		errs = append(errs, fmt.Errorf("MaxRequestBytes is %d", c.MaxRequestBytes))
	}
	if c.MaxTxnOps < 0 {
		errs = append(errs, fmt.Errorf("MaxTxnOps is %d", c.MaxTxnOps))
	}
	if c.ElectionTimeout <= 0 {
		errs = append(errs, fmt.Errorf("ElectionTimeout is %v", c.ElectionTimeout))
	}
	return errors.Join(errs...)
}

// WithDefaults returns c with every zero field set to its default.
func (c Config) WithDefaults() Config {
	set(&c.MaxRequestBytes, kv.DefaultMaxRequestBytes)
	set(&c.MaxTxnOps, 128)
	set(&c.Ticking, time.Now())
	set(&c.MaxConcurrentStreams, math.MaxUint32)
	set(&c.WarnUnaryDuration, 300*time.Millisecond)
	set(&c.KeepAliveMinTime, 5*time.Second)
	set(&c.KeepAliveInterval, 2*time.Hour)
	set(&c.KeepAliveTimeout, 20*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(false)
	}
	return c
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
