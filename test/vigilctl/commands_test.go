package vigilctl

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"vigil/test/proc"
)

// rewrite reports whether to write pages anew: -rewrite is a flag of datadriven.
func rewrite() bool { return flag.Lookup("rewrite").Value.String() == "true" }

// page has the commands that differ.
const page = "../../docs/vigilctl/commands.md"

// missing are the commands and flags that vigilctl does not have, and why.
var missing = map[string]string{
	"etcdutl defrag":  "there is nothing to defragment in a data directory: the space of what was compacted comes back while the member runs, and `vigilctl defrag` asks it for all of it",
	"--timeout":       "how long to wait for a lock on a file of etcd; files are read without one",
	"etcdutl migrate": "it changes the version of etcd's own files; every file of a data directory has its version, and `vigilctl snapshot restore` reads those of etcd 3.4 to 3.7",
}

func TestCommands(t *testing.T) {
	own := helpTree(t, proc.Vigilctl)
	var rows strings.Builder
	same, lacks := map[proc.Program]int{}, map[string]string{}
	for _, program := range []proc.Program{proc.Etcdctl, proc.Etcdutl} {
		stock := helpTree(t, program)
		for _, path := range slices.Sorted(maps.Keys(stock)) {
			name := strings.TrimSpace(string(program) + " " + path)
			if says := status(t, name, stock[path], own, path, lacks); says != "the same" {
				fmt.Fprintf(&rows, "| `%s` | %s |\n", name, says)
			} else {
				same[program]++
			}
		}
	}
	for _, flag := range slices.Sorted(maps.Keys(lacks)) {
		fmt.Fprintf(&rows, "| the flag `%s` | no: %s |\n", flag, lacks[flag])
	}
	if same[proc.Etcdctl] < 40 || same[proc.Etcdutl] < 5 {
		t.Errorf("only %v commands are the same", same)
	}
	text := fmt.Sprintf("# What vigilctl lacks of etcdctl and etcdutl\n\n"+
		"To know whether a script can call vigilctl instead: it has %d commands of etcdctl and %d of\n"+
		"etcdutl with their flags. A test compares the `--help` of the programs. Missing are:\n\n"+
		"| command | vigilctl |\n|---|---|\n%s", same[proc.Etcdctl],
		same[proc.Etcdutl], rows.String())
	if rewrite() {
		if err := os.MkdirAll(filepath.Dir(page), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := os.ReadFile(page); err != nil || string(is) != text {
		t.Errorf("%s is stale (%v); run the test with -rewrite", page, err)
	}
}

// status says how vigilctl has a command, and fails the test if it lacks something without a
// reason.
func status(t *testing.T, name string, flags []string, own map[string][]string, path string,
	lacks map[string]string) string {
	if why, ok := missing[name]; ok {
		return "no: " + why
	}
	has, ok := own[path]
	if !ok {
		t.Errorf("%s: vigilctl does not have it", name)
		return "no"
	}
	for _, f := range flags {
		if slices.Contains(has, f) || slices.Contains(own[""], f) {
			continue
		}
		why, ok := missing[f]
		if !ok {
			t.Errorf("%s: vigilctl does not have %s", name, f)
		}
		lacks[f] = why
	}
	return "the same"
}

var (
	commandLine = regexp.MustCompile(`(?m)^  ([a-z][a-z0-9-]*) +\S`)
	flagLine    = regexp.MustCompile(`(?m)^ +(?:-\w, )?(--[a-z0-9-]+)`)
)

// helpTree returns the commands of a program, by their --help, each with its flags. The flags that
// all have are those of the program itself.
func helpTree(t *testing.T, program proc.Program) map[string][]string {
	tree := map[string][]string{}
	run := func(args ...string) string {
		r := proc.Run(t, time.Minute, proc.Spec{Name: proc.Path(t, program), Args: args})
		if r.Code != 0 {
			t.Fatalf("%s %q: %d %s", program, args, r.Code, r.Stderr)
		}
		return r.Stdout
	}
	var walk func(path []string)
	walk = func(path []string) {
		help := run(append(slices.Clone(path), "--help")...)
		name := strings.Join(path, " ")
		usage := strings.TrimSpace(string(program) + " " + name)
		_, body, ok := strings.Cut(help, "Usage:\n")
		if !ok || !strings.HasPrefix(strings.TrimSpace(body), usage) {
			return // a word that only looks like a command
		}
		_, list, _ := strings.Cut(body, "\nFlags:\n")
		for _, m := range flagLine.FindAllStringSubmatch(list, -1) {
			tree[name] = append(tree[name], m[1])
		}
		if tree[name] == nil {
			tree[name] = []string{}
		}
		if len(path) == 0 && program != proc.Etcdutl {
			for _, m := range flagLine.FindAllStringSubmatch(run("options"), -1) {
				tree[name] = append(tree[name], m[1])
			}
		}
		if !strings.Contains(body, usage+" [command]") {
			return
		}
		commands, _, _ := strings.Cut(body, "\nFlags:\n")
		_, commands, _ = strings.Cut(commands, "\n\n")
		for _, m := range commandLine.FindAllStringSubmatch(commands, -1) {
			if m[1] != "help" && m[1] != string(program) {
				walk(append(slices.Clone(path), m[1]))
			}
		}
	}
	walk(nil)
	return tree
}
