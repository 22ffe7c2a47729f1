// Package server is a whole member: it wires the parts together, starts and stops them in order, and
// serves clients. It is the only package that knows everyone.
//
//	m, err := server.Start(server.Config{DataDir: "infra0.etcd"})
//	...
//	err = m.Close(ctx)
//
// Start and Close keep these promises:
//
//  1. If Start returns an error, nothing listens and nothing runs; and if the error was in the
//     configuration, the addresses or the ownership of the data directory, nothing was written.
//  2. When a client gets an answer, the member serves: listeners accept only after the member has a
//     leader and has served a linearizable read to itself.
//  3. Close leaves no goroutine, socket or lock behind, also when its context ends early.
//
// Config, Start, Close and Failed are what programs that embed a member may rely on.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"vigil/cluster"
	"vigil/httpd"
	"vigil/internal/vfs"
	"vigil/mvcc"
	"vigil/portmux"
	"vigil/ration"
	"vigil/replica"
	"vigil/rpc"
	"vigil/watch"
)

// Member is a running member.
type Member struct {
	cfg      Config
	log      *slog.Logger
	lock     io.Closer
	ranges   *ration.Budget
	replica  *replica.Replica
	rpc      *rpc.Server
	muxes    []*portmux.Mux
	http     *http.Server // the client port
	admin    *http.Server // the metrics and peer listeners
	serving  sync.WaitGroup
	starting context.CancelFunc // ends the wait for a leader

	failed  chan error // has room for one
	closing sync.Once
	err     error
}

// Start starts a member and returns when it has opened its data. It serves clients as soon as it has
// a leader, which it says in its log.
func Start(c Config) (*Member, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	m := &Member{cfg: c, log: c.Logger, failed: make(chan error, 1)}
	if err := m.start(); err != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return nil, errors.Join(err, m.Close(ctx))
	}
	return m, nil
}

// start opens everything in the order of dependence: addresses first, because a port in use must
// leave no trace; then the lock, the data and the services.
func (m *Member) start() (err error) {
	var opened []net.Listener // not yet owned by a server
	defer func() { closeAll(opened) }()
	clients, err := listen(m.cfg.ListenClientURLs)
	opened = append(opened, clients...)
	if err != nil {
		return err
	}
	others, err := listen(append(append([]string(nil), m.cfg.ListenMetricsURLs...), m.cfg.ListenPeerURLs...))
	opened = append(opened, others...)
	if err != nil {
		return err
	}
	if err := m.canStartFresh(); err != nil {
		return err
	}
	if m.lock, err = lockDataDir(m.cfg.FS, m.cfg.DataDir); err != nil {
		return err
	}
	if m.ranges, err = ration.New(m.cfg.MaxRangeBytesInFlight); err != nil {
		return err
	}
	if m.replica, err = replica.Open(m.replicaConfig()); err != nil {
		return err
	}
	view := &memberView{replica: m.replica, cfg: &m.cfg}
	hashes := newHasher(m.replica)
	rpcMetrics := rpc.NewMetrics(false)
	m.rpc, err = rpc.NewServer(rpc.Config{
		KV:     m.replica,
		Member: view,
		Hasher: hashes,
		Alarms: m.replica,
		NewWatchStream: func(info watch.StreamInfo) rpc.WatchStream {
			return m.replica.Hub().NewStream(info)
		},
		Ranges:               m.ranges,
		Logger:               m.log,
		Metrics:              rpcMetrics,
		MaxRequestBytes:      m.cfg.MaxRequestBytes,
		MaxTxnOps:            m.cfg.MaxTxnOps,
		MaxConcurrentStreams: m.cfg.MaxConcurrentStreams,
		ElectionTimeout:      m.cfg.ElectionTimeout,
		KeepAliveMinTime:     m.cfg.KeepAliveMinTime,
		KeepAliveInterval:    m.cfg.KeepAliveInterval,
		KeepAliveTimeout:     m.cfg.KeepAliveTimeout,
	})
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	if err := registerMetrics(registry, m.replica, m.cfg.QuotaBackendBytes, rpcMetrics, hashes, rangeCollector{m.ranges}); err != nil {
		return err
	}
	handler, err := httpd.Handler(httpd.Config{Health: view, Versions: versions, Registry: registry, Logger: m.log})
	if err != nil {
		return err
	}
	m.admin = httpd.Server(handler, m.log)
	m.http = httpd.Server(withDebug(handler, m.cfg.EnablePprof, m.replica.Hub()), m.log)
	for _, l := range clients {
		mux, err := portmux.New(l, portmux.Options{Logger: m.log})
		if err != nil {
			return err
		}
		m.muxes = append(m.muxes, mux)
	}

	// From here on nothing fails, and the listeners belong to those who serve on them.
	opened = nil
	m.logQuota()
	m.replica.Start()
	for _, l := range others {
		m.serve(func() error { return m.admin.Serve(l) })
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.starting = cancel
	m.serving.Go(func() { m.serveClients(ctx, clients) })
	m.serving.Go(func() { m.forwardFailure(ctx) })
	return nil
}

// serveClients waits until the member can answer and then lets clients in.
func (m *Member) serveClients(ctx context.Context, clients []net.Listener) {
	select {
	case <-m.replica.Ready():
	case <-m.replica.Stopping():
		return
	case <-ctx.Done():
		return
	}
	for i, mux := range m.muxes {
		m.serve(mux.Serve)
		m.serve(func() error { return m.rpc.Serve(mux.HTTP2()) })
		m.serve(func() error { return m.http.Serve(mux.HTTP1()) })
		m.log.Info("serving client traffic", "address", clients[i].Addr().String())
	}
	h := m.replica.Header()
	m.log.Info("ready to serve client requests",
		"cluster-id", fmt.Sprintf("%x", h.ClusterID), "member-id", fmt.Sprintf("%x", h.MemberID),
		"name", m.cfg.Name, "data-dir", m.cfg.DataDir, "revision", h.Revision)
}

// serve runs one accept loop. A listener that fails while the member runs ends the member: a member
// that nobody can reach is worse than one that restarts.
func (m *Member) serve(loop func() error) {
	m.serving.Go(func() {
		err := loop()
		if err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			m.fail(fmt.Errorf("accept connections: %w", err))
		}
	})
}

