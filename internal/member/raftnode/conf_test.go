package raftnode

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/store/wal"
)

// A configuration change that was overwritten in the log is not waited for: the log may stay
// shorter than that for as long as nothing else is written.
func TestAConfChangeThatWasOverwrittenIsNotPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &sent{}
		m := startMember(t, newMemLog(wal.Start{Index: 1, Term: 1}), func(c *Config) {
			c.ConfState = &raftpb.ConfState{Voters: []uint64{1, 2}}
			c.Transport = out
		})
		cc, err := proto.Marshal(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{{
			Type: raftpb.ConfChangeAddLearnerNode.Enum(), NodeId: new(uint64(3))}}})
		if err != nil {
			t.Fatal(err)
		}
		ents := make([]*raftpb.Entry, 0, 20)
		for i := range uint64(20) {
			ents = append(ents, &raftpb.Entry{Index: new(2 + i), Term: new(uint64(2)),
				Data: []byte("x")})
		}
		ents[19].Type, ents[19].Data = raftpb.EntryConfChangeV2.Enum(), cc
		app := func(term uint64, ents []*raftpb.Entry, commit uint64) {
			m.Step(&raftpb.Message{Type: raftpb.MsgApp.Enum(), From: new(uint64(2)),
				To: new(uint64(1)), Term: new(term),
				Index: new(uint64(1)), LogTerm: new(uint64(1)), Entries: ents, Commit: new(commit)})
			synctest.Wait()
		}
		app(2, ents, 1)
		// A leader of a later term has none of them.
		app(3, []*raftpb.Entry{{Index: new(uint64(2)), Term: new(uint64(3))}}, 2)
		m.Step(&raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), From: new(uint64(2)),
			To: new(uint64(1)), Term: new(uint64(3))})
		synctest.Wait()
		m.Step(&raftpb.Message{Type: raftpb.MsgVoteResp.Enum(), From: new(uint64(2)),
			To: new(uint64(1)), Term: new(uint64(4))})
		synctest.Wait()
		m.Step(&raftpb.Message{Type: raftpb.MsgAppResp.Enum(), From: new(uint64(2)),
			To: new(uint64(1)), Term: new(uint64(4)), Index: new(uint64(3))})
		synctest.Wait()
		time.Sleep(200 * time.Millisecond)
		if st := m.Status(); st.Lead != 1 || m.index() != 3 {
			t.Fatalf("%+v, applied %d", st, m.index())
		}
		_, err = m.ProposeConfChange(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{{
			Type: raftpb.ConfChangeAddLearnerNode.Enum(), NodeId: new(uint64(3))}}})
		if errors.Is(err, ErrNotNow) {
			t.Errorf("%v", err)
		}
	})
}
