package fsm

import (
	"errors"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/store/history"
)

// request applies one request of a proposer.
func (b *box) request(proposer uint64, r *Request) Result {
	b.t.Helper()
	return b.entry(raftpb.EntryNormal, group(b.t, GroupHeader{Proposer: proposer}, r), true).Results[0]
}

func (b *box) alarm(typ kv.AlarmType, member uint64, clear bool) *kv.Alarm {
	b.t.Helper()
	res := b.request(1, &Request{Alarm: &kv.AlarmChange{Alarm: kv.Alarm{MemberID: member, Type: typ}, Clear: clear}})
	if res.Err != nil {
		b.t.Fatal(res.Err)
	}
	return res.Alarm
}

func TestAlarmsComeAndGo(t *testing.T) {
	b := newBox(t)
	for i, c := range []struct {
		typ    kv.AlarmType
		member uint64
		clear  bool
		alarm  bool // whether the result names the alarm
		active int
	}{
		{kv.AlarmNone, 1, false, false, 0}, // none is no alarm
		{kv.AlarmNoSpace, 1, true, false, 0},
		{kv.AlarmCorrupt, 2, false, true, 1},
		{kv.AlarmNoSpace, 1, false, true, 2},
		{kv.AlarmNoSpace, 1, false, true, 2}, // once more
		{77, 0, false, true, 3},              // a number without a name
		{kv.AlarmNone, 1, true, false, 3},    // none is no wildcard where alarms are cleared
		{kv.AlarmNoSpace, 2, true, false, 3},
		{kv.AlarmNoSpace, 1, true, true, 2},
	} {
		got := b.alarm(c.typ, c.member, c.clear)
		if (got != nil) != c.alarm || got != nil && *got != (kv.Alarm{MemberID: c.member, Type: c.typ}) {
			t.Errorf("step %d: result %v", i, got)
		}
		if n := len(b.m.Alarms()); n != c.active {
			t.Errorf("step %d: %d alarms, want %d", i, n, c.active)
		}
	}
	b.commit()
	before := b.m.Alarms()
	b.reopen()
	if after := b.m.Alarms(); !slices.Equal(before, after) || len(after) != 2 {
		t.Errorf("after reopening: %v, before: %v", after, before)
	}
}

func TestAlarmsAreBounded(t *testing.T) {
	b := newBox(t)
	for i := range uint64(maxAlarms) {
		b.alarm(kv.AlarmNoSpace, i, false)
	}
	res := b.request(1, &Request{Alarm: &kv.AlarmChange{Alarm: kv.Alarm{MemberID: maxAlarms, Type: kv.AlarmNoSpace}}})
	if !errors.Is(res.Err, kv.ErrTooManyRequests) || len(b.m.Alarms()) != maxAlarms {
		t.Errorf("one more: %v, %d alarms", res.Err, len(b.m.Alarms()))
	}
	b.alarm(kv.AlarmNoSpace, 7, true)
	b.alarm(kv.AlarmNoSpace, maxAlarms, false)
	b.commit()
}

