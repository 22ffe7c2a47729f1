package planted

// member are mistakes of changes of members, snapshots, backups, alarms and addresses.
var member = []Mistake{
	{Name: "learner-answers", Profile: "members",
		Promise: "a learner answers only serializable reads and what concerns itself",
		Needs:   "learners", Edits: []Edit{
			{"internal/edge/rpc/gate/admit.go", "if !forLearner && g.o.Member.IsLearner() {",
				"if !forLearner && g.o.Member.IsLearner() && g.o.Member.Leader() == 0 {"},
		}},
	{Name: "removed-unnoticed", Profile: "removals",
		Promise: "a removed member ends, also if it was away during its removal",
		Needs:   "removals, partitions", Edits: []Edit{
			{"internal/member/peer/accept.go", "case t.mu.removed[h.from]:", "case false:"},
		}},
	{Name: "busy-redial", Profile: "restarts",
		Promise: "a member pauses before it dials another one again",
		Needs:   "members that cannot be reached", Edits: []Edit{
			{"internal/member/peer/send.go", "\t\tp.pause(&delay)\n",
				"\t\tdelay = 0\n\t\t_ = delay\n"},
		}},
	{Name: "removed-stays", Profile: "members", Promise: "a removed member ends",
		Needs: "removals", Edits: []Edit{
			{"server/peers.go", "\tm.fail(ErrRemoved)\n", ""},
		}},
	{Name: "old-address", Profile: "moves",
		Promise: "members use the new address of a member that has moved",
		Needs:   "moves", Edits: []Edit{
			{"internal/member/peer/transport.go",
				"changed := !slices.Equal(p.mu.urls, urls)\n\tp.mu.urls, p.mu.known = slices.Clone(urls), true", "changed := len(p.mu.urls) == 0\n\tif p.mu.known = true; changed {\n\t\tp.mu.urls = slices.Clone(urls)\n\t}"},
		}},
	{Name: "stale-configuration", Profile: "members",
		Promise: "a member that restarts has the voters of its last configuration",
		Needs:   "changes of members, restarts", Edits: []Edit{
			{"internal/state/fsm/machine.go",
				"if err := m.store.SetMeta(confRecord(conf)); err != nil {",
				"if err := error(nil); err != nil {"},
		}},
	{Name: "snapshot-without-level", Profile: "snapshots",
		Promise: "a snapshot has everything: the level of the API",
		Needs:   "snapshots, downgrades", Edits: []Edit{
			{"internal/store/mvcc/cut.go", "Meta: s.log.CommittedMeta(),",
				"Meta: func() (out []history.Meta) {\n\t\tfor _, m := range s.log.CommittedMeta() {\n\t\t\tif m.Bucket != 'v' {\n\t\t\t\tout = append(out, m)\n\t\t\t}\n\t\t}\n\t\treturn out\n\t}(),"},
		}},
	{Name: "snapshot-half-installed", Profile: "installs",
		Promise: "a member that stopped while it installed a snapshot continues", Past: true,
		Needs: "snapshots that are interrupted", Edits: []Edit{
			{"internal/member/replica/data.go",
				"if err := place.InstallDecided(&left, c.walOptions(owner)); err != nil {",
				"if err := error(nil); err != nil {"},
		}},
	{Name: "interrupted-replacement", Profile: "joins",
		Promise: "a member that stopped during its first start can start again", Past: true,
		Needs: "failures during starts, replacements", Edits: []Edit{
			{"server/join.go", "if store.ClusterID == id && store.MemberID == x.ID {",
				"if store.ClusterID == id {"},
		}},
	{Name: "unsynced-copy", Profile: "installs",
		Promise: "a copy that cannot be synced is no damage of the history", Past: true,
		Needs: "failing syncs, snapshots", Edits: []Edit{
			{"internal/vfs/cause.go",
				"return !errors.As(err, &path) || !slices.Contains(writing, path.Op)",
				"return path == nil || !slices.Contains(writing, path.Op)"},
		}},
	{Name: "quota-ignored", Promise: "writes are refused when the quota is used up",
		Needs: "a quota", Edits: []Edit{
			{"internal/member/replica/space/room.go",
				"return n <= r.quotaLeft(q, false) || n <= r.quotaLeft(q, true)", "return n >= 0"},
			{"internal/member/replica/space/monitor.go",
				"(refused || live >= quota && !m.o.Alarms.AnyNoSpace())", "refused"},
		}},
	{Name: "alarm-stays", Promise: "a member clears its alarm NOSPACE when it has space",
		Needs: "a quota", Edits: []Edit{
			{"internal/member/replica/space/monitor.go",
				"case raised && (quota <= 0 || live < full/100*clearPercent):",
				"case raised && full < 0:"},
		}},
	{Name: "watch-kept", Promise: "a watch ends when its user loses the permission",
		Needs: "users", Edits: []Edit{
			{"internal/edge/rpc/watchapi/rights.go",
				"if reason, unknown = st.denial(ctx, key, end); unknown != nil {",
				"if unknown != nil {"},
		}},
	{Name: "position-ahead", Profile: "restarts",
		Promise: "data and their position in the raft log are on disk together",
		Needs:   "restarts", Edits: []Edit{
			{"internal/member/replica/apply/apply.go",
				"a.at = history.Applied{Term: e.GetTerm(), Index: e.GetIndex()}",
				"a.at = history.Applied{Term: e.GetTerm(), Index: e.GetIndex() + e.GetIndex()%50/49}"},
		}},
	{Name: "damage-served", Profile: "damage", Promise: "damaged data are never served",
		Needs: "bit flips, snapshots", Edits: []Edit{
			{"internal/store/history/segfile/file.go",
				"if format.RecordSize(head) != size || !format.CheckParts(head, out[end-n:end]) {",
				"if format.RecordSize(head) != size {"},
		}},
	{Name: "damage-unchecked", Profile: "growing", Promise: "damage is found when a member starts",
		Needs: "bit flips", Edits: []Edit{
			{"internal/store/history/growing/load.go",
				"if err != nil || !h.Check(b, w.seg.Head.Sum) {",
				"if err != nil {"},
			// Each record has a checksum too, and a member compares its data with others before it
			// serves.
			{"internal/store/history/format/batch.go", "if !CheckRecord(b[off : off+size]) {",
				"if off+size > len(b) {"},
			{"internal/member/replica/audit/initial.go", "if others == 0 || a.o.Calls == nil",
				"if others >= 0 || a.o.Calls == nil"},
		}},
	{Name: "backup-forgets", Profile: "alarms", Promise: "a backup has every key of its revision",
		Needs: "backups, compactions", Edits: []Edit{
			{"internal/store/mvcc/export.go",
				"keep := !tombstone && states.isState(key, rev, e.Compact)",
				"keep := !tombstone && states.isState(key, rev, e.Compact) && rev.Main > e.Compact/2"},
		}},
	{Name: "compacts-one-more", Profile: "api",
		Promise: "the state at the compact revision stays readable",
		Needs:   "compactions", Edits: []Edit{
			{"internal/store/mvcc/index/changes.go",
				"i := l.Find(compact)\n\tif i >= 0 && l.At(i).Tombstone() {",
				"i := l.Find(compact + 1)\n\tif i >= 0 && l.At(i).Tombstone() {"},
		}},
	{Name: "alarm-of-others", Profile: "alarms",
		Promise: "while an alarm NOSPACE is active no write that needs space is accepted, whichever member it names", Needs: "alarms, slow links", Edits: []Edit{
			{"internal/state/fsm/refuse.go", "noSpace = noSpace || a.Type == kv.AlarmNoSpace",
				"noSpace = noSpace || a.Type == kv.AlarmNoSpace && a.MemberID == proposer"},
		}},
	{Name: "forced-with-others", Profile: "alarms",
		Promise: "--force-new-cluster leaves one member",
		Needs:   "a rescue at the end", Edits: []Edit{
			{"internal/member/replica/members/force.go",
				"next, ok := ms.nextForced()\n\t\tif !ok {",
				"next, ok := ms.nextForced()\n\t\tif ms.forcing.Load() || !ok {"},
		}},
	{Name: "permission-before-log", Profile: "users",
		Promise: "a write needs the permission at its place in the log",
		Needs:   "users", Edits: []Edit{
			{"internal/state/fsm/refuse.go",
				"if err := Authorize(m.auth.state, r.Identity, r, m.auth.keys); err != nil {",
				"if err := Authorize(m.auth.state, r.Identity, r, m.auth.keys); err != nil && r.Kind() == KindAuth {"},
		}},
	{Name: "permission-kept", Profile: "users",
		Promise: "a permission that a role has lost is no permission of its users",
		Needs:   "users", Edits: []Edit{
			{"internal/state/auth/state.go", "s.users[key] = s.account(a.User)",
				"s.users[key] = &account{User: a.User, root: a.root, read: append(a.read, s.account(a.User).read...), write: append(a.write, s.account(a.User).write...)}"},
		}},
}
