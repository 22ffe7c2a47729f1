package planted

// storage are mistakes of the log, the history and the store.
var storage = []Mistake{
	{Name: "no-sync", Promise: "what was acknowledged is durable", Needs: "power failures", Edits: []Edit{
		{"internal/store/wal/wal.go", "err := w.wr.active.file.Sync()", "err := error(nil)"},
	}},
}
