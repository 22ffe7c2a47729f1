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
	"log/slog"
	"net"
	"net/http"
	"sync"

	"vigil/internal/edge/certs"
	"vigil/internal/edge/rpc"
	"vigil/internal/member/peer"
	"vigil/internal/member/replica"
	"vigil/internal/store/ration"
	"vigil/internal/tracing"
)

// Member is a running member.
type Member struct {
	cfg        Config
	log        *slog.Logger
	lock       io.Closer
	ranges     *ration.Budget
	replica    *replica.Replica
	rpc        *rpc.Server
	doors      []*door
	web        web
	clientTLS  *certs.Store
	peerTLS    *certs.Store
	peers      []peerListener
	promotions promotions
	tracer     *tracing.Tracer // nil unless wanted
	// transport is closed by close.
	transport *peer.Transport
	serving   sync.WaitGroup
	starting  context.CancelFunc // ends the wait for a leader

	served  chan struct{} // closed when clients are served
	failed  chan error    // has room for one
	closing sync.Once
	err     error
}

// peerListener is one of the peer URLs.
type peerListener struct {
	l      net.Listener
	secure bool
}

// Start starts a member and returns when it has opened its data. It serves clients as soon as it has
// a leader, which it says in its log.
func Start(c Config) (*Member, error) { return StartContext(context.Background(), c) }

// StartContext is Start that gives up when ctx ends, which matters to a member that waits for others to be
// found by discovery. Later ctx has no meaning.
func StartContext(ctx context.Context, c Config) (*Member, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	m := &Member{cfg: c, log: c.Logger, served: make(chan struct{}), failed: make(chan error, 1), promotions: newPromotions()}
	if err := m.start(ctx); err != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return nil, errors.Join(err, m.Close(ctx))
	}
	return m, nil
}

// start opens everything in the order of dependence: addresses first, because a port in use must
// leave no trace; then the lock, the data and the services.
func (m *Member) start(ctx context.Context) (err error) {
	var opened []net.Listener // not yet owned by a server
	defer func() { closeAll(opened) }()
	m.doors, err = m.cfg.openDoors()
	limits := newConnLimits(m.log)
	for _, d := range m.doors {
		d.l = limits.of(d).Listener(d.l)
		opened = append(opened, d.l)
	}
	if err != nil {
		return err
	}
	for _, u := range m.cfg.ListenPeerURLs {
		ls, err := m.cfg.listen([]string{u})
		opened = append(opened, ls...)
		if err != nil {
			return err
		}
		_, _, secure, _ := listenAddr(u)
		m.peers = append(m.peers, peerListener{limits.members.Listener(ls[0]), secure})
	}
	if err := m.openTLS(); err != nil {
		return err
	}
	jwt, err := m.openTokens()
	if err != nil {
		return err
	}
	members, join, err := m.origin(ctx)
	if err != nil {
		return err
	}
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
	data, err := replica.OpenData(rc)
	if err != nil {
		return err
	}
	if err := m.openTransport(data); err != nil {
		return errors.Join(err, data.Close())
	}
	if m.replica, err = replica.New(data, network{m.transport}); err != nil {
		return err
	}
	if err := m.openServices(); err != nil {
		return err
	}
	for _, d := range m.doors {
		if err := d.openMux(m.clientTLS, m.log); err != nil {
			return err
		}
	}

	// From here on nothing fails, and the listeners belong to those who serve on them.
	opened = nil
	m.logQuota()
	m.warnAdvertised()
	m.replica.Start()
	if err := m.servePeers(); err != nil {
		return err
	}
	m.serveMetrics()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m.starting = cancel
	for _, run := range []func(context.Context){m.serveClients, m.forwardFailure, m.watchRemoval, m.watchTrust, m.compact} {
		m.serving.Go(func() { run(ctx) })
	}
	return nil
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
	// Leadership goes while everything works, so that the cluster is without a leader for a round trip
	// and not for an election timeout.
	if m.replica != nil && m.starting != nil {
		m.replica.Leadership.HandOver(ctx)
	}
	// Clients first: they get answers from a pipeline that still works. The doors before the services, which
	// close what comes to them then: a client whose connection is accepted sends a request at once.
	for _, d := range m.doors {
		if d.mux != nil {
			errs = append(errs, ignoreClosed(d.mux.Drain(ctx)))
		}
	}
	if m.rpc != nil {
		m.rpc.Stop(ctx)
	}
	m.web.stop(ctx)
	for _, d := range m.doors {
		if d.mux != nil {
			errs = append(errs, ignoreClosed(d.mux.Close()))
		}
	}
	if m.transport != nil {
		// A snapshot that is being received ends with its stream.
		m.transport.Close()
	}
	if m.replica != nil {
		if !m.replica.Members.Alone() {
			// What has no outcome by now gets none: nobody is reached any more.
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			cancel()
		}
		errs = append(errs, m.replica.Stop(ctx))
	}
	m.serving.Wait()
	errs = append(errs, m.closeTracing(ctx))
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
