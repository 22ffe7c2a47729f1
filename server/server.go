// Package server runs a whole member: it connects the parts, starts and stops them in order, and
// serves clients. It is the only package that imports all parts.
//
//	m, err := server.Start(server.Config{DataDir: "infra0.etcd"})
//	...
//	err = m.Close(ctx)
//
// Start and Close keep these promises:
//
//  1. If Start returns an error, no listener is open and no goroutine runs. If the error is in the
//     configuration, the addresses or the lock of the data directory, nothing was written.
//  2. A client gets no answer of the API before the member serves: connections of HTTP/2 are handed
//     over only after the member knows a leader and has completed a linearizable read. Until then
//     HTTP/1 has the pages of health, metrics and variables, which say what the member waits for.
//  3. After Close there is no goroutine, socket or lock of the member, also if its context ended
//     early. An operation on the bucket of an archive that never returns, as on a file server that
//     is away, keeps its goroutine and nothing else.
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
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigil/internal/edge/certs"
	"vigil/internal/edge/listen"
	"vigil/internal/edge/rpc"
	"vigil/internal/health"
	"vigil/internal/member/peer"
	"vigil/internal/member/replica"
	"vigil/internal/store/ration"
	"vigil/internal/tracing"
	"vigil/internal/vfs"
)

// Member is a running member.
type Member struct {
	cfg        Config
	log        *slog.Logger
	lock       io.Closer
	ranges     *ration.Budget
	replica    *replica.Replica
	rpc        *rpc.Server
	listeners  []*clientListener
	web        web
	startup    startup
	registry   *prometheus.Registry
	history    *health.History
	clientTLS  *certs.Store
	peerTLS    *certs.Store
	peers      []peerListener
	promotions promotions
	tracer     *tracing.Tracer // nil if tracing is off
	archive    archiving
	// transport is closed by close.
	transport *peer.Transport
	serving   sync.WaitGroup
	starting  context.CancelFunc // ends the background goroutines of server; nil before they start
	reporting context.CancelFunc // ends the lines about what the start waits for, and closes closed
	closed    <-chan struct{}    // closed as soon as Close begins

	served  chan struct{} // closed when clients are served
	failed  chan error    // of capacity 1
	closing sync.Once
	err     error
}

// peerListener is one of the peer URLs.
type peerListener struct {
	l      net.Listener
	secure bool
}

// Start starts a member and returns when its data is open. The member serves clients as soon as it
// knows a leader, and logs that. It returns a *ConfigError for a mistake in the configuration, or
// in a file of certificates or keys that it names.
func Start(c Config) (*Member, error) { return StartContext(context.Background(), c) }

// StartContext is Start with a context that ends a start early: discovery may wait long for other
// members. ctx has no effect after the start.
func StartContext(ctx context.Context, c Config) (*Member, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, configError(err)
	}
	m := &Member{cfg: c, log: c.Logger, served: make(chan struct{}), failed: make(chan error, 1),
		promotions: newPromotions()}
	m.startup.began = time.Now()
	m.startup.await(health.ForMembers, "its configuration and its certificates")
	if err := m.start(ctx); err != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return nil, errors.Join(WithNextStep(err), m.Close(ctx))
	}
	return m, nil
}

