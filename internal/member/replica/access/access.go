// Package access identifies the clients of a member, decides what they may do, and serves and
// changes users and roles.
//
// The permissions of users are replicated state (package auth). This package adds the state of one
// member: tokens, the hashing of passwords, and the moment at which new permissions take effect.
//
// # Invariants
//
//  1. While auth is enabled, permissions that are older than the data decide no read: the apply
//     goroutine calls Restrict before the batch that changed them can be read, and Read fails if
//     they changed during the read. Read repeats a read during which auth was enabled.
//  2. A request is proposed in the name of its caller, and only if this member, after it has caught
//     up, would not reject it. Apply decides again.
//  3. A call that is not proposed is decided after this member has applied all changes of rights
//     that any member had applied when the call began. As in etcd, the rights applied here decide
//     two kinds of calls: calls whose answer is as old as the rights (serializable reads, watchers,
//     the status of this member), and calls for which Confirm finds no leader to ask.
//  4. Comparing a password takes as long for an unknown user as for a known one.
//
// # Without a leader
//
// A member that has listened for a leader for an election timeout, and has applied all that it
// knows to be committed (Pipeline.Forsaken), cannot learn the present rights. It then decides with
// the rights that it knows, as etcd always does. It serves serializable reads, watchers, lists of
// leases and its status; the role root also gets a backup, hashes and its watchers. So an operator
// can inspect and back up the last member of a cluster. For a member that is cut off while the
// others go on, this means:
//
//   - A right that was revoked elsewhere still counts here, for data that are as old as the right:
//     nothing newer has arrived. Other members must not send their data to this member: they
//     compare the revision of rights in its questions with their own revision (server).
//   - A simple token still expires when it was not used here for its time to live. A token that was
//     never used here expires that long after this member learned of it. Ending tokens through the
//     log, which a lagging member learns of too late, needs a leader.
//   - Clients cannot write or log in, because both need the log. They cannot see users, roles or
//     the remaining TTLs of leases.
//   - A member that hangs while it knows a leader allows none of this: Confirm waits, and fails.
//     Nor does a member that was suspended: it must first listen for an election timeout again.
package access

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/auth"
	"vigil/internal/state/auth/password"
	"vigil/internal/state/auth/token"
	"vigil/internal/state/fsm"
	"vigil/internal/state/lease"
	"vigil/internal/throttle"
)

// JWT issues and verifies signed tokens.
type JWT interface {
	Sign(auth.Identity) (string, error)
	Verify(token string) (auth.Identity, bool)
}

// Pipeline is the pipeline of the member that the clients use.
type Pipeline interface {
	Header() kv.Header
	// Applied returns the applied position.
	Applied() uint64
	// Linearize waits until the member has applied everything that any member had applied at the
	// time of the call.
	Linearize(context.Context) error
	// Forsaken reports whether the cluster has had no leader for so long that none is about to be
	// elected, as far as this member knows, and the member has applied all that it knows to be
	// committed.
	Forsaken() bool
	// Propose proposes a request and waits for its result.
	Propose(context.Context, *fsm.Request) (fsm.Result, error)
	// LeadTerm returns the term in which this member leads, 0 if it does not lead.
	LeadTerm() uint64
	// LeaseState returns the leases as of the applied position.
	LeaseState() *lease.State
}

// Options configure a Control.
type Options struct {
	Pipeline Pipeline
	// State holds the initial users and roles.
	State *auth.State
	// JWT is nil if tokens are simple. A simple token is valid for TokenTTL after its last use.
	JWT      JWT
	TokenTTL time.Duration
	// LogIndex is the last index of the member's log at its start.
	LogIndex uint64
	// RequestTimeout limits how long a request of the member itself waits for its result.
	RequestTimeout time.Duration
	// BcryptCost is the cost of hashing a password.
	BcryptCost int
	Logger     *slog.Logger
}

