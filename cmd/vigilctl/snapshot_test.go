package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vigil/cmd/vigilctl/exit"
	"vigil/internal/offline/snapshot"
)

// backupFile makes a file of an empty store.
func backupFile(t *testing.T) string {
	t.Helper()
	p, err := snapshot.NewLayout().Finish(t.Context(),
		&snapshot.Contents{Compact: -1, StorageVersion: "3.7.0"})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := snapshot.Write(&b, p, nothing{}); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b.Bytes())
	name := filepath.Join(t.TempDir(), "backup.db")
	if err := os.WriteFile(name, append(b.Bytes(), sum[:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

type nothing struct{ snapshot.RecordIterator }

func (nothing) Next() bool { return false }
func (nothing) Err() error { return nil }

// vigilctl runs a command line.
func vigilctl(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(context.Background(), args, strings.NewReader(""), &out, &err)
	return code, out.String(), err.String()
}

func TestSnapshotStatus(t *testing.T) {
	file := backupFile(t)
	code, out, _ := vigilctl("snapshot", "status", file)
	if fields := strings.Split(out, ", "); code != 0 || len(fields) != 5 ||
		strings.Join(fields[1:], ", ") != "0, 0, 57 kB, 3.7.0\n" {
		t.Errorf("%d %s", code, out)
	}
	code, out, _ = vigilctl("snapshot", "status", file, "-w", "json")
	var st snapshot.Status
	if err := json.Unmarshal([]byte(out), &st); err != nil || code != 0 || st.TotalSize%4096 != 0 ||
		st.Version != "3.7.0" {
		t.Errorf("%d %s", code, out)
	}
	for _, c := range []struct {
		code int
		text string
		args []string
	}{
		{exit.BadArgs, "snapshot status requires exactly one argument", nil},
		{exit.Failure, "must be simple, table, json, yaml or fields",
			[]string{file, "-w", "protobuf"}},
		{exit.Failure, "no such file", []string{file + ".none"}},
		{exit.Failure, "is not a file", []string{filepath.Dir(file)}},
		{exit.Failure, "damaged database file", []string{"main.go"}},
	} {
		code, _, out := vigilctl(append([]string{"snapshot", "status"}, c.args...)...)
		if code != c.code || !strings.Contains(out, c.text) {
			t.Errorf("%q: %d %s", c.args, code, out)
		}
	}
}

func TestSnapshotRestore(t *testing.T) {
	file := backupFile(t)
	dir := filepath.Join(t.TempDir(), "data")
	code, out, advice := vigilctl("snapshot", "restore", file, "--data-dir", dir)
	if code != 0 || !strings.HasPrefix(out,
		"restored "+dir+": member 8e9e05c52164694d of cluster 6f6fb36f402c7d80, revision 1, not compacted, 0 records") ||
		!strings.Contains(advice, "WARNING") || !strings.Contains(advice, "--bump-revision") {
		t.Errorf("%d\n%s%s", code, out, advice)
	}
	_, _, advice = vigilctl("snapshot", "restore", file, "--data-dir", dir+"2", "--bump-revision",
		"5", "--mark-compacted")
	if !strings.HasPrefix(advice, "added member 8e9e05c52164694d (default) to cluster ") ||
		strings.Count(advice, "\n") != 1 {
		t.Errorf("with a raised revision: %s", advice)
	}
	if code, out, _ := vigilctl("check", dir); code != 0 {
		t.Errorf("check of what was restored: %d\n%s", code, out)
	}
	for _, c := range []struct {
		code int
		text string
		args []string
	}{
		{exit.BadArgs, "snapshot restore requires exactly one argument", nil},
		{exit.BadArgs, "the directory to build is a flag: vigilctl snapshot restore --data-dir newdir " + file, []string{file, "newdir"}},
		{exit.BadArgs, "the directory to build is a flag: vigilctl snapshot restore --data-dir newdir " + file, []string{"newdir", file}},
		{exit.BadArgs, "--mark-compacted required if --bump-revision > 0",
			[]string{file, "--bump-revision", "5"}},
		{exit.BadArgs, "--mark-compacted required if --bump-revision > 0",
			[]string{file, "--mark-compacted"}},
		{exit.Failure, `couldn't find local name "x"`, []string{file, "--name", "x"}},
		{exit.Failure, "they must be equal",
			[]string{file, "--initial-advertise-peer-urls", "http://h:1"}},
		{exit.Failure, "--initial-cluster: ", []string{file, "--initial-cluster", "default"}},
		{exit.Failure, "--initial-advertise-peer-urls: URL scheme",
			[]string{file, "--initial-advertise-peer-urls", "h:1"}},
		{exit.Failure, "not empty or could not be read", []string{file}},
		{exit.Failure, "not the data directory of an etcd member",
			[]string{filepath.Dir(file), "--data-dir", dir + "3"}},
	} {
		args := append([]string{"snapshot", "restore", "--data-dir", dir}, c.args...)
		code, _, out := vigilctl(args...)
		if code != c.code || !strings.Contains(out, c.text) {
			t.Errorf("%q: %d %s", c.args, code, out)
		}
	}
	if _, err := os.Stat(dir + "3"); err == nil {
		t.Error("something is left of what was refused")
	}
}

func TestSnapshotSave(t *testing.T) {
	file := filepath.Join(t.TempDir(), "backup.db")
	for _, c := range []struct {
		code int
		text string
		args []string
	}{
		{exit.BadArgs, "snapshot save expects one argument <filename>", nil},
		{exit.Interrupted, "snapshot must be requested to one selected node, not multiple",
			[]string{file, "--endpoints", "a:1,b:1"}},
		{exit.Failure, "a password is needed", []string{file, "--user", "root"}},
		{exit.Interrupted, "no such file or directory",
			[]string{filepath.Join(filepath.Dir(file), "missing", "backup.db"), "--endpoints",
				"127.0.0.1:1", "--dial-timeout", "100ms"}},
		{exit.Interrupted, "no member can be reached",
			[]string{file, "--endpoints", "127.0.0.1:1", "--dial-timeout", "100ms"}},
	} {
		code, _, out := vigilctl(append([]string{"snapshot", "save"}, c.args...)...)
		if code != c.code || !strings.Contains(out, c.text) {
			t.Errorf("%q: %d %s", c.args, code, out)
		}
	}
	t.Setenv("VIGILCTL_DIAL_TIMEOUT", "soon")
	if code, _, out := vigilctl("snapshot", "save", file); code != exit.Failure ||
		!strings.Contains(out, "VIGILCTL_DIAL_TIMEOUT") {
		t.Errorf("%d %s", code, out)
	}
	if names, _ := os.ReadDir(filepath.Dir(file)); len(names) > 0 {
		t.Errorf("%v is left", names)
	}
}
