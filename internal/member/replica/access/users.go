package access

import (
	"context"
	"errors"
	"log/slog"

	"vigil/internal/kv"
	"vigil/internal/state/auth"
	"vigil/internal/state/auth/token"
	"vigil/internal/state/fsm"
)

// Authenticate issues a token for a password. Errors: kv.ErrAuthNotEnabled, kv.ErrAuthFailed,
// kv.ErrNoPasswordUser, and as Put.
func (c *Control) Authenticate(ctx context.Context, user, pass string) (*kv.AuthResult, error) {
	if err := c.pipe.Linearize(ctx); err != nil {
		return nil, err
	}
	for {
		state := c.state.Load()
		u, ok := state.User(user)
		var err error
		switch {
		case !state.Enabled():
			return nil, kv.ErrAuthNotEnabled
		case ok && u.NoPassword:
			err = kv.ErrNoPasswordUser
		case len(user) > kv.MaxNameBytes, len(pass) > kv.MaxPasswordBytes:
			// The memory of calls that wait is bounded.
			err = kv.ErrAuthFailed
		default:
			// An unknown user has no hash; comparing without a hash takes as long.
			err = c.passwords.Compare(ctx, user, u.Hash, pass)
		}
		if errors.Is(err, kv.ErrAuthFailed) || errors.Is(err, kv.ErrNoPasswordUser) {
			c.logger.Warn("invalid authentication was requested", slog.String("user", user),
				slog.Any("error", err))
		}
		if err != nil {
			return nil, err
		}
		if jwt := c.jwt; jwt != nil {
			t, err := jwt.Sign(auth.Identity{User: user, Revision: state.Revision()})
			if err != nil {
				return nil, err
			}
			if c.state.Load().Revision() != state.Revision() {
				continue
			}
			return &kv.AuthResult{Revision: c.pipe.Header().Revision, Token: t}, nil
		}
		// Whoever has a disk, an archive or a backup of the log can read it, so the secret stays
		// here.
		secret := token.NewSecret()
		res, err := c.pipe.Propose(ctx,
			&fsm.Request{Auth: &kv.AuthRequest{Op: kv.Authenticate, User: user,
				TokenHash: token.Hash(secret), Revision: state.Revision()}})
		if err == nil {
			res.Auth.Token = token.Format(secret, res.Auth.Index)
		}
		if err == nil || !errors.Is(err, kv.ErrAuthOldRevision) {
			return res.Auth, err
		}
		// Users or roles changed while the member compared the password.
	}
}

// HashPassword returns the hash of a new password, for callers that may set one. Errors: from
// RequireAdmin and password.Pool.
func (c *Control) HashPassword(ctx context.Context, pass string) (string, error) {
	if err := c.RequireAdmin(ctx); err != nil {
		return "", err
	}
	return c.passwords.Hash(ctx, c.User(ctx), pass)
}

// ChangeAuth changes users or roles. Errors: from auth.State.Change and CheckAdmin, and as Put.
func (c *Control) ChangeAuth(ctx context.Context, req *kv.AuthRequest) (*kv.AuthResult, error) {
	res, err := c.pipe.Propose(ctx, &fsm.Request{Auth: req})
	return res.Auth, err
}

// readAuth returns users and roles as of a moment after the call began, if a rule allows the caller
// to read them.
func (c *Control) readAuth(ctx context.Context,
	rule func(*auth.State, auth.Identity) error) (*auth.State, error) {
	if err := c.pipe.Linearize(ctx); err != nil {
		return nil, err
	}
	state := c.state.Load()
	if !state.Enabled() {
		return state, nil
	}
	who, err := c.identify(ctx)
	if err == nil {
		err = rule(state, who.Identity)
	}
	return state, err
}

// AuthStatus returns whether auth is enabled. Any caller may ask, but not with an invalid token.
// Errors: kv.ErrInvalidAuthToken, and as Range.
func (c *Control) AuthStatus(ctx context.Context) (kv.AuthStatus, error) {
	s, err := c.readAuth(ctx, func(*auth.State, auth.Identity) error { return nil })
	if err != nil {
		return kv.AuthStatus{}, err
	}
	return s.Status(), nil
}

// UserRoles returns the roles of a user. Errors: kv.ErrUserNotFound, from auth.State.CheckReadUser,
// and as AuthStatus.
func (c *Control) UserRoles(ctx context.Context, user string) ([]string, error) {
	s, err := c.readAuth(ctx,
		func(s *auth.State, id auth.Identity) error { return s.CheckReadUser(id, user) })
	if err != nil {
		return nil, err
	}
	u, ok := s.User(user)
	if !ok {
		return nil, kv.ErrUserNotFound
	}
	return u.Roles, nil
}

// RolePermissions returns the permissions of a role. Errors: kv.ErrRoleNotFound, from
// auth.State.CheckReadRole, and as AuthStatus.
func (c *Control) RolePermissions(ctx context.Context, role string) ([]kv.Permission, error) {
	s, err := c.readAuth(ctx,
		func(s *auth.State, id auth.Identity) error { return s.CheckReadRole(id, role) })
	if err != nil {
		return nil, err
	}
	got, ok := s.Role(role)
	if !ok {
		return nil, kv.ErrRoleNotFound
	}
	return got.Permissions, nil
}

// Users lists the users. Errors: from auth.State.CheckAdmin, and as AuthStatus.
func (c *Control) Users(ctx context.Context) ([]string, error) {
	s, err := c.readAuth(ctx, (*auth.State).CheckAdmin)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, u := range s.Users() {
		names = append(names, u.Name)
	}
	return names, nil
}

// Roles lists the roles. Errors: as Users.
func (c *Control) Roles(ctx context.Context) ([]string, error) {
	s, err := c.readAuth(ctx, (*auth.State).CheckAdmin)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, role := range s.Roles() {
		names = append(names, role.Name)
	}
	return names, nil
}

// Rights returns the name of the caller, empty if its credentials identify no user, and its rights
// as far as this member knows them: root, or the permissions of its roles. Errors:
// kv.ErrInvalidAuthToken, also for the token of a user who no longer exists, kv.ErrNoLeader, and
// from Linearize.
func (c *Control) Rights(ctx context.Context) (user string, root bool,
	permissions []kv.Permission, err error) {
	who, err := c.identify(ctx)
	if err != nil {
		return "", false, nil, err
	}
	state := c.state.Load()
	u, ok := state.User(who.User)
	if !ok {
		return "", false, nil, nil
	}
	for _, name := range u.Roles {
		if name == auth.RootRole {
			return who.User, true, nil, nil
		}
		role, _ := state.Role(name)
		permissions = append(permissions, role.Permissions...)
	}
	return who.User, false, permissions, nil
}
