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

// Config is the input of New.
type Config struct {
	// Serve is Auto, On or Off.
	Serve string
	// Conn calls the services. Its calls use a context from WithCaller, whose outgoing metadata
	// contain the token.
	Conn grpc.ClientConnInterface
	// WithCaller returns the context for a browser's calls. Its arguments are the browser's
	// address, the TLS state that identifies the browser, and a function that ends its request.
	WithCaller func(ctx context.Context, addr net.Addr, state *tls.ConnectionState,
		cut func()) context.Context
	// CertificateUsers is set if client certificates name users.
	CertificateUsers bool
	AuthEnabled      func() bool
	// RequireAdmin returns an error unless the credentials of the context (kv.Credentials) belong
	// to a user with the role root.
	RequireAdmin func(context.Context) error
	// User returns the name of the user whose credentials are in a context, empty without
	// credentials.
	User func(context.Context) string
	// Rights returns the name of the user whose credentials are in a context, empty without
	// credentials, and the user's rights as far as this member knows: everything, or the
	// permissions of roles. The error is kv.ErrInvalidAuthToken if the token is not valid.
	Rights func(context.Context) (user string, root bool, permissions []kv.Permission, err error)
	// Leader tells whether this member knows a leader.
	Leader func() Leadership
	// Watchers lists the watchers of this member or another. The console checks RequireAdmin before
	// the call.
	Watchers func(ctx context.Context, id uint64, q WatchersQuery) (*WatchersView, error)
	// Self identifies this member.
	Self Identity
	// Sample measures this member or another.
	Sample func(ctx context.Context, id uint64) (*Sample, error)
	// Compare returns the answer of this member or another for a comparison of data at a revision:
	// the member reads its whole store. The console checks RequireAdmin before the call.
	Compare func(ctx context.Context, id uint64, revision int64) (*Comparison, error)
	// Hosts are the host names that a request without TLS may name, besides addresses and
	// localhost.
	Hosts []string
	// Endpoints are the member's URLs for clients, separated by commas. It is set if the console
	// has its own URLs, which do not serve gRPC.
	Endpoints string
	// MaxRequestBytes is the size limit of a request to the API.
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
	// comparing is held during a comparison of the members' data: only one may run.
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

// Close ends the measurements and the streams of live numbers. Other streams end with their calls.
func (c *Console) Close() { c.sampler.close() }
