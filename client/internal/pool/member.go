package pool

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
)

const (
	// idleAfter is when an unused connection is closed.
	idleAfter = 30 * time.Second
	// suspectFor is how long a member is avoided after it answered that it has no leader. A member
	// that reports so on grpc.health.v1 is avoided until it reports otherwise.
	suspectFor = 3 * time.Second
	// minConnectTimeout is how long one attempt to connect may take at least.
	minConnectTimeout = 10 * time.Second
	// Windows of flow control. The window of a stream bounds how many bytes are in flight to a
	// watcher on a stream of its own that is not read. They are fixed, so gRPC need not probe for
	// them.
	streamWindow     = 1 << 20
	connectionWindow = 16 << 20
)

// State is the state of a member's connection.
type State uint8

// The states.
const (
	Idle       State = iota // not connected, and not needed
	Connecting              // a connection is being made
	Ready                   // connected, and the member reports that it serves, or nothing
	Sick                    // connected, and the member reports that it does not serve or has no leader
	Failed                  // the last attempt to connect failed; another will follow
)

// String returns the state as a word.
func (s State) String() string {
	return [...]string{"idle", "connecting", "ready", "sick", "failed"}[min(s, Failed)]
}

// Member is one endpoint and the connection to it.
type Member struct {
	pool     *Pool
	name     string
	endpoint Endpoint
	conn     *grpc.ClientConn
	cancel   context.CancelFunc // ends tend
	// seed says that it was configured rather than discovered. Guarded by Pool.mu.
	seed bool

	state  atomic.Uint32 // a State
	uses   atomic.Int64  // attempts and streams on the connection
	listed atomic.Bool   // it is among the endpoints
	// it was removed, and is not pinned: the connection closes when it is unused
	retired  atomic.Bool
	suspect  atomic.Bool   // see suspectFor
	pinned   atomic.Bool   // Find returned it
	leaves   atomic.Uint64 // how often streams were asked to leave
	met      atomic.Bool   // it has been connected
	noStream atomic.Bool
	// when the newest connection was accepted, in nanoseconds since 1970; 0 until then
	accepted atomic.Int64
	mu       struct {
		sync.Mutex
		err    error
		leave  map[*func()]struct{} // called when streams should leave
		wanted bool
		want   chan struct{} // closed and replaced when wanted changes
	}
}

func newMember(p *Pool, e Endpoint) (*Member, error) {
	m := &Member{pool: p, name: e.String(), endpoint: e}
	m.mu.want = make(chan struct{})
	m.mu.leave = map[*func()]struct{}{}
	cfg := &p.cfg
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(cfg.Credentials),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			m.accepted.Store(0)
			conn, err := d.DialContext(ctx, e.network, e.address)
			if err == nil {
				m.accepted.Store(time.Now().UnixNano())
			}
			return conn, err
		}),
		grpc.WithAuthority(e.authority(cfg.ServerName)),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(cfg.Codec),
			grpc.MaxCallSendMsgSize(cfg.MaxSendBytes),
			grpc.MaxCallRecvMsgSize(cfg.MaxReceiveBytes)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: cfg.KeepAlive,
			Timeout: cfg.KeepAliveTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6,
				Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: minConnectTimeout,
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
	ctx, cancel := context.WithCancel(p.ctx)
	m.cancel = cancel
	p.tasks.Go(func() { m.followConnection(ctx) })
	return m, nil
}

// Name returns the endpoint, empty if m is nil.
func (m *Member) Name() string {
	if m == nil {
		return ""
	}
	return m.name
}

// Conn returns the connection. A caller of Pick uses it until Release.
func (m *Member) Conn() *grpc.ClientConn { return m.conn }

// Listed reports whether the member is among the endpoints.
func (m *Member) Listed() bool { return m.listed.Load() }

// Connected reports whether calls can use the member.
func (m *Member) Connected() bool {
	s := State(m.state.Load())
	return s == Ready || s == Sick
}

// isUsable reports whether calls should use the member.
func (m *Member) isUsable() bool { return State(m.state.Load()) == Ready && !m.suspect.Load() }

// isPending reports whether it is not yet known if the member can be reached.
func (m *Member) isPending() bool {
	s := State(m.state.Load())
	return s == Idle || s == Connecting
}

// SetNoRangeStream records that the member does not know RangeStream.
func (m *Member) SetNoRangeStream() { m.noStream.Store(true) }

// NoRangeStream reports whether the member does not know RangeStream.
func (m *Member) NoRangeStream() bool { return m.noStream.Load() }

