package rpc

import (
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"vigil/internal/kv"
)

func TestAlarm(t *testing.T) {
	f := start(t, nil)
	call := func(action etcdserverpb.AlarmRequest_AlarmAction, typ etcdserverpb.AlarmType,
		member uint64) (*etcdserverpb.AlarmResponse, error) {
		return f.Maintenance.Alarm(t.Context(),
			&etcdserverpb.AlarmRequest{Action: action, Alarm: typ, MemberID: member})
	}
	alarm := func(typ etcdserverpb.AlarmType, member uint64) *etcdserverpb.AlarmMember {
		return &etcdserverpb.AlarmMember{Alarm: typ, MemberID: member}
	}
	const (
		get, activate, deactivate = etcdserverpb.AlarmRequest_GET,
			etcdserverpb.AlarmRequest_ACTIVATE, etcdserverpb.AlarmRequest_DEACTIVATE
		none, noSpace, corrupt = etcdserverpb.AlarmType_NONE, etcdserverpb.AlarmType_NOSPACE,
			etcdserverpb.AlarmType_CORRUPT
	)
	for i, c := range []struct {
		action etcdserverpb.AlarmRequest_AlarmAction
		typ    etcdserverpb.AlarmType
		member uint64
		want   []*etcdserverpb.AlarmMember
	}{
		{get, none, 0, nil},
		{activate, noSpace, 5, []*etcdserverpb.AlarmMember{alarm(noSpace, 5)}},
		{activate, corrupt, 6, []*etcdserverpb.AlarmMember{alarm(corrupt, 6)}},
		{get, none, 77, []*etcdserverpb.AlarmMember{alarm(noSpace, 5), alarm(corrupt, 6)}},
		{get, corrupt, 0, []*etcdserverpb.AlarmMember{alarm(corrupt, 6)}},
		{deactivate, corrupt, 5, nil},
		{deactivate, corrupt, 6, []*etcdserverpb.AlarmMember{alarm(corrupt, 6)}},
		{99, noSpace, 5, nil},
		{get, none, 0, []*etcdserverpb.AlarmMember{alarm(noSpace, 5)}},
	} {
		res, err := call(c.action, c.typ, c.member)
		if err != nil {
			t.Fatal(err)
		}
		wantEqual(t, res, &etcdserverpb.AlarmResponse{
			Header: &etcdserverpb.ResponseHeader{ClusterId: 0xc1, MemberId: 0xa1, Revision: 1,
				RaftTerm: 7}, Alarms: c.want})
		if t.Failed() {
			t.Fatalf("step %d", i)
		}
	}
	err := kv.ErrTimeout
	f.member.fail.Store(&err)
	for _, action := range []etcdserverpb.AlarmRequest_AlarmAction{get, activate, deactivate} {
		_, err := call(action, noSpace, 1)
		wantStatus(t, err, rpctypes.ErrGRPCTimeout)
	}
}
