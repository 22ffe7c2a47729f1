package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"

	"vigil/client/internal/wire"
)

const tokenKey = "token"

// pass is what goes with calls: the token, if there is one, as the metadata of calls that need a leader and
// of those that do not.
type pass struct {
	leader, plain context.Context
	// renew is when another token should be asked for, zero if that is not known; until then the token is good.
	renew, expires time.Time
}

func (p *pass) fresh() bool { return p.renew.IsZero() || time.Now().Before(p.renew) }

func newPass(t Token) *pass {
	p := &pass{expires: t.Expires}
	md := metadata.MD{}
	if t.Value != "" {
		md.Set(tokenKey, t.Value)
	}
	p.plain = metadata.NewOutgoingContext(context.Background(), md)
	md = md.Copy()
	md.Set(rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
	p.leader = metadata.NewOutgoingContext(context.Background(), md)
	if !t.Expires.IsZero() {
		// Some time before its end, so that a call that takes long does not outlive it.
		left := time.Until(t.Expires)
		p.renew = time.Now().Add(left - min(left/5, time.Minute))
	}
	return p
}

// renewPause is how long a token is used on, after another could not be got.
const renewPause = time.Second

// tokens keeps the pass.
type tokens struct {
	core    *core
	source  func(context.Context) (Token, error) // nil if there is none
	current atomic.Pointer[pass]
	mu      struct {
		sync.Mutex
		asking *asking // nil while nobody asks the source
		closed bool
	}
}

// asking is a question to the source, the answer of which is for all calls that wait for it. It ends when none does.
type asking struct {
	waiting int // guarded by tokens.mu
	cancel  context.CancelFunc
	done    chan struct{} // closed when pass and err are set
	pass    *pass
	err     error
}

func newTokens(c *core) *tokens {
	t := &tokens{core: c}
	switch {
	case c.cfg.Token != nil:
		t.source = c.cfg.Token
	case c.cfg.Username != "":
		t.source = t.authenticate
	default:
		t.current.Store(newPass(Token{}))
	}
	return t
}

// get returns a pass, asking for a token if there is none or it is about to expire.
func (t *tokens) get(ctx context.Context) (*pass, error) {
	if p := t.current.Load(); p != nil && p.fresh() {
		return p, nil
	}
	t.mu.Lock()
	ask := t.ask(ctx)
	t.mu.Unlock()
	if ask == nil {
		return nil, ErrClosed
	}
	defer t.leave(ask)
	select {
	case <-ask.done:
		return ask.pass, ask.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// refused says that a server did not take the pass, and reports whether another may help.
func (t *tokens) refused(p *pass) bool {
	if t.source == nil {
		return false
	}
	t.current.CompareAndSwap(p, nil)
	return true
}

// ask asks the source, or joins those who have asked it already. It returns nil if the client is closed. The lock is
// held.
func (t *tokens) ask(ctx context.Context) *asking {
	if a := t.mu.asking; a != nil {
		a.waiting++
		return a
	}
	if t.mu.closed {
		return nil
	}
	a := &asking{waiting: 1, done: make(chan struct{})}
	ctx, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
	t.mu.asking = a
	t.core.tasks.Go(func() {
		defer close(a.done)
		defer context.AfterFunc(t.core.ctx, a.cancel)()
		a.pass, a.err = t.renew(ctx)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.drop(a)
	})
	return a
}

// leave notes that a call does not wait any more.
func (t *tokens) leave(a *asking) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.waiting--; a.waiting == 0 {
		a.cancel()
		t.drop(a)
	}
}

// drop lets the next call ask again; the lock is held.
func (t *tokens) drop(a *asking) {
	if t.mu.asking == a {
		t.mu.asking = nil
	}
}

// close lets no call ask any more.
func (t *tokens) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.closed = true
}

// renew gets a new pass. A token that is still valid is used on if there is none.
func (t *tokens) renew(ctx context.Context) (*pass, error) {
	old := t.current.Load()
	if old != nil && old.fresh() {
		return old, nil // it was renewed meanwhile
	}
	token, err := t.source(ctx)
	if err != nil {
		if old == nil || !time.Now().Before(old.expires) {
			return nil, err
		}
		t.core.cfg.Logger.Warn("cannot get a new token, using the last one", "expires", old.expires, "error", err)
		again := *old
		again.renew = time.Now().Add(min(renewPause, time.Until(old.expires)))
		if t.current.CompareAndSwap(old, &again) {
			return &again, nil
		}
		return nil, err // the last one was refused meanwhile
	}
	p := newPass(token)
	t.current.Store(p)
	t.core.cfg.Logger.Debug("got a token", "expires", token.Expires)
	return p, nil
}

// authenticatePatience is how many times the dial timeout a password may take to be checked, while all calls wait.
const authenticatePatience = 3

// authenticate exchanges the password for a token. Where authentication is off, none is needed.
func (t *tokens) authenticate(ctx context.Context) (Token, error) {
	ctx, cancel := context.WithTimeout(ctx, authenticatePatience*t.core.cfg.DialTimeout)
	defer cancel()
	c := &Client{core: t.core}
	req := &wire.Generated{Message: &etcdserverpb.AuthenticateRequest{Name: t.core.cfg.Username, Password: t.core.cfg.Password}}
	r, err := callWith[etcdserverpb.AuthenticateResponse](ctx, c, &authenticateMethod, "", req, newPass(Token{}))
	if errors.Is(err, ErrAuthNotEnabled) {
		return Token{}, nil
	}
	return Token{Value: r.GetToken()}, err
}
