package planted

// storage are mistakes of the raft log, the history and its compaction.
var storage = []Mistake{
	{Name: "no-sync", Promise: "what was acknowledged is durable",
		Needs: "power failures", Edits: []Edit{
			{"internal/store/wal/wal.go", "err := w.wr.active.file.Sync()", "err := error(nil)"},
		}},
	{Name: "early-sync", Profile: "power", Promise: "the log is synced after it is written",
		Needs: "power failures", Edits: []Edit{
			{"internal/store/wal/wal.go",
				"\tif err := w.writeGroup(size); err != nil {\n\t\treturn w.noteStarved",
				"\tif p.sync {\n\t\tif err := w.syncActive(); err != nil {\n\t\t\treturn err\n\t\t}\n\t}\n\tif err := w.writeGroup(size); err != nil {\n\t\treturn w.noteStarved"},
			{"internal/store/wal/wal.go",
				"\tif p.sync {\n\t\tif err := w.syncActive(); err != nil {\n\t\t\treturn err\n\t\t}\n\t}\n\tw.showGroup(batches)", "\tw.showGroup(batches)"},
		}},
	{Name: "torn-tail", Profile: "torn", Promise: "a torn end of the log is not taken for entries",
		Needs: "power failures", Edits: []Edit{
			{"internal/store/wal/scan.go", "if groupCRC(b, s.seed, off) != g.crc {",
				"if groupCRC(b, s.seed, off) == g.crc+1 {"},
		}},
	{Name: "torn-batch", Profile: "power",
		Promise: "a torn batch of the history is not taken for a whole one",
		Needs:   "power failures", Edits: []Edit{
			{"internal/store/history/format/batch.go",
				"return h.Sum == crc32.Update(seed, Castagnoli, b[4:h.Length])",
				"return h.Sum != 0 || h.Sum == crc32.Update(seed, Castagnoli, b[4:h.Length])"},
		}},
	{Name: "truncated-early", Profile: "cuts",
		Promise: "the log is truncated only up to what the store has synced",
		Needs:   "power failures", Edits: []Edit{
			{"internal/member/replica/truncate/truncate.go", "synced, err := h.Log.Sync()",
				"synced, err := h.Log.Applied(), h.Log.Err()"},
		}},
	{Name: "clean-pages", Profile: "syncs",
		Promise: "what a failed sync may have left out is written again after the restart",
		Needs:   "failing syncs, power failures", Edits: []Edit{
			{"internal/store/wal/open.go", "for at := synced; at < off; {",
				"for at := off; at < off; {"},
		}},
	{Name: "full-disk-ends", Profile: "space", Promise: "a full disk ends no member",
		Needs: "full disks", Past: true, Edits: []Edit{
			{"internal/store/wal/wal.go", "if err = w.noteShortage(err); !kv.Shortage(err) {",
				"if err = w.noteShortage(err); err != nil {"},
		}},
	{Name: "compacted-newest", Promise: "a compaction keeps the newest version of each key",
		Needs: "compactions", Edits: []Edit{
			{"internal/store/mvcc/index/changes.go", "if i >= 0 && l.At(i).Tombstone() {\n\t\ti++",
				"if i >= 0 {\n\t\ti++"},
		}},
	{Name: "compacted-read", Promise: "a compacted revision is not read",
		Needs: "compactions", Edits: []Edit{
			{"internal/store/mvcc/store.go", "\tif revision < v.compact {\n\t\treturn 0,",
				"\tif revision < 0 {\n\t\treturn 0,"},
			{"internal/store/mvcc/store.go", "\tcase at >= compact:\n\t\treturn nil",
				"\tcase at >= 0:\n\t\treturn nil"},
		}},
}
