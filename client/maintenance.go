package client

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

var (
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
)

// Maintenance makes the calls for operators. It is safe for concurrent use, and uses the members
// and the token of its [Client]. Most calls are about the member that answers, which [Client.At]
// chooses.
type Maintenance struct{ c *Client }

// Maintenance returns the calls for operators.
func (c *Client) Maintenance() Maintenance { return Maintenance{c} }

// Status describes a member.
type Status struct {
	// [Header.MemberID] is the ID of the member.
	Header Header
	// Version is the version of the member's program. StorageVersion is the version of its data,
	// empty if the member does not report one.
	Version, StorageVersion string
	// DBSize is the space that the store has on disk, DBSizeInUse the part that is in use, and
	// DBSizeQuota the limit, all in bytes.
	DBSize, DBSizeInUse, DBSizeQuota int64
	// Leader is the ID of the leader that the member knows, 0 if it knows none.
	Leader uint64
	// RaftIndex is the last committed index of the raft log, RaftAppliedIndex the last applied one,
	// and RaftTerm the term.
	RaftIndex, RaftAppliedIndex, RaftTerm uint64
	// IsLearner reports that the member does not vote.
	IsLearner bool
	// Errors are problems of the member, such as raised alarms.
	Errors []string
	// DowngradeTarget is the version of a downgrade in progress, empty if there is none.
	DowngradeTarget string
}

// Status describes the member that answers; see [Client.At].
func (m Maintenance) Status(ctx context.Context) (*Status, error) {
	r, err := ask[etcdserverpb.StatusResponse](ctx, m.c, &statusMethod, "",
		&etcdserverpb.StatusRequest{})
	if err != nil {
		return nil, err
	}
	s := &Status{
		Header: header(r.Header), Version: r.Version, StorageVersion: r.StorageVersion,
		DBSize: r.DbSize, DBSizeInUse: r.DbSizeInUse, DBSizeQuota: r.DbSizeQuota,
		Leader: r.Leader, RaftIndex: r.RaftIndex, RaftAppliedIndex: r.RaftAppliedIndex,
		RaftTerm:  r.RaftTerm,
		IsLearner: r.IsLearner, Errors: r.Errors,
	}
	if d := r.DowngradeInfo; d.GetEnabled() {
		s.DowngradeTarget = d.TargetVersion
	}
	return s, nil
}

// AlarmType is the kind of an [Alarm].
type AlarmType int32

// The types of alarms, with the numbers of the API.
const (
	// AlarmNoSpace: the quota is exceeded, so writes that need space are refused.
	AlarmNoSpace AlarmType = 1
	// AlarmCorrupt: the data of a member are damaged.
	AlarmCorrupt AlarmType = 2
)

// String returns the type as the API writes it, such as NOSPACE.
func (t AlarmType) String() string { return etcdserverpb.AlarmType(t).String() }

// Alarm is a raised alarm.
type Alarm struct {
	// Member is the ID of the member that it is about.
	Member uint64
	Type   AlarmType
}

// Alarms returns the raised alarms.
func (m Maintenance) Alarms(ctx context.Context) ([]Alarm, error) {
	return m.alarm(ctx, &alarmGetMethod, &etcdserverpb.AlarmRequest{})
}

// AlarmDisarm clears an alarm of a member and returns it, or nothing if it was not raised.
func (m Maintenance) AlarmDisarm(ctx context.Context, a Alarm) ([]Alarm, error) {
	return m.alarm(ctx, &alarmSetMethod, &etcdserverpb.AlarmRequest{
		Action: etcdserverpb.AlarmRequest_DEACTIVATE, MemberID: a.Member,
		Alarm: etcdserverpb.AlarmType(a.Type)})
}

func (m Maintenance) alarm(ctx context.Context, by *method,
	r *etcdserverpb.AlarmRequest) (list []Alarm, err error) {
	resp, err := ask[etcdserverpb.AlarmResponse](ctx, m.c, by, "", r)
	for _, a := range resp.GetAlarms() {
		list = append(list, Alarm{a.MemberID, AlarmType(a.Alarm)})
	}
	return list, err
}

// Defragment frees space of the member that answers; see [Client.At].
func (m Maintenance) Defragment(ctx context.Context) (Header, error) {
	return headerOf(ask[etcdserverpb.DefragmentResponse](ctx, m.c, &defragmentMethod, "",
		&etcdserverpb.DefragmentRequest{}))
}

// Hash is the answer of [Maintenance.Hash] and [Maintenance.HashKV].
type Hash struct {
	Header Header
	Hash   uint32
	// CompactRevision and Revision are the compact revision and the last revision that the hash
	// covers. [Maintenance.Hash] does not set them.
	CompactRevision, Revision int64
}

// Hash returns a hash of the whole store of the member that answers; see [Client.At].
func (m Maintenance) Hash(ctx context.Context) (*Hash, error) {
	r, err := ask[etcdserverpb.HashResponse](ctx, m.c, &hashMethod, "", &etcdserverpb.HashRequest{})
	if err != nil {
		return nil, err
	}
	return &Hash{Header: header(r.Header), Hash: r.Hash}, nil
}

// HashKV returns a hash of all keys up to a revision, 0 for the current one, of the member that
// answers; see [Client.At]. Members with equal compact revisions and revisions must have equal
// hashes.
func (m Maintenance) HashKV(ctx context.Context, revision int64) (*Hash, error) {
	r, err := ask[etcdserverpb.HashKVResponse](ctx, m.c, &hashKVMethod, "",
		&etcdserverpb.HashKVRequest{Revision: revision})
	if err != nil {
		return nil, err
	}
	return &Hash{Header: header(r.Header), Hash: r.Hash, CompactRevision: r.CompactRevision,
		Revision: r.HashRevision}, nil
}

// MoveLeader makes another member the leader. Only the leader accepts it; see [Client.At].
func (m Maintenance) MoveLeader(ctx context.Context, to uint64) (Header, error) {
	return headerOf(ask[etcdserverpb.MoveLeaderResponse](ctx, m.c, &moveLeaderMethod, "",
		&etcdserverpb.MoveLeaderRequest{TargetID: to}))
}

// DowngradeAction is what [Maintenance.Downgrade] does.
type DowngradeAction int32

// The actions of downgrades, with the numbers of the API.
const (
	// DowngradeValidate only checks whether the downgrade is possible.
	DowngradeValidate DowngradeAction = iota
	// DowngradeEnable starts a downgrade, [DowngradeCancel] ends it.
	DowngradeEnable
	DowngradeCancel
)

// Downgrade checks, enables or cancels a downgrade of the cluster to a version. It returns the
// current version of the cluster.
func (m Maintenance) Downgrade(ctx context.Context, action DowngradeAction,
	version string) (current string, err error) {
	by := &downgradeMethod
	if action == DowngradeValidate {
		by = &mayDowngradeMethod
	}
	r, err := ask[etcdserverpb.DowngradeResponse](ctx, m.c, by, "", &etcdserverpb.DowngradeRequest{
		Action: etcdserverpb.DowngradeRequest_DowngradeAction(action), Version: version})
	return r.GetVersion(), err
}