// start opens the parts in the order of dependence: addresses first, because a start with a port in
// use must write nothing; then the lock, the data and the services.
func (m *Member) start(ctx context.Context) (err error) {
	var opened []net.Listener // without a server that closes them
	defer func() {
		for _, l := range opened {
			l.Close()
		}
	}()
	m.listeners, err = m.cfg.openClientListeners()
	limits := listen.NewLimits(m.log)
	for _, l := range m.listeners {
		l.listener = l.limit(&limits).Listener(l.listener)
		opened = append(opened, l.listener)
	}
	if err != nil {
		return err
	}
	for _, u := range m.cfg.ListenPeerURLs {
		l, err := m.cfg.listen("--listen-peer-urls", u)
		if err != nil {
			return err
		}
		opened = append(opened, l)
		_, _, secure, _ := listen.Address(u)
		m.peers = append(m.peers, peerListener{limits.Members.Listener(l), secure})
	}
	if err := m.openTLS(); err != nil {
		return configError(err)
	}
	jwt, err := m.openTokens()
	if err != nil {
		return configError(err)
	}
	if err := m.servePages(ctx); err != nil {
		return err
	}
	m.startup.await(health.ForDirectory, "the data directory "+m.cfg.DataDir+" to be looked at")
	members, join, err := m.origin(ctx)
	if err != nil {
		return err
	}
	m.startup.await(health.ForDirectory, "the lock of the data directory "+m.cfg.DataDir)
	if m.lock, err = lockDataDir(m.cfg.FS, m.cfg.DataDir); err != nil {
		return err
	}
	if err := m.saveSelfSigned(); err != nil {
		return err
	}
	if m.ranges, err = ration.New(m.cfg.MaxRangeBytesInFlight); err != nil {
		return err
	}
	if err := m.openTracing(ctx); err != nil {
		return err
	}
	rc := m.replicaConfig()
	rc.JWT = jwt
	rc.InitialMembers, rc.Joining = members, join
	rc.UnsharedNames = m.cfg.Discovery.SRV != ""
	m.startup.await(health.ForData, "the raft log and the store in "+m.cfg.DataDir+" to be read")
	data, err := replica.OpenData(rc)
	if errors.Is(err, vfs.ErrLocked) {
		dir := rc.HistoryDir
		if path, ok := errors.AsType[*fs.PathError](err); ok {
			dir = path.Path
		}
		return inUse("the data in", dir, dir)
	}
	if err != nil {
		return withDataStep(err)
	}
	if members == nil && join == nil && !m.cfg.ForceNewCluster {
		err = m.compareRecord(data.Self(), data.Members())
	}
	if err != nil {
		return errors.Join(err, data.Close())
	}
	if err := m.openTransport(data); err != nil {
		return errors.Join(err, data.Close())
	}
	if m.replica, err = replica.New(data, network{m.transport}); err != nil {
		return withDataStep(err)
	}
	if err := m.openArchive(); err != nil {
		return err
	}
	if err := m.openServices(); err != nil {
		return err
	}
	// The listeners belong to their servers now.
	opened = nil
	m.logQuota()
	m.warnAdvertised()
	m.replica.Start()
	if err := m.servePeers(); err != nil {
		return err
	}
	m.startup.noteRunning()
	m.web.openHandlers()
	m.startArchive()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m.starting = cancel
	for _, run := range []func(context.Context){m.serveClients, m.recordCounts, m.forwardFailure,
		m.watchRemoval, m.watchTrust, m.compact} {
		m.serving.Go(func() { run(ctx) })
	}
	return nil
}

// serve runs an accept loop. If a listener fails, the member fails: an unreachable member is worse
// than a restart.
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

// Failed receives an error after which the member cannot continue. The caller closes the member
// then.
func (m *Member) Failed() <-chan error { return m.failed }

// Close stops the member: it rejects new requests, completes pending requests until ctx ends, and
// closes the parts in the reverse of the order in which start opened them. Acknowledged writes are
// on disk also if Close returns an error.
func (m *Member) Close(ctx context.Context) error {
	m.closing.Do(func() { m.err = m.close(ctx) })
	return m.err
}

func (m *Member) close(ctx context.Context) error {
	var errs []error
	if m.reporting != nil {
		m.reporting()
	}
	if m.starting != nil {
		m.starting()
	}
	// The leader hands over while all parts work, so that the cluster has no leader for a round
	// trip instead of an election timeout.
	if m.replica != nil && m.starting != nil {
		m.replica.Leadership.HandOver(ctx)
	}
	// Clients first: they get answers from a working pipeline. The listeners close before the
	// services, which close later connections: a client sends a request as soon as its connection
	// is accepted.
	for _, l := range m.listeners {
		if l.mux != nil {
			errs = append(errs, ignoreClosed(l.mux.Drain(ctx)))
		}
	}
	m.web.endStreams()
	if m.rpc != nil {
		m.rpc.Stop(ctx)
	}
	m.web.stop(ctx)
	for _, l := range m.listeners {
		if l.mux != nil {
			errs = append(errs, ignoreClosed(l.mux.Close()))
		}
	}
	m.stopArchive()
	if m.transport != nil {
		// This ends the reception of a snapshot.
		m.transport.Close()
	}
	if m.replica != nil {
		if !m.replica.Membership().Alone() {
			// Pending requests can get no more outcomes: no other member is reachable.
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			cancel()
		}
		errs = append(errs, m.replica.Stop(ctx))
	}
	m.serving.Wait()
	errs = append(errs, m.closeTracing(ctx))
	// The lock is released last: until then the files are in use.
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
