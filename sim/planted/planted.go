// Package planted has mistakes for the simulation to find: each breaks one promise. They replace text of a file in the
// build of the program of the simulated processes, so that no other program can have them.
package planted

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Mistake replaces Old, which File has once, by New. File is relative to the root of the repository.
type Mistake struct {
	Name, Promise  string
	File, Old, New string
}

// All are the mistakes.
var All = []Mistake{
	{"no-sync", "what was acknowledged is durable", "internal/store/wal/wal.go",
		"err := w.wr.active.file.Sync()", "err := error(nil)"},
	{"local-read", "a linearizable read sees all earlier writes", "internal/member/raftnode/reads.go",
		"if !n.alone.Load() {", "if n.committed.Load() == 0 {"},
	{"late-forward", "a forwarded proposal is applied once", "internal/member/raftnode/forward.go",
		"st.RaftState != raft.StateLeader || st.HardState.GetTerm() != m.GetLogTerm()", "st.RaftState != raft.StateLeader"},
	{"lost-vote", "a member votes once in a term", "internal/member/raftnode/append.go",
		"must = must || next.GetTerm() != a.hard.GetTerm() || next.GetVote() != a.hard.GetVote()", "must = must || false"},
	{"skipped-event", "a watcher receives all events from its revision on", "internal/store/watch/stream.go",
		"w.next = w.start\n", "w.next = w.start + 1\n"},
	{"early-progress", "after progress no event up to its revision follows", "internal/store/watch/stream.go",
		"if h.mu.matched == rev {\n\t\th.answerProgress(s, 1)\n", "if rev > 0 {\n\t\ts.mu.Lock()\n\t\ts.putProgress(InvalidID, rev)\n\t\ts.mu.Unlock()\n"},
	{"client-skips", "a watcher of the library continues after its last revision", "client/watch.go",
		"return w.mu.inbox.Next()\n", "return w.mu.inbox.Next() + 1\n"},
}

// Find returns a mistake by its name.
func Find(name string) (Mistake, error) {
	for _, m := range All {
		if m.Name == name {
			return m, nil
		}
	}
	return Mistake{}, fmt.Errorf("no planted mistake is named %q", name)
}

// Apply returns the file with the mistake.
func (m Mistake) Apply(root string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return nil, err
	}
	if n := strings.Count(string(b), m.Old); n != 1 {
		return nil, fmt.Errorf("%s: %s has the replaced text %d times: adapt the mistake to the code", m.Name, m.File, n)
	}
	return []byte(strings.Replace(string(b), m.Old, m.New, 1)), nil
}

// Overlay writes the overlay of a build with the mistake to a directory, and returns its file.
func (m Mistake) Overlay(root, dir string) (string, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	code, err := m.Apply(root)
	if err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(dir, "planted.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(changed, code, 0o600); err != nil {
		return "", err
	}
	b, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, m.File): changed}})
	if err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, b, 0o600)
}
