package pool

import (
	"context"
	"slices"
	"time"
)

// settle is how long a choice waits for members that are connecting if only a sick one is
// connected.
const settle = 300 * time.Millisecond

// Unreachable reports that no member could be reached, and the last error of each.
type Unreachable struct {
	Endpoints []string
	Errors    []error
}

// Error implements error.
func (e *Unreachable) Error() string { return "no member can be reached" }

func unreachable(list []*Member) error {
	e := &Unreachable{}
	for _, m := range list {
		e.Endpoints, e.Errors = append(e.Endpoints, m.name), append(e.Errors, m.whyUnreachable())
	}
	return e
}

// Pick returns the member to use, waiting for one up to the dial timeout. The caller must release
// it. avoid is a member that failed before, or nil. pin, if not nil, is the only member that may be
// used. The error is an Unreachable, ErrClosed or the cause of ctx.
func (p *Pool) Pick(ctx context.Context, pin, avoid *Member) (*Member, error) {
	for {
		m, err := p.chooseMember(ctx, pin, avoid)
		if err != nil {
			return nil, err
		}
		if (pin != nil || m.listed.Load()) && m.acquire() {
			return m, nil
		}
	}
}

func (p *Pool) chooseMember(ctx context.Context, pin, avoid *Member) (*Member, error) {
	if pin == nil {
		if m := p.current.Load(); m != nil && m != avoid && m.isUsable() && m.listed.Load() {
			return m, nil
		}
	} else if pin.Connected() {
		return pin, nil
	}
	return p.awaitMember(ctx, pin, avoid)
}

// awaitMember connects to the members until one can be used, or all of them refuse for a reason
// that stays.
func (p *Pool) awaitMember(ctx context.Context, pin, avoid *Member) (*Member, error) {
	began := time.Now()
	timer := time.NewTimer(p.cfg.DialTimeout)
	defer timer.Stop()
	var soon <-chan time.Time
	for {
		list, changed := p.list()
		if pin != nil {
			list = []*Member{pin}
		}
		for _, m := range list {
			m.setWanted(true)
		}
		m, good := bestOf(list, avoid)
		if m != nil && (good || pin != nil || time.Since(began) >= settle ||
			!slices.ContainsFunc(list, (*Member).isPending)) {
			if pin == nil {
				p.makeCurrent(m)
			}
			return m, nil
		}
		if m == nil && len(list) > 0 &&
			!slices.ContainsFunc(list, func(m *Member) bool { return !m.isRefused() }) {
			return nil, unreachable(list) // waiting would not help
		}
		if m != nil && soon == nil {
			soon = time.After(settle)
		}
		select {
		case <-changed:
		case <-soon:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-p.ctx.Done():
			return nil, ErrClosed
		case <-timer.C:
			if m != nil {
				continue
			}
			return nil, unreachable(list)
		}
	}
}

// bestOf returns the member to use among those that are connected. good reports that it is healthy
// and not avoid.
func bestOf(list []*Member, avoid *Member) (m *Member, good bool) {
	rank := func(m *Member) int {
		switch {
		case !m.Connected():
			return 9
		case m.isUsable() && m != avoid:
			return 0
		case m != avoid:
			return 1
		case m.isUsable():
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

// makeCurrent makes m the current member and lets the connections of the others become idle.
func (p *Pool) makeCurrent(m *Member) {
	if old := p.current.Swap(m); old != m {
		p.cfg.Logger.Info("using member", "endpoint", m.name)
		p.preferIfFirst(m)
	} else if !m.isUsable() {
		return // another one is still wanted
	}
	list, _ := p.list()
	for _, o := range list {
		if o != m && !o.pinned.Load() {
			o.setWanted(false)
		}
	}
}

// preferIfFirst makes m the preferred member if it is the first one that is used.
func (p *Pool) preferIfFirst(m *Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.mu.members, m); i >= 0 && !p.mu.begun {
		p.mu.begun = true
		p.mu.members[0], p.mu.members[i] = m, p.mu.members[0]
	}
}
