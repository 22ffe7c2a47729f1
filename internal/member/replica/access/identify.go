package access

import (
	"context"
	"errors"

	"vigil/internal/kv"
	"vigil/internal/state/auth"
	"vigil/internal/state/auth/token"
)

// caller is the client of a call, as its credentials identify it.
type caller struct {
	auth.Identity
	// known: the credentials identify a user, or the caller is this member itself.
	known bool
}

// identify evaluates the credentials of a call. Errors: kv.ErrInvalidAuthToken, kv.ErrNoLeader, and
// from Linearize.
func (c *Control) identify(ctx context.Context) (who caller, err error) {
	cred := kv.CredentialsOf(ctx)
	switch {
	case cred == nil:
		return who, nil
	case cred.Member:
		return caller{Identity: auth.Identity{Member: true}, known: true}, nil
	case cred.HasToken:
		who, err = c.identifyToken(ctx, cred)
		if errors.Is(err, kv.ErrInvalidAuthToken) {
			c.logRejected(cred)
		}
		return who, err
	case cred.HasCertificate:
		who.User, who.Revision, who.known = cred.CommonName, c.state.Load().Revision(), true
	}
	return who, nil
}

func (c *Control) identifyToken(ctx context.Context, cred *kv.Credentials) (who caller, err error) {
	if seen := cred.Seen.Load(); seen != nil {
		state := c.state.Load()
		if !state.SameUser(*seen) {
			return who, kv.ErrInvalidAuthToken
		}
		return caller{Identity: auth.Identity{User: seen.User, Revision: state.Revision()},
			known: true}, nil
	}
	var seen kv.Seen
	fresh := true
	if jwt := c.jwt; jwt != nil {
		id, ok := jwt.Verify(cred.Token)
		if !ok {
			return who, kv.ErrInvalidAuthToken
		}
		state := c.state.Load()
		if id.Revision > state.Revision() {
			// Another member issued the token, and this one lags.
			if err := c.catchUp(ctx); err != nil {
				return who, err
			}
			state = c.state.Load()
		}
		if !state.IsCurrent(id) || id.Revision > state.Revision() {
			return who, kv.ErrInvalidAuthToken
		}
		who = caller{Identity: id, known: true}
		seen, _ = state.TokenHolder(id.User)
		fresh = id.Revision == state.Revision()
	} else {
		id, ok := token.Parse(cred.Token)
		if ok {
			ok, err = c.reaches(ctx, id.Index)
		}
		if ok && c.tokens.IsUnused(id) {
			// If this member lags, the end of the token may be in an entry that it has not applied
			// yet.
			err = c.Confirm(ctx)
		}
		if err != nil {
			return who, err
		}
		state := c.state.Load()
		if ok {
			seen, ok = c.tokens.Use(id)
		}
		if !ok || !state.SameUser(seen) {
			return who, kv.ErrInvalidAuthToken
		}
		who = caller{Identity: auth.Identity{User: seen.User,
			Revision: state.Revision()}, known: true}
	}
	if fresh {
		cred.Seen.Store(&seen)
	}
	return who, nil
}

// reaches waits until this member has applied an entry that another member had applied when the
// call began. It returns false if there is no such entry.
func (c *Control) reaches(ctx context.Context, index uint64) (bool, error) {
	if c.pipe.Applied() >= index {
		return true, nil
	}
	if err := c.catchUp(ctx); err != nil {
		return false, err
	}
	return c.pipe.Applied() >= index, nil
}

// User returns the name of the caller, empty if it is not known.
func (c *Control) User(ctx context.Context) string {
	if !c.AuthEnabled() {
		return ""
	}
	who, err := c.identify(ctx)
	if err != nil {
		return ""
	}
	return who.User
}
