package alarms

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/replica/audit"
	"vigil/internal/state/fsm"
)

// member is the member of the alarms.
type member struct {
	alone    bool
	damage   int
	err      error
	proposed []kv.AlarmChange
}

func (m *member) Alone() bool { return m.alone }
func (m *member) Count() int  { return m.damage }

func (m *member) AwaitReadable(context.Context, bool) (time.Duration, error) { return 0, m.err }

func (m *member) Propose(_ context.Context, req *fsm.Request) (fsm.Result, error) {
	m.proposed = append(m.proposed, *req.Alarm)
	return fsm.Result{}, m.err
}

func newAlarms(m *member, list ...kv.Alarm) (*Alarms, *audit.Trust) {
	trust := &audit.Trust{}
	return New(Options{MemberID: 3, Pipeline: m, Membership: m, Damage: m, Trust: trust,
		RequestTimeout: time.Second,
		TickInterval:   100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}, list), trust
}

var corrupt = kv.Alarm{MemberID: 3, Type: kv.AlarmCorrupt}

// A member must not serve while CORRUPT names it, unless it is alone or has met the damage itself.
func TestTrust(t *testing.T) {
	for name, c := range map[string]struct {
		alone  bool
		damage int
		list   []kv.Alarm
		lost   bool
	}{
		"no alarm":          {false, 0, nil, false},
		"others differ":     {false, 0, []kv.Alarm{corrupt}, true},
		"alone":             {true, 0, []kv.Alarm{corrupt}, false},
		"its own damage":    {false, 1, []kv.Alarm{corrupt}, false},
		"of another member": {false, 0, []kv.Alarm{{MemberID: 2, Type: kv.AlarmCorrupt}}, false},
		"another alarm":     {false, 0, []kv.Alarm{{MemberID: 3, Type: kv.AlarmNoSpace}}, false},
		"both kinds of alarms": {false, 0,
			[]kv.Alarm{{MemberID: 3, Type: kv.AlarmNoSpace}, corrupt}, true},
	} {
		m := &member{alone: c.alone, damage: c.damage}
		a, trust := newAlarms(m)
		a.Follow(c.list)
		if lost, _ := trust.Lost(); lost != c.lost {
			t.Errorf("%s: trust is lost: %t", name, lost)
		}
		if !slices.Equal(a.Active(), c.list) ||
			a.Raised(corrupt) != slices.Contains(c.list, corrupt) {
			t.Errorf("%s: active are %v", name, a.Active())
		}
		a.Follow(nil)
		if lost, _ := trust.Lost(); lost || len(a.Active()) > 0 {
			t.Errorf("%s: trust is lost after the end of the alarms", name)
		}
		// A member that starts with the alarm does not know the reason.
		_, trust = newAlarms(m, c.list...)
		if lost, _ := trust.Lost(); lost != c.lost {
			t.Errorf("%s, at the start: trust is lost: %t", name, lost)
		}
	}
}

// A change that fails is not tried again at once: its reason lasts.
func TestProposePauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &member{err: kv.ErrTimeout}
		a, _ := newAlarms(m)
		begun := time.Now()
		if a.Propose(t.Context(), &kv.AlarmChange{Alarm: corrupt}) ||
			time.Since(begun) != 100*time.Millisecond {
			t.Errorf("a failed proposal took %v", time.Since(begun))
		}
		m.err, begun = nil, time.Now()
		if !a.Propose(t.Context(), &kv.AlarmChange{Alarm: corrupt}) || time.Since(begun) != 0 {
			t.Errorf("a proposal took %v", time.Since(begun))
		}
		if len(m.proposed) != 2 || m.proposed[1].Alarm != corrupt {
			t.Errorf("proposed %v", m.proposed)
		}
	})
}
