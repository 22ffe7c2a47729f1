package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// leaderConn calls the services of this member. Calls that need a leader wait only handOverTime
// without one. Then a read is answered from the data of this member if its request allows that, and
// everything else is rejected.
type leaderConn struct {
	grpc.ClientConnInterface
	name   string // of this member
	leader func() Leadership
}

// Leadership tells whether a member knows a leader, and if not, since when. Since is zero if it has
// never known one.
type Leadership struct {
	Known bool
	Lost  time.Time
}

// needsLeader lists the calls that need a leader. The value tells whether a call's outcome matters
// if the leader was lost during the call. Reads of keys also need a leader, unless they are
// serializable.
var needsLeader = map[string]struct{ changes bool }{
	etcdserverpb.KV_Range_FullMethodName:       {},
	etcdserverpb.KV_Put_FullMethodName:         {true},
	etcdserverpb.KV_DeleteRange_FullMethodName: {true}, etcdserverpb.KV_Txn_FullMethodName: {true},
	etcdserverpb.KV_Compact_FullMethodName:                {true},
	etcdserverpb.Lease_LeaseRevoke_FullMethodName:         {true},
	etcdserverpb.Lease_LeaseTimeToLive_FullMethodName:     {},
	etcdserverpb.Lease_LeaseLeases_FullMethodName:         {},
	etcdserverpb.Cluster_MemberAdd_FullMethodName:         {true},
	etcdserverpb.Cluster_MemberRemove_FullMethodName:      {true},
	etcdserverpb.Cluster_MemberPromote_FullMethodName:     {true},
	etcdserverpb.Maintenance_Alarm_FullMethodName:         {true},
	etcdserverpb.Maintenance_MoveLeader_FullMethodName:    {true},
	etcdserverpb.Auth_Authenticate_FullMethodName:         {},
	etcdserverpb.Auth_UserGet_FullMethodName:              {},
	etcdserverpb.Auth_UserList_FullMethodName:             {},
	etcdserverpb.Auth_RoleGet_FullMethodName:              {},
	etcdserverpb.Auth_RoleList_FullMethodName:             {},
	etcdserverpb.Auth_UserAdd_FullMethodName:              {true},
	etcdserverpb.Auth_UserDelete_FullMethodName:           {true},
	etcdserverpb.Auth_UserChangePassword_FullMethodName:   {true},
	etcdserverpb.Auth_UserGrantRole_FullMethodName:        {true},
	etcdserverpb.Auth_UserRevokeRole_FullMethodName:       {true},
	etcdserverpb.Auth_RoleAdd_FullMethodName:              {true},
	etcdserverpb.Auth_RoleDelete_FullMethodName:           {true},
	etcdserverpb.Auth_RoleGrantPermission_FullMethodName:  {true},
	etcdserverpb.Auth_RoleRevokePermission_FullMethodName: {true},
	timesMethod("Spans"):                                  {}, timesMethod("RevisionAt"): {},
}

// leaderPause is how often a waiting call checks whether there is a leader.
const leaderPause = 100 * time.Millisecond

// handOverTime is how long after the loss of a leader a call still waits for the next one: a
// hand-over takes that long, or an election after the leader's process has ended.
const handOverTime = 500 * time.Millisecond

// errLeaderLost is the reason for giving up a call.
var errLeaderLost = errors.New("the leader was lost")

// Invoke implements grpc.ClientConnInterface.
func (l *leaderConn) Invoke(ctx context.Context, method string, in, out any,
	opts ...grpc.CallOption) error {
	need, ok := needsLeader[method]
	field := serializableField(in)
	if !ok || field != nil && in.(proto.Message).ProtoReflect().Get(field).Bool() {
		return l.ClientConnInterface.Invoke(ctx, method, in, out, opts...)
	}
	data, _ := ctx.Value(localKey{}).(*localData)
	if !l.lacksLeader() && !data.wasUsed() {
		// The memory of an answer counts until its context ends, so this context ends only without
		// an answer, or with ctx.
		waiting, giveUp := context.WithCancelCause(ctx)
		over := make(chan struct{})
		look := time.AfterFunc(leaderPause, func() { l.awaitLoss(over, giveUp) })
		err := l.ClientConnInterface.Invoke(waiting, method, in, out, opts...)
		look.Stop()
		close(over)
		switch {
		case err == nil || !errors.Is(context.Cause(waiting), errLeaderLost):
			return err
		case need.changes:
			return &failure{Status: http.StatusServiceUnavailable, Code: "leaderless",
				Text: "no leader: it was lost before the answer, and the change may still be made",
				Next: "look at the overview; read again when there is a leader"}
		}
	}
	reason := l.sinceText()
	if field == nil || data == nil {
		return &failure{Status: http.StatusServiceUnavailable, Code: "leaderless",
			Text: "no leader: " + reason + ", and this needs one",
			Next: "look at the overview: it names the members that do not answer. When a majority runs, there is a leader again"}
	}
	data.reason.CompareAndSwap(nil, &reason)
	local := proto.Clone(in.(proto.Message))
	local.ProtoReflect().Set(field, protoreflect.ValueOfBool(true))
	return l.ClientConnInterface.Invoke(ctx, method, local, out, opts...)
}

// serializableField returns the request's field that asks this member to answer alone, nil if there
// is none.
func serializableField(in any) protoreflect.FieldDescriptor {
	if m, ok := in.(proto.Message); ok {
		return m.ProtoReflect().Descriptor().Fields().ByName("serializable")
	}
	return nil
}

// awaitLoss gives a call up when there is no longer a leader, unless the call ends earlier.
func (l *leaderConn) awaitLoss(over <-chan struct{}, giveUp context.CancelCauseFunc) {
	t := time.NewTicker(leaderPause)
	defer t.Stop()
	for !l.lacksLeader() {
		select {
		case <-t.C:
		case <-over:
			return
		}
	}
	giveUp(errLeaderLost)
}

// lacksLeader reports whether there has been no leader for handOverTime or longer.
func (l *leaderConn) lacksLeader() bool {
	led := l.leader()
	if led.Known {
		return false
	}
	lost := time.Since(led.Lost)
	return lost < 0 || lost >= handOverTime // the clock may have been set back
}

// sinceText describes how long there has been no leader.
func (l *leaderConn) sinceText() string {
	led := l.leader()
	if led.Lost.IsZero() {
		return l.name + " has had no leader yet"
	}
	return fmt.Sprintf("%s has had no leader for %v", l.name,
		max(time.Since(led.Lost).Round(time.Second), time.Second))
}

// localData records whether a request was answered from the data of this member, because there is
// no leader.
type localData struct {
	reason atomic.Pointer[string]
}

type localKey struct{}

// wasUsed reports whether a part of a request was answered from local data: the rest must be too.
func (d *localData) wasUsed() bool { return d != nil && d.reason.Load() != nil }

// noteInHeader marks a response with local data in its header.
func (d *localData) noteInHeader(h http.Header) {
	if reason := d.reason.Load(); reason != nil {
		h.Set(localHeader, url.PathEscape(*reason))
	}
}

// localHeader is the reason why a response has local data, which may be old. The text is escaped as
// in a URL: browsers read headers as Latin-1, and the name of a member may have any characters.
const localHeader = "X-Vigil-Local"