// Control is the access control of one member.
type Control struct {
	pipe    Pipeline
	timeout time.Duration
	logger  *slog.Logger
	// state decides reads. It is never older than the data that can be read.
	state atomic.Pointer[auth.State]
	// tokens holds the simple tokens. jwt is nil if tokens are simple.
	tokens    *token.Simple
	jwt       JWT
	passwords *password.Pool
	// rejected limits the log lines about rejected tokens.
	rejected *throttle.Throttle

	mu struct {
		sync.Mutex
		changed chan struct{} // closed when state is replaced
	}
}

// New returns a Control.
func New(o Options) (c *Control, err error) {
	c = &Control{pipe: o.Pipeline, timeout: o.RequestTimeout, logger: o.Logger,
		tokens: token.NewSimple(o.TokenTTL, o.LogIndex), jwt: o.JWT,
		rejected: throttle.New(rejectedLines)}
	c.mu.changed = make(chan struct{})
	c.state.Store(o.State)
	c.passwords, err = password.NewPool(o.BcryptCost)
	return c, err
}

// Restrict sets the state that decides reads, and reports whether it differs from the state before.
// The apply goroutine calls it before clients can read the batch that the state belongs to: a
// client must not see data that it has just lost the right to see.
func (c *Control) Restrict(state *auth.State) (changed bool) { return c.state.Swap(state) != state }

// Announce wakes the callers that wait for a change. The apply goroutine calls it once clients can
// read the batch.
func (c *Control) Announce(state *auth.State) {
	if !state.Enabled() {
		c.tokens.Clear()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.mu.changed)
	c.mu.changed = make(chan struct{})
}

// Revision returns the revision of users and roles.
func (c *Control) Revision() uint64 { return c.state.Load().Revision() }

// AuthEnabled reports whether calls need credentials.
func (c *Control) AuthEnabled() bool { return c.state.Load().Enabled() }

// AuthChanged returns a channel that is closed when users or roles have changed since the call.
func (c *Control) AuthChanged() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.changed
}

// Confirm waits until this member knows the rights that any member knew at the time of the call.
// Without a leader it cannot learn them. Then the rights here count, as in etcd, so that an
// operator can back up the last member of a cluster. Errors: from Linearize.
func (c *Control) Confirm(ctx context.Context) error {
	if err := c.catchUp(ctx); !errors.Is(err, kv.ErrNoLeader) {
		return err
	}
	return nil
}

// forsakenPause is the interval at which a call that waits for the leader checks whether the member
// is forsaken.
const forsakenPause = 100 * time.Millisecond

