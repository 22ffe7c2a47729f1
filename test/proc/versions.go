package proc

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Previous is the last release, according to its tag. Without a release it is this program under
// another version.
//
// Next is this program with an invented next level, under another version: its claims of terms have
// a number that this program does not know, and its members publish a field that this one does not
// know.

// release returns the tag of the last release before the sources, "" if there is none.
func release(root string) string {
	out, err := exec.Command("git", "-C", root, "tag", "--list", "v[0-9]*", "--merged", "HEAD",
		"--sort=-version:refname").Output()
	if err != nil {
		return ""
	}
	tag, _, _ := strings.Cut(string(out), "\n")
	return tag
}

// DescribePrevious describes the sources of Previous.
func DescribePrevious() string {
	if tag := release(sources()); tag != "" {
		return "the release " + tag
	}
	return "these sources, since there is no release"
}

// swap returns a function that replaces the first of each pair of texts, which must occur, by the
// second.
func swap(pairs ...string) func(string) (string, error) {
	return func(s string) (string, error) {
		for i := 0; i < len(pairs); i += 2 {
			if !strings.Contains(s, pairs[i]) {
				return "", fmt.Errorf("no text %q", pairs[i])
			}
			s = strings.Replace(s, pairs[i], pairs[i+1], 1)
		}
		return s, nil
	}
}

// otherVersion returns the beginning of the command that builds Previous or Next, and a function to
// call after it. dir is for files that the build needs.
func otherVersion(p Program, root, dir string) (args []string, done func(), err error) {
	done = func() {}
	if p == Previous {
		if tag := release(root); tag != "" {
			tree, err := os.MkdirTemp("", "vigil-release")
			if err != nil {
				return nil, done, err
			}
			if out, err := exec.Command("git", "-C", root, "worktree", "add", "--detach", "--force",
				tree, tag).CombinedOutput(); err != nil {
				return nil, done, fmt.Errorf("git worktree add %s: %w\n%s", tag, err, out)
			}
			done = func() {
				_ = exec.Command("git", "-C", root, "worktree", "remove",
					"--force", tree).Run()
			}
			return []string{"build", "-C", tree}, done, nil
		}
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	replace := func(file string, change func(string) (string, error)) error {
		b, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return err
		}
		text, err := change(string(b))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		// no Go file, or it would belong to a package
		to := filepath.Join(dir, string(p)+"-"+strings.ReplaceAll(file, "/", "-")+".overlay")
		overlay.Replace[filepath.Join(root, file)] = to
		return os.WriteFile(to, []byte(text), 0o644)
	}
	if p == Next {
		err = replace("internal/state/fsm/request.go",
			swap("const Level uint64 = 1\n", "const Level uint64 = 2\n",
				" Kind = 35\n", " Kind = 37\n", "laterKinds = map[Kind]uint64{}\n",
				"laterKinds = map[Kind]uint64{KindClaim: 2}\n"))
		if err == nil {
			const head = "func EncodeMember(m Member) []byte {\n"
			err = replace("internal/state/cluster/encode.go", swap(head, head+
				"\tif m.Level == 2 && m.later.flags == 0 {\n\t\tm.later = later{1 << 3, \"\\x02eu\"}\n\t}\n"))
		}
	}
	if err != nil {
		return nil, done, err
	}
	b, err := json.Marshal(overlay)
	if err != nil {
		return nil, done, err
	}
	name := filepath.Join(dir, string(p)+"-overlay.json")
	version := map[Program]string{Previous: "0.0.1", Next: "99.0.0"}[p]
	return []string{"build", "-C", root, "-overlay", name, "-ldflags",
		"-X vigil/internal/release.Version=" + version}, done, os.WriteFile(name, b, 0o644)
}
