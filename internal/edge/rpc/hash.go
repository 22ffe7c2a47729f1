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
