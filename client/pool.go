package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// homeEvery is how often, on average, a client looks whether it can go back to the member that it prefers, and
	// steady how long that must have been healthy.
	homeEvery = time.Minute
	steady    = 2 * time.Second
)

// settle is how long a choice waits for members that are being connected if only a sick one is at hand.
const settle = 300 * time.Millisecond

// pool is the members and which of them is used. One is used for everything until it is sick or lost, or the preferred
// one is back, so a client has one connection, and what it reads does not go back and forth in time between members.
type pool struct {
	core    *core
	current atomic.Pointer[member]
	mu      struct {
		sync.Mutex
		members []*member // the first one used, others before and behind it at random; the first is home
		pins    []*member // those of clients made by At, whether they are among members or not
		retired []*member // no longer members, and perhaps in use
		changed chan struct{}
		begun   bool // one has been used
		closed  bool
	}
}

func newPool(c *core) *pool {
	p := &pool{core: c}
	p.mu.changed = make(chan struct{})
	return p
}

// broadcast wakes whoever waits for a change.
func (p *pool) broadcast() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.mu.changed)
	p.mu.changed = make(chan struct{})
}

// list returns the members, and a channel that is closed at the next change.
func (p *pool) list() ([]*member, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.mu.members), p.mu.changed
}

// size is the number of members.
func (p *pool) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.members)
}

// unseed lets the next list of endpoints remove configured ones too.
func (p *pool) unseed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.mu.members {
		m.seed = false
	}
}

// add adds endpoints that are not there yet. A list of what was discovered also removes what was discovered before and
// is not in it: such members are asked nothing more, and their connections close when the calls on them are over.
func (p *pool) add(list []endpoint, seed bool) error {
	p.mu.Lock()
	var gone []*member
	if !seed {
		p.mu.members = slices.DeleteFunc(p.mu.members, func(m *member) bool {
			listed := slices.ContainsFunc(list, func(e endpoint) bool { return e.String() == m.name })
			if listed || m.seed {
				return false
			}
			gone = append(gone, m)
			return true
		})
	}
	var failed []error
	for _, e := range list {
		i := slices.IndexFunc(p.mu.members, func(m *member) bool { return m.name == e.String() })
		if i >= 0 {
			p.mu.members[i].seed = p.mu.members[i].seed || seed
			continue
		}
		if p.mu.closed {
			continue
		}
		m, err := p.pinned(e)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		m.seed = seed
		m.listed.Store(true)
		p.mu.members = slices.Insert(p.mu.members, rand.IntN(len(p.mu.members)+1), m)
	}
	p.mu.retired = slices.DeleteFunc(p.mu.retired, (*member).unused)
	for _, m := range gone {
		m.listed.Store(false)
		if !m.pinned.Load() {
			m.retired.Store(true)
			p.mu.retired = append(p.mu.retired, m)
		}
	}
	p.mu.Unlock()
	for _, m := range gone {
		p.current.CompareAndSwap(m, nil)
		m.unlisted()
	}
	p.broadcast()
	return errors.Join(failed...)
}

// pinned returns the member of an endpoint that a client made by At uses, or else a new one; the lock is held.
func (p *pool) pinned(e endpoint) (*member, error) {
	if i := slices.IndexFunc(p.mu.pins, func(m *member) bool { return m.name == e.String() }); i >= 0 {
		return p.mu.pins[i], nil
	}
	return newMember(p.core, e)
}

// find returns the member of an endpoint for a client that asks no other. It need not be one that the pool picks.
func (p *pool) find(e endpoint) (m *member, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return nil, ErrClosed
	}
	if i := slices.IndexFunc(p.mu.members, func(m *member) bool { return m.name == e.String() }); i >= 0 {
		m = p.mu.members[i]
	} else if m, err = p.pinned(e); err != nil {
		return nil, err
	}
	if !m.pinned.Swap(true) {
		p.mu.pins = append(p.mu.pins, m)
	}
	return m, nil
}

func (p *pool) close() {
	p.mu.Lock()
	list := slices.Concat(p.mu.members, p.mu.pins, p.mu.retired)
	p.mu.members, p.mu.closed = nil, true
	p.mu.Unlock()
	for _, m := range list {
		m.close()
	}
	p.broadcast()
}

// pick returns the member to use, which is to be released, waiting for one up to the dial timeout. avoid is one that
// was not good, or nil. pin, if not nil, is the only one that may be used.
func (p *pool) pick(ctx context.Context, pin, avoid *member) (*member, error) {
	for {
		m, err := p.choose(ctx, pin, avoid)
		if err != nil {
			return nil, err
		}
		if (pin != nil || m.listed.Load()) && m.acquire() {
			return m, nil
		}
	}
}

