package peer

import (
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// remoteTypes are the types of messages between members. Snapshots travel as bulk transfers; all
// other types stay inside a node.
var remoteTypes = map[raftpb.MessageType]bool{
	raftpb.MsgProp: true, raftpb.MsgApp: true, raftpb.MsgAppResp: true, raftpb.MsgVote: true,
	raftpb.MsgVoteResp: true, raftpb.MsgHeartbeat: true, raftpb.MsgHeartbeatResp: true,
	raftpb.MsgTransferLeader: true, raftpb.MsgTimeoutNow: true, raftpb.MsgReadIndex: true,
	raftpb.MsgReadIndexResp: true, raftpb.MsgPreVote: true, raftpb.MsgPreVoteResp: true,
}

// forwarded reports whether a member forwards messages of a type for another one, whose id they
// keep. A leadership transfer carries the id of the next leader.
func forwarded(t raftpb.MessageType) bool {
	return t == raftpb.MsgProp || t == raftpb.MsgReadIndex || t == raftpb.MsgTransferLeader
}

// appendMessage appends a message as one frame. It fails if that would be larger than a frame.
func appendMessage(b []byte, t frameType, m *raftpb.Message) ([]byte, error) {
	at := len(b)
	out, err := proto.MarshalOptions{}.MarshalAppend(beginFrame(b), m)
	if err != nil {
		return b, err
	}
	if n := len(out) - at - frameHeader; n > maxFrame {
		return b, refuse(CodeTooLarge, "message of type %v with %d bytes, the most is %d",
			m.GetType(), n, maxFrame)
	}
	sealFrame(out[at:], t, 0)
	return out, nil
}

// decodeMessage decodes a message of a lane of the stream between two members. The message does not
// alias b.
func decodeMessage(b []byte, t frameType, from, to uint64) (*raftpb.Message, error) {
	m := &raftpb.Message{}
	if err := proto.Unmarshal(b, m); err != nil {
		return nil, refuse(CodeMalformed, "raft message: %v", err)
	}
	switch typ := m.GetType(); {
	case !remoteTypes[typ]:
		return nil, refuse(CodeMalformed, "raft message of type %v", typ)
	case inLogLane(typ) != (t == frameLog):
		return nil, refuse(CodeMalformed, "raft message of type %v in the wrong lane", typ)
	case m.GetTo() != to:
		return nil, refuse(CodeMalformed, "raft message for member %x", m.GetTo())
	case m.GetFrom() != from && !forwarded(typ):
		return nil, refuse(CodeMalformed, "raft message of type %v from member %x",
			typ, m.GetFrom())
	}
	return m, nil
}
