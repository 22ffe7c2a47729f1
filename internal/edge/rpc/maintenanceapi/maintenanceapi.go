// Package maintenanceapi implements the Maintenance service: status, alarms, checksums, snapshots,
// and changes of the leader and of the API level. Most of its answers describe this member alone.
package maintenanceapi

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/gate"
	"vigil/internal/kv"
)

// Member is the state of the member. All methods except Reclaim return at once.
type Member interface {
	// Header returns the header of a response at the present revision.
	Header() kv.Header
	// Leader is the id of the leader, 0 if there is none.
	Leader() uint64
	IsLearner() bool
	Status() Status
	// Reclaim starts to free the disk space of compacted data, and returns when that space counts
	// as free.
	Reclaim(context.Context) error
}

// Alarms raises, clears and lists alarms. Errors are kv's.
type Alarms interface {
	// Alarms lists the active alarms as of a moment after the call began.
	Alarms(context.Context) ([]kv.Alarm, error)
	// ChangeAlarm raises or clears an alarm. The result is nil if there was nothing to do: an alarm
	// that was not active was cleared, or an alarm without a type.
	ChangeAlarm(context.Context, kv.AlarmChange) (*kv.Alarm, error)
}

// Hasher computes checksums of this member's data. A call may take seconds; it ends with its
// context.
type Hasher interface {
	// HashKV hashes the history up to a revision, 0 for the newest, like etcd.
	HashKV(ctx context.Context, revision int64) (kv.HashResult, error)
	// Hash hashes the present state.
	Hash(context.Context) (kv.HashResult, error)
}

// Mover moves leadership.
type Mover interface {
	// MoveLeader returns when the member to leads.
	MoveLeader(ctx context.Context, to uint64) error
}

// Options are what New needs.
type Options struct {
	Member Member
	Alarms Alarms
	Hasher Hasher
	// Mover, Versions and Snapshots may be nil: then their methods answer Unimplemented.
	Mover     Mover
	Versions  Versions
	Snapshots Snapshots
	// Seconds observes how long clients take to fetch a snapshot.
	Seconds prometheus.Observer
	Logger  *slog.Logger
}

// API implements the service.
type API struct {
	o Options
	// Sending has the snapshots that are being sent.
	Sending Sending
}

// New returns the service.
func New(o Options) *API { return &API{o: o, Sending: newSending()} }

// Service lists the methods. A learner answers Status and Snapshot.
func (a *API) Service() gate.Service {
	st, snapshot := gate.Unary("Status", a.status), gate.ServerStreaming("Snapshot", a.snapshot)
	st.ForLearner, snapshot.ForLearner = true, true
	snapshot.Seconds = a.o.Seconds
	return gate.Service{Name: pb.Maintenance_ServiceDesc.ServiceName, Methods: []gate.Endpoint{
		st, snapshot, gate.Unary("Alarm", a.alarm), gate.Unary("Defragment", a.defragment),
		gate.Unary("Hash", a.hash), gate.Unary("HashKV", a.hashKV),
		gate.Unary("MoveLeader", a.moveLeader),
		gate.Unary("Downgrade", a.downgrade),
	}}
}

// header returns the header of an answer.
func (a *API) header() *pb.ResponseHeader { return gate.Header(a.o.Member.Header()) }

// headerAt returns the header of an answer that was made at a revision.
func (a *API) headerAt(revision int64) *pb.ResponseHeader {
	return gate.Header(a.o.Member.Header().At(revision))
}

// hashKV answers for this member only; the header has its revision.
func (a *API) hashKV(ctx context.Context, r *pb.HashKVRequest) (*pb.HashKVResponse, error) {
	res, err := a.o.Hasher.HashKV(ctx, r.Revision)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &pb.HashKVResponse{Header: a.headerAt(res.Revision), Hash: res.Hash,
		CompactRevision: res.CompactRevision, HashRevision: res.HashRevision}, nil
}

// hash answers with a checksum that is comparable only with other members of this program at the
// same revision: etcd computes its checksum over the pages of its database.
func (a *API) hash(ctx context.Context, _ *pb.HashRequest) (*pb.HashResponse, error) {
	res, err := a.o.Hasher.Hash(ctx)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &pb.HashResponse{Header: a.headerAt(res.Revision), Hash: res.Hash}, nil
}

// defragment starts to free the space of compacted data, and returns when that space counts as
// free, so that a following put is not rejected for it. The files shrink in the background, which
// also happens without this call.
func (a *API) defragment(ctx context.Context,
	_ *pb.DefragmentRequest) (*pb.DefragmentResponse, error) {
	if err := a.o.Member.Reclaim(ctx); err != nil {
		return nil, apierror.Status(err)
	}
	return &pb.DefragmentResponse{}, nil
}

// moveLeader is answered by the leader only, without a header.
func (a *API) moveLeader(ctx context.Context,
	r *pb.MoveLeaderRequest) (*pb.MoveLeaderResponse, error) {
	if a.o.Mover == nil {
		return nil, status.Error(codes.Unimplemented, "this member's cluster cannot be changed")
	}
	if a.o.Member.Leader() != a.o.Member.Header().MemberID {
		return nil, rpctypes.ErrGRPCNotLeader
	}
	if err := a.o.Mover.MoveLeader(ctx, r.TargetID); err != nil {
		return nil, apierror.Status(err)
	}
	return &pb.MoveLeaderResponse{}, nil
}

// alarm lists alarms, raises one or clears one. The type NONE means every type in a list, and
// nothing when raising or clearing. The member matters only when raising or clearing, and need not
// exist. The answer contains an alarm that is active after raising it, or was active before
// clearing it.
func (a *API) alarm(ctx context.Context, r *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	res := &pb.AlarmResponse{}
	asked := kv.Alarm{MemberID: r.MemberID, Type: kv.AlarmType(r.Alarm)}
	switch r.Action {
	case pb.AlarmRequest_GET:
		list, err := a.o.Alarms.Alarms(ctx)
		if err != nil {
			return nil, apierror.Status(err)
		}
		for _, x := range list {
			if asked.Type == kv.AlarmNone || asked.Type == x.Type {
				res.Alarms = append(res.Alarms, encodeAlarm(x))
			}
		}
	case pb.AlarmRequest_ACTIVATE, pb.AlarmRequest_DEACTIVATE:
		got, err := a.o.Alarms.ChangeAlarm(ctx,
			kv.AlarmChange{Alarm: asked, Clear: r.Action == pb.AlarmRequest_DEACTIVATE})
		if err != nil {
			return nil, apierror.Status(err)
		}
		if got != nil {
			res.Alarms = append(res.Alarms, encodeAlarm(*got))
		}
	}
	// The header last: it is at least as new as the answer.
	res.Header = a.header()
	return res, nil
}

func encodeAlarm(a kv.Alarm) *pb.AlarmMember {
	return &pb.AlarmMember{MemberID: a.MemberID, Alarm: pb.AlarmType(a.Type)}
}
