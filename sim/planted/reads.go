package planted

// reads are mistakes of reads, transactions and revisions.
var reads = []Mistake{
	{Name: "local-read", Promise: "a linearizable read sees all earlier writes", Edits: []Edit{
		{"internal/member/raftnode/reads.go", "return st.Committed, st.alone",
			"return st.Committed, st.Committed > 0"},
	}},
	{Name: "lease-read", Profile: "promises",
		Promise: "a leader answers no read before others confirm that it leads",
		Needs:   "pauses of the leader", Edits: []Edit{
			{"internal/member/raftnode/node.go", "MaxInflightMsgs:           512,",
				"MaxInflightMsgs:           512,\n\t\tReadOnlyOption:            raft.ReadOnlyLeaseBased,"},
		}},
	{Name: "late-reader", Profile: "reads",
		Promise: "readers share only a read index that is requested after they came", Edits: []Edit{
			{"internal/member/raftnode/reads.go",
				"\tif r.mu.waiting == nil {\n\t\tr.mu.waiting = &read{",
				"\tif n := len(r.mu.asked); n > 0 && r.mu.waiting == nil {\n\t\treturn r.mu.asked[n-1], false\n\t}\n\tif r.mu.waiting == nil {\n\t\tr.mu.waiting = &read{"},
		}},
	{Name: "unapplied-read",
		Promise: "a read waits until the member has applied the read index", Edits: []Edit{
			{"internal/member/replica/position/reader.go",
				"if err = ctx.Err(); r.o.Applied.Load() < index {",
				"if err = ctx.Err(); err == nil && index == 0 {"},
		}},
	{Name: "later-keys", Promise: "a read at a revision sees nothing later", Edits: []Edit{
		{"internal/store/mvcc/index/changes.go", "if l.Main(i) <= revision {",
			"if l.Main(i) <= revision+1 {"},
	}},
	{Name: "equal-or-greater",
		Promise: "a condition holds only for the revision that it names", Edits: []Edit{
			{"internal/store/mvcc/txn.go", "case kv.Equal:\n\t\treturn order == 0",
				"case kv.Equal:\n\t\treturn order >= 0"},
		}},
	{Name: "nested-branch",
		Promise: "a nested transaction evaluates its own conditions", Edits: []Edit{
			{"internal/store/mvcc/txn.go", "\tp = append(p, holds)\n",
				"\tif len(p) > 0 {\n\t\tholds = p[0]\n\t}\n\tp = append(p, holds)\n"},
		}},
	{Name: "nested-revision",
		Promise: "a transaction is one revision, nested ones included", Edits: []Edit{
			{"internal/store/mvcc/txn.go", "\t\tres.Txn, err = t.run(op.Txn)\n\t\treturn err\n",
				"\t\tif t.w != nil {\n\t\t\tt.w.endRequest()\n\t\t}\n\t\tres.Txn, err = t.run(op.Txn)\n\t\treturn err\n"},
		}},
	{Name: "kept-version", Promise: "a key begins with version 1 after its deletion", Edits: []Edit{
		{"internal/store/mvcc/changes.go", "\t\twas, exists = e.Newest()\n\t}\n",
			"\t\twas, exists = e.Newest()\n\t}\n\tgone := int64(0)\n\tif known {\n\t\tgone = int64(e.Changes().Len())\n\t}\n"},
		{"internal/store/mvcc/changes.go", "Mod: rev.Main, Version: 1, Lease",
			"Mod: rev.Main, Version: 1 + gone, Lease"},
	}},
	{Name: "empty-revision",
		Promise: "a request that changes nothing makes no revision", Edits: []Edit{
			{"internal/store/mvcc/writer.go", "if w.subs > 0 {\n\t\tw.rev++",
				"if w.subs >= 0 {\n\t\tw.rev++"},
		}},
}
