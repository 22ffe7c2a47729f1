package rpc

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/internal/edge/rpc/lockpb"
	"vigil/internal/edge/rpc/locks"
	"vigil/internal/edge/rpc/times"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/edge/rpc/wire"
	"vigil/internal/kv"
)

// serviceDef is a service with the functions that implement its methods.
type serviceDef struct {
	name    string
	methods []endpoint
}

// endpoint is one method as its service implements it: one of unary, stream and session is set.
type endpoint struct {
	name                         string
	clientStreams, serverStreams bool

	newRequest func() any
	free       func(request any) // of transport.Method; nil if requests are not used again
	unary      func(ctx context.Context, request any) (response any, err error)
	stream     func(*serverStream) error
	session    func() served

	// begin and finish, if set, serve a unary request without a handler: begin answers or starts a
	// call, finish makes the answer of its outcome.
	begin  func(ctx context.Context, request any, p transport.Pending) (response any, how transport.Begun)
	finish func(ctx context.Context, o *kv.Outcome) (response any, err error)
	// mayDecline: a request that was started may go to the handler after all.
	mayDecline bool

	// learnerAnswers reports whether a learner answers a unary request; nil means that it does not.
	learnerAnswers func(request any) bool
}

// kind returns the name of the kind of method in metrics.
func (e *endpoint) kind() string {
	switch {
	case e.clientStreams && e.serverStreams:
		return "bidi_stream"
	case e.clientStreams:
		return "client_stream"
	case e.serverStreams:
		return "server_stream"
	}
	return "unary"
}

// unary returns a unary method with requests of one type.
func unary[Request, Response any](name string, call func(context.Context, *Request) (Response, error)) endpoint {
	return endpoint{
		name:       name,
		newRequest: func() any { return new(Request) },
		unary:      func(ctx context.Context, r any) (any, error) { return call(ctx, r.(*Request)) },
	}
}

// serverStreaming returns a method that answers one request with many messages.
func serverStreaming[Request any](name string, serve func(*Request, *serverStream) error) endpoint {
	return endpoint{name: name, serverStreams: true, stream: func(ss *serverStream) error {
		r := new(Request)
		if err := ss.RecvMsg(r); err != nil {
			return err
		}
		return serve(r, ss)
	}}
}

// services are the services of the API.
func (s *service) services() []serviceDef {
	m, c, l, a := &maintenance{svc: s}, &clusterServer{svc: s}, &leaseServer{svc: s}, &authServer{svc: s}
	get := unary("Range", s.kvRange)
	get.learnerAnswers = func(r any) bool { return r.(*wire.RangeRequest).Serializable }
	if s.cfg.Starter != nil {
		get.begin, get.mayDecline = s.beginRange, true
		get.finish = func(_ context.Context, o *kv.Outcome) (any, error) {
			return &wire.RangeResponse{Header: s.header(o.Range.Revision), Result: o.Range}, nil
		}
		get.newRequest = func() any { return wire.NewRangeRequest() }
		get.free = func(r any) { r.(*wire.RangeRequest).Free() }
	}
	txn := writes(s, "Txn", s.txnWrite, s.txnAnswer)
	txn.newRequest = func() any {
		r := new(wire.TxnRequest)
		r.LimitOps(s.cfg.MaxTxnOps)
		return r
	}
	list := []serviceDef{
		{etcdserverpb.KV_ServiceDesc.ServiceName, []endpoint{
			get, writes(s, "Put", s.putWrite, s.putAnswer), writes(s, "DeleteRange", s.deleteWrite, s.deleteAnswer), txn,
			unary("Compact", s.kvCompact),
			serverStreaming("RangeStream", func(r *wire.RangeRequest, ss *serverStream) error {
				return s.kvRangeStream(ss.Context(), r, func(m wire.Encoder) error { return ss.SendMsg(m) })
			}),
		}},
		{etcdserverpb.Watch_ServiceDesc.ServiceName, []endpoint{
			{name: "Watch", clientStreams: true, serverStreams: true, newRequest: func() any { return new(wire.WatchRequest) }, session: func() served { return &watchSession{} }},
		}},
		{etcdserverpb.Maintenance_ServiceDesc.ServiceName, []endpoint{
			unary("Alarm", m.Alarm), unary("Status", m.Status), unary("Defragment", m.Defragment), unary("Hash", m.Hash),
			unary("HashKV", m.HashKV), serverStreaming("Snapshot", m.Snapshot), unary("MoveLeader", m.MoveLeader), unary("Downgrade", m.Downgrade),
		}},
		{etcdserverpb.Cluster_ServiceDesc.ServiceName, []endpoint{
			unary("MemberAdd", c.MemberAdd), unary("MemberRemove", c.MemberRemove), unary("MemberUpdate", c.MemberUpdate),
			unary("MemberList", c.MemberList), unary("MemberPromote", c.MemberPromote),
		}},
	}
	if s.cfg.Leases != nil {
		lk := locks.New(s.running, lockStore{s}, kv.RequestTimeout(s.cfg.ElectionTimeout), s.log)
		list = append(list, serviceDef{etcdserverpb.Lease_ServiceDesc.ServiceName, []endpoint{
			writes(s, "LeaseGrant", l.grantWrite, l.grantAnswer), unary("LeaseRevoke", l.LeaseRevoke),
			{name: "LeaseKeepAlive", clientStreams: true, serverStreams: true,
				newRequest: func() any { return new(wire.LeaseKeepAliveRequest) }, session: func() served { return &leaseSession{} }},
			unary("LeaseTimeToLive", l.LeaseTimeToLive), unary("LeaseLeases", l.LeaseLeases),
		}}, s.dynamicService(lockpb.Lock, lk.Lock()), s.dynamicService(lockpb.Election, lk.Election()))
	}
	if s.cfg.Times != nil {
		list = append(list, s.dynamicService(lockpb.Times, locks.Calls{Unary: times.Calls(s.cfg.Times)}))
	}
	if s.cfg.Auth != nil {
		list = append(list, serviceDef{etcdserverpb.Auth_ServiceDesc.ServiceName, []endpoint{
			unary("AuthEnable", a.AuthEnable), unary("AuthDisable", a.AuthDisable), unary("AuthStatus", a.AuthStatus),
			unary("Authenticate", a.Authenticate), unary("UserAdd", a.UserAdd), unary("UserGet", a.UserGet),
			unary("UserList", a.UserList), unary("UserDelete", a.UserDelete), unary("UserChangePassword", a.UserChangePassword),
			unary("UserGrantRole", a.UserGrantRole), unary("UserRevokeRole", a.UserRevokeRole), unary("RoleAdd", a.RoleAdd),
			unary("RoleGet", a.RoleGet), unary("RoleList", a.RoleList), unary("RoleDelete", a.RoleDelete),
			unary("RoleGrantPermission", a.RoleGrantPermission), unary("RoleRevokePermission", a.RoleRevokePermission),
		}})
	}
	return list
}
