package raftnode

import (
	"testing"
	"testing/synctest"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/wal"
)

// A proposal of another member is taken in the term that it names, and in no other.
func TestForwardedProposalOfAnotherTermIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, newMemLog(wal.Start{Index: 1, Term: 1}), nil)
		synctest.Wait()
		term := m.Status().Term
		for _, d := range []struct {
			term uint64
			data string
		}{{term - 1, "old"}, {term, "now"}, {term + 1, "new"}, {0, "none"}} {
			m.Step(&raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(uint64(2)), To: new(uint64(1)), LogTerm: new(d.term),
				Entries: []*raftpb.Entry{{Data: []byte(d.data)}}})
		}
		synctest.Wait()
		if got := m.applied(); len(got) != 1 || got[0] != "now" {
			t.Errorf("applied %q", got)
		}
	})
}

// No election is held in the term of the entry that a new log begins behind.
func TestFirstElectionIsBehindTheBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, newMemLog(wal.Start{Index: 1, Term: 1}), nil)
		m.propose("a")
		synctest.Wait()
		if st := m.Status(); st.Term != 2 || st.Lead != 1 {
			t.Errorf("%+v", st)
		}
	})
}
