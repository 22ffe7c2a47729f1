package planted

// watch are mistakes of watches in the members.
var watch = []Mistake{
	{Name: "skipped-event", Promise: "a watcher receives all events from its revision on", Edits: []Edit{
		{"internal/store/watch/stream.go", "w.next = w.start\n", "w.next = w.start + 1\n"},
	}},
	{Name: "early-progress", Promise: "after progress no event up to its revision follows", Edits: []Edit{
		{"internal/store/watch/stream.go", "if h.mu.matched == rev {\n\t\th.answerProgress(s, 1)\n", "if rev > 0 {\n\t\ts.mu.Lock()\n\t\ts.putProgress(InvalidID, rev)\n\t\ts.mu.Unlock()\n"},
	}},
}
