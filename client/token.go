package client

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/client/internal/credential"
	"vigil/client/internal/request"
)

// tokenSource returns where tokens come from, nil if calls need none.
func (c *core) tokenSource() credential.Source {
	switch {
	case c.cfg.Token != nil:
		return func(ctx context.Context) (credential.Token, error) {
			t, err := c.cfg.Token(ctx)
			return credential.Token(t), err
		}
	case c.cfg.Username != "":
		return c.authenticate
	}
	return nil
}

// authenticateTimeouts is how many dial timeouts the check of a password may take, while all calls
// wait.
const authenticateTimeouts = 3

// authenticate exchanges the password for a token. Where authentication is off, calls need none.
func (c *core) authenticate(ctx context.Context) (credential.Token, error) {
	ctx, cancel := context.WithTimeout(ctx, authenticateTimeouts*c.cfg.DialTimeout)
	defer cancel()
	req := &request.Generated{Message: &etcdserverpb.AuthenticateRequest{Name: c.cfg.Username,
		Password: c.cfg.Password}}
	r, err := callWith[etcdserverpb.AuthenticateResponse](ctx, &Client{core: c},
		&authenticateMethod, "", req, credential.NewCredential(credential.Token{}))
	if errors.Is(err, ErrAuthNotEnabled) {
		return credential.Token{}, nil
	}
	return credential.Token{Value: r.GetToken()}, err
}