func TestWhatAlarmsRefuse(t *testing.T) {
	p := kv.Op{Put: &kv.PutRequest{Key: []byte("k")}}
	d := kv.Op{Delete: &kv.DeleteRangeRequest{Key: []byte("k")}}
	r := kv.Op{Range: &kv.RangeRequest{Key: []byte("k")}}
	requests := map[string]*Request{
		"put":                  put("k", "v"),
		"delete":               {DeleteRange: &kv.DeleteRangeRequest{Key: []byte("k")}},
		"compact":              {Compact: &kv.CompactRequest{Revision: 1}},
		"txn put":              {Txn: &kv.TxnRequest{Success: []kv.Op{d, p}}},
		"txn put not taken":    {Txn: &kv.TxnRequest{Success: []kv.Op{d}, Failure: []kv.Op{p}}},
		"txn put nested":       {Txn: &kv.TxnRequest{Success: []kv.Op{{Txn: &kv.TxnRequest{Failure: []kv.Op{p}}}}}},
		"txn delete":           {Txn: &kv.TxnRequest{Success: []kv.Op{d, r}, Failure: []kv.Op{{Txn: &kv.TxnRequest{Success: []kv.Op{d}}}}}},
		"alarm":                {Alarm: &kv.AlarmChange{Alarm: kv.Alarm{MemberID: 9, Type: 9}}},
		"a member's disarming": {Alarm: &kv.AlarmChange{Alarm: kv.Alarm{MemberID: 9, Type: 9}, Clear: true}},
	}
	const own, other = 1, 2
	for _, c := range []struct {
		name   string
		alarms []kv.Alarm
		want   map[string]error
	}{
		{"no space", []kv.Alarm{{MemberID: other, Type: kv.AlarmNoSpace}}, map[string]error{
			"put": kv.ErrNoSpace, "txn put": kv.ErrNoSpace, "txn put not taken": kv.ErrNoSpace, "txn put nested": kv.ErrNoSpace}},
		{"corrupt", []kv.Alarm{{MemberID: own, Type: kv.AlarmCorrupt}}, map[string]error{
			"put": kv.ErrCorrupt, "txn put": kv.ErrCorrupt, "txn put not taken": kv.ErrCorrupt, "txn put nested": kv.ErrCorrupt,
			"delete": kv.ErrCorrupt, "compact": kv.ErrCorrupt, "txn delete": kv.ErrCorrupt}},
		{"corrupt, member unknown", []kv.Alarm{{MemberID: 0, Type: kv.AlarmCorrupt}}, nil},
		{"corrupt, another member", []kv.Alarm{{MemberID: other, Type: kv.AlarmCorrupt}}, nil},
		{"both", []kv.Alarm{{MemberID: own, Type: kv.AlarmCorrupt}, {MemberID: own, Type: kv.AlarmNoSpace}}, map[string]error{
			"put": kv.ErrCorrupt, "txn put": kv.ErrCorrupt, "txn put not taken": kv.ErrCorrupt, "txn put nested": kv.ErrCorrupt,
			"delete": kv.ErrCorrupt, "compact": kv.ErrCorrupt, "txn delete": kv.ErrCorrupt}},
		{"a number without a name", []kv.Alarm{{MemberID: own, Type: 3}}, nil},
	} {
		b := newBox(t)
		for _, a := range c.alarms {
			b.alarm(a.Type, a.MemberID, false)
		}
		for name, r := range requests {
			if res := b.request(own, r); !errors.Is(res.Err, c.want[name]) {
				t.Errorf("%s, %s: %v, want %v", c.name, name, res.Err, c.want[name])
			}
		}
		for _, a := range c.alarms {
			b.alarm(a.Type, a.MemberID, true)
		}
		for name, r := range requests {
			if res := b.request(own, r); errors.Is(res.Err, kv.ErrNoSpace) || errors.Is(res.Err, kv.ErrCorrupt) {
				t.Errorf("%s cleared, %s: %v", c.name, name, res.Err)
			}
		}
		b.commit()
	}
}

// A record that no version wrote ends the start.
func TestAlarmRecordsAreChecked(t *testing.T) {
	for _, m := range []history.Meta{
		{Key: []byte("short"), Value: []byte{alarmVersion}},
		{Key: make([]byte, alarmKeySize), Value: nil},
		{Key: make([]byte, alarmKeySize), Value: []byte{9}},
	} {
		if _, err := parseAlarm(m.Key, m.Value); !errors.Is(err, kv.ErrCorrupt) {
			t.Errorf("%x = %x: %v", m.Key, m.Value, err)
		}
	}
}

func FuzzAlarmRecord(f *testing.F) {
	m := alarmRecord(kv.AlarmChange{Alarm: kv.Alarm{MemberID: 1, Type: kv.AlarmCorrupt}})
	f.Add(m.Key, m.Value)
	f.Fuzz(func(t *testing.T, k, v []byte) {
		a, err := parseAlarm(k, v)
		if err != nil {
			return
		}
		if m := alarmRecord(kv.AlarmChange{Alarm: a}); string(m.Key) != string(k) || string(m.Value) != string(v) {
			t.Errorf("%x = %x is %+v, which is %x = %x", k, v, a, m.Key, m.Value)
		}
	})
}
