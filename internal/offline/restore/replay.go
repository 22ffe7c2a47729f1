package restore

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/edge/rpc/wire"
	"vigil/internal/kv"
	"vigil/internal/offline/datadir"
	"vigil/internal/state/auth"
	"vigil/internal/state/fsm"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
)

// A member of etcd writes its database ten times a second. Later entries are acknowledged and only
// in its raft log. They are applied here as etcd would apply them at its next start, with the state
// machine, whose rules are etcd's.
//
// All entries of the log are applied, also those that are not known to be committed: in a cluster
// of one member all of them are, and in a larger cluster it is not known, because a commit is
// recorded with the next write. No client received an error for any of them.

// replayed is the outcome of a replay.
type replayed struct {
	contents          *fsm.Contents // everything except the records
	revision, compact int64
	rejected          []Rejected
}

// replay applies entries to the store in log.
func replay(ctx context.Context, log *history.Log, entries []*raftpb.Entry,
	skipRejected bool) (out replayed, err error) {
	store, err := mvcc.Open(log, mvcc.Options{})
	if err != nil {
		return out, err
	}
	defer store.Close()
	m, err := fsm.New(log, store)
	if err != nil {
		return out, err
	}
	r := replayer{m: m}
	r.setProposer()
	for i, e := range entries {
		if err := r.applyRequest(e); err != nil {
			return out, fmt.Errorf("entry %d of the raft log: %w", e.GetIndex(), err)
		}
		if i%256 == 255 || i == len(entries)-1 || m.Pending() >= fsm.DefaultBatchBytes {
			if _, err := m.Commit(history.Applied{}); err != nil {
				return out, err
			}
			if err := ctx.Err(); err != nil {
				return out, err
			}
		}
	}
	out.rejected = r.rejected
	if len(r.rejected) > 0 && !skipRejected {
		return out, r.rejected.asError()
	}
	out.revision, out.compact = store.Revision(), store.CompactRevision()
	if out.revision > maxRevision {
		return out, fmt.Errorf("revision %d is more than %d", out.revision, int64(maxRevision))
	}
	out.contents, err = fsm.ReadContents(log.AllMeta())
	return out, err
}

// replayer converts entries of etcd to entries of the state machine, and applies them.
type replayer struct {
	m *fsm.Machine
	// proposer is the proposer of every request: a member with an alarm CORRUPT if there is one,
	// because etcd then rejects all requests.
	proposer uint64
	rejected rejections
}

// setProposer sets the proposer by the active alarms.
func (r *replayer) setProposer() {
	r.proposer = 0
	for _, a := range r.m.Alarms() {
		if a.Type == kv.AlarmCorrupt {
			r.proposer = a.MemberID
		}
	}
}

// applyRequest applies the request in an entry. The result of the request matters only if it was
// rejected for a limit that etcd does not have.
func (r *replayer) applyRequest(e *raftpb.Entry) error {
	if e.GetType() != raftpb.EntryNormal || len(e.GetData()) == 0 {
		return nil // a change of the old membership
	}
	in, err := decodeEntry(e.GetData())
	if err != nil || in == nil {
		return err
	}
	req, err := r.convert(in)
	if err != nil || req == nil {
		return err
	}
	if err := req.CheckKeys(); err != nil {
		r.rejected.count(e.GetIndex(), req, err)
		return nil
	}
	group, err := fsm.AppendRequest(fsm.AppendHeader(nil), req)
	if err != nil {
		return err
	}
	fsm.PutHeader(group, fsm.GroupHeader{Proposer: r.proposer, Count: 1})
	entry := &raftpb.Entry{Index: &datadir.First.Index, Term: &datadir.First.Term, Data: group}
	_, err = applyEntry(r.m, entry, func(out *fsm.Outcome) bool {
		if isOwnLimit(out.Result.Err) {
			r.rejected.count(e.GetIndex(), req, out.Result.Err)
		}
		return false
	})
	if err != nil {
		return err
	}
	if req.Alarm != nil {
		r.setProposer()
	}
	return nil
}

