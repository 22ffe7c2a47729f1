package rpc

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/health/grpc_health_v1"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/lockpb"
	"vigil/internal/edge/rpc/validate"
)

// need is the requirement of a method while auth is enabled. The zero value rejects every call, with auth or without: a
// method without a rule is not served.
type need uint8

const (
	_ need = iota
	// open: every client may call it, with any token or none.
	open
	// decided: the member decides about each part of the request. What is proposed is decided when it is applied, what is read by
	// the rights at the position that is read.
	decided
	// anyUser: every identified user may call it. rootOnly: users with the role root may call it. The member confirms first that it
	// knows the rights that any member knows.
	anyUser
	rootOnly
	// userHere: every identified user may call it, as far as this member knows. The answer describes this member, and is as old as
	// the rights; a member that hangs must answer it.
	userHere
)

// access is the rule of one method.
type access struct {
	need need
	// of, if set, returns the requirement of a request instead.
	of func(request any) need
	// valid, if set, is checked first.
	valid func(request any) error
}

// rules has every method that is served, with the rules of etcd.
var rules = map[string]access{
	etcdserverpb.KV_Range_FullMethodName:       {need: decided},
	etcdserverpb.KV_RangeStream_FullMethodName: {need: decided},
	etcdserverpb.KV_Put_FullMethodName:         {need: decided},
	etcdserverpb.KV_DeleteRange_FullMethodName: {need: decided},
	etcdserverpb.KV_Txn_FullMethodName:         {need: decided},
	etcdserverpb.KV_Compact_FullMethodName:     {need: decided},

	etcdserverpb.Watch_Watch_FullMethodName: {need: decided},

	etcdserverpb.Lease_LeaseGrant_FullMethodName:      {need: decided},
	etcdserverpb.Lease_LeaseRevoke_FullMethodName:     {need: decided},
	etcdserverpb.Lease_LeaseKeepAlive_FullMethodName:  {need: decided},
	etcdserverpb.Lease_LeaseTimeToLive_FullMethodName: {need: decided},
	etcdserverpb.Lease_LeaseLeases_FullMethodName:     {need: decided},

	etcdserverpb.Cluster_MemberAdd_FullMethodName: {need: rootOnly, valid: func(r any) error {
		if _, ok := validate.PeerURLs(r.(*etcdserverpb.MemberAddRequest).PeerURLs); !ok {
			return rpctypes.ErrGRPCMemberBadURLs
		}
		return nil
	}},
	etcdserverpb.Cluster_MemberRemove_FullMethodName: {need: rootOnly},
	etcdserverpb.Cluster_MemberUpdate_FullMethodName: {need: rootOnly},
	etcdserverpb.Cluster_MemberList_FullMethodName: {of: func(r any) need {
		if r.(*etcdserverpb.MemberListRequest).Linearizable {
			return anyUser
		}
		return userHere
	}},
	etcdserverpb.Cluster_MemberPromote_FullMethodName: {need: rootOnly},

	etcdserverpb.Maintenance_Alarm_FullMethodName: {of: func(r any) need {
		if r.(*etcdserverpb.AlarmRequest).Action == etcdserverpb.AlarmRequest_GET {
			return anyUser
		}
		return rootOnly
	}},
	etcdserverpb.Maintenance_Status_FullMethodName:     {need: userHere},
	etcdserverpb.Maintenance_Defragment_FullMethodName: {need: rootOnly},
	etcdserverpb.Maintenance_Hash_FullMethodName:       {need: rootOnly},
	etcdserverpb.Maintenance_HashKV_FullMethodName:     {need: rootOnly},
	etcdserverpb.Maintenance_Snapshot_FullMethodName:   {need: rootOnly},
	etcdserverpb.Maintenance_MoveLeader_FullMethodName: {need: rootOnly},
	etcdserverpb.Maintenance_Downgrade_FullMethodName:  {need: rootOnly},

	etcdserverpb.Auth_AuthEnable_FullMethodName:           {need: decided},
	etcdserverpb.Auth_AuthDisable_FullMethodName:          {need: decided},
	etcdserverpb.Auth_AuthStatus_FullMethodName:           {need: decided},
	etcdserverpb.Auth_Authenticate_FullMethodName:         {need: open},
	etcdserverpb.Auth_UserAdd_FullMethodName:              {need: decided},
	etcdserverpb.Auth_UserGet_FullMethodName:              {need: decided},
	etcdserverpb.Auth_UserList_FullMethodName:             {need: decided},
	etcdserverpb.Auth_UserDelete_FullMethodName:           {need: decided},
	etcdserverpb.Auth_UserChangePassword_FullMethodName:   {need: decided},
	etcdserverpb.Auth_UserGrantRole_FullMethodName:        {need: decided},
	etcdserverpb.Auth_UserRevokeRole_FullMethodName:       {need: decided},
	etcdserverpb.Auth_RoleAdd_FullMethodName:              {need: decided},
	etcdserverpb.Auth_RoleGet_FullMethodName:              {need: decided},
	etcdserverpb.Auth_RoleList_FullMethodName:             {need: decided},
	etcdserverpb.Auth_RoleDelete_FullMethodName:           {need: decided},
	etcdserverpb.Auth_RoleGrantPermission_FullMethodName:  {need: decided},
	etcdserverpb.Auth_RoleRevokePermission_FullMethodName: {need: decided},

	// These make the calls above, with the rights of the same user.
	"/" + string(lockpb.Lock.FullName()) + "/Lock":         {need: decided},
	"/" + string(lockpb.Lock.FullName()) + "/Unlock":       {need: decided},
	"/" + string(lockpb.Election.FullName()) + "/Campaign": {need: decided},
	"/" + string(lockpb.Election.FullName()) + "/Proclaim": {need: decided},
	"/" + string(lockpb.Election.FullName()) + "/Leader":   {need: decided},
	"/" + string(lockpb.Election.FullName()) + "/Observe":  {need: decided},
	"/" + string(lockpb.Election.FullName()) + "/Resign":   {need: decided},

	"/" + string(lockpb.Times.FullName()) + "/RevisionAt": {need: decided},
	"/" + string(lockpb.Times.FullName()) + "/Spans":      {need: decided},

	// The list of services reveals nothing about stored data.
	grpc_health_v1.Health_Check_FullMethodName:                       {need: open},
	grpc_health_v1.Health_List_FullMethodName:                        {need: open},
	grpc_health_v1.Health_Watch_FullMethodName:                       {need: open},
	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      {need: open},
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": {need: open},
}

// enabled reports whether calls need credentials, as far as this member knows.
func (s *service) enabled() bool { return s.cfg.Auth != nil && s.cfg.Auth.AuthEnabled() }

// authorize checks the rule of a method. request is nil for a stream, whose
// requests are still to come. ctx has the credentials of the call.
func (s *service) authorize(ctx context.Context, rule *access, request any) error {
	if rule.need == 0 && rule.of == nil {
		return rpctypes.ErrGRPCPermissionDenied
	}
	if s.cfg.Auth == nil {
		return nil
	}
	if rule.valid != nil && s.enabled() {
		if err := rule.valid(request); err != nil {
			return err
		}
	}
	n := rule.need
	if rule.of != nil {
		n = rule.of(request)
	}
	switch n {
	case open, decided:
		return nil
	case userHere:
		return apierror.Status(s.cfg.Auth.CheckUser(ctx))
	case anyUser:
		return apierror.Status(s.cfg.Auth.RequireUser(ctx))
	case rootOnly:
		return apierror.Status(s.cfg.Auth.RequireAdmin(ctx))
	}
	return rpctypes.ErrGRPCPermissionDenied
}
