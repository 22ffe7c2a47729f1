package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// TestVersion: the lines that programs parse, and what the program was built from.
func TestVersion(t *testing.T) {
	var out bytes.Buffer
	if err := printVersion(&out, "simple"); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for i, begin := range []string{"Vigil Version: ", "etcd Version: 3.7.", "Git SHA: ",
		"Git Tree: ", "Go Version: go",
		"Go OS/Arch: "} {
		if !strings.HasPrefix(lines[i], begin) || lines[i] == begin {
			t.Errorf("line %d is %q, want %q", i, lines[i], begin)
		}
	}
	out.Reset()
	if err := printVersion(&out, "json"); err != nil {
		t.Fatal(err)
	}
	var v map[string]string
	if err := json.Unmarshal(out.Bytes(), &v); err != nil || v["vigil"] == "" || v["etcd"] == "" ||
		v["commit"] == "" ||
		v["tree"] == "" || v["go"] == "" || v["platform"] == "" {
		t.Errorf("%v, %v", v, err)
	}
}

// TestVersionWithMistakes: a mistake on the command line is one next to --version, too. The
// environment and a file are not looked at.
func TestVersionWithMistakes(t *testing.T) {
	for _, args := range [][]string{{"--version", "--nonsense"}, {"--nonsense", "--version"},
		{"--version", "--max-txn-ops=x"},
		{"--version=maybe"}, {"--version", "word"}} {
		if _, err := parse(args, nil); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
	for _, args := range [][]string{{"--version"}, {"-version", "--name=a"},
		{"--version", "--config-file=none"}} {
		if o, err := parse(args, []string{"ETCD_MAX_TXN_OPS=x"}); err != nil || !o.version {
			t.Errorf("%q: %v", args, err)
		}
	}
	if o, err := parse([]string{"--version=false"}, nil); err != nil || o.version {
		t.Error(err)
	}
}
