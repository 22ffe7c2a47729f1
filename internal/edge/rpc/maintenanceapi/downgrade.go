package maintenanceapi

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/validate"
	"vigil/internal/kv"
)

// Versions changes the API level for a downgrade. Errors are kv's.
type Versions interface {
	// Versions returns the API versions that this member knows. It returns at once.
	Versions() kv.Versions
	// ValidateDowngrade returns the reason why a downgrade cannot begin.
	ValidateDowngrade(ctx context.Context, to kv.Version) error
	EnableDowngrade(ctx context.Context, to kv.Version) error
	CancelDowngrade(ctx context.Context) error
}

// errUnknownMethod is the answer to an unknown action.
var errUnknownMethod = status.Error(codes.Unknown, "etcdserver: unknown method")

// downgrade prepares a cluster for members of the level below, or stops that. Canceling always
// succeeds: only the log says that there was nothing to cancel.
func (a *API) downgrade(ctx context.Context,
	r *pb.DowngradeRequest) (*pb.DowngradeResponse, error) {
	v := a.o.Versions
	if v == nil {
		return nil, status.Error(codes.Unimplemented, "method Downgrade not implemented")
	}
	// A level that the request changes shows in the answers to later requests.
	now := v.Versions().Cluster
	switch r.Action {
	case pb.DowngradeRequest_VALIDATE, pb.DowngradeRequest_ENABLE:
		to, ok := validate.Version(r.Version)
		if !ok {
			return nil, a.logRefusal(r, rpctypes.ErrGRPCWrongDowngradeVersionFormat)
		}
		begin := v.ValidateDowngrade
		if r.Action == pb.DowngradeRequest_ENABLE {
			begin = v.EnableDowngrade
		}
		if err := begin(ctx, to); err != nil {
			return nil, a.logRefusal(r, apierror.Status(err))
		}
	case pb.DowngradeRequest_CANCEL:
		if err := v.CancelDowngrade(ctx); err != nil {
			a.o.Logger.Warn("failed to cancel downgrade", "error", apierror.Text(err))
		}
	default:
		return nil, errUnknownMethod
	}
	return &pb.DowngradeResponse{Header: a.header(), Version: now.String()}, nil
}

// logRefusal logs that a downgrade was rejected, and returns err.
func (a *API) logRefusal(r *pb.DowngradeRequest, err error) error {
	if r.Action == pb.DowngradeRequest_ENABLE {
		a.o.Logger.Warn("reject downgrade request", "version", r.Version, "error",
			rpctypes.ErrorDesc(err))
	}
	return err
}
