package replica

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"vigil/internal/kv"
	"vigil/internal/state/auth"
	"vigil/internal/state/auth/password"
	"vigil/internal/state/auth/token"
	"vigil/internal/state/fsm"
)

// JWT issues and verifies tokens that are signed.
type JWT interface {
	Sign(auth.Identity) (string, error)
	Verify(token string) (auth.Identity, bool)
}

// Access identifies clients, decides what they may do, and serves and changes users and roles.
type Access struct {
	r *Replica
	// state is the one by which reads are decided: never older than the data that can be read.
	state atomic.Pointer[auth.State]
	// tokens are the simple ones, jwt is nil if there are no others.
	tokens    *token.Simple
	jwt       JWT
	passwords *password.Pool

	mu struct {
		sync.Mutex
		changed chan struct{} // closed when state is another one
	}
}

func (a *Access) init(c *Config, state *auth.State) (err error) {
	a.tokens, a.jwt = token.NewSimple(c.TokenTTL), c.JWT
	a.mu.changed = make(chan struct{})
	a.state.Store(state)
	a.passwords, err = password.NewPool(c.BcryptCost)
	return err
}

// restrict makes a state the one by which reads are decided. It is called before the batch that it came with
// can be read: what somebody has just lost the right to see must not be seen.
func (a *Access) restrict(state *auth.State) (changed bool) {
	return a.state.Swap(state) != state
}

// announce tells those who wait for a change, after the batch can be read.
func (a *Access) announce(state *auth.State) {
	if !state.Enabled() {
		a.tokens.Clear()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.mu.changed)
	a.mu.changed = make(chan struct{})
}

// AuthEnabled says whether calls need credentials.
func (a *Access) AuthEnabled() bool { return a.state.Load().Enabled() }

// AuthChanged returns a channel that is closed when users or roles have changed since the call.
func (a *Access) AuthChanged() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.changed
}

// caller is who makes a call, as far as credentials tell.
type caller struct {
	auth.Identity
	// known: somebody was identified, whoever that is. member: it is this member itself.
	known, member bool
}

// identify looks at the credentials of a call. The only errors are kv.ErrInvalidAuthToken and those of
// waiting.
func (a *Access) identify(ctx context.Context) (c caller, err error) {
	cred := kv.CredentialsOf(ctx)
	switch {
	case cred == nil:
		return c, nil
	case cred.Member:
		return caller{known: true, member: true}, nil
	case cred.HasToken:
		return a.identifyToken(ctx, cred)
	case cred.HasCertificate:
		c.User, c.Revision, c.known = cred.CommonName, a.state.Load().Revision(), true
	}
	return c, nil
}

func (a *Access) identifyToken(ctx context.Context, cred *kv.Credentials) (c caller, err error) {
	if seen := cred.Seen.Load(); seen != nil {
		state := a.state.Load()
		if !state.SameUser(*seen) {
			return c, kv.ErrInvalidAuthToken
		}
		return caller{Identity: auth.Identity{User: seen.User, Revision: state.Revision()}, known: true}, nil
	}
	var seen kv.Seen
	fresh := true
	if jwt := a.jwt; jwt != nil {
		id, ok := jwt.Verify(cred.Token)
		if !ok {
			return c, kv.ErrInvalidAuthToken
		}
		state := a.state.Load()
		if id.Revision > state.Revision() {
			// Another member issued the token, and this one is behind it.
			if err := a.r.Linearize(ctx); err != nil {
				return c, err
			}
			state = a.state.Load()
		}
		if !state.IsCurrent(id) || id.Revision > state.Revision() {
			return c, kv.ErrInvalidAuthToken
		}
		c = caller{Identity: id, known: true}
		seen, _ = state.TokenHolder(id.User)
		fresh = id.Revision == state.Revision()
	} else {
		index, ok := token.Position(cred.Token)
		if ok {
			ok, err = a.reaches(ctx, index)
		}
		if err != nil {
			return c, err
		}
		state := a.state.Load()
		if ok {
			seen, ok = a.tokens.Use(cred.Token)
		}
		if !ok || !state.SameUser(seen) {
			return c, kv.ErrInvalidAuthToken
		}
		c = caller{Identity: auth.Identity{User: seen.User, Revision: state.Revision()}, known: true}
	}
	if fresh {
		cred.Seen.Store(&seen)
	}
	return c, nil
}

