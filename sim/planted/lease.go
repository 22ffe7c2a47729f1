package planted

// lease are mistakes of leases, locks, elections, users and permissions.
var lease = []Mistake{
	{Name: "short-extension", Promise: "a new leader extends a lease by its TTL",
		Needs: "leases, faults of leaders", Edits: []Edit{
			{"internal/state/lease/timers.go", "t.add(l, now+seconds(l.Left())+extra, now)",
				"t.add(l, now+extra, now)"},
		}},
	{Name: "deposed-timers", Profile: "deposed", Promise: "a deposed leader ends no lease",
		Needs: "leases, faults of leaders", Edits: []Edit{
			{"internal/member/replica/lessor/expire.go",
				"if l.o.Raft.LeadTerm() != l.mu.term {", "if false {"},
			{"internal/member/replica/lessor/lessor.go", "\tdefault:\n\t\tl.stopCounting()\n",
				"\tdefault:\n"},
			{"internal/state/fsm/refuse.go",
				" || r.LeaseExpire != nil && r.LeaseExpire.Term != term", ""},
		}},
	{Name: "unconfirmed-keepalive", Profile: "promises",
		Promise: "a leader promises a TTL only after a quorum has confirmed it",
		Needs:   "leases, isolation from members", Edits: []Edit{
			{"internal/member/replica/lessor/answer.go",
				"if err := l.o.Pipeline.Linearize(ctx); err != nil {\n\t\t\treturn Answer{}, err\n\t\t}\n\t\tif err := l.judge", "if err := l.judge"},
		}},
	{Name: "follower-keepalive", Promise: "the leader renews a lease",
		Needs: "leases", Edits: []Edit{
			{"internal/member/replica/lessor/answer.go",
				"a, err = l.askLeader(attempt, leader, who, op, id)",
				"rec, ok := l.o.Pipeline.LeaseState().Lookup(id)\n\t\t\tif a, err = (Answer{TTL: rec.TTL, Granted: rec.TTL}), nil; !ok || op != Renew {\n\t\t\t\ta, err = l.askLeader(attempt, leader, who, op, id)\n\t\t\t}"},
		}},
	{Name: "renewed-while-ending", Profile: "renewals",
		Promise: "a lease that is about to be revoked is not renewed",
		Needs:   "leases", Edits: []Edit{
			{"internal/state/lease/timers.go", "if x == nil || x.ending || x.mark != 0 {",
				"if x == nil || x.mark != 0 {"},
			{"internal/member/replica/lessor/answer.go", "case ending:",
				"case ending && op != Renew:"},
		}},
	{Name: "wall-clock-leases", Profile: "leases",
		Promise: "the wall clock does not matter for leases",
		Needs:   "leases, clock jump", Edits: []Edit{
			{"internal/member/replica/lessor/lessor.go", "l.mu.clock, l.mu.last = l.at(t), t",
				"l.mu.clock, l.mu.last = l.at(t), t.Round(0)"},
		}},
	{Name: "snapshot-without-leases", Profile: "snapshots",
		Promise: "a member that installs a snapshot knows all leases",
		Needs:   "leases, faults that make a member lag", Edits: []Edit{
			{"internal/member/replica/apply/apply.go", "a.adopt(machine)\n",
				"for _, l := range machine.Leases().All() {\n\t\tmachine.Leases().Remove(l.ID)\n\t}\n\ta.adopt(machine)\n"},
		}},
	{Name: "restart-without-keys", Promise: "a lease has its keys after a restart",
		Needs: "leases, kill or power failure", Edits: []Edit{
			{"internal/state/fsm/lease.go", "l.state.AttachAll(store.Leased())", "_ = store"},
		}},
	{Name: "lease-in-parts", Promise: "the end of a lease deletes its keys in one revision",
		Needs: "leases", Edits: []Edit{
			{"internal/state/fsm/lease.go", "m.store.DeleteKeys(keys)",
				"m.store.DeleteKeys(keys[:min(1, len(keys))])"},
		}},
	{Name: "key-stays-attached", Profile: "leases",
		Promise: "a key that was put with another lease does not end with the former one",
		Needs:   "leases", Edits: []Edit{
			{"internal/state/lease/state.go", "e.detach(string(key))", "_ = e"},
		}},
	{Name: "lock-for-the-next-waiter", Profile: "locks", Promise: "a lock has one holder",
		Needs: "locks", Edits: []Edit{
			{"client/concurrency/claim.go",
				"if err := waitDeleted(ctx, q.s.c, before, rev+1); err != nil {\n\t\t\treturn err\n\t\t}", "return waitDeleted(ctx, q.s.c, before, rev+1)"},
		}},
	{Name: "token-of-the-answer", Profile: "locks",
		Promise: "a fencing token is the create revision of the claim",
		Needs:   "locks", Edits: []Edit{
			{"client/concurrency/claim.go", "if err != nil || before == \"\" {\n",
				"if before == \"\" && err == nil {\n\t\t\tq.rev = rev\n\t\t}\n\t\tif err != nil || before == \"\" {\n"},
		}},
	{Name: "unguarded-proclamation", Promise: "a deposed leader cannot proclaim",
		Needs: "locks", Edits: []Edit{
			{"client/concurrency/election.go", "If(l.Guard()).Then(", "Then("},
		}},
	{Name: "newest-candidate", Promise: "the first candidate leads", Needs: "locks", Edits: []Edit{
		{"client/concurrency/election.go", "client.SortAscend", "client.SortDescend"},
	}},
}
