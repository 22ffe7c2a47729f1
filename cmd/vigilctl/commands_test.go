package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestShortened: commands may be shortened, but a directory is not taken for a command that loads the cluster.
func TestShortened(t *testing.T) {
	if code, out, _ := vigilctl("vers"); code != 0 || !strings.Contains(out, "API version: 3.7\n") {
		t.Errorf("%d %s", code, out)
	}
	t.Chdir(t.TempDir())
	if err := os.Mkdir("data", 0o755); err != nil {
		t.Fatal(err)
	}
	if code, _, text := vigilctl("check", "data"); code != exitNotMade || !strings.Contains(text, filepath.Join("data")) {
		t.Errorf("%d %s", code, text)
	}
}

func TestEnvironment(t *testing.T) {
	for _, c := range []struct {
		env, text string
		args      []string
	}{
		{"ETCDCTL_USER=x", "--user is given and ETCDCTL_USER is set, too", []string{"get", "k", "--user=y"}},
		{"VIGILCTL_USER=", "--user is given and VIGILCTL_USER is set, too", []string{"get", "k", "--user=y"}},
		{"ETCDCTL_HEX=maybe", "ETCDCTL_HEX", []string{"get", "k"}},
	} {
		t.Run(c.env, func(t *testing.T) {
			name, value, _ := strings.Cut(c.env, "=")
			t.Setenv(name, value)
			if code, _, text := vigilctl(c.args...); code != exitFailure || !strings.Contains(text, c.text) || strings.Count(text, "\n") != 1 {
				t.Errorf("%d %s", code, text)
			}
		})
	}
}

// TestCommandsSay: every command says what it is for, in lines that fit a terminal.
func TestCommandsSay(t *testing.T) {
	root := newRoot(strings.NewReader(""), &output{to: os.Stdout}, os.Stderr)
	for _, c := range root.Commands() {
		for _, c := range append(c.Commands(), c) {
			if c.Short == "" {
				t.Errorf("%s says nothing", c.CommandPath())
			}
			for line := range strings.SplitSeq(c.Long, "\n") {
				if len(line) > 110 {
					t.Errorf("%s: %s", c.CommandPath(), line)
				}
			}
		}
	}
}

func TestPasses(t *testing.T) {
	steady := make([]time.Duration, 150)
	for i := range steady {
		steady[i] = 5 * time.Millisecond
	}
	late := append([]time.Duration{600 * time.Millisecond}, steady[1:]...)
	for _, c := range []struct {
		o    outcome
		want string
	}{
		{outcome{took: time.Second, writes: steady}, "PASS: Throughput is 151 writes/s\nPASS: Slowest request took 0.005000s\nPASS: Stddev is 0.000000s\n"},
		{outcome{took: 2 * time.Second, writes: steady}, "FAIL: Throughput too low: 76 writes/s\nPASS: Slowest request took 0.005000s\nPASS: Stddev is 0.000000s\n"},
		{outcome{took: time.Second, writes: late}, "PASS: Throughput is 151 writes/s\nSlowest request took too long: 0.600000s\nPASS: Stddev is 0.048419s\n"},
		{outcome{took: time.Second, writes: steady, failures: map[string]int{"b": 2, "a": 1}}, "FAIL: too many errors\nFAIL: ERROR(a) -> 1\nFAIL: ERROR(b) -> 2\n" +
			"PASS: Throughput is 151 writes/s\nPASS: Slowest request took 0.005000s\nPASS: Stddev is 0.000000s\n"},
	} {
		var out strings.Builder
		if ok := c.o.passes(&out, 150); out.String() != c.want || ok != !strings.Contains(strings.ReplaceAll(c.want, "Slowest request took too", "FAIL"), "FAIL") {
			t.Errorf("%v:\n%swant\n%s", ok, out.String(), c.want)
		}
	}
}
