package planted

// client are mistakes of the client library.
var client = []Mistake{
	{Name: "client-skips", Promise: "a watcher of the library continues after its last revision", Edits: []Edit{
		{"client/watch.go", "return w.mu.inbox.Next()\n", "return w.mu.inbox.Next() + 1\n"},
	}},
}
