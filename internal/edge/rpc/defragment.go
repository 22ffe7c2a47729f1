package rpc

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/internal/edge/rpc/apierror"
)

// Defragment starts to free the space of compacted data, and returns when that space counts as free, so that a following
// put is not rejected for it. The files shrink in the background, which also happens without this call.
func (m *maintenance) Defragment(ctx context.Context, _ *etcdserverpb.DefragmentRequest) (*etcdserverpb.DefragmentResponse, error) {
	if err := m.svc.cfg.Member.Reclaim(ctx); err != nil {
		return nil, apierror.Status(err)
	}
	return &etcdserverpb.DefragmentResponse{}, nil
}
