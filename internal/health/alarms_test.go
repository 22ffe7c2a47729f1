package health

import (
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestFindAlarms: the alarms are those that the leader reports. If it does not answer, they are
// those that any member reports.
func TestFindAlarms(t *testing.T) {
	status := func(id, leader uint64, alarms ...*etcdserverpb.AlarmMember) Reading {
		st := &etcdserverpb.StatusResponse{Header: &etcdserverpb.ResponseHeader{ClusterId: 9,
			MemberId: id}, Leader: leader, Errors: []string{"vigil: the disk is full: memberID"}}
		for _, a := range alarms {
			st.Errors = append(st.Errors, a.String())
		}
		return Reading{Status: st}
	}
	full, corrupt := &etcdserverpb.AlarmMember{MemberID: 2, Alarm: etcdserverpb.AlarmType_NOSPACE},
		&etcdserverpb.AlarmMember{MemberID: 3, Alarm: etcdserverpb.AlarmType_CORRUPT}
	foreign := status(4, 4, corrupt)
	foreign.Status.Header.ClusterId = 8
	for name, c := range map[string]struct {
		readings []Reading
		want     []*etcdserverpb.AlarmMember
	}{
		"nobody answers": {[]Reading{{}, {}}, nil},
		"a member that is behind": {[]Reading{status(1, 2, corrupt), status(2, 2, full), {}},
			[]*etcdserverpb.AlarmMember{full}},
		"a leader without alarms": {[]Reading{status(1, 2, full), status(2, 2)}, nil},
		"the leader does not answer": {[]Reading{status(1, 2, full), {},
			status(3, 2, full, corrupt)}, []*etcdserverpb.AlarmMember{full, corrupt}},
		"no leader": {[]Reading{status(1, 0, corrupt), status(3, 0, full)},
			[]*etcdserverpb.AlarmMember{corrupt, full}},
		"a member of another cluster": {[]Reading{status(1, 0, full), foreign},
			[]*etcdserverpb.AlarmMember{full}},
		"an alarm that was there before": {[]Reading{status(1, 1)}, nil},
	} {
		r := &Round{ClusterID: 9, Readings: c.readings,
			Alarms: []*etcdserverpb.AlarmMember{corrupt}}
		r.FindAlarms()
		same := len(r.Alarms) == len(c.want)
		for i := range r.Alarms {
			same = same && r.Alarms[i].String() == c.want[i].String()
		}
		if !same {
			t.Errorf("%s: %v, want %v", name, r.Alarms, c.want)
		}
	}
}
