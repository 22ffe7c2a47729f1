package rpc

import (
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/validate"
)

// clusterServer changes the membership. The headers of its answers have no revision.
type clusterServer struct {
	svc *service
}

var errNoCluster = status.Error(codes.Unimplemented, "this member's cluster cannot be changed")

func (c *clusterServer) cluster() (Cluster, error) {
	if c.svc.cfg.Cluster == nil {
		return nil, errNoCluster
	}
	return c.svc.cfg.Cluster, nil
}

func (c *clusterServer) header() *etcdserverpb.ResponseHeader { return headerPB(c.svc.header(0)) }

func (c *clusterServer) MemberList(ctx context.Context, r *etcdserverpb.MemberListRequest) (*etcdserverpb.MemberListResponse, error) {
	return c.svc.memberList(ctx, r)
}

func (c *clusterServer) MemberAdd(ctx context.Context, r *etcdserverpb.MemberAddRequest) (*etcdserverpb.MemberAddResponse, error) {
	cl, err := c.cluster()
	if err != nil {
		return nil, err
	}
	urls, ok := validate.PeerURLs(r.PeerURLs)
	if !ok {
		return nil, rpctypes.ErrGRPCMemberBadURLs
	}
	m, all, err := cl.AddMember(ctx, urls, r.IsLearner)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &etcdserverpb.MemberAddResponse{Header: c.header(), Member: memberPB(m), Members: membersPB(all)}, nil
}

func (c *clusterServer) MemberRemove(ctx context.Context, r *etcdserverpb.MemberRemoveRequest) (*etcdserverpb.MemberRemoveResponse, error) {
	cl, err := c.cluster()
	if err != nil {
		return nil, err
	}
	all, err := cl.RemoveMember(ctx, r.ID)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &etcdserverpb.MemberRemoveResponse{Header: c.header(), Members: membersPB(all)}, nil
}

// MemberUpdate rejects URLs of a member that cannot be dialed, which etcd accepts and then fails on.
func (c *clusterServer) MemberUpdate(ctx context.Context, r *etcdserverpb.MemberUpdateRequest) (*etcdserverpb.MemberUpdateResponse, error) {
	cl, err := c.cluster()
	if err != nil {
		return nil, err
	}
	urls, ok := validate.PeerURLs(r.PeerURLs)
	if !ok {
		return nil, c.badURLs(ctx, r.ID)
	}
	all, err := cl.UpdateMember(ctx, r.ID, urls)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &etcdserverpb.MemberUpdateResponse{Header: c.header(), Members: membersPB(all)}, nil
}

// badURLs returns the error of an update of a member with invalid URLs: whether there is such a member is checked first.
func (c *clusterServer) badURLs(ctx context.Context, id uint64) error {
	members, err := c.svc.cfg.Member.Members(ctx, false)
	if err != nil {
		return apierror.Status(err)
	}
	if !slices.ContainsFunc(members, func(m MemberInfo) bool { return m.ID == id }) {
		return rpctypes.ErrGRPCMemberNotFound
	}
	return rpctypes.ErrGRPCMemberBadURLs
}

func (c *clusterServer) MemberPromote(ctx context.Context, r *etcdserverpb.MemberPromoteRequest) (*etcdserverpb.MemberPromoteResponse, error) {
	cl, err := c.cluster()
	if err != nil {
		return nil, err
	}
	all, err := cl.PromoteMember(ctx, r.ID)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &etcdserverpb.MemberPromoteResponse{Header: c.header(), Members: membersPB(all)}, nil
}

// MoveLeader is answered by the leader only, without a header.
func (m *maintenance) MoveLeader(ctx context.Context, r *etcdserverpb.MoveLeaderRequest) (*etcdserverpb.MoveLeaderResponse, error) {
	cl := m.svc.cfg.Cluster
	if cl == nil {
		return nil, errNoCluster
	}
	if m.svc.cfg.Member.Leader() != m.svc.cfg.Member.Header().MemberID {
		return nil, rpctypes.ErrGRPCNotLeader
	}
	if err := cl.MoveLeader(ctx, r.TargetID); err != nil {
		return nil, apierror.Status(err)
	}
	return &etcdserverpb.MoveLeaderResponse{}, nil
}
