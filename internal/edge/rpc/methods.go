package rpc

import (
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/health/grpc_health_v1"

	"vigil/internal/edge/rpc/authapi"
	"vigil/internal/edge/rpc/clusterapi"
	"vigil/internal/edge/rpc/gate"
	"vigil/internal/edge/rpc/kvapi"
	"vigil/internal/edge/rpc/leaseapi"
	"vigil/internal/edge/rpc/lockapi"
	"vigil/internal/edge/rpc/lockpb"
	"vigil/internal/edge/rpc/timesapi"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/edge/rpc/validate"
	"vigil/internal/kv"
)

// serveAll returns all services as the transport serves them.
func (s *Server) serveAll(c *Config) (list []transport.Service) {
	for _, d := range s.services(c) {
		list = append(list, s.gate.Serve(d, rules))
	}
	for _, d := range reflection(list) {
		list = append(list, s.gate.Serve(d, rules))
	}
	return list
}

// services lists the services of the API.
func (s *Server) services(c *Config) []gate.Service {
	keys := kvapi.New(kvapi.Options{
		Store: c.KV, Answers: s.gate, Times: c.Times, Member: c.Member, Deliveries: s.deliveries,
		MaxRequestBytes: c.MaxRequestBytes, MaxTxnOps: c.MaxTxnOps,
	})
	cluster := clusterapi.New(c.Member, c.Cluster)
	list := []gate.Service{
		keys.Service(), s.watches.Service(), s.maintenance.Service(), s.health.Service(),
		cluster.Service(),
	}
	if c.Leases != nil {
		leases := leaseapi.New(leaseapi.Options{
			Leases: c.Leases, Member: c.Member, Deliveries: s.deliveries,
			Writer: &gate.Writer{Store: c.KV, Answers: s.gate, Deliveries: s.deliveries},
		})
		locks := lockapi.New(lockapi.Options{
			KV: c.KV, Watches: s.watches, Waits: s.gate, Member: c.Member,
			Deliveries: s.deliveries, MaxTxnOps: c.MaxTxnOps,
			Cleanup: kv.RequestTimeout(c.ElectionTimeout), Running: s.running, Logger: c.Logger,
		})
		list = append(append(list, leases.Service()), locks.Services()...)
	}
	if c.Times != nil {
		list = append(list, timesapi.Service(c.Times))
	}
	if c.Auth != nil {
		list = append(list, authapi.New(c.Auth, c.Member).Service())
	}
	return list
}

// reflection returns the services that describe the others.
func reflection(services []transport.Service) (list []gate.Service) {
	for _, r := range transport.Reflection(services, lockpb.Files) {
		s := gate.Service{Name: r.Name}
		for _, m := range r.Methods {
			s.Methods = append(s.Methods, gate.Endpoint{
				Name: m.Name, ClientStreams: m.ClientStreams, ServerStreams: m.ServerStreams,
				Stream: m.Stream, ForLearner: true,
			})
		}
		list = append(list, s)
	}
	return list
}

