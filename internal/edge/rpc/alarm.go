package rpc

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/kv"
)

// Alarm lists alarms, raises one or clears one. The type NONE means every type in a list, and nothing when raising or
// clearing. The member matters only when raising or clearing, and need not exist. The answer contains an alarm that is
// active after raising it, or was active before clearing it.
func (m *maintenance) Alarm(ctx context.Context, r *etcdserverpb.AlarmRequest) (*etcdserverpb.AlarmResponse, error) {
	alarms := m.svc.cfg.Alarms
	res := &etcdserverpb.AlarmResponse{}
	asked := kv.Alarm{MemberID: r.MemberID, Type: kv.AlarmType(r.Alarm)}
	switch r.Action {
	case etcdserverpb.AlarmRequest_GET:
		list, err := alarms.Alarms(ctx)
		if err != nil {
			return nil, apierror.Status(err)
		}
		for _, a := range list {
			if asked.Type == kv.AlarmNone || asked.Type == a.Type {
				res.Alarms = append(res.Alarms, alarmPB(a))
			}
		}
	case etcdserverpb.AlarmRequest_ACTIVATE, etcdserverpb.AlarmRequest_DEACTIVATE:
		got, err := alarms.ChangeAlarm(ctx, kv.AlarmChange{Alarm: asked, Clear: r.Action == etcdserverpb.AlarmRequest_DEACTIVATE})
		if err != nil {
			return nil, apierror.Status(err)
		}
		if got != nil {
			res.Alarms = append(res.Alarms, alarmPB(*got))
		}
	}
	// The header last: it is at least as new as the answer.
	res.Header = headerPB(m.svc.cfg.Member.Header())
	return res, nil
}

func alarmPB(a kv.Alarm) *etcdserverpb.AlarmMember {
	return &etcdserverpb.AlarmMember{MemberID: a.MemberID, Alarm: etcdserverpb.AlarmType(a.Type)}
}