func (m *Member) forwardFailure(ctx context.Context) {
	select {
	case err := <-m.replica.Failed():
		m.fail(err)
	case <-ctx.Done():
	}
}

func (m *Member) fail(err error) {
	select {
	case m.failed <- err:
	default:
	}
}

// Failed receives the error after which the member cannot go on. Close it then.
func (m *Member) Failed() <-chan error { return m.failed }

// ClientAddrs returns the addresses that clients are served on.
func (m *Member) ClientAddrs() []net.Addr {
	var addrs []net.Addr
	for _, mux := range m.muxes {
		addrs = append(addrs, mux.HTTP2().Addr())
	}
	return addrs
}

// Close stops the member: it refuses new requests, finishes those under way until ctx ends, and
// closes everything in the reverse of the order in which it was opened. The error is that of the
// data; what was acknowledged is on disk in any case.
func (m *Member) Close(ctx context.Context) error {
	m.closing.Do(func() { m.err = m.close(ctx) })
	return m.err
}

func (m *Member) close(ctx context.Context) error {
	var errs []error
	if m.starting != nil {
		m.starting()
	}
	// Clients first: they get answers from a pipeline that still works.
	if m.rpc != nil {
		m.rpc.Stop(ctx)
	}
	for _, s := range []*http.Server{m.http, m.admin} {
		if s != nil && s.Shutdown(ctx) != nil {
			s.Close()
		}
	}
	for _, mux := range m.muxes {
		errs = append(errs, ignoreClosed(mux.Close()))
	}
	if m.replica != nil {
		errs = append(errs, m.replica.Stop(ctx))
	}
	m.serving.Wait()
	// The lock last: until then the files are in use.
	if m.lock != nil {
		errs = append(errs, m.lock.Close())
	}
	return errors.Join(errs...)
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (m *Member) replicaConfig() replica.Config {
	c := &m.cfg
	urls, _ := c.peerURLs() // Validate has seen to the error
	return replica.Config{
		FS:              c.FS,
		WALDir:          c.WALDir,
		HistoryDir:      filepath.Join(c.DataDir, "history"),
		Name:            c.Name,
		ClientURLs:      c.AdvertiseClientURLs,
		InitialMembers:  []cluster.Member{{Name: c.Name, PeerURLs: urls}},
		Token:           c.InitialClusterToken,
		TickInterval:    c.HeartbeatInterval,
		ElectionTicks:   int(c.ElectionTimeout / c.HeartbeatInterval),
		MaxRequestBytes: c.MaxRequestBytes,
		SnapshotCount:   c.SnapshotCount,
		CatchUpEntries:  c.SnapshotCatchUpEntries,
		QuotaBytes:      max(c.QuotaBackendBytes, 0),
		Store:           mvcc.Options{Ranges: m.ranges},
		Watch: watch.Options{ProgressInterval: c.WatchProgressInterval, FragmentBytes: int64(c.MaxRequestBytes) + 512<<10,
			StreamWatchers: c.MaxWatchersPerStream},
		Logger: c.Logger,
		NoSync: c.UnsafeNoSync,

		ScrubBytesPerSecond: max(c.ScrubBytesPerSecond, 0),
		ScrubPause:          c.ScrubPause,
	}
}

// maxQuota is the largest quota that etcd suggests; people who run both look for the line.
const maxQuota = 8 << 30

func (m *Member) logQuota() {
	switch quota := m.cfg.QuotaBackendBytes; {
	case quota < 0:
		m.log.Info("disabled backend quota", "quota-size-bytes", quota)
	default:
		if quota > maxQuota {
			m.log.Warn("quota exceeds the maximum value", "quota-size-bytes", quota, "quota-maximum-size-bytes", int64(maxQuota))
		}
		m.log.Info("enabled backend quota", "quota-size-bytes", quota)
	}
}

// canStartFresh refuses to make a new cluster for a member that was told to join one: it would serve
// an empty store under the name of one that has data.
func (m *Member) canStartFresh() error {
	if m.cfg.InitialClusterState != "existing" {
		return nil
	}
	_, err := m.cfg.FS.Stat(filepath.Join(m.cfg.DataDir, "history"))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--initial-cluster-state=existing: %s has no data, and this version cannot join a cluster; check --data-dir, or use new", m.cfg.DataDir)
	}
	return err
}

// lockDataDir takes the data directory for this process. It writes nothing into a directory that
// something else has filled.
func lockDataDir(fsys vfs.FS, dir string) (io.Closer, error) {
	switch _, err := fsys.Stat(filepath.Join(dir, "member")); {
	case err == nil:
		return nil, fmt.Errorf("data directory %s holds the data of an etcd member; choose another --data-dir", dir)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	lock, err := fsys.Lock(filepath.Join(dir, "LOCK"))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("data directory %s is in use by another process", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	return lock, nil
}