// convert converts a request of etcd to one of the state machine; nil if it changes nothing here.
func (r *replayer) convert(in *etcdserverpb.InternalRaftRequest) (*fsm.Request, error) {
	req := &fsm.Request{}
	if h := in.Header; h != nil {
		req.Identity = auth.Identity{User: h.Username, Revision: h.AuthRevision}
	}
	switch {
	case in.Put != nil:
		var m wire.PutRequest
		req.Put = &m.PutRequest
		return req, decode(in.Put, &m)
	case in.DeleteRange != nil:
		var m wire.DeleteRangeRequest
		req.DeleteRange = &m.DeleteRangeRequest
		return req, decode(in.DeleteRange, &m)
	case in.Txn != nil:
		var m wire.TxnRequest
		req.Txn = &m.TxnRequest
		return req, decode(in.Txn, &m)
	case in.Compaction != nil:
		req.Compact = &kv.CompactRequest{Revision: in.Compaction.Revision}
	case in.LeaseGrant != nil:
		req.LeaseGrant = &kv.LeaseGrantRequest{ID: in.LeaseGrant.ID, TTL: in.LeaseGrant.TTL}
	case in.LeaseRevoke != nil:
		req.LeaseRevoke = &kv.LeaseRevokeRequest{ID: in.LeaseRevoke.ID}
	case in.LeaseCheckpoint != nil:
		req.LeaseCheckpoint = r.convertCheckpoint(in.LeaseCheckpoint)
	case in.Alarm != nil:
		a := in.Alarm
		if a.Action == etcdserverpb.AlarmRequest_GET {
			return nil, nil
		}
		req.Alarm = &kv.AlarmChange{Alarm: kv.Alarm{Type: kv.AlarmType(a.Alarm),
			MemberID: a.MemberID},
			Clear: a.Action == etcdserverpb.AlarmRequest_DEACTIVATE}
	default:
		var err error
		if req.Auth, err = authRequest(in); req.Auth == nil || err != nil {
			return nil, err
		}
	}
	return req, nil
}

// decode decodes a message of etcd with the decoder of package wire.
func decode(m proto.Message, into wire.Decoder) error {
	b, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	return into.Decode(b)
}

func (r *replayer) convertCheckpoint(in *etcdserverpb.LeaseCheckpointRequest) *kv.LeaseCheckpointRequest {
	out := &kv.LeaseCheckpointRequest{Term: datadir.First.Term}
	for _, c := range in.Checkpoints {
		if l, ok := r.m.Leases().Lookup(c.ID); ok {
			out.Checkpoints = append(out.Checkpoints,
				kv.LeaseCheckpoint{LeaseRef: l.LeaseRef, Remaining: c.Remaining_TTL,
					Since: l.Since})
		}
	}
	return out
}

var errPlainPassword = errors.New("it sets a password that is not hashed, as members before etcd 3.5 do: start the member once, so that the password reaches its database, and take a snapshot with etcdctl snapshot save")

// authRequest converts a change of users and roles; nil for another request. Tokens are valid only
// in the cluster that has issued them.
func authRequest(in *etcdserverpb.InternalRaftRequest) (*kv.AuthRequest, error) {
	switch {
	case in.AuthEnable != nil:
		return &kv.AuthRequest{Op: kv.AuthEnable}, nil
	case in.AuthDisable != nil:
		return &kv.AuthRequest{Op: kv.AuthDisable}, nil
	case in.AuthUserAdd != nil:
		u := in.AuthUserAdd
		if u.Password != "" && u.HashedPassword == "" {
			return nil, errPlainPassword
		}
		return &kv.AuthRequest{Op: kv.UserAdd, User: u.Name, Hash: u.HashedPassword,
			NoPassword: u.Options.GetNoPassword()}, nil
	case in.AuthUserDelete != nil:
		return &kv.AuthRequest{Op: kv.UserDelete, User: in.AuthUserDelete.Name}, nil
	case in.AuthUserChangePassword != nil:
		u := in.AuthUserChangePassword
		if u.Password != "" && u.HashedPassword == "" {
			return nil, errPlainPassword
		}
		return &kv.AuthRequest{Op: kv.UserChangePassword, User: u.Name, Hash: u.HashedPassword}, nil
	case in.AuthUserGrantRole != nil:
		return &kv.AuthRequest{Op: kv.UserGrantRole, User: in.AuthUserGrantRole.User,
			Role: in.AuthUserGrantRole.Role}, nil
	case in.AuthUserRevokeRole != nil:
		return &kv.AuthRequest{Op: kv.UserRevokeRole, User: in.AuthUserRevokeRole.Name,
			Role: in.AuthUserRevokeRole.Role}, nil
	case in.AuthRoleAdd != nil:
		return &kv.AuthRequest{Op: kv.RoleAdd, Role: in.AuthRoleAdd.Name}, nil
	case in.AuthRoleDelete != nil:
		return &kv.AuthRequest{Op: kv.RoleDelete, Role: in.AuthRoleDelete.Role}, nil
	case in.AuthRoleGrantPermission != nil:
		g := &kv.AuthRequest{Op: kv.RoleGrantPermission, Role: in.AuthRoleGrantPermission.Name}
		if p := in.AuthRoleGrantPermission.Perm; p != nil {
			g.Permission = kv.Permission{Type: kv.PermissionType(p.PermType), Key: p.Key,
				End: p.RangeEnd}
		}
		return g, nil
	case in.AuthRoleRevokePermission != nil:
		p := in.AuthRoleRevokePermission
		return &kv.AuthRequest{Op: kv.RoleRevokePermission, Role: p.Role,
			Permission: kv.Permission{Key: p.Key, End: p.RangeEnd}}, nil
	}
	return nil, nil
}
