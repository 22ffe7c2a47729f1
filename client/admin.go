package client

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"vigil/client/internal/wire"
)

// Calls for operators return the messages of the API unchanged.

// ask makes a call with generated messages.
func ask[R any](ctx context.Context, c *Client, m *method, key string, req proto.Message) (*R, error) {
	return call[R](ctx, c, m, key, &wire.Generated{Message: req})
}

var (
	memberListMethod    = read("Cluster", "MemberList", "list members")
	memberAddMethod     = write("Cluster", "MemberAdd", "add member")
	memberRemoveMethod  = write("Cluster", "MemberRemove", "remove member")
	memberUpdateMethod  = write("Cluster", "MemberUpdate", "update member")
	memberPromoteMethod = write("Cluster", "MemberPromote", "promote member")

	statusMethod       = read("Maintenance", "Status", "status").anyMember()
	alarmGetMethod     = read("Maintenance", "Alarm", "list alarms")
	alarmSetMethod     = write("Maintenance", "Alarm", "change alarms")
	defragmentMethod   = write("Maintenance", "Defragment", "defragment").anyMember()
	hashMethod         = read("Maintenance", "Hash", "hash").anyMember()
	hashKVMethod       = read("Maintenance", "HashKV", "hash keys").anyMember()
	snapshotMethod     = read("Maintenance", "Snapshot", "snapshot").anyMember()
	moveLeaderMethod   = write("Maintenance", "MoveLeader", "move leader")
	downgradeMethod    = write("Maintenance", "Downgrade", "downgrade")
	mayDowngradeMethod = read("Maintenance", "Downgrade", "validate downgrade")

	authEnableMethod   = write("Auth", "AuthEnable", "enable authentication")
	authDisableMethod  = write("Auth", "AuthDisable", "disable authentication")
	authStatusMethod   = read("Auth", "AuthStatus", "authentication status")
	authenticateMethod = read("Auth", "Authenticate", "authenticate")
	userAddMethod      = write("Auth", "UserAdd", "add user")
	userGetMethod      = read("Auth", "UserGet", "get user")
	userListMethod     = read("Auth", "UserList", "list users")
	userDeleteMethod   = write("Auth", "UserDelete", "delete user")
	userPasswordMethod = write("Auth", "UserChangePassword", "change password")
	userGrantMethod    = write("Auth", "UserGrantRole", "grant role")
	userRevokeMethod   = write("Auth", "UserRevokeRole", "revoke role")
	roleAddMethod      = write("Auth", "RoleAdd", "add role")
	roleGetMethod      = read("Auth", "RoleGet", "get role")
	roleListMethod     = read("Auth", "RoleList", "list roles")
	roleDeleteMethod   = write("Auth", "RoleDelete", "delete role")
	rolePermitMethod   = write("Auth", "RoleGrantPermission", "grant permission")
	roleForbidMethod   = write("Auth", "RoleRevokePermission", "revoke permission")
)

// MemberList returns the members, linearizably.
func (c *Client) MemberList(ctx context.Context) (*etcdserverpb.MemberListResponse, error) {
	return ask[etcdserverpb.MemberListResponse](ctx, c, &memberListMethod, "", &etcdserverpb.MemberListRequest{Linearizable: true})
}

// MemberListSerializable returns the members from the state of the member that answers.
func (c *Client) MemberListSerializable(ctx context.Context) (*etcdserverpb.MemberListResponse, error) {
	m := memberListMethod.anyMember()
	return ask[etcdserverpb.MemberListResponse](ctx, c, &m, "", &etcdserverpb.MemberListRequest{})
}

// MemberAdd adds a voting member.
func (c *Client) MemberAdd(ctx context.Context, peerURLs ...string) (*etcdserverpb.MemberAddResponse, error) {
	return ask[etcdserverpb.MemberAddResponse](ctx, c, &memberAddMethod, "", &etcdserverpb.MemberAddRequest{PeerURLs: peerURLs})
}

// MemberAddLearner adds a member that does not vote until it is promoted.
func (c *Client) MemberAddLearner(ctx context.Context, peerURLs ...string) (*etcdserverpb.MemberAddResponse, error) {
	return ask[etcdserverpb.MemberAddResponse](ctx, c, &memberAddMethod, "", &etcdserverpb.MemberAddRequest{PeerURLs: peerURLs, IsLearner: true})
}

