package rpc

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Defragment asks the member to take back the space of everything that compaction has made needless, and returns when
// that counts as free, so that a put that follows is not refused for it. The files get smaller in the background, as they
// do in any case when it is worth the work.
func (m *maintenance) Defragment(ctx context.Context, _ *etcdserverpb.DefragmentRequest) (*etcdserverpb.DefragmentResponse, error) {
	if err := m.svc.cfg.Member.Reclaim(ctx); err != nil {
		return nil, statusOf(err)
	}
	return &etcdserverpb.DefragmentResponse{}, nil
}
