// Package credential obtains, keeps and renews the token that the calls of a client carry.
//
// One goroutine at a time asks the source; concurrent calls share its answer. While the source
// fails, a token that has not expired stays in use.
package credential

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"
)

// ErrClosed is the error of Get after Close.
var ErrClosed = errors.New("credential: the cache is closed")

const metadataKey = "token"

// retryAfter is how long a token stays in use after another could not be obtained.
const retryAfter = time.Second

// Token proves the identity of a client.
type Token struct {
	Value   string
	Expires time.Time // zero if that is not known
}

// Credential is the metadata of calls: the token, if there is one.
type Credential struct {
	// Leader is for calls that need a leader, Plain for the others.
	Leader, Plain context.Context
	// renew is when another token should be obtained, zero if that is not known; until then the
	// token is valid.
	renew, expires time.Time
}

// NewCredential returns the metadata with a token, without one if its value is empty.
func NewCredential(t Token) *Credential {
	c := &Credential{expires: t.Expires}
	md := metadata.MD{}
	if t.Value != "" {
		md.Set(metadataKey, t.Value)
	}
	c.Plain = metadata.NewOutgoingContext(context.Background(), md)
	md = md.Copy()
	md.Set(rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
	c.Leader = metadata.NewOutgoingContext(context.Background(), md)
	if !t.Expires.IsZero() {
		// Some time before its end, so that the token does not expire during a long call.
		left := time.Until(t.Expires)
		c.renew = time.Now().Add(left - min(left/5, time.Minute))
	}
	return c
}

func (c *Credential) isFresh() bool { return c.renew.IsZero() || time.Now().Before(c.renew) }

// Source returns a token. It must return when its context ends.
type Source func(context.Context) (Token, error)

// Cache keeps the current credential. It is safe for concurrent use.
type Cache struct {
	source  Source // nil if calls need no token
	log     *slog.Logger
	ctx     context.Context
	cancel  context.CancelFunc
	tasks   sync.WaitGroup // requests to the source
	current atomic.Pointer[Credential]
	mu      struct {
		sync.Mutex
		request *request // nil while the source is not asked
		closed  bool
	}
}

// request is one call of the source, for all calls that wait for a token. It is canceled when no
// call waits.
type request struct {
	waiting    int // guarded by Cache.mu
	cancel     context.CancelFunc
	done       chan struct{} // closed when credential and err are set
	credential *Credential
	err        error
}

// NewCache returns a cache of the tokens of source, which is nil if calls need no token. Close must
// be called.
func NewCache(source Source, log *slog.Logger) *Cache {
	c := &Cache{source: source, log: log}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if source == nil {
		c.current.Store(NewCredential(Token{}))
	}
	return c
}

// Close cancels the request to the source and waits for its end.
func (c *Cache) Close() {
	c.mu.Lock()
	c.mu.closed = true
	c.mu.Unlock()
	c.cancel()
	c.tasks.Wait()
}

// Renewable reports whether there is a source of tokens.
func (c *Cache) Renewable() bool { return c.source != nil }

// Get returns a credential. It asks the source if there is none, or if the token expires soon.
func (c *Cache) Get(ctx context.Context) (*Credential, error) {
	if cur := c.current.Load(); cur != nil && cur.isFresh() {
		return cur, nil
	}
	c.mu.Lock()
	r := c.joinRequest(ctx)
	c.mu.Unlock()
	if r == nil {
		return nil, ErrClosed
	}
	defer c.leaveRequest(r)
	select {
	case <-r.done:
		return r.credential, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Reject drops a credential that a server refused. It reports whether another may help.
func (c *Cache) Reject(rejected *Credential) bool {
	if c.source == nil {
		return false
	}
	c.current.CompareAndSwap(rejected, nil)
	return true
}

// joinRequest starts a request to the source, or joins the running one. It returns nil if the cache
// is closed. The lock is held.
func (c *Cache) joinRequest(ctx context.Context) *request {
	if r := c.mu.request; r != nil {
		r.waiting++
		return r
	}
	if c.mu.closed {
		return nil
	}
	r := &request{waiting: 1, done: make(chan struct{})}
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	c.mu.request = r
	c.tasks.Go(func() {
		defer close(r.done)
		defer context.AfterFunc(c.ctx, r.cancel)()
		r.credential, r.err = c.renewToken(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.detachRequest(r)
	})
	return r
}

// leaveRequest ends the waiting of a call.
func (c *Cache) leaveRequest(r *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.waiting--; r.waiting == 0 {
		r.cancel()
		c.detachRequest(r)
	}
}

// detachRequest lets the next call start another request. The lock is held.
func (c *Cache) detachRequest(r *request) {
	if c.mu.request == r {
		c.mu.request = nil
	}
}

// renewToken obtains a new credential. If that fails, a token that is still valid stays in use.
func (c *Cache) renewToken(ctx context.Context) (*Credential, error) {
	old := c.current.Load()
	if old != nil && old.isFresh() {
		return old, nil // another call has renewed it
	}
	t, err := c.source(ctx)
	if err != nil {
		if old == nil || !time.Now().Before(old.expires) {
			return nil, err
		}
		c.log.Warn("cannot get a new token, using the last one", "expires",
			old.expires, "error", err)
		again := *old
		again.renew = time.Now().Add(min(retryAfter, time.Until(old.expires)))
		if c.current.CompareAndSwap(old, &again) {
			return &again, nil
		}
		return nil, err // a server has refused the last one
	}
	cur := NewCredential(t)
	c.current.Store(cur)
	c.log.Debug("got a token", "expires", t.Expires)
	return cur, nil
}
