package leadership

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/raftnode"
	"vigil/internal/state/cluster"
)

// world is all that a Leadership uses. A transfer is complete after delay, unless that is 0.
type world struct {
	lead      uint64
	delay     time.Duration
	begun     time.Time
	next      uint64
	asked     int
	connected int
	advanced  int
	state     *cluster.State
}

func (w *world) Status() (s raftnode.Status) {
	s.Lead = w.lead
	if w.next != 0 && w.delay > 0 && time.Since(w.begun) >= w.delay {
		s.Lead = w.next
	}
	return s
}

func (w *world) TransferLeader(to uint64) (uint64, error) {
	w.next, w.begun, w.asked = to, time.Now(), w.asked+1
	if to == 0 {
		w.next = 2
	}
	return w.next, nil
}

func (w *world) TakeLeadership() error {
	w.next, w.begun, w.asked = 1, time.Now(), w.asked+1
	return nil
}

func (w *world) AdvanceElection(ticks int) (bool, error) {
	w.advanced = ticks
	return true, nil
}

func (w *world) Failed() <-chan struct{}                        { return nil }
func (w *world) State() *cluster.State                          { return w.state }
func (w *world) CountConnected([]cluster.Member, time.Time) int { return w.connected }

func newLeadership(t *testing.T, w *world) *Leadership {
	t.Helper()
	w.state = &cluster.State{}
	for _, m := range []cluster.Member{{ID: 1}, {ID: 2}, {ID: 3, Learner: true}} {
		if err := w.state.Load(cluster.Record{ID: m.ID}.Key(),
			cluster.EncodeMember(m)); err != nil {
			t.Fatal(err)
		}
	}
	return New(Options{MemberID: 1, Raft: w, Membership: w, Contacts: w, ElectionTicks: 10,
		ElectionTimeout: time.Second,
		RequestTimeout:  7 * time.Second, Logger: slog.New(slog.DiscardHandler)})
}

func TestMoveLeader(t *testing.T) {
	for name, c := range map[string]struct {
		lead, to uint64
		delay    time.Duration
		want     error
		asked    int
	}{
		"to a voter":               {1, 2, time.Second, nil, 1},
		"to a voter that is late":  {1, 2, 0, kv.ErrTransferTimeout, 1},
		"to a learner":             {1, 3, time.Second, kv.ErrBadTransferee, 0},
		"to an unknown member":     {1, 9, time.Second, kv.ErrBadTransferee, 0},
		"to itself":                {1, 1, time.Second, nil, 0},
		"by a member that follows": {2, 2, time.Second, kv.ErrNotLeader, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := &world{lead: c.lead, delay: c.delay}
			if err := newLeadership(t, w).MoveLeader(t.Context(), c.to); err != c.want ||
				w.asked != c.asked {
				t.Errorf("%s: %v after %d transfers, want %v", name, err, w.asked, c.want)
			}
		})
	}
}

// A member that stops waits for the transfer no longer than an election takes, and does not begin
// one if it does not lead.
func TestHandOver(t *testing.T) {
	for _, c := range []struct {
		lead  uint64
		delay time.Duration
		most  time.Duration
		asked int
	}{{1, 500 * time.Millisecond, 600 * time.Millisecond, 1}, {1, 0, time.Second, 1}, {2, 0, 0, 0},
		{0, 0, 0, 0}} {
		synctest.Test(t, func(t *testing.T) {
			w, begun := &world{lead: c.lead, delay: c.delay}, time.Now()
			newLeadership(t, w).HandOver(t.Context())
			if took := time.Since(begun); took > c.most || took < c.delay || w.asked != c.asked {
				t.Errorf("%+v: %d transfers in %v", c, w.asked, took)
			}
		})
	}
}

// A leader that does not hand over is asked again, a few times.
func TestTakeOver(t *testing.T) {
	for _, c := range []struct {
		delay time.Duration
		asked int
	}{{300 * time.Millisecond, 1}, {0, takeOverAttempts}} {
		synctest.Test(t, func(t *testing.T) {
			w := &world{lead: 2, delay: c.delay}
			if newLeadership(t, w).TakeOver(t.Context()); w.asked != c.asked {
				t.Errorf("%+v: asked %d times", c, w.asked)
			}
		})
	}
}

// The first election comes early when this member is connected to a quorum and knows no leader.
func TestAdvanceElection(t *testing.T) {
	for _, c := range []struct {
		connected int
		lead      uint64
		advanced  int
	}{{2, 0, 10 - ticksLeft}, {1, 0, 0}, {2, 2, 0}} {
		synctest.Test(t, func(t *testing.T) {
			w, begun := &world{connected: c.connected, lead: c.lead}, time.Now()
			newLeadership(t, w).AdvanceElection(context.Background())
			if w.advanced != c.advanced || time.Since(begun) > connectTimeout+connectInterval {
				t.Errorf("%+v: advanced by %d ticks after %v", c, w.advanced, time.Since(begun))
			}
		})
	}
}
