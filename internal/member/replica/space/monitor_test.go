package space

import (
	"context"
	"slices"
	"testing"

	"vigil/internal/kv"
)

// alarmList is a list of active alarms.
type alarmList struct{ list []kv.Alarm }

func (a *alarmList) Raised(alarm kv.Alarm) bool { return slices.Contains(a.list, alarm) }

func (a *alarmList) AnyNoSpace() bool {
	return slices.ContainsFunc(a.list, func(x kv.Alarm) bool { return x.Type == kv.AlarmNoSpace })
}

func (a *alarmList) Propose(context.Context, *kv.AlarmChange, ...any) bool { return false }

func TestDueAlarm(t *testing.T) {
	alarms := &alarmList{}
	own, other := kv.Alarm{MemberID: 3, Type: kv.AlarmNoSpace},
		kv.Alarm{MemberID: 2, Type: kv.AlarmNoSpace}
	for _, c := range []struct {
		quota, live, crossing int64
		refused               bool
		raised                []kv.Alarm
		want                  string
	}{
		{1000, 999, 0, false, nil, ""}, {1000, 1000, 0, false, nil, "raise"},
		{1000, 5000, 0, false, []kv.Alarm{own}, ""},
		{1000, 900, 0, false, []kv.Alarm{own}, ""}, {1000, 899, 0, false, []kv.Alarm{own}, "clear"},
		{1000, 899, 0, false, nil, ""},
		{0, 1 << 40, 0, false, nil, ""}, {0, 1 << 40, 0, false, []kv.Alarm{own}, "clear"},
		{-1, 0, 0, false, []kv.Alarm{own}, "clear"},
		// With the alarm of another member there are no puts any more, but for those under way.
		{1000, 1000, 0, false, []kv.Alarm{other}, ""},
		{1000, 899, 0, false, []kv.Alarm{other, own}, "clear"},
		// Any refusal raises it, and what was refused at less than nine tenths must become less
		// than that.
		{1000, 950, 950, true, nil, "raise"}, {1000, 300, 300, true, nil, "raise"},
		{1000, 300, 300, true, []kv.Alarm{own}, ""},
		{1000, 300, 300, false, []kv.Alarm{own}, ""},
		{1000, 269, 300, false, []kv.Alarm{own}, "clear"},
		{1000, 899, 5000, false, []kv.Alarm{own}, "clear"},
		// Disarmed by hand, it waits for the next refusal.
		{1000, 950, 950, false, nil, ""},
	} {
		m := NewMonitor(MonitorOptions{MemberID: 3, Room: NewRoom(RoomOptions{QuotaBytes: c.quota}),
			Alarms: alarms})
		m.crossing.Store(c.crossing)
		alarms.list = append(c.raised, kv.Alarm{MemberID: 3, Type: kv.AlarmCorrupt})
		got := ""
		if ch := m.dueAlarm(c.live, c.refused); ch != nil {
			if got = "raise"; ch.Clear {
				got = "clear"
			}
			if ch.Alarm != own {
				t.Errorf("%+v: %+v", c, ch)
			}
		}
		if got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