// MemberRemove removes a member.
func (c *Client) MemberRemove(ctx context.Context, id uint64) (*etcdserverpb.MemberRemoveResponse, error) {
	return ask[etcdserverpb.MemberRemoveResponse](ctx, c, &memberRemoveMethod, "", &etcdserverpb.MemberRemoveRequest{ID: id})
}

// MemberUpdate changes the peer URLs of a member.
func (c *Client) MemberUpdate(ctx context.Context, id uint64, peerURLs ...string) (*etcdserverpb.MemberUpdateResponse, error) {
	return ask[etcdserverpb.MemberUpdateResponse](ctx, c, &memberUpdateMethod, "", &etcdserverpb.MemberUpdateRequest{ID: id, PeerURLs: peerURLs})
}

// MemberPromote makes a learner a voting member.
func (c *Client) MemberPromote(ctx context.Context, id uint64) (*etcdserverpb.MemberPromoteResponse, error) {
	return ask[etcdserverpb.MemberPromoteResponse](ctx, c, &memberPromoteMethod, "", &etcdserverpb.MemberPromoteRequest{ID: id})
}

// Status describes the member that answers; see At.
func (c *Client) Status(ctx context.Context) (*etcdserverpb.StatusResponse, error) {
	return ask[etcdserverpb.StatusResponse](ctx, c, &statusMethod, "", &etcdserverpb.StatusRequest{})
}

// Alarms returns the alarms that are raised.
func (c *Client) Alarms(ctx context.Context) (*etcdserverpb.AlarmResponse, error) {
	return ask[etcdserverpb.AlarmResponse](ctx, c, &alarmGetMethod, "", &etcdserverpb.AlarmRequest{})
}

// AlarmDisarm clears an alarm of a member.
func (c *Client) AlarmDisarm(ctx context.Context, member uint64, alarm etcdserverpb.AlarmType) (*etcdserverpb.AlarmResponse, error) {
	return ask[etcdserverpb.AlarmResponse](ctx, c, &alarmSetMethod, "", &etcdserverpb.AlarmRequest{
		Action: etcdserverpb.AlarmRequest_DEACTIVATE, MemberID: member, Alarm: alarm})
}

// Defragment frees space of the member that answers; see At.
func (c *Client) Defragment(ctx context.Context) (*etcdserverpb.DefragmentResponse, error) {
	return ask[etcdserverpb.DefragmentResponse](ctx, c, &defragmentMethod, "", &etcdserverpb.DefragmentRequest{})
}

// Hash returns a hash of the whole store of the member that answers; see At.
func (c *Client) Hash(ctx context.Context) (*etcdserverpb.HashResponse, error) {
	return ask[etcdserverpb.HashResponse](ctx, c, &hashMethod, "", &etcdserverpb.HashRequest{})
}

// HashKV returns a hash of all keys up to a revision, 0 for the current one, of the member that answers; see At.
// Members with equal compact and hash revisions must have equal hashes.
func (c *Client) HashKV(ctx context.Context, revision int64) (*etcdserverpb.HashKVResponse, error) {
	return ask[etcdserverpb.HashKVResponse](ctx, c, &hashKVMethod, "", &etcdserverpb.HashKVRequest{Revision: revision})
}

// MoveLeader makes another member the leader. Only the leader accepts it; see At.
func (c *Client) MoveLeader(ctx context.Context, to uint64) (*etcdserverpb.MoveLeaderResponse, error) {
	return ask[etcdserverpb.MoveLeaderResponse](ctx, c, &moveLeaderMethod, "", &etcdserverpb.MoveLeaderRequest{TargetID: to})
}

// Downgrade checks, enables or cancels a downgrade of the cluster to a version.
func (c *Client) Downgrade(ctx context.Context, action etcdserverpb.DowngradeRequest_DowngradeAction, version string) (*etcdserverpb.DowngradeResponse, error) {
	m := &downgradeMethod
	if action == etcdserverpb.DowngradeRequest_VALIDATE {
		m = &mayDowngradeMethod
	}
	return ask[etcdserverpb.DowngradeResponse](ctx, c, m, "", &etcdserverpb.DowngradeRequest{Action: action, Version: version})
}
