package access

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/auth"
)

// pipe is the pipeline of a member that may have no leader.
type pipe struct {
	Pipeline
	forsaken   []bool // what Forsaken returns, one after the other
	linearize  error
	linearized int
}

func (p *pipe) Forsaken() bool {
	now := p.forsaken[0]
	p.forsaken = p.forsaken[1:]
	return now
}

func (p *pipe) Linearize(ctx context.Context) error {
	p.linearized++
	return errors.Join(ctx.Err(), p.linearize)
}

// A call that is not proposed is decided by rights that this member has confirmed, or by its own if
// there is nobody to ask.
func TestConfirm(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx        context.Context
		forsaken   []bool
		linearize  error
		linearized int
		want       error
	}{
		"a leader confirms": {t.Context(), []bool{false}, nil, 1, nil},
		"there is no leader for long": {t.Context(), []bool{true},
			kv.ErrTimeout, 0, nil},
		"a leader does not confirm": {t.Context(), []bool{false, false},
			kv.ErrTimeout, 1, kv.ErrTimeout},
		"the leader is lost meanwhile": {t.Context(), []bool{false, true},
			kv.ErrTimeout, 1, nil},
		"the client has left, and the leader is lost": {ended, []bool{false, true}, nil, 1,
			context.Canceled},
	} {
		p := &pipe{forsaken: c.forsaken, linearize: c.linearize}
		a, err := New(Options{Pipeline: p, State: auth.New(), BcryptCost: 4,
			Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.RequireAdmin(c.ctx); !errors.Is(err, c.want) || p.linearized != c.linearized {
			t.Errorf("%s: %v after %d questions, want %v after %d", name, err, p.linearized,
				c.want, c.linearized)
		}
	}
}

// A password that is checked waits for its turn. Nobody, known or not, can make it hold more memory
// than a name and a password can have.
func TestLongLoginsDoNotWait(t *testing.T) {
	root, err := auth.Restore(true, 1, []auth.User{{Name: "root", Roles: []string{"root"}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(Options{Pipeline: &pipe{}, State: root, BcryptCost: 4,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	a.passwords = nil // a call that waits for it panics
	for name, c := range map[string][2]string{
		"name":     {strings.Repeat("n", kv.MaxNameBytes+1), "p"},
		"password": {"root", strings.Repeat("p", kv.MaxPasswordBytes+1)},
	} {
		if _, err := a.Authenticate(t.Context(), c[0], c[1]); !errors.Is(err, kv.ErrAuthFailed) {
			t.Errorf("a long %s: %v", name, err)
		}
	}
}

// losing is the pipeline of a member that loses its leader after two seconds. Nobody answers.
type losing struct {
	Pipeline
	start time.Time
}

func (l *losing) Forsaken() bool { return time.Since(l.start) >= 2*time.Second }

func (l *losing) Linearize(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// A call does not wait for an answer when it is known that there is nobody to ask.
func TestConfirmEndsWithTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		a, err := New(Options{Pipeline: &losing{start: start}, State: auth.New(), BcryptCost: 4,
			Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err, took := a.RequireAdmin(t.Context()), time.Since(start); err != nil ||
			took < 2*time.Second || took > 2*time.Second+2*forsakenPause {
			t.Errorf("%v after %v", err, took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		a.pipe.(*losing).start = time.Now()
		if err := a.RequireAdmin(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("the client has left: %v", err)
		}
	})
}
