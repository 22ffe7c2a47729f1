package client

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"
)

const tokenKey = "token"

// pass is what goes with calls: the token, if there is one, as the metadata of calls that need a leader and
// of those that do not.
type pass struct {
	leader, plain context.Context
	// renew is when another token should be asked for, zero if that is not known; until then the token is good.
	renew time.Time
}

func newPass(t Token) *pass {
	p := &pass{}
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

// tokens keeps the pass.
type tokens struct {
	core    *core
	source  func(context.Context) (Token, error) // nil if there is none
	current atomic.Pointer[pass]
	turn    chan struct{} // holds one element while nobody asks the source
}

func newTokens(c *core) *tokens {
	t := &tokens{core: c, turn: make(chan struct{}, 1)}
	t.turn <- struct{}{}
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
	if p := t.current.Load(); p != nil && (p.renew.IsZero() || time.Now().Before(p.renew)) {
		return p, nil
	}
	return t.renew(ctx)
}

// refused says that a server did not take the pass, and reports whether another may help.
func (t *tokens) refused(p *pass) bool {
	if t.source == nil {
		return false
	}
	t.current.CompareAndSwap(p, nil)
	return true
}

func (t *tokens) renew(ctx context.Context) (*pass, error) {
	select {
	case <-t.turn:
		defer func() { t.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	// Somebody else may have done it.
	old := t.current.Load()
	if old != nil && (old.renew.IsZero() || time.Now().Before(old.renew)) {
		return old, nil
	}
	token, err := t.source(ctx)
	if err != nil {
		return nil, err
	}
	p := newPass(token)
	t.current.Store(p)
	t.core.cfg.Logger.Debug("got a token", "expires", token.Expires)
	return p, nil
}

// authenticate exchanges the password for a token. Where authentication is off, none is needed.
func (t *tokens) authenticate(ctx context.Context) (Token, error) {
	c := &Client{core: t.core}
	var r etcdserverpb.AuthenticateResponse
	req := &cold{Message: &etcdserverpb.AuthenticateRequest{Name: t.core.cfg.Username, Password: t.core.cfg.Password}}
	err := c.invoke(ctx, &authenticateMethod, "", req, &r, newPass(Token{}))
	if errors.Is(err, ErrAuthNotEnabled) {
		return Token{}, nil
	}
	return Token{Value: r.Token}, err
}
