package proc

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Previous is the last release, according to its tag. Without a release it is this program with the
// level below its own, which reports that it does not know the requests of the current level. Next
// is this program with the level above its own and a field in the record of a member that this one
// does not know. Both report another version.

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
	return "these sources with the level below, since there is no release"
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
	step := map[Program]int{Previous: -1, Next: 1}[p]
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
	level := regexp.MustCompile(`const Level uint64 = (\d+)`)
	other := 0
	err = replace("internal/state/fsm/request.go", func(s string) (string, error) {
		m := level.FindStringSubmatch(s)
		if m == nil {
			return "", fmt.Errorf("no line matches %v", level)
		}
		own, err := strconv.Atoi(m[1])
		other = own + step
		return strings.Replace(s, m[0], fmt.Sprintf("const Level uint64 = %d", other), 1), err
	})
	if err == nil && p == Next {
		err = replace("internal/state/cluster/encode.go", func(s string) (string, error) {
			const head = "func EncodeMember(m Member) []byte {\n"
			if !strings.Contains(s, head) {
				return "", fmt.Errorf("no line %q", head)
			}
			field := fmt.Sprintf("\tif m.Level == %d && m.later.flags == 0 {\n\t\tm.later = later{1 << 3, \"\\x02eu\"}\n\t}\n", other)
			return strings.Replace(s, head, head+field, 1), nil
		})
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
