package rpc

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Defragment asks the member to take back the space of everything that compaction has made needless,
// and returns. The space comes back in the background in any case, when it is worth the work; nothing
// waits for it.
func (m *maintenance) Defragment(context.Context, *etcdserverpb.DefragmentRequest) (*etcdserverpb.DefragmentResponse, error) {
	m.svc.cfg.Member.Reclaim()
	return &etcdserverpb.DefragmentResponse{}, nil
}
