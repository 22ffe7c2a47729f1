package planted

// consensus are mistakes of the log's replication and of elections.
var consensus = []Mistake{
	{Name: "late-forward", Promise: "a forwarded proposal is applied once", Needs: "leader transfers", Edits: []Edit{
		{"internal/member/raftnode/forward.go", "st.RaftState != raft.StateLeader || st.HardState.GetTerm() != m.GetLogTerm()", "st.RaftState != raft.StateLeader"},
	}},
	{Name: "lost-vote", Promise: "a member votes once in a term", Needs: "power failure of the voters", Edits: []Edit{
		{"internal/member/raftnode/append.go", "must = must || next.GetTerm() != a.hard.GetTerm() || next.GetVote() != a.hard.GetVote()", "must = must || false"},
	}},
}