func (p *pool) choose(ctx context.Context, pin, avoid *member) (*member, error) {
	if pin == nil {
		if m := p.current.Load(); m != nil && m != avoid && m.usable() && m.listed.Load() {
			return m, nil
		}
	} else if pin.connected() {
		return pin, nil
	}
	return p.search(ctx, pin, avoid)
}

func (p *pool) search(ctx context.Context, pin, avoid *member) (*member, error) {
	began := time.Now()
	timer := time.NewTimer(p.core.cfg.DialTimeout)
	defer timer.Stop()
	var soon <-chan time.Time
	for {
		list, changed := p.list()
		if pin != nil {
			list = []*member{pin}
		}
		for _, m := range list {
			m.want(true)
		}
		m, good := best(list, avoid)
		if m != nil && (good || pin != nil || time.Since(began) >= settle || !slices.ContainsFunc(list, (*member).pending)) {
			if pin == nil {
				p.use(m)
			}
			return m, nil
		}
		if m != nil && soon == nil {
			soon = time.After(settle)
		}
		select {
		case <-changed:
		case <-soon:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-p.core.ctx.Done():
			return nil, ErrClosed
		case <-timer.C:
			if m != nil {
				continue
			}
			return nil, unreachable(list)
		}
	}
}

// pending reports whether it is not yet known if the member can be reached.
func (m *member) pending() bool {
	s := MemberState(m.state.Load())
	return s == MemberIdle || s == MemberConnecting
}

// best returns the member to use of those that are connected; good tells that it is healthy and not the one
// to avoid.
func best(list []*member, avoid *member) (m *member, good bool) {
	rank := func(m *member) int {
		switch {
		case !m.connected():
			return 9
		case m.usable() && m != avoid:
			return 0
		case m != avoid:
			return 1
		case m.usable():
			return 2
		}
		return 3
	}
	for _, x := range list {
		if r := rank(x); r < 9 && (m == nil || r < rank(m)) {
			m = x
		}
	}
	return m, m != nil && rank(m) == 0
}

// use makes m the current member and lets go of the others.
func (p *pool) use(m *member) {
	if old := p.current.Swap(m); old != m {
		p.core.cfg.Logger.Info("using member", "endpoint", m.name)
		p.begin(m)
	} else if !m.usable() {
		return // another one is still wanted
	}
	list, _ := p.list()
	for _, o := range list {
		if o != m && !o.pinned.Load() {
			o.want(false)
		}
	}
}

// begin makes the first member that is used the preferred one. Members added later take that place by chance, so that
// clients spread evenly.
func (p *pool) begin(m *member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.mu.members, m); i >= 0 && !p.mu.begun {
		p.mu.begun = true
		p.mu.members[0], p.mu.members[i] = m, p.mu.members[0]
	}
}

// balance takes the client back to the preferred member from time to time. Otherwise all clients would end at the
// members that were restarted first, when they are restarted one after the other.
func (p *pool) balance() {
	for {
		select {
		case <-time.After(homeEvery/2 + rand.N(homeEvery)):
			p.goHome(steady)
		case <-p.core.ctx.Done():
			return
		}
	}
}

// goHome moves to the preferred member if that is healthy for a while. Calls that run are answered where they are.
func (p *pool) goHome(healthy time.Duration) {
	list, _ := p.list()
	at := p.current.Load()
	if len(list) < 2 || at == nil || at == list[0] || !at.usable() {
		return
	}
	home := list[0]
	home.want(true)
	ctx, cancel := context.WithTimeout(p.core.ctx, p.core.cfg.DialTimeout)
	defer cancel()
	for !home.usable() && ctx.Err() == nil {
		_, changed := p.list()
		if home.usable() {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	select {
	case <-time.After(healthy):
	case <-p.core.ctx.Done():
	}
	if !home.usable() || !home.listed.Load() || !p.current.CompareAndSwap(at, home) {
		if home != p.current.Load() && !home.pinned.Load() {
			home.want(false)
		}
		return
	}
	p.core.cfg.Logger.Info("back at the preferred member", "endpoint", home.name, "from", at.name)
	if !at.pinned.Load() {
		at.want(false)
	}
	at.left()
}

func unreachable(list []*member) error {
	e := &UnreachableError{}
	for _, m := range list {
		err := m.lastError()
		if err == nil {
			err = errors.New("no answer yet")
		}
		e.Endpoints, e.Errors = append(e.Endpoints, m.name), append(e.Errors, err)
	}
	return e
}
