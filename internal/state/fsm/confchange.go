package fsm

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/raft/v3/confchange"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"vigil/internal/state/auth"
	"vigil/internal/state/cluster"
)

// A configuration change is an entry of its own type in raft. Its context is the change of the
// membership: the header of a group of one, then op u8, member id u64, member record. If op has the
// bit opLimits, the limits of the proposer precede the record: strict u8, most learners u32.
// Numbers are big endian. If op has the bit opIdentity, the identity of the proposer precedes the
// record as AppendIdentity writes it.
const (
	opLimits       = 0x80
	opIdentity     = 0x40
	confLimitsSize = 1 + 4
)

// ConfChange returns the configuration change for c, which is one of Add, Remove, Update and
// Promote, and is made in the name of who. h identifies it as it does a group, so that its proposer
// finds the outcome.
func ConfChange(h GroupHeader, c cluster.Change, who auth.Identity) (*raftpb.ConfChangeV2, error) {
	var typ raftpb.ConfChangeType
	switch c.Op {
	case cluster.Add:
		typ = raftpb.ConfChangeAddNode
		if c.Member.Learner {
			typ = raftpb.ConfChangeAddLearnerNode
		}
	case cluster.Promote:
		typ = raftpb.ConfChangeAddNode
	case cluster.Remove:
		typ = raftpb.ConfChangeRemoveNode
	case cluster.Update:
		typ = raftpb.ConfChangeUpdateNode
	default:
		return nil, fmt.Errorf("fsm: %d is no configuration change", c.Op)
	}
	h.Count = 1
	ctx := AppendHeader(nil)
	op := byte(c.Op)
	if c.Strict || c.MaxLearners > 0 {
		op |= opLimits
	}
	if who != (auth.Identity{}) {
		op |= opIdentity
	}
	ctx = append(ctx, op)
	ctx = append(ctx, cluster.Record{ID: c.Member.ID}.Key()...)
	if op&opLimits != 0 {
		strict := byte(0)
		if c.Strict {
			strict = 1
		}
		ctx = append(ctx, strict)
		ctx = binary.BigEndian.AppendUint32(ctx, c.MaxLearners)
	}
	if op&opIdentity != 0 {
		ctx = AppendIdentity(ctx, who)
	}
	ctx = append(ctx, cluster.EncodeMember(c.Member)...)
	PutHeader(ctx, h)
	return &raftpb.ConfChangeV2{
		Changes: []*raftpb.ConfChangeSingle{{Type: typ.Enum(), NodeId: new(c.Member.ID)}},
		Context: ctx,
	}, nil
}

// openConfChange decodes a configuration change.
func (e *Entry) openConfChange() (err error) {
	e.kind, e.conf = entryConfChange, &raftpb.ConfChangeV2{}
	if err := proto.Unmarshal(e.entry.GetData(), e.conf); err != nil {
		return fmt.Errorf("%w: configuration change: %w", ErrFormat, err)
	}
	if len(e.conf.GetContext()) == 0 {
		return nil // raft's own, to leave a joint configuration
	}
	if e.header, e.change, e.who, err = parseConfChange(e.conf.GetContext()); err != nil {
		return err
	}
	want, err := ConfChange(e.header, e.change, e.who)
	if err != nil || !proto.Equal(want, e.conf) {
		return fmt.Errorf("%w: a configuration change that does not match its context", ErrFormat)
	}
	return nil
}

// applyConfChange applies a configuration change. It does not pass a change to raft that its
// proposer may not make, or that the membership or raft's configuration rejects, because raft would
// panic on some changes: for raft, the entry is empty.
func (e *Entry) applyConfChange() (*Outcome, error) {
	m := e.m
	conf, refusal := nextConf(m.conf, e.conf)
	if len(e.conf.GetContext()) == 0 {
		if refusal != nil {
			return nil, nil
		}
	} else {
		next, rec, err := m.members.Change(e.change)
		if err == nil {
			err = refusal
		}
		if denied := m.auth.state.CheckAdmin(e.who); denied != nil {
			err = denied
		}
		if err != nil {
			e.outcome = Outcome{Result: Result{Err: err}}
			return &e.outcome, nil
		}
		if err := m.setMembers(next, rec); err != nil {
			return nil, err
		}
		if e.change.Op == cluster.Remove {
			// Nothing else that is replicated names a member.
			if err := m.clearAlarms(e.change.Member.ID); err != nil {
				return nil, err
			}
		}
	}
	e.outcome = Outcome{ConfChange: e.conf}
	return &e.outcome, m.setConf(conf)
}

// nextConf returns raft's configuration after a change, or why the change is invalid. It uses the
// stored configuration and not raft's own, which is newer while a snapshot is not installed yet.
func nextConf(conf *raftpb.ConfState, cc *raftpb.ConfChangeV2) (*raftpb.ConfState, error) {
	// The progress of members is not used: any last index is valid.
	changer := confchange.Changer{Tracker: tracker.MakeProgressTracker(1, 0), LastIndex: 1}
	cfg, progress, err := confchange.Restore(changer, conf)
	if err != nil {
		return nil, fmt.Errorf("fsm: raft's configuration: %w", err)
	}
	changer.Tracker.Config, changer.Tracker.Progress = cfg, progress
	if cc.LeaveJoint() {
		cfg, _, err = changer.LeaveJoint()
	} else if autoLeave, ok := cc.EnterJoint(); ok {
		cfg, _, err = changer.EnterJoint(autoLeave, cc.GetChanges()...)
	} else {
		cfg, _, err = changer.Simple(cc.GetChanges()...)
	}
	if err != nil {
		return nil, fmt.Errorf("fsm: raft's configuration: %w", err)
	}
	changer.Tracker.Config = cfg
	return changer.Tracker.ConfState(), nil
}

func parseConfChange(ctx []byte) (h GroupHeader, c cluster.Change, who auth.Identity, err error) {
	bad := fmt.Errorf("%w: context of a configuration change", ErrFormat)
	if h, err = ParseHeader(ctx); err != nil {
		return h, c, who, err
	}
	if h.Count != 1 || len(ctx) < HeaderSize+1+8 {
		return h, c, who, bad
	}
	ctx = ctx[HeaderSize:]
	op := ctx[0]
	c.Op = cluster.ChangeOp(op &^ (opLimits | opIdentity))
	id := binary.BigEndian.Uint64(ctx[1:])
	ctx = ctx[1+8:]
	if op&opLimits != 0 {
		if len(ctx) < confLimitsSize || ctx[0] > 1 {
			return h, c, who, bad
		}
		c.Strict, c.MaxLearners = ctx[0] == 1, binary.BigEndian.Uint32(ctx[1:])
		ctx = ctx[confLimitsSize:]
	}
	if op&opIdentity != 0 {
		if who, ctx, err = ParseIdentity(ctx); err != nil {
			return h, c, who, bad
		}
	}
	if c.Member, err = cluster.DecodeMember(id, ctx); err != nil {
		return h, c, who, bad
	}
	return h, c, who, nil
}
