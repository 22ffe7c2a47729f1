package pool

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
)

// Config configures a pool. All fields but ServerName and DialOptions must be set.
type Config struct {
	// Secure reports whether Credentials use TLS.
	Secure bool
	// Demanded reports whether a member has demanded a certificate that Credentials do not have.
	Demanded    func() bool
	Credentials credentials.TransportCredentials
	// ServerName is the name expected in certificates instead of the endpoint's host.
	ServerName string
	Codec      encoding.CodecV2
	// DialTimeout bounds how long Pick waits for a member.
	DialTimeout                   time.Duration
	KeepAlive, KeepAliveTimeout   time.Duration
	MaxSendBytes, MaxReceiveBytes int
	DialOptions                   []grpc.DialOption
	Logger                        *slog.Logger
	// Changed is called after the state of a member has changed. It must not block.
	Changed func(endpoint string, s State, err error)
}

// Pool holds the members and the choice among them. It is safe for concurrent use.
type Pool struct {
	cfg     Config
	ctx     context.Context
	cancel  context.CancelFunc
	tasks   sync.WaitGroup // all goroutines
	current atomic.Pointer[Member]
	mu      struct {
		sync.Mutex
		members []*Member // the first is the preferred one, the others are in random order
		pins    []*Member // members of Find, whether they are among members or not
		retired []*Member // removed from members, and perhaps in use
		changed chan struct{}
		begun   bool // one has been used
		closed  bool
	}
}

// New returns a pool without members. Close must be called.
func New(cfg Config) *Pool {
	p := &Pool{cfg: cfg}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.mu.changed = make(chan struct{})
	p.tasks.Go(p.returnRegularly)
	return p
}

// Close closes all connections and waits for the goroutines of the pool.
func (p *Pool) Close() {
	p.cancel()
	p.mu.Lock()
	list := slices.Concat(p.mu.members, p.mu.pins, p.mu.retired)
	p.mu.members, p.mu.closed = nil, true
	p.mu.Unlock()
	for _, m := range list {
		m.close()
	}
	p.wakeWaiting()
	p.tasks.Wait()
}

// wakeWaiting wakes the goroutines that wait for a change.
func (p *Pool) wakeWaiting() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.mu.changed)
	p.mu.changed = make(chan struct{})
}

// list returns the members, and a channel that is closed at the next change.
func (p *Pool) list() ([]*Member, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.mu.members), p.mu.changed
}

// Names returns the endpoints of the members.
func (p *Pool) Names() (names []string) {
	list, _ := p.list()
	for _, m := range list {
		names = append(names, m.name)
	}
	return names
}

// Size returns the number of members.
func (p *Pool) Size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.members)
}

// Current returns the member in use, nil if there is none.
func (p *Pool) Current() *Member { return p.current.Load() }

// Wanted returns the number of members that the pool keeps connected.
func (p *Pool) Wanted() (n int) {
	list, _ := p.list()
	for _, m := range list {
		if wanted, _ := m.isWanted(); wanted {
			n++
		}
	}
	return n
}

// Unseed lets the next discovered list of endpoints remove configured ones too.
func (p *Pool) Unseed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.mu.members {
		m.seed = false
	}
}

// Add adds new endpoints. seed says that they are configured. A discovered list also removes the
// endpoints that were discovered before and are not in it: such members get no further calls, and
// their connections close when the calls on them have ended.
func (p *Pool) Add(list []Endpoint, seed bool) error {
	p.mu.Lock()
	var removed []*Member
	if !seed {
		p.mu.members = slices.DeleteFunc(p.mu.members, func(m *Member) bool {
			listed := slices.ContainsFunc(list,
				func(e Endpoint) bool { return e.String() == m.name })
			if listed || m.seed {
				return false
			}
			removed = append(removed, m)
			return true
		})
	}
	var failed []error
	for _, e := range list {
		i := slices.IndexFunc(p.mu.members, func(m *Member) bool { return m.name == e.String() })
		if i >= 0 {
			p.mu.members[i].seed = p.mu.members[i].seed || seed
			continue
		}
		if p.mu.closed {
			continue
		}
		m, err := p.findOrCreate(e)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		m.seed = seed
		m.listed.Store(true)
		p.mu.members = slices.Insert(p.mu.members, rand.IntN(len(p.mu.members)+1), m)
	}
	p.mu.retired = slices.DeleteFunc(p.mu.retired, (*Member).isUnused)
	for _, m := range removed {
		m.listed.Store(false)
		if !m.pinned.Load() {
			m.retired.Store(true)
			p.mu.retired = append(p.mu.retired, m)
		}
	}
	p.mu.Unlock()
	for _, m := range removed {
		p.current.CompareAndSwap(m, nil)
		m.retire()
	}
	p.wakeWaiting()
	return errors.Join(failed...)
}

// findOrCreate returns the member that Find returned for an endpoint, or else a new one. The lock
// is held.
func (p *Pool) findOrCreate(e Endpoint) (*Member, error) {
	if i := slices.IndexFunc(p.mu.pins,
		func(m *Member) bool { return m.name == e.String() }); i >= 0 {
		return p.mu.pins[i], nil
	}
	return newMember(p, e)
}

// Find returns the member of an endpoint for a client that uses no other. Pick need not choose it.
func (p *Pool) Find(e Endpoint) (m *Member, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return nil, ErrClosed
	}
	if i := slices.IndexFunc(p.mu.members,
		func(m *Member) bool { return m.name == e.String() }); i >= 0 {
		m = p.mu.members[i]
	} else if m, err = p.findOrCreate(e); err != nil {
		return nil, err
	}
	if !m.pinned.Swap(true) {
		p.mu.pins = append(p.mu.pins, m)
	}
	return m, nil
}
