package console

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"vigil/internal/kv"
)

// Values of Config.Serve.
const (
	Auto = "auto" // on loopback connections, and on all while auth is enabled
	On   = "on"
	Off  = "off"
)

// Config is what New needs.
type Config struct {
	// Serve is Auto, On or Off.
	Serve string
	// Conn calls the services with the context of WithCaller, whose outgoing metadata have the
	// token.
	Conn grpc.ClientConnInterface
	// WithCaller returns the context of calls for a browser: its address, the TLS state that
	// identifies it, and a function that ends its request.
	WithCaller func(ctx context.Context, addr net.Addr, state *tls.ConnectionState,
		cut func()) context.Context
	// CertificateUsers is set if client certificates name users.
	CertificateUsers bool
	AuthEnabled      func() bool
	// RequireAdmin returns an error if the credentials of the context (kv.Credentials) are not
	// those of a user with the role root.
	RequireAdmin func(context.Context) error
	// User returns the name of the user whose credentials a context has, empty if there is none.
	User func(context.Context) string
	// Rights returns the name of the user whose credentials a context has, empty if there is none,
	// and what it may do, as far as this member knows: everything, or the permissions of roles. The
	// error is kv.ErrInvalidAuthToken for a token that is not valid.
	Rights func(context.Context) (user string, root bool, permissions []kv.Permission, err error)
	// Leader returns whether this member knows a leader.
	Leader func() Leadership
	// Watchers lists the watchers of a member, this one or another. The console checks RequireAdmin
	// before.
	Watchers func(ctx context.Context, id uint64, q WatchersQuery) (*WatchersView, error)
	// Self identifies this member.
	Self Identity
	// Sample measures a member, this one or another.
	Sample func(ctx context.Context, id uint64) (*Sample, error)
	// Compare returns what a member, this one or another, has for a comparison of data at a
	// revision: it reads its whole store. The console checks RequireAdmin before.
	Compare func(ctx context.Context, id uint64, revision int64) (*Comparison, error)
	// Hosts are the host names, in addition to addresses and localhost, that a request without TLS
	// may be for.
	Hosts []string
	// Endpoints are the URLs of the member for clients, separated by commas, if the console is
	// served at others, which have no gRPC.
	Endpoints string
	// MaxRequestBytes is the limit of a request of the API.
	MaxRequestBytes int
}

// Identity is a member and its program.
type Identity struct {
	Cluster, Member uint64
	Name, Version   string
}

// Validate reports every missing or invalid field.
func (c *Config) Validate() error {
	var errs []error
	for name, missing := range map[string]bool{"Conn": c.Conn == nil,
		"WithCaller": c.WithCaller == nil, "AuthEnabled": c.AuthEnabled == nil,
		"RequireAdmin": c.RequireAdmin == nil, "User": c.User == nil, "Rights": c.Rights == nil,
		"Leader": c.Leader == nil, "Watchers": c.Watchers == nil, "Sample": c.Sample == nil,
		"Compare": c.Compare == nil} {
		if missing {
			errs = append(errs, errors.New(name+" is missing"))
		}
	}
	if c.Serve != Auto && c.Serve != On && c.Serve != Off {
		errs = append(errs, fmt.Errorf("Serve is %q", c.Serve))
	}
	if c.MaxRequestBytes < 1 {
		errs = append(errs, fmt.Errorf("MaxRequestBytes is %d", c.MaxRequestBytes))
	}
	return errors.Join(errs...)
}

// Prefix is the prefix of all paths.
const Prefix = "/console/"

// Console serves the pages and the API.
type Console struct {
	Config
	assets  map[string]asset
	api     *http.ServeMux
	streams streams
	sampler sampler
	// comparing is held while the data of the members are compared: once at a time.
	comparing sync.Mutex

	conn        *leaderConn
	kv          etcdserverpb.KVClient
	watch       etcdserverpb.WatchClient
	lease       etcdserverpb.LeaseClient
	cluster     etcdserverpb.ClusterClient
	maintenance etcdserverpb.MaintenanceClient
	auth        etcdserverpb.AuthClient
	times       times
}

// New returns the handler of the paths below Prefix.
func New(c Config) (*Console, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	files, err := loadAssets()
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	conn := &leaderConn{c.Conn, c.Self.Name, c.Leader}
	h := &Console{Config: c, assets: files, api: http.NewServeMux(),
		streams: streams{of: map[string]int{}}, conn: conn,
		kv: etcdserverpb.NewKVClient(conn), watch: etcdserverpb.NewWatchClient(conn),
		lease:       etcdserverpb.NewLeaseClient(conn),
		cluster:     etcdserverpb.NewClusterClient(conn),
		maintenance: etcdserverpb.NewMaintenanceClient(conn),
		auth:        etcdserverpb.NewAuthClient(conn), times: times{conn}}
	h.sampler.read, h.sampler.stopped = h.sample, make(chan struct{})
	h.routes()
	return h, nil
}

// Close ends the measuring and the streams of live numbers. Other streams end with their calls.
func (c *Console) Close() { c.sampler.close() }
