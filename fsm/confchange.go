package fsm

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"vigil/cluster"
)

// A configuration change is an entry of its own kind to raft. Its context says what it means to the
// membership: the header of a group of one, then op u8, member id u64, member record.

// ConfChange returns the configuration change that makes c, which is one of Add, Remove, Update and
// Promote. h names it like a group, so that whoever proposed it finds its outcome.
func ConfChange(h Header, c cluster.Change) (*raftpb.ConfChangeV2, error) {
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
	ctx = append(ctx, byte(c.Op))
	ctx = append(ctx, cluster.Record{ID: c.Member.ID}.Key()...)
	ctx = append(ctx, cluster.EncodeMember(c.Member)...)
	PutHeader(ctx, h)
	return &raftpb.ConfChangeV2{
		Changes: []*raftpb.ConfChangeSingle{{Type: typ.Enum(), NodeId: new(c.Member.ID)}},
		Context: ctx,
	}, nil
}

const confChangeHead = HeaderSize + 1 + 8

// confChange applies a configuration change. One that the membership refuses never reaches raft:
// its outcome is the refusal.
func (m *Machine) confChange(data []byte) (Outcome, error) {
	var cc raftpb.ConfChangeV2
	if err := proto.Unmarshal(data, &cc); err != nil {
		return Outcome{}, fmt.Errorf("%w: configuration change: %w", ErrFormat, err)
	}
	if len(cc.GetContext()) == 0 {
		// Raft's own, to leave a joint configuration.
		return Outcome{ConfChange: &cc}, nil
	}
	h, c, err := parseConfChange(cc.GetContext())
	if err != nil {
		return Outcome{}, err
	}
	want, err := ConfChange(h, c)
	if err != nil || !proto.Equal(want, &cc) {
		return Outcome{}, fmt.Errorf("%w: a configuration change that does not match its context", ErrFormat)
	}
	out := Outcome{Header: h, Results: []Result{{}}}
	if err := m.change(c); err != nil {
		if fatal(err) {
			return Outcome{}, err
		}
		out.Results[0].Err = err
		return out, nil
	}
	out.ConfChange = &cc
	return out, nil
}

func parseConfChange(ctx []byte) (Header, cluster.Change, error) {
	bad := fmt.Errorf("%w: context of a configuration change", ErrFormat)
	h, err := ParseHeader(ctx)
	if err != nil {
		return h, cluster.Change{}, err
	}
	if h.Count != 1 || len(ctx) < confChangeHead {
		return h, cluster.Change{}, bad
	}
	var id uint64
	for _, b := range ctx[HeaderSize+1 : confChangeHead] {
		id = id<<8 | uint64(b)
	}
	mem, err := cluster.DecodeMember(id, ctx[confChangeHead:])
	if err != nil {
		return h, cluster.Change{}, bad
	}
	return h, cluster.Change{Op: cluster.Op(ctx[HeaderSize]), Member: mem}, nil
}