// close ends the connection and all calls on it.
func (m *Member) close() {
	m.cancel()
	_ = m.conn.Close()
}

// acquire keeps the connection open until Release, unless the member is retired.
func (m *Member) acquire() bool {
	m.uses.Add(1)
	if m.retired.Load() {
		m.Release()
		return false
	}
	return true
}

// Release ends a use of the member that Pick returned.
func (m *Member) Release() {
	if m.uses.Add(-1) == 0 && m.retired.Load() {
		m.close()
	}
}

func (m *Member) isUnused() bool { return m.uses.Load() == 0 }

// retire asks streams to leave, and closes the connection if nothing else needs it.
func (m *Member) retire() {
	m.notifyLeave()
	if m.retired.Load() && m.isUnused() {
		m.close()
	}
}

// setWanted says whether to keep the connection and watch its health.
func (m *Member) setWanted(wanted bool) {
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

func (m *Member) isWanted() (bool, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.wanted, m.mu.want
}

func (m *Member) lastError() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.err
}

// silentAfter is how long an accepted connection may be without an answer until it is the reason
// why a member cannot be reached.
const silentAfter = time.Second

// whyUnreachable returns why the member cannot be reached.
func (m *Member) whyUnreachable() error {
	err := m.lastError()
	if accepted := m.accepted.Load(); State(m.state.Load()) == Connecting && accepted > 0 &&
		(err == nil || time.Since(time.Unix(0, accepted)) >= silentAfter) {
		return errors.New(silent)
	}
	switch {
	case err != nil:
		return err
	case len(m.pool.cfg.DialOptions) > 0: // the caller's dialer may have connected
		return errors.New("no answer yet")
	}
	return errors.New(noReply)
}

// isRefused reports whether the member has never been connected, and refused a connection for a
// reason that stays. After a connection the reason may be a certificate that is just replaced.
func (m *Member) isRefused() bool {
	_, ok := m.lastError().(*refused)
	return ok && !m.met.Load()
}

// setState changes the state and wakes the goroutines that wait for a member.
func (m *Member) setState(s State, err error) {
	m.mu.Lock()
	m.mu.err = err
	m.mu.Unlock()
	if s == Ready {
		m.met.Store(true)
	}
	old := State(m.state.Swap(uint32(s)))
	if old == s {
		return
	}
	if s == Sick {
		m.notifyLeave()
	}
	m.pool.wakeWaiting()
	m.pool.cfg.Logger.Debug("member changed", "endpoint", m.name, "state", s.String(), "error", err)
	m.pool.cfg.Changed(m.name, s, err)
}

// setRefused records why the member, which has failed, will not be reached later either.
func (m *Member) setRefused(why *refused) {
	m.mu.Lock()
	m.mu.err = why
	m.mu.Unlock()
	m.pool.wakeWaiting()
	m.pool.cfg.Logger.Debug("member refuses", "endpoint", m.name, "error", why)
}

// Leaves returns how often streams were asked to leave the member.
func (m *Member) Leaves() uint64 { return m.leaves.Load() }

// OnLeave calls f when streams should leave the member: it turns sick, is no longer among the
// endpoints, or the preferred one is back. It calls f at once if that happened since Leaves
// returned leaves. The function it returns ends that, except for a call of f that has begun. No
// lock is held while f is called.
func (m *Member) OnLeave(leaves uint64, f func()) (forget func()) {
	m.mu.Lock()
	m.mu.leave[&f] = struct{}{}
	late := !m.listed.Load() || m.leaves.Load() != leaves
	m.mu.Unlock()
	if late {
		f()
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.mu.leave, &f)
	}
}

// notifyLeave asks all streams to leave.
func (m *Member) notifyLeave() {
	m.mu.Lock()
	m.leaves.Add(1)
	all := slices.Collect(maps.Keys(m.mu.leave))
	m.mu.Unlock()
	for _, f := range all {
		(*f)()
	}
}

// Suspect makes the pool avoid the member for a while.
func (m *Member) Suspect(err error) {
	if m.suspect.Swap(true) {
		return
	}
	m.pool.cfg.Logger.Info("leaving a member for a while", "endpoint", m.name, "error", err)
	m.pool.cfg.Changed(m.name, Sick, err)
	m.notifyLeave()
	m.pool.wakeWaiting()
	time.AfterFunc(suspectFor, func() {
		m.suspect.Store(false)
		m.pool.wakeWaiting()
	})
}
