// Package planted has mistakes for the simulation to find: each breaks one promise. They replace
// text of files in the build of the program of the simulated processes, so that no other program
// can have them.
package planted

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Mistake is a change of the code that breaks a promise. Past marks a defect that the project has
// had.
type Mistake struct {
	Name, Promise string
	// Needs has the faults or the work without which the mistake has no effect. It is for readers:
	// plans do not depend on it.
	Needs string
	// Profile is that of the plans which look for the mistake; empty for plans with all faults and
	// work.
	Profile string
	Past    bool
	Edits   []Edit
}

// Edit replaces Old, which File has once, by New. File is relative to the root of the repository.
type Edit struct{ File, Old, New string }

// All are the mistakes, by area.
var All = slices.Concat(consensus, storage, reads, pages, lease, member, watch, client)

// Find returns a mistake by its name.
func Find(name string) (Mistake, error) {
	for _, m := range All {
		if m.Name == name {
			return m, nil
		}
	}
	return Mistake{}, fmt.Errorf("no planted mistake is named %q", name)
}

// Apply returns the changed files by their names.
func (m Mistake) Apply(root string) (map[string]string, error) {
	files := map[string]string{}
	for _, e := range m.Edits {
		if _, ok := files[e.File]; !ok {
			code, err := read(root, e.File)
			if err != nil {
				return nil, err
			}
			files[e.File] = code
		}
		if n := strings.Count(files[e.File], e.Old); n != 1 {
			return nil, fmt.Errorf("%s: %s has the replaced text %d times: adapt the mistake to the code: %s", m.Name, e.File, n, e.Old)
		}
		files[e.File] = strings.Replace(files[e.File], e.Old, e.New, 1)
	}
	return files, nil
}

func read(root, file string) (string, error) {
	b, err := os.ReadFile(filepath.Join(root, file))
	return string(b), err
}

// Overlay writes the overlay of a build with changed files to a directory, and returns its file.
func Overlay(root, dir string, files map[string]string) (string, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	replaced := map[string]string{}
	for file, code := range files {
		changed := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(changed, []byte(code), 0o600); err != nil {
			return "", err
		}
		replaced[filepath.Join(root, file)] = changed
	}
	b, err := json.Marshal(map[string]map[string]string{"Replace": replaced})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o600)
}