// reaches waits until this member has applied an entry that was applied elsewhere before the call began;
// false if there is no such entry.
func (a *Access) reaches(ctx context.Context, index uint64) (bool, error) {
	if a.r.applied.Load() >= index {
		return true, nil
	}
	if err := a.r.Linearize(ctx); err != nil {
		return false, err
	}
	return a.r.applied.Load() >= index, nil
}

// secure asks a rule about whoever makes a call, by what is applied here.
func (a *Access) secure(ctx context.Context, rule func(*auth.State, caller) error) error {
	state := a.state.Load()
	if !state.Enabled() {
		return nil
	}
	c, err := a.identify(ctx)
	if err != nil || c.member {
		return err
	}
	return rule(state, c)
}

// somebody makes a rule for those who were identified.
func somebody(rule func(*auth.State, auth.Identity) error) func(*auth.State, caller) error {
	return func(s *auth.State, c caller) error {
		if !c.known {
			return kv.ErrUserEmpty
		}
		return rule(s, c.Identity)
	}
}

// RequireUser says why a call is refused that is for every user. Errors: kv.ErrUserEmpty,
// kv.ErrInvalidAuthToken, and as Range.
func (a *Access) RequireUser(ctx context.Context) error {
	return a.secure(ctx, somebody(func(*auth.State, auth.Identity) error { return nil }))
}

// RequireAdmin says why a call is refused that is for the role root. Errors: those of auth.State.CheckAdmin,
// kv.ErrInvalidAuthToken, and as Range.
func (a *Access) RequireAdmin(ctx context.Context) error {
	return a.secure(ctx, func(s *auth.State, c caller) error { return s.CheckAdmin(c.Identity) })
}

// MayWatch says why whoever opened a stream may not watch [key, end) now. Errors: those of auth.State.CheckRead,
// kv.ErrInvalidAuthToken, and as Range.
func (a *Access) MayWatch(ctx context.Context, key, end []byte) error {
	return a.secure(ctx, func(s *auth.State, c caller) error { return s.CheckRead(c.Identity, key, end) })
}

// User returns the name of whoever makes a call, empty if nobody knows.
func (a *Access) User(ctx context.Context) string {
	if !a.AuthEnabled() {
		return ""
	}
	c, err := a.identify(ctx)
	if err != nil {
		return ""
	}
	return c.User
}

// asReader runs a read that auth must allow, on data that are not newer than the permissions. It must not be
// called before what it reads may be read.
func asReader[T any](ctx context.Context, r *Replica, allowed func(*auth.State, auth.Identity) error, read func() (T, error)) (res T, err error) {
	state := r.Access.state.Load()
	if !state.Enabled() {
		return read()
	}
	c, err := r.Access.identify(ctx)
	if err != nil {
		return res, err
	}
	if c.member {
		return read()
	}
	if err := allowed(state, c.Identity); err != nil {
		return res, err
	}
	if res, err = read(); err != nil {
		return res, err
	}
	if state.Revision() != r.Access.state.Load().Revision() {
		// What was read may be newer than the right to read it.
		var none T
		return none, kv.ErrAuthOldRevision
	}
	return res, nil
}

// signer returns on whose behalf a request is made. What apply would refuse is not proposed; but this member
// may be behind, so that a refusal counts only once it has caught up.
func (a *Access) signer(ctx context.Context, req *fsm.Request) (auth.Identity, error) {
	if id, err := a.mayPropose(ctx, req); err == nil {
		return id, nil
	}
	if err := a.r.Linearize(ctx); err != nil {
		return auth.Identity{}, err
	}
	return a.mayPropose(ctx, req)
}

func (a *Access) mayPropose(ctx context.Context, req *fsm.Request) (auth.Identity, error) {
	state := a.state.Load()
	if !state.Enabled() {
		return auth.Identity{}, nil
	}
	c, err := a.identify(ctx)
	if err != nil {
		return auth.Identity{}, err
	}
	return c.Identity, fsm.Authorize(state, c.Identity, req, a.r.handle().leases.Each)
}

