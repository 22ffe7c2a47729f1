package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vigil/cmd/vigilctl/exit"
)

// archiveCopy copies an archive of format version 1, which ends at revision 82.
func archiveCopy(t *testing.T) (dir, url string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "archive")
	if err := os.CopyFS(dir, os.DirFS("../../internal/offline/archived/testdata/v1")); err != nil {
		t.Fatal(err)
	}
	return dir, "file://" + dir
}

func TestArchive(t *testing.T) {
	dir, url := archiveCopy(t)
	code, out, text := vigilctl("archive", "list", url, "-w", "json")
	var list struct{ States []struct{ Revision int64 } }
	if err := json.Unmarshal([]byte(out), &list); code != 0 || err != nil || len(list.States) != 2 {
		t.Fatalf("%d %s %s", code, out, text)
	}
	if code, out, text := vigilctl("archive", "verify", url); code != 0 ||
		!strings.Contains(out,
			"2 states rebuilt, 1 of them also by entries; up to revision 82, index 115: nothing is damaged") {
		t.Errorf("%d %s %s", code, out, text)
	}
	for _, c := range []struct {
		code int
		text string
		args []string
	}{
		{0, "revision 1000000082, compacted at 1000000082", []string{"--latest"}},
		{0, "revision 60, ", []string{"--to-revision", "60", "--bump-revision", "0"}},
		{0, "restored the state of revision", []string{"--to-index", "70"}},
		{exit.Failure, "revision 83 cannot be restored: the archive reaches index 115, which is revision 82", []string{"--to-revision", "83"}},
		{exit.Failure, "is after the end of the archive",
			[]string{"--to-time", "2099-01-01 10:00"}},
		{exit.Failure, "is not a time", []string{"--to-time", "teatime"}},
		{exit.BadArgs, "which state?", nil},
		{exit.Failure, "no such file", []string{"--latest", "--identity", "/does/not/exist"}},
	} {
		data := filepath.Join(t.TempDir(), "m1")
		args := append([]string{"archive", "restore", url, "--data-dir", data}, c.args...)
		if code, out, text := vigilctl(args...); code != c.code ||
			!strings.Contains(out+text, c.text) {
			t.Errorf("%v: %d %s %s", c.args, code, out, text)
		}
		if _, err := os.Stat(data); (err == nil) != (c.code == 0) {
			t.Errorf("%v: %v", c.args, err)
		}
		if c.code == 0 {
			if code, out, text := vigilctl("check", data); code != 0 {
				t.Errorf("%v: %d %s %s", c.args, code, out, text)
			}
		}
	}

	// The newest log object is damaged: the rest is restored, and what is missing is said.
	logs, err := filepath.Glob(filepath.Join(dir, "log", "0000000000000061-*"))
	if err != nil || len(logs) != 1 {
		t.Fatal(logs, err)
	}
	good, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(logs[0], append([]byte{good[0] ^ 1}, good[1:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	name := "log/" + filepath.Base(logs[0])
	if code, out, _ := vigilctl("archive", "verify", url); code != exit.Failure ||
		!strings.Contains(out, "DAMAGED "+name+": ") {
		t.Errorf("%d %s", code, out)
	}
	data := filepath.Join(t.TempDir(), "m1")
	if code, out, text := vigilctl("archive", "restore", url, "--data-dir", data,
		"--latest"); code != 2 || !strings.Contains(text, "MISSING entries 97 to 115") ||
		!strings.Contains(text, "MISSING "+name) {
		t.Errorf("%d %s %s", code, out, text)
	}
	if code, out, text := vigilctl("check", data); code != 0 {
		t.Errorf("%d %s %s", code, out, text)
	}
}

func TestArchivePrune(t *testing.T) {
	dir, url := archiveCopy(t)
	if code, out, text := vigilctl("archive", "prune", url); code != exit.BadArgs ||
		!strings.Contains(text, "--keep-all") {
		t.Errorf("%d %s %s", code, out, text)
	}
	if code, out, text := vigilctl("archive", "prune", url, "--keep-all",
		"2x"); code != exit.Failure || !strings.Contains(text, "is not a period") {
		t.Errorf("%d %s %s", code, out, text)
	}
	if code, out, text := vigilctl("archive", "prune", url, "--keep-daily", "1d",
		"--dry-run"); code != 0 || !strings.Contains(out, "would remove 4 objects of 13") {
		t.Errorf("%d %s %s", code, out, text)
	}
	if code, out, text := vigilctl("archive", "prune", url, "--keep-daily", "1d"); code != 0 ||
		!strings.Contains(out, "removed 4 objects of 13") {
		t.Errorf("%d %s %s", code, out, text)
	}
	if code, out, text := vigilctl("archive", "verify", url); code != 0 ||
		!strings.Contains(out, "up to revision 82") {
		t.Errorf("%d %s %s", code, out, text)
	}
	left, err := filepath.Glob(filepath.Join(dir, "base", "*"))
	if err != nil || len(left) != 1 {
		t.Error(left, err)
	}
}

// What is no archive is refused.
func TestArchiveRefused(t *testing.T) {
	empty := t.TempDir()
	t.Setenv("PATH", "")
	for url, want := range map[string]string{
		"file://" + empty:           "there is no archive: vigil-archive.json is missing",
		"file://" + empty + "/none": "there is no such directory",
		empty:                       "has no scheme",
		"s3://bucket?x=secret":      "the program vigil-bucket is needed for it",
	} {
		if code, out, text := vigilctl("archive", "list", url); code != exit.Failure ||
			!strings.Contains(text, want) || strings.Contains(text, "secret") ||
			strings.Count(text, "\n") != 1 {
			t.Errorf("%s: %d %s %s", url, code, out, text)
		}
	}
}
