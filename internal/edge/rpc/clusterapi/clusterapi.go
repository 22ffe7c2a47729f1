// Package clusterapi implements the Cluster service: the membership and its changes. The headers of
// its answers have no revision, like etcd's.
package clusterapi

import (
	"context"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/gate"
	"vigil/internal/edge/rpc/validate"
	"vigil/internal/kv"
)

// Member is the part of the member that knows the cluster.
type Member interface {
	Header() kv.Header
	// Members lists the cluster; if linearizable, as of a moment after the call began. The error is
	// kv's.
	Members(ctx context.Context, linearizable bool) ([]MemberInfo, error)
}

// Changer changes the membership. Errors are kv's.
type Changer interface {
	// AddMember returns the new member and all of them, the others all of them.
	AddMember(ctx context.Context, peerURLs []string, learner bool) (MemberInfo,
		[]MemberInfo, error)
	RemoveMember(ctx context.Context, id uint64) ([]MemberInfo, error)
	UpdateMember(ctx context.Context, id uint64, peerURLs []string) ([]MemberInfo, error)
	PromoteMember(ctx context.Context, id uint64) ([]MemberInfo, error)
}

// MemberInfo is one member of the cluster. A member that never started has no name and no client
// URLs.
type MemberInfo struct {
	ID                   uint64
	Name                 string
	PeerURLs, ClientURLs []string
	IsLearner            bool
}

// API implements the service.
type API struct {
	member  Member
	changer Changer
}

// New returns the service. changer may be nil; then changes answer Unimplemented.
func New(member Member, changer Changer) *API { return &API{member, changer} }

// Service lists the methods.
func (a *API) Service() gate.Service {
	return gate.Service{Name: pb.Cluster_ServiceDesc.ServiceName, Methods: []gate.Endpoint{
		gate.Unary("MemberList", a.memberList), changes(a, "MemberAdd", a.memberAdd),
		changes(a, "MemberRemove", a.memberRemove),
		changes(a, "MemberUpdate", a.memberUpdate), changes(a, "MemberPromote", a.memberPromote),
	}}
}

// changes returns a method that changes the membership.
func changes[Request, Response any](a *API, name string,
	call func(context.Context, *Request) (*Response, error)) gate.Endpoint {
	if a.changer == nil {
		call = func(context.Context, *Request) (*Response, error) { return nil, errFixed }
	}
	return gate.Unary(name, call)
}

var errFixed = status.Error(codes.Unimplemented, "this member's cluster cannot be changed")

func (a *API) header() *pb.ResponseHeader { return gate.Header(a.member.Header().At(0)) }

func (a *API) memberList(ctx context.Context,
	r *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	members, err := a.member.Members(ctx, r.Linearizable)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &pb.MemberListResponse{Header: a.header(), Members: encodeMembers(members)}, nil
}

func (a *API) memberAdd(ctx context.Context,
	r *pb.MemberAddRequest) (*pb.MemberAddResponse, error) {
	urls, ok := validate.PeerURLs(r.PeerURLs)
	if !ok {
		return nil, rpctypes.ErrGRPCMemberBadURLs
	}
	m, all, err := a.changer.AddMember(ctx, urls, r.IsLearner)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &pb.MemberAddResponse{Header: a.header(), Member: encodeMember(m),
		Members: encodeMembers(all)}, nil
}

func (a *API) memberRemove(ctx context.Context,
	r *pb.MemberRemoveRequest) (*pb.MemberRemoveResponse, error) {
	all, err := a.changer.RemoveMember(ctx, r.ID)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &pb.MemberRemoveResponse{Header: a.header(), Members: encodeMembers(all)}, nil
}

// memberUpdate rejects URLs at which a member cannot be dialed. etcd accepts these and then fails
// on them.
func (a *API) memberUpdate(ctx context.Context,
	r *pb.MemberUpdateRequest) (*pb.MemberUpdateResponse, error) {
	urls, ok := validate.PeerURLs(r.PeerURLs)
	if !ok {
		return nil, a.badURLs(ctx, r.ID)
	}
	all, err := a.changer.UpdateMember(ctx, r.ID, urls)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &pb.MemberUpdateResponse{Header: a.header(), Members: encodeMembers(all)}, nil
}

// badURLs returns the error of an update with invalid URLs. That the member is unknown has
// precedence.
func (a *API) badURLs(ctx context.Context, id uint64) error {
	members, err := a.member.Members(ctx, false)
	if err != nil {
		return apierror.Status(err)
	}
	if !slices.ContainsFunc(members, func(m MemberInfo) bool { return m.ID == id }) {
		return rpctypes.ErrGRPCMemberNotFound
	}
	return rpctypes.ErrGRPCMemberBadURLs
}

func (a *API) memberPromote(ctx context.Context,
	r *pb.MemberPromoteRequest) (*pb.MemberPromoteResponse, error) {
	all, err := a.changer.PromoteMember(ctx, r.ID)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &pb.MemberPromoteResponse{Header: a.header(), Members: encodeMembers(all)}, nil
}

func encodeMember(m MemberInfo) *pb.Member {
	return &pb.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs,
		IsLearner: m.IsLearner}
}

func encodeMembers(members []MemberInfo) []*pb.Member {
	out := make([]*pb.Member, len(members))
	for i, m := range members {
		out[i] = encodeMember(m)
	}
	return out
}