// Authenticate issues a token for a password. Errors: kv.ErrAuthNotEnabled, kv.ErrAuthFailed,
// kv.ErrNoPasswordUser, and as Put.
func (a *Access) Authenticate(ctx context.Context, user, pass string) (*kv.AuthResult, error) {
	if err := a.r.Linearize(ctx); err != nil {
		return nil, err
	}
	for {
		state := a.state.Load()
		u, ok := state.User(user)
		var err error
		switch {
		case !state.Enabled():
			return nil, kv.ErrAuthNotEnabled
		case ok && u.NoPassword:
			err = kv.ErrNoPasswordUser
		default:
			// A user who does not exist has no hash, which takes as long to compare.
			err = a.passwords.Compare(ctx, u.Hash, pass)
		}
		if errors.Is(err, kv.ErrAuthFailed) || errors.Is(err, kv.ErrNoPasswordUser) {
			a.r.cfg.Logger.Warn("invalid authentication was requested", slog.String("user", user), slog.Any("error", err))
		}
		if err != nil {
			return nil, err
		}
		if jwt := a.jwt; jwt != nil {
			t, err := jwt.Sign(auth.Identity{User: user, Revision: state.Revision()})
			if err != nil {
				return nil, err
			}
			if a.state.Load().Revision() != state.Revision() {
				continue
			}
			return &kv.AuthResult{Revision: a.r.Header().Revision, Token: t}, nil
		}
		res, err := a.r.Propose(ctx, &fsm.Request{Auth: &kv.AuthRequest{Op: kv.Authenticate, User: user, Token: token.NewPrefix(), Revision: state.Revision()}})
		if err == nil || !errors.Is(err, kv.ErrAuthOldRevision) {
			return res.Auth, err
		}
		// Users or roles have changed while the password was looked at.
	}
}

// HashPassword returns the hash of a new password, for those who may set one. Errors: those of RequireAdmin,
// and of password.Pool.
func (a *Access) HashPassword(ctx context.Context, pass string) (string, error) {
	if err := a.RequireAdmin(ctx); err != nil {
		return "", err
	}
	return a.passwords.Hash(ctx, pass)
}

// ChangeAuth changes users or roles. Errors: those of auth.State.Change and CheckAdmin, kv.ErrNotCapable, and as
// Put.
func (a *Access) ChangeAuth(ctx context.Context, req *kv.AuthRequest) (*kv.AuthResult, error) {
	if a.r.Members.state.Load().Level() < fsm.LevelAuth {
		return nil, kv.ErrNotCapable
	}
	res, err := a.r.Propose(ctx, &fsm.Request{Auth: req})
	return res.Auth, err
}

// readAuth returns users and roles as of a moment after the call began, to those whom a rule allows it.
func (a *Access) readAuth(ctx context.Context, rule func(*auth.State, auth.Identity) error) (*auth.State, error) {
	if err := a.r.Linearize(ctx); err != nil {
		return nil, err
	}
	state := a.state.Load()
	if !state.Enabled() {
		return state, nil
	}
	c, err := a.identify(ctx)
	if err == nil {
		err = rule(state, c.Identity)
	}
	return state, err
}

// AuthStatus says whether auth is enabled. Everyone may ask, but not with a token that is not valid. Errors:
// kv.ErrInvalidAuthToken, and as Range.
func (a *Access) AuthStatus(ctx context.Context) (kv.AuthStatus, error) {
	s, err := a.readAuth(ctx, func(*auth.State, auth.Identity) error { return nil })
	if err != nil {
		return kv.AuthStatus{}, err
	}
	return s.Status(), nil
}

// UserRoles returns the roles of a user. Errors: kv.ErrUserNotFound, those of auth.State.CheckReadUser, and as
// AuthStatus.
func (a *Access) UserRoles(ctx context.Context, user string) ([]string, error) {
	s, err := a.readAuth(ctx, func(s *auth.State, id auth.Identity) error { return s.CheckReadUser(id, user) })
	if err != nil {
		return nil, err
	}
	u, ok := s.User(user)
	if !ok {
		return nil, kv.ErrUserNotFound
	}
	return u.Roles, nil
}

// RolePermissions returns the permissions of a role. Errors: kv.ErrRoleNotFound, those of
// auth.State.CheckReadRole, and as AuthStatus.
func (a *Access) RolePermissions(ctx context.Context, role string) ([]kv.Permission, error) {
	s, err := a.readAuth(ctx, func(s *auth.State, id auth.Identity) error { return s.CheckReadRole(id, role) })
	if err != nil {
		return nil, err
	}
	got, ok := s.Role(role)
	if !ok {
		return nil, kv.ErrRoleNotFound
	}
	return got.Permissions, nil
}

// Users lists the users. Errors: those of auth.State.CheckAdmin, and as AuthStatus.
func (a *Access) Users(ctx context.Context) ([]string, error) {
	s, err := a.readAuth(ctx, (*auth.State).CheckAdmin)
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
func (a *Access) Roles(ctx context.Context) ([]string, error) {
	s, err := a.readAuth(ctx, (*auth.State).CheckAdmin)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, role := range s.Roles() {
		names = append(names, role.Name)
	}
	return names, nil
}