// rules has every method that is served, with the rules of etcd.
var rules = map[string]gate.Rule{
	etcdserverpb.KV_Range_FullMethodName:       {Need: gate.Decided},
	etcdserverpb.KV_RangeStream_FullMethodName: {Need: gate.Decided},
	etcdserverpb.KV_Put_FullMethodName:         {Need: gate.Decided},
	etcdserverpb.KV_DeleteRange_FullMethodName: {Need: gate.Decided},
	etcdserverpb.KV_Txn_FullMethodName:         {Need: gate.Decided},
	etcdserverpb.KV_Compact_FullMethodName:     {Need: gate.Decided},

	etcdserverpb.Watch_Watch_FullMethodName: {Need: gate.Decided},

	etcdserverpb.Lease_LeaseGrant_FullMethodName:      {Need: gate.Decided},
	etcdserverpb.Lease_LeaseRevoke_FullMethodName:     {Need: gate.Decided},
	etcdserverpb.Lease_LeaseKeepAlive_FullMethodName:  {Need: gate.Decided},
	etcdserverpb.Lease_LeaseTimeToLive_FullMethodName: {Need: gate.Decided},
	etcdserverpb.Lease_LeaseLeases_FullMethodName:     {Need: gate.Decided},

	etcdserverpb.Cluster_MemberAdd_FullMethodName: {Need: gate.RootOnly, Valid: func(r any) error {
		if _, ok := validate.PeerURLs(r.(*etcdserverpb.MemberAddRequest).PeerURLs); !ok {
			return rpctypes.ErrGRPCMemberBadURLs
		}
		return nil
	}},
	etcdserverpb.Cluster_MemberRemove_FullMethodName: {Need: gate.RootOnly},
	etcdserverpb.Cluster_MemberUpdate_FullMethodName: {Need: gate.RootOnly},
	etcdserverpb.Cluster_MemberList_FullMethodName: {Of: func(r any) gate.Need {
		if r.(*etcdserverpb.MemberListRequest).Linearizable {
			return gate.AnyUser
		}
		return gate.UserHere
	}},
	etcdserverpb.Cluster_MemberPromote_FullMethodName: {Need: gate.RootOnly},

	etcdserverpb.Maintenance_Alarm_FullMethodName: {Of: func(r any) gate.Need {
		if r.(*etcdserverpb.AlarmRequest).Action == etcdserverpb.AlarmRequest_GET {
			return gate.AnyUser
		}
		return gate.RootOnly
	}},
	etcdserverpb.Maintenance_Status_FullMethodName:     {Need: gate.UserHere},
	etcdserverpb.Maintenance_Defragment_FullMethodName: {Need: gate.RootOnly},
	etcdserverpb.Maintenance_Hash_FullMethodName:       {Need: gate.RootOnly},
	etcdserverpb.Maintenance_HashKV_FullMethodName:     {Need: gate.RootOnly},
	etcdserverpb.Maintenance_Snapshot_FullMethodName:   {Need: gate.RootOnly},
	etcdserverpb.Maintenance_MoveLeader_FullMethodName: {Need: gate.RootOnly},
	etcdserverpb.Maintenance_Downgrade_FullMethodName:  {Need: gate.RootOnly},

	etcdserverpb.Auth_AuthEnable_FullMethodName:           {Need: gate.Decided},
	etcdserverpb.Auth_AuthDisable_FullMethodName:          {Need: gate.Decided},
	etcdserverpb.Auth_AuthStatus_FullMethodName:           {Need: gate.Decided},
	etcdserverpb.Auth_Authenticate_FullMethodName:         {Need: gate.Open},
	etcdserverpb.Auth_UserAdd_FullMethodName:              {Need: gate.Decided},
	etcdserverpb.Auth_UserGet_FullMethodName:              {Need: gate.Decided},
	etcdserverpb.Auth_UserList_FullMethodName:             {Need: gate.Decided},
	etcdserverpb.Auth_UserDelete_FullMethodName:           {Need: gate.Decided},
	etcdserverpb.Auth_UserChangePassword_FullMethodName:   {Need: gate.Decided},
	etcdserverpb.Auth_UserGrantRole_FullMethodName:        {Need: gate.Decided},
	etcdserverpb.Auth_UserRevokeRole_FullMethodName:       {Need: gate.Decided},
	etcdserverpb.Auth_RoleAdd_FullMethodName:              {Need: gate.Decided},
	etcdserverpb.Auth_RoleGet_FullMethodName:              {Need: gate.Decided},
	etcdserverpb.Auth_RoleList_FullMethodName:             {Need: gate.Decided},
	etcdserverpb.Auth_RoleDelete_FullMethodName:           {Need: gate.Decided},
	etcdserverpb.Auth_RoleGrantPermission_FullMethodName:  {Need: gate.Decided},
	etcdserverpb.Auth_RoleRevokePermission_FullMethodName: {Need: gate.Decided},

	// These make the calls above, with the rights of the same user.
	"/" + string(lockpb.Lock.FullName()) + "/Lock":         {Need: gate.Decided},
	"/" + string(lockpb.Lock.FullName()) + "/Unlock":       {Need: gate.Decided},
	"/" + string(lockpb.Election.FullName()) + "/Campaign": {Need: gate.Decided},
	"/" + string(lockpb.Election.FullName()) + "/Proclaim": {Need: gate.Decided},
	"/" + string(lockpb.Election.FullName()) + "/Leader":   {Need: gate.Decided},
	"/" + string(lockpb.Election.FullName()) + "/Observe":  {Need: gate.Decided},
	"/" + string(lockpb.Election.FullName()) + "/Resign":   {Need: gate.Decided},

	"/" + string(lockpb.Times.FullName()) + "/RevisionAt": {Need: gate.Decided},
	"/" + string(lockpb.Times.FullName()) + "/Spans":      {Need: gate.Decided},

	// The list of services reveals nothing about stored data.
	grpc_health_v1.Health_Check_FullMethodName:                       {Need: gate.Open},
	grpc_health_v1.Health_List_FullMethodName:                        {Need: gate.Open},
	grpc_health_v1.Health_Watch_FullMethodName:                       {Need: gate.Open},
	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      {Need: gate.Open},
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": {Need: gate.Open},
}
