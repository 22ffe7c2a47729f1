package rpc

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/kv"
)

// Hasher computes checksums of this member's data. A call may take seconds; it ends with its context.
type Hasher interface {
	// HashKV hashes the history up to a revision, 0 for the newest, like etcd.
	HashKV(ctx context.Context, revision int64) (kv.HashResult, error)
	// Hash hashes the present state.
	Hash(context.Context) (kv.HashResult, error)
}

// HashKV answers for this member only; the header has its revision.
func (m *maintenance) HashKV(ctx context.Context, r *etcdserverpb.HashKVRequest) (*etcdserverpb.HashKVResponse, error) {
	res, err := m.svc.cfg.Hasher.HashKV(ctx, r.Revision)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &etcdserverpb.HashKVResponse{Header: headerPB(m.svc.header(res.Revision)), Hash: res.Hash,
		CompactRevision: res.CompactRevision, HashRevision: res.HashRevision}, nil
}

// Hash answers with a checksum that is comparable only with other members of this program at the same revision: etcd's is
// computed over the pages of its database.
func (m *maintenance) Hash(ctx context.Context, _ *etcdserverpb.HashRequest) (*etcdserverpb.HashResponse, error) {
	res, err := m.svc.cfg.Hasher.Hash(ctx)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &etcdserverpb.HashResponse{Header: headerPB(m.svc.header(res.Revision)), Hash: res.Hash}, nil
}

// Defragment starts to free the space of compacted data, and returns when that space counts as free, so that a following
// put is not rejected for it. The files shrink in the background, which also happens without this call.
func (m *maintenance) Defragment(ctx context.Context, _ *etcdserverpb.DefragmentRequest) (*etcdserverpb.DefragmentResponse, error) {
	if err := m.svc.cfg.Member.Reclaim(ctx); err != nil {
		return nil, apierror.Status(err)
	}
	return &etcdserverpb.DefragmentResponse{}, nil
}

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
