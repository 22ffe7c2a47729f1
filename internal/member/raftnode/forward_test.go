package raftnode

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/store/wal"
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
			m.Step(&raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(uint64(2)),
				To: new(uint64(1)), LogTerm: new(d.term),
				Entries: []*raftpb.Entry{{Data: []byte(d.data)}}})
		}
		synctest.Wait()
		if got := m.applied(); len(got) != 1 || got[0] != "now" {
			t.Errorf("applied %q", got)
		}
	})
}

// No election is held in the term of the entry after which a new log begins.
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

// A proposal of another member that there is no room for is tried again when there may be, and not
// in each turn: raft logs a warning each time. As many bytes wait as may be uncommitted, and others
// are refused.
func TestProposalsWithoutRoomAreNotTriedInEachTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, lines := &sent{}, &countingLog{}
		m := startMember(t, newMemLog(wal.Start{Index: 1, Term: 1}), func(c *Config) {
			c.ConfState = &raftpb.ConfState{Voters: []uint64{1, 2}}
			c.Transport, c.Logger, c.MaxUncommitted = out, slog.New(lines), 10
		})
		answer := func(m *raftpb.Message, typ raftpb.MessageType) *raftpb.Message {
			return &raftpb.Message{Type: &typ, From: new(uint64(2)),
				To: new(uint64(1)), Term: m.Term}
		}
		for m.Status().Lead != 1 {
			time.Sleep(100 * time.Millisecond)
			for _, v := range out.take() {
				switch v.GetType() {
				case raftpb.MsgPreVote:
					m.Step(answer(v, raftpb.MsgPreVoteResp))
				case raftpb.MsgVote:
					m.Step(answer(v, raftpb.MsgVoteResp))
				}
			}
		}
		term := m.Status().Term
		acknowledge := func() {
			last, _ := m.log.LastIndex()
			a := answer(&raftpb.Message{Term: &term}, raftpb.MsgAppResp)
			a.Index = &last
			m.Step(a)
		}
		synctest.Wait()
		acknowledge()
		synctest.Wait()
		for _, data := range []string{"12345678", "1234", "56789", "wide", "in",
			"long" + strings.Repeat("x", refusedHead)} {
			m.Step(&raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(uint64(2)),
				To: new(uint64(1)), LogTerm: &term,
				Entries: []*raftpb.Entry{{Data: []byte(data)}}})
		}
		synctest.Wait()
		var refused []string
		for _, v := range out.of(raftpb.MsgProp) {
			if v.GetTo() != 2 || v.GetFrom() != 1 || v.GetLogTerm() != term || !v.GetReject() {
				t.Errorf("answer %v", v)
			}
			for _, e := range v.GetEntries() {
				refused = append(refused, string(e.GetData()))
				if n := cap(e.GetData()); n > refusedHead {
					t.Errorf("the refusal keeps %d bytes", n)
				}
			}
		}
		if want := []string{"wide", "in",
			"long" + strings.Repeat("x", refusedHead-4)}; !slices.Equal(refused, want) {
			t.Errorf("refused %q, want %q", refused, want)
		}
		for range 1000 {
			m.Step(answer(&raftpb.Message{Term: &term}, raftpb.MsgHeartbeatResp))
			synctest.Wait()
		}
		if n := lines.warnings.Load(); n > 2 {
			t.Errorf("%d warnings", n)
		}
		for range 10 { // a round to commit one, another to hear that it is applied
			acknowledge()
			synctest.Wait()
		}
		if got := m.applied(); len(got) != 3 {
			t.Errorf("applied %q: what was held is lost", got)
		}
	})
}

// A refusal of the leader reaches the proposals, whatever this member is now.
func TestRefusedProposalIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, newMemLog(wal.Start{Index: 1, Term: 1}), nil)
		synctest.Wait()
		m.Step(&raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(uint64(2)),
			To: new(uint64(1)), LogTerm: new(m.Status().Term), Reject: new(true),
			Entries: []*raftpb.Entry{{Data: []byte("head")}}})
		synctest.Wait()
		m.source.mu.Lock()
		defer m.source.mu.Unlock()
		if got := m.source.mu.refused; !slices.Equal(got, []string{"head"}) ||
			len(m.applied()) != 0 {
			t.Errorf("refused %q, applied %q", got, m.applied())
		}
	})
}

// countingLog counts what is at warning and above.
type countingLog struct{ warnings atomic.Int64 }

func (c *countingLog) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (c *countingLog) Handle(context.Context, slog.Record) error {
	c.warnings.Add(1)
	return nil
}
func (c *countingLog) WithAttrs([]slog.Attr) slog.Handler { return c }
func (c *countingLog) WithGroup(string) slog.Handler      { return c }
