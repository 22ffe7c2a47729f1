package rpc

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/validate"
	"vigil/internal/kv"
)

// Versions is the part of the member that the maintenance service uses for downgrades. Errors are kv's.
type Versions interface {
	// Versions returns the API versions that this member knows. It returns at once.
	Versions() kv.Versions
	// ValidateDowngrade returns the reason why a downgrade cannot begin.
	ValidateDowngrade(ctx context.Context, to kv.Version) error
	EnableDowngrade(ctx context.Context, to kv.Version) error
	CancelDowngrade(ctx context.Context) error
}

// errUnknownMethod is what an action that is none is answered with.
var errUnknownMethod = status.Error(codes.Unknown, "etcdserver: unknown method")

// Downgrade prepares a cluster for members of the level below, or stops that. Canceling succeeds in any
// case: that there was nothing to cancel is in the log alone.
func (m *maintenance) Downgrade(ctx context.Context, r *etcdserverpb.DowngradeRequest) (*etcdserverpb.DowngradeResponse, error) {
	v := m.svc.cfg.Versions
	if v == nil {
		return nil, status.Error(codes.Unimplemented, "method Downgrade not implemented")
	}
	// A level that the request changes shows in the answers to later ones.
	now := v.Versions().Cluster
	switch r.Action {
	case etcdserverpb.DowngradeRequest_VALIDATE, etcdserverpb.DowngradeRequest_ENABLE:
		to, ok := validate.Version(r.Version)
		if !ok {
			return nil, m.refuseDowngrade(r, rpctypes.ErrGRPCWrongDowngradeVersionFormat)
		}
		begin := v.ValidateDowngrade
		if r.Action == etcdserverpb.DowngradeRequest_ENABLE {
			begin = v.EnableDowngrade
		}
		if err := begin(ctx, to); err != nil {
			return nil, m.refuseDowngrade(r, apierror.Status(err))
		}
	case etcdserverpb.DowngradeRequest_CANCEL:
		if err := v.CancelDowngrade(ctx); err != nil {
			m.svc.log.Warn("failed to cancel downgrade", "error", apierror.Text(err))
		}
	default:
		return nil, errUnknownMethod
	}
	return &etcdserverpb.DowngradeResponse{Header: headerPB(m.svc.cfg.Member.Header()), Version: now.String()}, nil
}

func (m *maintenance) refuseDowngrade(r *etcdserverpb.DowngradeRequest, err error) error {
	if r.Action == etcdserverpb.DowngradeRequest_ENABLE {
		m.svc.log.Warn("reject downgrade request", "version", r.Version, "error", rpctypes.ErrorDesc(err))
	}
	return err
}
