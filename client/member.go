package client

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

const (
	// idleAfter is when a connection that nobody uses is closed.
	idleAfter = 30 * time.Second
	// suspectFor is how long a member that said it has no leader is left alone. Members that say so on
	// grpc.health.v1 are left until they say otherwise.
	suspectFor = 3 * time.Second
	// Windows of flow control. That of a stream bounds what a watcher on a stream of its own can have on its
	// way while nobody reads; they are fixed, so that gRPC need not probe for them.
	streamWindow     = 1 << 20
	connectionWindow = 16 << 20
)

// member is one endpoint and the connection to it.
type member struct {
	endpoint endpoint
	name     string
	core     *core
	conn     *grpc.ClientConn
	gone     context.CancelFunc // ends tend
	// seed tells that it was configured rather than discovered. Owned by the pool's lock.
	seed bool

	state    atomic.Uint32 // a MemberState
	uses     atomic.Int64  // attempts and streams on the connection
	listed   atomic.Bool   // it is among the endpoints
	retired  atomic.Bool   // it is not any more, nor pinned: the connection closes when it is not used
	suspect  atomic.Bool   // see suspectFor
	pinned   atomic.Bool   // a client made by At uses it
	noStream atomic.Bool   // it has no RangeStream
	turns    atomic.Uint64 // how often streams were to go elsewhere
	mu       struct {
		sync.Mutex
		err    error
		leave  map[*func()]struct{} // called when streams should go elsewhere
		wanted bool
		want   chan struct{} // closed and replaced when wanted changes
	}
}

func newMember(c *core, e endpoint) (*member, error) {
	m := &member{endpoint: e, name: e.String(), core: c}
	m.mu.want = make(chan struct{})
	m.mu.leave = map[*func()]struct{}{}
	cfg := &c.cfg
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(c.creds),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, e.network, e.address)
		}),
		grpc.WithAuthority(cfg.authority(e)),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(c.codec), grpc.MaxCallSendMsgSize(cfg.MaxSendBytes), grpc.MaxCallRecvMsgSize(cfg.MaxReceiveBytes)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: cfg.KeepAlive, Timeout: cfg.KeepAliveTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: 2 * DefaultDialTimeout,
		}),
		grpc.WithInitialWindowSize(streamWindow),
		grpc.WithInitialConnWindowSize(connectionWindow),
		grpc.WithIdleTimeout(idleAfter),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
	}
	conn, err := grpc.NewClient("passthrough:///"+m.name, append(opts, cfg.DialOptions...)...)
	if err != nil {
		return nil, invalid("endpoint %s: %v", m.name, err)
	}
	m.conn = conn
	ctx, cancel := context.WithCancel(c.ctx)
	m.gone = cancel
	c.tasks.Go(func() { m.tend(ctx) })
	return m, nil
}

// authority is the name that the member's certificate must have, and what requests say they are for.
func (c *Config) authority(e endpoint) string {
	switch {
	case c.TLS != nil && c.TLS.ServerName != "":
		return c.TLS.ServerName
	case c.TLSFiles.ServerName != "":
		return c.TLSFiles.ServerName
	case e.network == "unix":
		return e.host
	}
	return e.address
}

// close ends the connection and everything on it.
func (m *member) close() {
	m.gone()
	_ = m.conn.Close()
}

// acquire keeps the connection open until release, unless the member is retired.
func (m *member) acquire() bool {
	m.uses.Add(1)
	if m.retired.Load() {
		m.release()
		return false
	}
	return true
}

func (m *member) release() {
	if m.uses.Add(-1) == 0 && m.retired.Load() {
		m.close()
	}
}

func (m *member) unused() bool { return m.uses.Load() == 0 }

// unlisted has streams go elsewhere, and closes the connection if nothing else needs it.
func (m *member) unlisted() {
	m.left()
	if m.retired.Load() && m.unused() {
		m.close()
	}
}

// usable reports whether calls should go here.
func (m *member) usable() bool {
	return MemberState(m.state.Load()) == MemberReady && !m.suspect.Load()
}

// connected reports whether calls can go here.
func (m *member) connected() bool {
	s := MemberState(m.state.Load())
	return s == MemberReady || s == MemberSick
}

// want says whether the connection is to be kept and its health watched.
func (m *member) want(wanted bool) {
	m.mu.Lock()
	if m.mu.wanted != wanted {
		m.mu.wanted = wanted
		close(m.mu.want)
		m.mu.want = make(chan struct{})
	}
	m.mu.Unlock()
	if wanted {
		m.conn.Connect()
	}
}

func (m *member) isWanted() (bool, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.wanted, m.mu.want
}

func (m *member) lastError() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.err
}

// set changes the state and tells whoever waits for a member.
func (m *member) set(s MemberState, err error) {
	m.mu.Lock()
	m.mu.err = err
	m.mu.Unlock()
	old := MemberState(m.state.Swap(uint32(s)))
	if old == s {
		return
	}
	if s == MemberSick {
		m.left()
	}
	m.core.pool.broadcast()
	m.core.cfg.Logger.Debug("member changed", "endpoint", m.name, "state", s.String(), "error", err)
	if h := m.core.cfg.Hooks.Member; h != nil {
		h(m.name, s, err)
	}
}

