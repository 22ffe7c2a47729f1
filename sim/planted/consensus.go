package planted

// consensus are mistakes of the log's replication, of proposals and of elections.
var consensus = []Mistake{
	{Name: "hung-leader", Profile: "hangs",
		Promise: "a leader that does not append or apply within an election timeout is replaced",
		Needs:   "a disk that hangs", Past: true, Edits: []Edit{
			{"internal/member/raftnode/progress.go", "\tc.relieve(still, due)\n", "\t_ = due\n"},
		}},
	{Name: "late-forward", Profile: "forwards", Promise: "a forwarded proposal is applied once",
		Needs: "leader transfers", Edits: []Edit{
			{"internal/member/raftnode/forward.go",
				"st.RaftState != raft.StateLeader || st.HardState.GetTerm() != m.GetLogTerm()",
				"st.RaftState != raft.StateLeader"},
		}},
	{Name: "lost-vote", Profile: "votes", Promise: "a member votes once in a term",
		Needs: "power failure of the voters", Edits: []Edit{
			{"internal/member/raftnode/append.go",
				"must = next.GetTerm() != a.hard.GetTerm() || next.GetVote() != a.hard.GetVote()",
				"must = false"},
		}},
	{Name: "early-response", Profile: "acks",
		Promise: "a member acknowledges entries after it has synced them",
		Needs:   "power failures, slow disks", Edits: []Edit{
			{"internal/member/raftnode/append.go",
				"\twritten, left, err := a.appendQueued(&n.appends, prompt)\n",
				"\ta.ahead = n.send\n\twritten, left, err := a.appendQueued(&n.appends, prompt)\n"},
			{"internal/member/raftnode/append.go", "type appender struct {\n",
				"type appender struct {\n\tahead func([]*raftpb.Message)\n"},
			{"internal/member/raftnode/append.go", "\tif prompt {\n",
				"\ta.ahead(a.remote)\n\ta.remote = a.remote[:0]\n\tif prompt {\n"},
		}},
	{Name: "early-requeue",
		Promise: "a proposal is made again only when the log cannot have it any more",
		Needs:   "elections", Edits: []Edit{
			{"internal/member/replica/proposal/queue.go", "case g.term == 0 || g.term >= term:",
				"case g.term == 0:"},
		}},
	{Name: "known-sequence", Profile: "begins",
		Promise: "a result goes to the request that it belongs to, also after a restart",
		Needs:   "kills", Edits: []Edit{
			{"internal/member/replica/proposal/queue.go",
				"q.mu.seq = binary.LittleEndian.Uint64(b[:])",
				"q.mu.seq = uint64(binary.LittleEndian.Uint16(b[:]) % 2)"},
			// A member that serves clients only after a linearizable read has applied what its
			// former process has proposed.
			{"internal/member/replica/keeper.go", "\tr.current.Load().Log.WaitNext()\n\tfor last",
				"\tr.current.Load().Log.WaitNext()\n\tif r.applied.Load() > 1 {\n\t\tclose(r.ready)\n\t\treturn\n\t}\n\tfor last"},
		}},
	{Name: "half-group",
		Promise: "each request of a group is applied once, also after a crash in the middle of it",
		Needs:   "power failures", Edits: []Edit{
			// Each request leaves the batch, as after a large one.
			{"internal/member/replica/apply/apply.go",
				"m.SetBatchBytes(PartFactor * int64(a.o.MaxBatchBytes))", "m.SetBatchBytes(1)"},
			{"internal/state/fsm/entry.go", "return &e.outcome, e.m.storeProgress()",
				"return &e.outcome, nil"},
		}},
	{Name: "repeated-probes", Profile: "probes",
		Promise: "a leader that probes a member keeps the same entries for it once", Past: true,
		Needs: "pauses, slow links", Edits: []Edit{
			{"internal/member/peer/queue.go",
				"if last := q.lastLog(); repeats(m, last) && q.mu.bytes+n-size(last) <= q.maxBytes {", "if last := q.lastLog(); q.mu.bytes < 0 {"},
		}},
	{Name: "early-applied", Profile: "stalls",
		Promise: "a position counts as applied when its state can be read",
		Needs:   "full disks", Edits: []Edit{
			{"internal/member/replica/apply/commit.go", "\ta.prepareCommit()\n\tbegan",
				"\tfor _, s := range a.o.Subscribers.After {\n\t\tif s.Name == \"position\" {\n\t\t\ts.Follow(&Commit{At: a.at})\n\t\t}\n\t}\n\ta.prepareCommit()\n\tbegan"},
		}},
	{Name: "applied-ahead", Promise: "the stored position is that of the stored state",
		Needs: "kills", Edits: []Edit{
			{"internal/member/replica/apply/apply.go", "pub, err := a.machine.Commit(a.at)",
				"pub, err := a.machine.Commit(history.Applied{Term: a.at.Term, Index: a.at.Index + 1})"},
		}},
}
