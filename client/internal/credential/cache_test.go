package credential

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"
)

// value returns the token in a credential.
func value(c *Credential) string {
	md, _ := metadata.FromOutgoingContext(c.Leader)
	if v := md.Get(metadataKey); len(v) == 1 {
		return v[0]
	}
	return ""
}

func TestConcurrentGetsAskOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		c := NewCache(func(context.Context) (Token, error) {
			asked.Add(1)
			time.Sleep(time.Second)
			return Token{Value: "a"}, nil
		}, slog.New(slog.DiscardHandler))
		defer c.Close()
		var calls sync.WaitGroup
		for range 10 {
			calls.Go(func() {
				if got, err := c.Get(t.Context()); err != nil || value(got) != "a" {
					t.Errorf("%v, %v", got, err)
				}
			})
		}
		calls.Wait()
		if asked.Load() != 1 {
			t.Errorf("the source was asked %d times", asked.Load())
		}
	})
}

// TestFailureEndsAllCalls: an error of the source ends all waiting calls at once. The end of the
// first call does not end the others.
func TestFailureEndsAllCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failure := errors.New("no token")
		var asked atomic.Int64
		c := NewCache(func(ctx context.Context) (Token, error) {
			asked.Add(1)
			select {
			case <-time.After(300 * time.Millisecond):
				return Token{}, failure
			case <-ctx.Done():
				return Token{}, ctx.Err()
			}
		}, slog.New(slog.DiscardHandler))
		defer c.Close()
		var calls sync.WaitGroup
		began := time.Now()
		hasty, cancel := context.WithCancel(t.Context())
		calls.Go(func() {
			if _, err := c.Get(hasty); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		synctest.Wait()
		for range 20 {
			calls.Go(func() {
				if _, err := c.Get(t.Context()); !errors.Is(err, failure) {
					t.Error(err)
				}
			})
		}
		time.AfterFunc(50*time.Millisecond, cancel)
		calls.Wait()
		if took := time.Since(began); took != 300*time.Millisecond || asked.Load() != 1 {
			t.Errorf("the calls took %v and asked %d times", took, asked.Load())
		}
	})
}

// TestSourceFails: a valid token stays in use while the source fails; a rejected or an expired one
// does not.
func TestSourceFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failure := errors.New("no token")
		var fails atomic.Bool
		c := NewCache(func(context.Context) (Token, error) {
			if fails.Load() {
				return Token{}, failure
			}
			return Token{Value: "a", Expires: time.Now().Add(100 * time.Second)}, nil
		}, slog.New(slog.DiscardHandler))
		defer c.Close()
		if _, err := c.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		fails.Store(true)
		time.Sleep(90 * time.Second)
		if got, err := c.Get(t.Context()); err != nil || value(got) != "a" {
			t.Errorf("before the end of the token: %v, %v", got, err)
		}
		time.Sleep(11 * time.Second)
		if _, err := c.Get(t.Context()); !errors.Is(err, failure) {
			t.Errorf("after the end of the token: %v", err)
		}
		fails.Store(false)
		got, err := c.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fails.Store(true)
		if !c.Reject(got) {
			t.Error("a cache with a source cannot renew")
		}
		if _, err := c.Get(t.Context()); !errors.Is(err, failure) {
			t.Errorf("after the token was rejected: %v", err)
		}
	})
}

// TestClose: it ends the request to the source, and later calls of Get.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCache(func(ctx context.Context) (Token, error) {
			<-ctx.Done()
			return Token{}, ctx.Err()
		}, slog.New(slog.DiscardHandler))
		go func() {
			time.Sleep(time.Second)
			c.Close()
		}()
		if _, err := c.Get(t.Context()); !errors.Is(err, context.Canceled) {
			t.Errorf("during Close: %v", err)
		}
		if _, err := c.Get(t.Context()); err != ErrClosed {
			t.Errorf("after Close: %v", err)
		}
	})
}
