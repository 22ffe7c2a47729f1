package client

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

var (
	memberListMethod    = read("Cluster", "MemberList", "list members")
	memberAddMethod     = write("Cluster", "MemberAdd", "add member")
	memberRemoveMethod  = write("Cluster", "MemberRemove", "remove member")
	memberUpdateMethod  = write("Cluster", "MemberUpdate", "update member")
	memberPromoteMethod = write("Cluster", "MemberPromote", "promote member")
)

// Cluster makes the calls about the members of a cluster. It is safe for concurrent use, and uses
// the members and the token of its [Client].
type Cluster struct{ c *Client }

// Cluster returns the calls about the members of the cluster. [Client.Sync] only learns their
// addresses.
func (c *Client) Cluster() Cluster { return Cluster{c} }

// Member is a member of a cluster.
type Member struct {
	ID uint64
	// Name is empty until the member has been started.
	Name string
	// PeerURLs are the addresses for other members, ClientURLs those for clients.
	PeerURLs, ClientURLs []string
	// IsLearner reports that the member does not vote.
	IsLearner bool
}

// Members is the answer of the calls about members.
type Members struct {
	Header Header
	// Members are all members, after the change if the call changes them.
	Members []Member
}

func membersOf(h *etcdserverpb.ResponseHeader, list []*etcdserverpb.Member) *Members {
	m := &Members{Header: header(h), Members: make([]Member, len(list))}
	for i, x := range list {
		m.Members[i] = memberOf(x)
	}
	return m
}

func memberOf(m *etcdserverpb.Member) Member {
	return Member{m.GetID(), m.GetName(), m.GetPeerURLs(), m.GetClientURLs(), m.GetIsLearner()}
}

// MemberList returns the members, linearizably.
func (cl Cluster) MemberList(ctx context.Context) (*Members, error) {
	return cl.list(ctx, &memberListMethod, true)
}

// MemberListSerializable returns the members that the answering member knows, which may be
// outdated. It needs no leader.
func (cl Cluster) MemberListSerializable(ctx context.Context) (*Members, error) {
	m := memberListMethod.anyMember()
	return cl.list(ctx, &m, false)
}

func (cl Cluster) list(ctx context.Context, m *method, linearizable bool) (*Members, error) {
	r, err := ask[etcdserverpb.MemberListResponse](ctx, cl.c, m, "",
		&etcdserverpb.MemberListRequest{Linearizable: linearizable})
	if err != nil {
		return nil, err
	}
	return membersOf(r.Header, r.Members), nil
}

// MemberAdded is the answer of [Cluster.MemberAdd].
type MemberAdded struct {
	Header Header
	// Added is the new member, which Members contain, too.
	Added   Member
	Members []Member
}

// MemberAdd adds a voting member, which must then be started with these peer URLs.
func (cl Cluster) MemberAdd(ctx context.Context, peerURLs ...string) (*MemberAdded, error) {
	return cl.add(ctx, &etcdserverpb.MemberAddRequest{PeerURLs: peerURLs})
}

// MemberAddLearner adds a member that does not vote until [Cluster.MemberPromote].
func (cl Cluster) MemberAddLearner(ctx context.Context, peerURLs ...string) (*MemberAdded, error) {
	return cl.add(ctx, &etcdserverpb.MemberAddRequest{PeerURLs: peerURLs, IsLearner: true})
}

func (cl Cluster) add(ctx context.Context, r *etcdserverpb.MemberAddRequest) (*MemberAdded, error) {
	resp, err := ask[etcdserverpb.MemberAddResponse](ctx, cl.c, &memberAddMethod, "", r)
	if err != nil {
		return nil, err
	}
	all := membersOf(resp.Header, resp.Members)
	return &MemberAdded{Header: all.Header, Added: memberOf(resp.Member), Members: all.Members}, nil
}

// MemberRemove removes a member.
func (cl Cluster) MemberRemove(ctx context.Context, id uint64) (*Members, error) {
	r, err := ask[etcdserverpb.MemberRemoveResponse](ctx, cl.c, &memberRemoveMethod, "",
		&etcdserverpb.MemberRemoveRequest{ID: id})
	if err != nil {
		return nil, err
	}
	return membersOf(r.Header, r.Members), nil
}

// MemberUpdate changes the peer URLs of a member.
func (cl Cluster) MemberUpdate(ctx context.Context, id uint64,
	peerURLs ...string) (*Members, error) {
	r, err := ask[etcdserverpb.MemberUpdateResponse](ctx, cl.c, &memberUpdateMethod, "",
		&etcdserverpb.MemberUpdateRequest{ID: id, PeerURLs: peerURLs})
	if err != nil {
		return nil, err
	}
	return membersOf(r.Header, r.Members), nil
}

// MemberPromote makes a learner a voting member. It fails with [ErrLearnerNotReady] while the
// learner lacks too much of the log.
func (cl Cluster) MemberPromote(ctx context.Context, id uint64) (*Members, error) {
	r, err := ask[etcdserverpb.MemberPromoteResponse](ctx, cl.c, &memberPromoteMethod, "",
		&etcdserverpb.MemberPromoteRequest{ID: id})
	if err != nil {
		return nil, err
	}
	return membersOf(r.Header, r.Members), nil
}
