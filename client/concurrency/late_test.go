package concurrency_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"vigil/client"
	"vigil/client/concurrency"
	"vigil/client/lease"
)

// late is a connection that holds back writes: the caller gets an error with an unknown outcome,
// and the write is made when release is called.
type late struct {
	armed  atomic.Int64 // how many of the next writes are held back
	writes atomic.Int64 // that were held back
	first  func()       // called with the first of them
	mu     sync.Mutex
	held   []func() error
}

func (l *late) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if !strings.HasSuffix(method, "KV/Txn") && !strings.HasSuffix(method, "KV/DeleteRange") ||
		l.armed.Add(-1) < 0 {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	if l.writes.Add(1) == 1 && l.first != nil {
		l.first()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = append(l.held,
		func() error { return invoke(context.WithoutCancel(ctx), method, req, reply, cc, opts...) })
	return rpctypes.ErrGRPCTimeout
}

func (l *late) release(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.held {
		if err := f(); err != nil {
			t.Error(err)
		}
	}
	if len(l.held) == 0 {
		t.Error("nothing was held back")
	}
	l.held = nil
}

func lateSession(t *testing.T, ttl time.Duration) (*late, *concurrency.Session,
	*concurrency.Session) {
	t.Helper()
	l := &late{}
	session := func(opts ...grpc.DialOption) *concurrency.Session {
		c, err := client.New(client.Config{Endpoints: []string{endpoint}, DialOptions: opts})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		s, err := concurrency.NewSession(t.Context(), c, ttl)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close(context.Background()) })
		return s
	}
	return l, session(grpc.WithUnaryInterceptor(l.intercept)), session()
}

// TestLateUnlock: a deletion with an unknown outcome that is applied after the session has the lock
// again does not release the lock.
func TestLateUnlock(t *testing.T) {
	l, s, other := lateSession(t, 30*time.Second)
	name := "late/unlock" + t.Name()
	m := concurrency.NewMutex(s, name)
	first, err := m.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l.armed.Store(1)
	if err := first.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	second, err := m.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l.release(t)
	if h, err := concurrency.NewMutex(other, name).TryLock(t.Context()); !errors.Is(err,
		concurrency.ErrLocked) {
		t.Errorf("two have the lock: %v", err)
		if err == nil {
			_ = h.Unlock(t.Context())
		}
	}
	if err := second.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestLateLock: a lock whose creation was repeated, and is created again after it has been given
// up, has no holder.
func TestLateLock(t *testing.T) {
	l, s, other := lateSession(t, 60*time.Second)
	name := "late/lock" + t.Name()
	l.armed.Store(1)
	h, err := concurrency.NewMutex(s, name).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.release(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h, err = concurrency.NewMutex(other, name).Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestRepeatsPause: writes with an unknown outcome are repeated with pauses.
func TestRepeatsPause(t *testing.T) {
	l, s, _ := lateSession(t, 30*time.Second)
	l.armed.Store(1 << 40)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l.first = func() {
		time.AfterFunc(500*time.Millisecond, cancel)
		// Until then the key cannot be deleted either.
		time.AfterFunc(2*time.Second, func() { l.armed.Store(0) })
	}
	if _, err := concurrency.NewMutex(s, "late/pause").Lock(ctx); !errors.Is(err,
		client.ErrUncertain) {
		t.Error(err)
	}
	if n := l.writes.Load(); n > 30 {
		t.Errorf("%d attempts", n)
	}
}

// TestLostAtOnce: a lock counts as lost as soon as its session does.
func TestLostAtOnce(t *testing.T) {
	c, err := client.New(client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	k := lease.NewKeeper(c)
	defer k.Close()
	for range 20 {
		l, err := k.Grant(t.Context(), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		h, err := concurrency.NewMutex(concurrency.SessionOf(c, l),
			fmt.Sprintf("late/lost-%x", l.ID())).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Err(); err != nil {
			t.Error(err)
		}
		l.Release()
		if err := h.Err(); !errors.Is(err, concurrency.ErrLost) ||
			!errors.Is(err, lease.ErrReleased) {
			t.Errorf("just after the end of the session: %v", err)
		}
	}
}

// TestLockGivenUpAfterUnknown: a key that an attempt with an unknown outcome has created is deleted
// even if a later attempt has failed for another reason.
func TestLockGivenUpAfterUnknown(t *testing.T) {
	for name, then := range map[string]func(context.Context) error{
		"deadline": func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		},
		"refused": func(context.Context) error { return rpctypes.ErrGRPCRequestTooLarge },
	} {
		t.Run(name, func(t *testing.T) {
			_, _, other := lateSession(t, 30*time.Second)
			var txns atomic.Int64
			c, err := client.New(client.Config{Endpoints: []string{endpoint},
				DialOptions: []grpc.DialOption{grpc.WithUnaryInterceptor(
					func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
						invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
						if strings.HasSuffix(method, "KV/Txn") {
							switch txns.Add(1) {
							case 1:
								if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
									return err
								}
								return rpctypes.ErrGRPCTimeout
							case 2:
								return then(ctx)
							}
						}
						return invoke(ctx, method, req, reply, cc, opts...)
					})}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			s, err := concurrency.NewSession(t.Context(), c, 30*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close(context.Background()) }()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			lock := "late/given-up/" + name
			if _, err := concurrency.NewMutex(s, lock).Lock(ctx); err == nil {
				t.Fatal("the lock was taken")
			}
			h, err := concurrency.NewMutex(other, lock).TryLock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