// onLeave has f called when streams should leave the member: it turns sick, is not among the endpoints any more, or
// the preferred one is back, now or since turns was read. The function it returns ends that.
func (m *member) onLeave(turns uint64, f func()) (forget func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.leave[&f] = struct{}{}
	if !m.listed.Load() || m.turns.Load() != turns {
		f()
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.mu.leave, &f)
	}
}

func (m *member) left() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turns.Add(1)
	for f := range m.mu.leave {
		(*f)()
	}
}

// doubt leaves the member alone for a while.
func (m *member) doubt(err error) {
	if m.suspect.Swap(true) {
		return
	}
	m.core.cfg.Logger.Info("leaving a member for a while", "endpoint", m.name, "error", err)
	if h := m.core.cfg.Hooks.Member; h != nil {
		h(m.name, MemberSick, err)
	}
	m.left()
	m.core.pool.broadcast()
	time.AfterFunc(suspectFor, func() {
		m.suspect.Store(false)
		m.core.pool.broadcast()
	})
}

// tend follows the state of the connection.
func (m *member) tend(ctx context.Context) {
	for ctx.Err() == nil {
		s := m.conn.GetState()
		switch s {
		case connectivity.Idle:
			m.set(MemberIdle, m.lastError())
		case connectivity.Connecting:
			m.set(MemberConnecting, m.lastError())
		case connectivity.TransientFailure:
			m.set(MemberFailed, m.whyNot(ctx))
		case connectivity.Ready:
			m.set(MemberReady, nil)
			m.ready(ctx)
			continue
		case connectivity.Shutdown:
			return
		}
		m.conn.WaitForStateChange(ctx, s)
	}
}

// whyNot returns why the connection could not be made, which gRPC tells to calls only.
func (m *member) whyNot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := healthpb.NewHealthClient(m.conn).Check(ctx, &healthpb.HealthCheckRequest{})
	if status.Code(err) != codes.Unavailable {
		return m.lastError() // it has changed meanwhile
	}
	text := status.Convert(err).Message()
	for _, noise := range []string{"connection error: desc = ", "last connection error: "} {
		text = strings.ReplaceAll(text, noise, "")
	}
	text = strings.ReplaceAll(strings.Trim(text, `"`), `\"`, `"`)
	switch secure := m.core.cfg.secure(); {
	case !secure && strings.Contains(text, "reading server preface"):
		text += " (does the member want TLS? then write https://)"
	case secure && strings.Contains(text, "handshake failed") && (strings.HasSuffix(text, "EOF") ||
		strings.Contains(text, "connection reset") || strings.Contains(text, "first record does not look like a TLS")):
		text += " (does the member speak TLS? if not, write http:// and leave TLS out)"
	}
	return errors.New(text)
}

// ready watches the member's health while it is connected and wanted.
func (m *member) ready(ctx context.Context) {
	for {
		wanted, changed := m.isWanted()
		if !wanted {
			if !m.stays(ctx, changed) {
				return
			}
			continue
		}
		hctx, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(ctx, cancel)
		ended := make(chan struct{})
		m.core.tasks.Go(func() {
			defer close(ended)
			m.health(hctx)
		})
		still := m.stays(ctx, changed)
		stop()
		cancel()
		<-ended
		if !still {
			return
		}
	}
}

// stays waits until the connection is lost, and then returns false, or changed is closed.
func (m *member) stays(ctx context.Context, changed <-chan struct{}) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lost := make(chan struct{})
	m.core.tasks.Go(func() {
		m.conn.WaitForStateChange(ctx, connectivity.Ready)
		close(lost)
	})
	select {
	case <-lost:
		return false
	case <-changed:
		cancel()
		<-lost
		return true
	}
}

// readiness is the service of grpc.health.v1 that says whether a member answers what needs a leader. A stock etcd
// knows only the one without a name.
const readiness = "readiness"

var errNoService = errors.New("the member does not know this service")

// health follows what the member says on grpc.health.v1. One that does not speak it is taken as healthy.
func (m *member) health(ctx context.Context) {
	service := readiness
	for ctx.Err() == nil {
		err := m.followHealth(ctx, service)
		switch {
		case errors.Is(err, errNoService):
			service = ""
			continue
		case status.Code(err) == codes.Unimplemented:
			<-ctx.Done()
			return
		}
		// A connection that is lost ends ctx; anything else is tried again.
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// followHealth watches one service until an error.
func (m *member) followHealth(ctx context.Context, service string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := healthpb.NewHealthClient(m.conn).Watch(ctx, &healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		return err
	}
	for {
		r, err := stream.Recv()
		switch {
		case err != nil:
			return err
		case r.Status == healthpb.HealthCheckResponse_SERVICE_UNKNOWN && service != "":
			return errNoService
		case r.Status == healthpb.HealthCheckResponse_NOT_SERVING:
			m.set(MemberSick, errors.New("the member says that it does not serve"))
		default:
			m.set(MemberReady, nil)
		}
	}
}
