package pool

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// returnEvery is how often, on average, a client tries to return to the preferred member, and
	// steady how long that must have been healthy.
	returnEvery = time.Minute
	steady      = 2 * time.Second
)

// returnRegularly returns to the preferred member from time to time. Otherwise, when members are
// restarted one after another, all clients would end at those that were restarted first.
func (p *Pool) returnRegularly() {
	for {
		select {
		case <-time.After(returnEvery/2 + rand.N(returnEvery)):
			p.ReturnToPreferred(steady)
		case <-p.ctx.Done():
			return
		}
	}
}

// ReturnToPreferred moves to the preferred member if that stays healthy for a while. Running calls
// end where they are.
func (p *Pool) ReturnToPreferred(healthy time.Duration) {
	list, _ := p.list()
	at := p.current.Load()
	if len(list) < 2 || at == nil || at == list[0] || !at.isUsable() {
		return
	}
	preferred := list[0]
	preferred.setWanted(true)
	ctx, cancel := context.WithTimeout(p.ctx, p.cfg.DialTimeout)
	defer cancel()
	for !preferred.isUsable() && ctx.Err() == nil {
		_, changed := p.list()
		if preferred.isUsable() {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	select {
	case <-time.After(healthy):
	case <-p.ctx.Done():
	}
	if !preferred.isUsable() || !preferred.listed.Load() ||
		!p.current.CompareAndSwap(at, preferred) {
		if preferred != p.current.Load() && !preferred.pinned.Load() {
			preferred.setWanted(false)
		}
		return
	}
	p.cfg.Logger.Info("back at the preferred member", "endpoint", preferred.name, "from", at.name)
	if !at.pinned.Load() {
		at.setWanted(false)
	}
	at.notifyLeave()
}
