package planted

// client are mistakes of the client library.
var client = []Mistake{
	{Name: "client-skips",
		Promise: "a watcher of the library continues after its last revision", Edits: []Edit{
			{"client/watch.go", "return w.mu.inbox.Next()\n", "return w.mu.inbox.Next() + 1\n"},
		}},
	{Name: "client-repeats", Promise: "a watcher of the library receives no event twice",
		Needs: "broken connections", Edits: []Edit{
			{"client/watch.go", "return w.mu.inbox.Next()\n",
				"return max(w.mu.inbox.Next()-1, 1)\n"},
			{"client/internal/inbox/inbox.go", "b.revision(&events[0]) <= b.seen {",
				"b.revision(&events[0]) < b.seen {"},
		}},
	{Name: "client-retries",
		Promise: "the library sends no write again whose outcome is unknown", Edits: []Edit{
			{"client/attempt.go", "v.Again && (e.Uncertain || a.Count >= core.cfg.MaxAttempts)",
				"v.Again && a.Count >= core.cfg.MaxAttempts"},
		}},
	{Name: "client-certain",
		Promise: "an error that the library calls certain had no effect", Edits: []Edit{
			{"client/internal/attempt/verdict.go",
				"case codes.DeadlineExceeded, codes.Unknown, codes.Aborted, codes.DataLoss:\n\t\treturn Verdict{Unknown: f.Sent}", "case codes.DeadlineExceeded, codes.Unknown, codes.Aborted, codes.DataLoss:\n\t\treturn Verdict{}"},
		}},
	{Name: "client-local-rollback",
		Promise: "a watch ends because of a rollback only if the store lost revisions",
		Needs:   "members that lag", Past: true, Edits: []Edit{
			{"client/watchers.go", "any.Get(ctx, key, WithKeysOnly())",
				"any.Get(ctx, key, WithKeysOnly(), WithSerializable())"},
		}},
}
