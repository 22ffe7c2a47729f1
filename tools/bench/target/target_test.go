package target

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestPortTaken: a server whose port is in use is distinguished from a server that fails for
// another reason.
func TestPortTaken(t *testing.T) {
	l, err := NewLauncher("")
	if err != nil {
		t.Fatal(err)
	}
	for says, taken := range map[string]bool{"listen tcp 127.0.0.1:1: bind: address already in use": true, "no such file": false} {
		dir := t.TempDir()
		path := filepath.Join(dir, "server")
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho '"+says+"' >&2\nexit 1\n"),
			0o700); err != nil {
			t.Fatal(err)
		}
		s, err := l.Start(&Build{Name: "x", Path: path}, Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = s.Ready(t.Context()); err == nil || errors.Is(err, ErrPortTaken) != taken {
			t.Errorf("%q: %v", says, err)
		}
	}
}

func TestHas(t *testing.T) {
	b := &Build{help: "Usage:\n  --name 'default'\n  --log-level string  x\n  --pre-vote\n  --quota='1'\n  --last"}
	for flag, want := range map[string]bool{"name": true, "log-level": true, "log": false,
		"pre-vote": true, "pre": false,
		"quota": true, "last": true, "none": false} {
		if b.Has(flag) != want {
			t.Errorf("Has(%q) is not %v", flag, want)
		}
	}
}

func TestParseCPUs(t *testing.T) {
	set, err := parseCPUs("0,2-4")
	if err != nil || set.Count() != 4 || set.IsSet(1) || !set.IsSet(4) {
		t.Fatalf("%v %v", set, err)
	}
	for _, bad := range []string{"a", "1-", "3-1", "-1", "0,,1", "5000"} {
		if _, err := parseCPUs(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestCleanEnv(t *testing.T) {
	got := cleanEnv([]string{"PATH=/bin", "ETCD_NAME=x", "GOGC=1", "GOMAXPROCS=1", "HOME=/h"})
	if !slices.Equal(got, []string{"PATH=/bin", "HOME=/h"}) {
		t.Fatal(got)
	}
}
