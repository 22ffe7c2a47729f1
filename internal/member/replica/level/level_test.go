package level

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
)

// member is the member of a Level. What it proposes is applied at once.
type member struct {
	level *Level
	term  atomic.Uint64
	calls atomic.Int64
	err   error
}

func (m *member) LeadTerm() uint64 { return m.term.Load() }

func (m *member) AwaitReadable(context.Context, bool) (time.Duration, error) { return 0, m.err }

func (m *member) Propose(_ context.Context, req *fsm.Request) (fsm.Result, error) {
	m.calls.Add(1)
	if m.err != nil {
		return fsm.Result{}, m.err
	}
	v := m.level.Versions()
	switch c := req.Version; c.Op {
	case kv.DowngradeBegin:
		v.Target = c.Version
	case kv.DowngradeEnd:
		v.Target = kv.Version{}
	case kv.VersionSet:
		v.Cluster = c.Version
	}
	m.level.Follow(v)
	return fsm.Result{}, nil
}

// The leader proposes the level that the cluster should speak, and no other member does.
func TestLeaderSetsLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &member{}
		m.level = New(m, kv.Versions{Cluster: kv.APIVersion}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			m.level.Run(ctx)
			close(ended)
		}()
		lower := kv.APIVersion
		lower.Minor--
		if err := m.level.EnableDowngrade(t.Context(), lower); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if v := m.level.Versions(); v.Cluster != kv.APIVersion || m.calls.Load() != 1 {
			t.Errorf("a member that does not lead made %d proposals: %+v", m.calls.Load(), v)
		}
		m.term.Store(2)
		time.Sleep(interval + time.Second)
		if v := m.level.Versions(); v.Cluster != lower || m.calls.Load() != 2 {
			t.Errorf("the leader made %d proposals: %+v", m.calls.Load(), v)
		}
		if err := m.level.CancelDowngrade(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(interval + time.Second)
		if v := m.level.Versions(); v.Cluster != kv.APIVersion {
			t.Errorf("after the downgrade was canceled: %+v", v)
		}
		if err := m.level.CancelDowngrade(t.Context()); !errors.Is(err, kv.ErrNoDowngrade) {
			t.Errorf("canceling again: %v", err)
		}
		cancel()
		<-ended
	})
}

func TestErrorsOfReads(t *testing.T) {
	m := &member{err: kv.ErrTimeout}
	m.level = New(m, kv.Versions{Cluster: kv.APIVersion}, slog.New(slog.DiscardHandler))
	if err := m.level.EnableDowngrade(t.Context(),
		kv.APIVersion); err != kv.ErrTimeout || m.calls.Load() != 0 {
		t.Errorf("%v, %d proposals", err, m.calls.Load())
	}
}