// catchUp is Linearize, but it stops waiting once the member is forsaken, and then returns
// kv.ErrNoLeader.
func (c *Control) catchUp(ctx context.Context) error {
	if c.pipe.Forsaken() {
		return kv.ErrNoLeader
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	look := time.AfterFunc(forsakenPause, func() {
		t := time.NewTicker(forsakenPause)
		defer t.Stop()
		for waiting.Err() == nil && !c.pipe.Forsaken() {
			select {
			case <-t.C:
			case <-waiting.Done():
			}
		}
		cancel()
	})
	defer look.Stop()
	err := c.pipe.Linearize(waiting)
	if err != nil && ctx.Err() == nil && (waiting.Err() != nil || c.pipe.Forsaken()) {
		return kv.ErrNoLeader
	}
	return err
}

// Check checks a rule for the caller against the state applied here. Errors: kv.ErrUserEmpty,
// kv.ErrInvalidAuthToken, and from the rule and Linearize.
func (c *Control) Check(ctx context.Context, rule func(*auth.State, auth.Identity) error) error {
	return c.check(ctx, func(s *auth.State, who caller) error {
		if !who.known {
			return kv.ErrUserEmpty
		}
		return rule(s, who.Identity)
	})
}

func (c *Control) check(ctx context.Context, rule func(*auth.State, caller) error) error {
	state := c.state.Load()
	if !state.Enabled() {
		return nil
	}
	who, err := c.identify(ctx)
	if err != nil || who.Member {
		return err
	}
	return rule(state, who)
}

// CheckUser returns an error if the caller is not an identified user in the state applied here.
// Errors: as Check.
func (c *Control) CheckUser(ctx context.Context) error {
	return c.Check(ctx, func(*auth.State, auth.Identity) error { return nil })
}

// RequireUser is CheckUser after Confirm.
func (c *Control) RequireUser(ctx context.Context) error {
	if err := c.Confirm(ctx); err != nil {
		return err
	}
	return c.CheckUser(ctx)
}

// RequireAdmin returns an error if the caller does not have the role root. Errors:
// kv.ErrInvalidAuthToken, and from auth.State.CheckAdmin and Confirm.
func (c *Control) RequireAdmin(ctx context.Context) error {
	_, err := c.Admin(ctx)
	return err
}

// Admin does the same as RequireAdmin and returns the identity of the caller: nobody if auth is
// disabled.
func (c *Control) Admin(ctx context.Context) (auth.Identity, error) {
	if err := c.Confirm(ctx); err != nil {
		return auth.Identity{}, err
	}
	return c.named(ctx, (*auth.State).CheckAdmin)
}

// Identity returns the identity of the caller, nobody if auth is disabled here. Errors:
// kv.ErrInvalidAuthToken, and from Linearize.
func (c *Control) Identity(ctx context.Context) (auth.Identity, error) {
	return c.named(ctx, func(*auth.State, auth.Identity) error { return nil })
}

// named returns the identity of the caller, nobody if auth is disabled here, if a rule allows it.
func (c *Control) named(ctx context.Context,
	rule func(*auth.State, auth.Identity) error) (auth.Identity, error) {
	state := c.state.Load()
	if !state.Enabled() {
		return auth.Identity{}, nil
	}
	who, err := c.identify(ctx)
	if err != nil {
		return auth.Identity{}, err
	}
	return who.Identity, rule(state, who.Identity)
}

// AuthState returns the users and roles that decide reads.
func (c *Control) AuthState() *auth.State { return c.state.Load() }

// MayWatch returns an error if the caller that opened a stream may not watch [key, end) now.
// Errors: kv.ErrInvalidAuthToken, and from auth.State.CheckRead and Linearize.
func (c *Control) MayWatch(ctx context.Context, key, end []byte) error {
	return c.check(ctx, func(s *auth.State,
		who caller) error {
		return s.CheckRead(who.Identity, key, end)
	})
}

// Read runs a read that auth must allow, on data that are not newer than the permissions. The
// caller must not call it before the data may be read. Read abandons a result that it drops.
func Read[T interface{ Abandon() }](ctx context.Context, c *Control,
	allowed func(*auth.State, auth.Identity) error, read func() (T, error)) (res T, err error) {
	state := c.state.Load()
	for ; !state.Enabled(); state = c.state.Load() {
		res, err = read()
		if err != nil || !c.AuthEnabled() {
			return res, err
		}
		// Auth was enabled during the read: the data may be newer than the permissions.
		res.Abandon()
		res = *new(T)
	}
	who, err := c.identify(ctx)
	if err != nil {
		return res, err
	}
	if who.Member {
		return read()
	}
	if err := allowed(state, who.Identity); err != nil {
		return res, err
	}
	if res, err = read(); err != nil {
		return res, err
	}
	if now := c.Revision(); state.Revision() != now || who.Revision != 0 && who.Revision != now {
		// The data may be newer than the right to read them. A token of an older revision is
		// rejected even if nothing was read.
		res.Abandon()
		return *new(T), kv.ErrAuthOldRevision
	}
	return res, nil
}

// Proposer returns the identity in whose name this member proposes a request. Apply would reject a
// request that this member rejects, but this member may lag, so a rejection counts only after it
// has caught up.
func (c *Control) Proposer(ctx context.Context, req *fsm.Request) (auth.Identity, error) {
	if id, err := c.mayPropose(ctx, req); err == nil {
		return id, nil
	}
	if err := c.pipe.Linearize(ctx); err != nil {
		return auth.Identity{}, err
	}
	return c.mayPropose(ctx, req)
}

func (c *Control) mayPropose(ctx context.Context, req *fsm.Request) (auth.Identity, error) {
	return c.named(ctx, func(s *auth.State, id auth.Identity) error {
		return fsm.Authorize(s, id, req, c.pipe.LeaseState().Each)
	})
}
