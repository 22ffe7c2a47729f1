package rpc

import (
	"context"
	"math"
	"regexp"
	"strconv"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/apierror"
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
		to, ok := parseVersion(r.Version)
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

// semantic is a version by semver.org, as etcd reads it. Patch version and what follows do not matter.
var semantic = regexp.MustCompile(`^([0-9]+)\.([0-9]+)\.([0-9]+)(-[0-9A-Za-z.-]*)?(\+[0-9A-Za-z.-]*)?$`)

// maxVersionText bounds what is looked at.
const maxVersionText = 256

// parseVersion reads MAJOR.MINOR, or a semantic version of which it takes these.
func parseVersion(s string) (kv.Version, bool) {
	if len(s) > maxVersionText {
		return kv.Version{}, false
	}
	parts := semantic.FindStringSubmatch(s)
	if parts == nil {
		parts = semantic.FindStringSubmatch(s + ".0")
	}
	if parts == nil {
		return kv.Version{}, false
	}
	var n [3]uint64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseUint(parts[1+i], 10, 63); err != nil {
			return kv.Version{}, false
		}
	}
	// No cluster is at a level that is cut off here.
	return kv.Version{Major: uint32(min(n[0], math.MaxUint32)), Minor: uint32(min(n[1], math.MaxUint32))}, true
}
