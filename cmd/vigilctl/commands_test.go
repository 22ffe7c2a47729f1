package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/exit"
)

// TestShortened: commands may be shortened, but a directory below check is not mistaken for check
// datascale.
func TestShortened(t *testing.T) {
	if code, out, _ := vigilctl("vers"); code != 0 || !strings.Contains(out, "API version: 3.7\n") {
		t.Errorf("%d %s", code, out)
	}
	t.Chdir(t.TempDir())
	if err := os.Mkdir("data", 0o755); err != nil {
		t.Fatal(err)
	}
	if code, _, text := vigilctl("check", "data"); code != 2 ||
		!strings.Contains(text, filepath.Join("data")) {
		t.Errorf("%d %s", code, text)
	}
}

func TestEnvironment(t *testing.T) {
	for _, c := range []struct {
		env, text string
		args      []string
	}{
		{"ETCDCTL_USER=x", "--user is given and ETCDCTL_USER is set, too",
			[]string{"get", "k", "--user=y"}},
		{"VIGILCTL_USER=", "--user is given and VIGILCTL_USER is set, too",
			[]string{"get", "k", "--user=y"}},
		{"VIGILCTL_HEX=maybe", "VIGILCTL_HEX", []string{"get", "k"}},
		{"VIGILCTL_WRITE_OUT=protobuf", "VIGILCTL_WRITE_OUT",
			[]string{"snapshot", "status", "none"}},
		{"ETCDCTL_WRITE_OUT=json", "--write-out is given and ETCDCTL_WRITE_OUT is set, too",
			[]string{"snapshot", "status", "none", "-w", "json"}},
	} {
		t.Run(c.env, func(t *testing.T) {
			name, value, _ := strings.Cut(c.env, "=")
			t.Setenv(name, value)
			if code, _, text := vigilctl(c.args...); code != exit.Failure ||
				!strings.Contains(text, c.text) || strings.Count(text, "\n") != 1 {
				t.Errorf("%d %s", code, text)
			}
		})
	}
}

// TestWrongEnvironment: a wrong value of a variable of etcdctl is ignored, like by etcdctl, and the
// flag has its default.
func TestWrongEnvironment(t *testing.T) {
	for _, env := range []string{"ETCDCTL_DIAL_TIMEOUT=3", "ETCDCTL_COMMAND_TIMEOUT=soon",
		"ETCDCTL_HEX=maybe", "ETCDCTL_MAX_RECV_BYTES=much"} {
		t.Run(env, func(t *testing.T) {
			name, value, _ := strings.Cut(env, "=")
			t.Setenv(name, value)
			var text strings.Builder
			e := &cli.Env{Stdin: strings.NewReader(""),
				Stdout: cli.NewOutput(os.Stdout), Stderr: &text}
			root := newRoot(e)
			get, _, err := root.Find([]string{"get"})
			if err != nil {
				t.Fatal(err)
			}
			if err := get.ParseFlags(nil); err != nil {
				t.Fatal(err)
			}
			if err := e.Prepare(get, nil); err != nil || strings.Count(text.String(), "\n") != 1 ||
				!strings.Contains(text.String(), "warning: "+name+": ") {
				t.Errorf("%v: %s", err, text.String())
			}
			flag := get.Flag(strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name,
				"ETCDCTL_"), "_", "-")))
			if flag.Value.String() != flag.DefValue {
				t.Errorf("--%s is %s, want %s", flag.Name, flag.Value, flag.DefValue)
			}
		})
	}
}

// TestEnvironmentOfFiles: commands that read files have --write-out of their own, and its variable.
func TestEnvironmentOfFiles(t *testing.T) {
	t.Setenv("VIGILCTL_WRITE_OUT", "json")
	if code, out, text := vigilctl("snapshot", "status", backupFile(t)); code != 0 ||
		!strings.HasPrefix(out, "{") || text != "" {
		t.Errorf("%d %s%s", code, out, text)
	}
}

// TestHelpTexts: every command has a description, in lines that fit a terminal.
func TestHelpTexts(t *testing.T) {
	root := newRoot(&cli.Env{Stdin: strings.NewReader(""), Stdout: cli.NewOutput(os.Stdout),
		Stderr: os.Stderr})
	for _, c := range root.Commands() {
		for _, c := range append(c.Commands(), c) {
			if c.Short == "" {
				t.Errorf("%s has no description", c.CommandPath())
			}
			for line := range strings.SplitSeq(c.Long, "\n") {
				if len(line) > 110 {
					t.Errorf("%s: %s", c.CommandPath(), line)
				}
			}
		}
	}
}

// TestExamples: the help of every command without subcommands has an example, which names the
// command.
func TestExamples(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if !c.HasSubCommands() && !c.Hidden && c.Name() != "help" &&
			!strings.Contains(c.Example, c.CommandPath()) {
			t.Errorf("%s has no example", c.CommandPath())
		}
	}
	walk(newRoot(&cli.Env{Stdin: strings.NewReader(""), Stdout: cli.NewOutput(io.Discard),
		Stderr: io.Discard}))
}
