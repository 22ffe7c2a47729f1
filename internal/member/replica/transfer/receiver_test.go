package transfer

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/member/raftnode"
)

// fakeRaft knows a leader.
type fakeRaft struct{ status raftnode.Status }

func (f fakeRaft) Status() raftnode.Status                     { return f.status }
func (fakeRaft) InstallSnapshot(*raftpb.Message) (bool, error) { return true, nil }
func (fakeRaft) ReportSnapshot(uint64, bool)                   {}
func (fakeRaft) ReportUnreachable(uint64)                      {}

// An offer that hashes for a former leader, or for one that no longer waits, does not keep out the
// next one.
func TestSlotOfAFormerLeader(t *testing.T) {
	const leader, term = 3, 5
	r := NewReceiver(Options{Stopping: make(chan struct{})},
		fakeRaft{raftnode.Status{Lead: leader, Term: term}})
	use := func(h holder) (ended chan struct{}) {
		ended = make(chan struct{})
		if !r.tryTakeSlot() {
			t.Fatal("the slot is taken")
		}
		h.end = func() {
			close(ended)
			r.setHolder(nil)
			r.freeSlot()
		}
		r.setHolder(&h)
		return ended
	}
	for _, h := range []holder{
		{from: 7, term: term - 1, offering: true},
		{from: 7, offering: true},
		{from: leader, term: term, offering: true},
		{from: 7, term: term - 1},
	} {
		ended := use(h)
		if err := r.takeSlot(t.Context(), leader); err != nil {
			t.Errorf("%+v: %v", h, err)
		}
		select {
		case <-ended:
		default:
			t.Errorf("%+v goes on", h)
		}
		r.freeSlot()
	}
	use(holder{from: leader, term: term})
	if err := r.takeSlot(t.Context(), leader); err != ErrReceiving {
		t.Errorf("during a transfer of the same leader: %v", err)
	}
	if err := r.takeSlot(t.Context(), 8); err != ErrReceiving {
		t.Errorf("a member that does not lead: %v", err)
	}
}
