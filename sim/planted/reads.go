package planted

// reads are mistakes of reads and transactions.
var reads = []Mistake{
	{Name: "local-read", Promise: "a linearizable read sees all earlier writes", Edits: []Edit{
		{"internal/member/raftnode/reads.go", "if !n.alone.Load() {", "if n.committed.Load() == 0 {"},
	}},
}
