package rpc

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Alarm lists alarms and disarms them. A member raises none yet, so the list is empty and there is
// nothing to disarm; raising one by hand is not supported.
func (m *maintenance) Alarm(_ context.Context, r *etcdserverpb.AlarmRequest) (*etcdserverpb.AlarmResponse, error) {
	if r.Action == etcdserverpb.AlarmRequest_ACTIVATE {
		return nil, status.Error(codes.Unimplemented, "method Alarm does not raise alarms")
	}
	return &etcdserverpb.AlarmResponse{Header: headerPB(m.svc.cfg.Member.Header())}, nil
}
