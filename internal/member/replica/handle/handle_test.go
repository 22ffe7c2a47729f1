package handle

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"vigil/internal/kv"
	"vigil/internal/store/history"
)

// translated marks errors that went through Translate.
type translated struct{}

var errTranslated = errors.New("translated")

func (translated) Translate(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", errTranslated, err)
	}
	return nil
}

// A read that its store cannot finish is repeated on the one that replaces it, and not before that
// serves.
func TestReadIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next := New(nil, nil, nil), New(nil, nil, nil)
		c := NewCurrent(old, translated{}, nil)
		done := make(chan *Handle, 1)
		go func() {
			h, err := Read(t.Context(), c, func(h *Handle) (*Handle, error) {
				if h == old {
					return nil, fmt.Errorf("reading: %w", history.ErrClosed)
				}
				return h, nil
			})
			if err != nil {
				t.Error(err)
			}
			done <- h
		}()
		old.Retire()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("the read ended before the next store served")
		default:
		}
		c.Replace(next)
		if h := <-done; h != next {
			t.Error("the read was not repeated on the next store")
		}
	})
}

func TestReadErrors(t *testing.T) {
	closed := func(*Handle) (int, error) { return 0, history.ErrClosed }
	stopping := make(chan struct{})
	h := New(nil, nil, nil)
	c := NewCurrent(h, translated{}, stopping)
	// A store that is closed although none replaces it: the member stops, or something is wrong.
	if _, err := Read(t.Context(), c, closed); !errors.Is(err, errTranslated) ||
		!errors.Is(err, history.ErrClosed) {
		t.Errorf("a store that is closed: %v", err)
	}
	h.Retire()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Read(ctx, c, closed); err != context.Canceled {
		t.Errorf("a caller that leaves: %v", err)
	}
	close(stopping)
	if _, err := Read(t.Context(), c, closed); err != kv.ErrStopped {
		t.Errorf("a member that stops: %v", err)
	}
}
