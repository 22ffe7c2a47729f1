package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/offline/datadir"
	"vigil/internal/store/history"
	"vigil/internal/store/wal"
	"vigil/internal/vfs"
)

// dataDir makes a small data directory and a checkpoint of its store.
func dataDir(t *testing.T) (dir, checkpoint string) {
	t.Helper()
	root := t.TempDir()
	dir, checkpoint = filepath.Join(root, "infra0.etcd"), filepath.Join(root, "checkpoint")
	id := wal.Identity{ClusterID: 0xc1, MemberID: 0x11}
	h, err := history.Create(history.Options{FS: vfs.OS(), Dir: filepath.Join(dir, "history"),
		SegmentBytes: 4 << 10,
		ClusterID:    id.ClusterID, MemberID: id.MemberID}, history.Applied{Term: 1, Index: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := wal.Create(wal.Options{FS: vfs.OS(), Dir: filepath.Join(dir, "wal"),
		SegmentBytes: 8 << 10, ID: id}, wal.Start{Index: 1, Term: 1})
	if err != nil {
		t.Fatal(err)
	}
	term, one := uint64(2), uint64(1)
	for i := uint64(2); i < 60; i++ {
		data := bytes.Repeat([]byte{byte(i)}, 100)
		err := w.Append(wal.Batch{Entries: []*raftpb.Entry{{Term: &term, Index: &i, Data: data}},
			HardState: &raftpb.HardState{Term: &term, Vote: &one, Commit: &i}, Sync: true})
		if err == nil {
			_, err = h.AppendKV(kv.Rev{Main: int64(i)}, false, data)
		}
		if err == nil {
			err = h.Commit(history.Applied{Term: term, Index: i})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.Checkpoint(context.Background(), checkpoint, "history"); err != nil {
		t.Fatal(err)
	}
	lock, err := vfs.OS().Lock(filepath.Join(dir, "LOCK"))
	if err := errors.Join(err, lock.Close(), w.Close(), h.Close()); err != nil {
		t.Fatal(err)
	}
	return dir, checkpoint
}

// snapshot is the content of all files below a directory.
func content(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		c, err := os.ReadFile(path)
		fmt.Fprintf(&b, "%s %d %q\n", path, len(c), c)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// runUnchanged runs vigilctl, which must not change dir.
func runUnchanged(t *testing.T, dir string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	before := content(t, dir)
	var out, errs bytes.Buffer
	code = run(context.Background(), args, strings.NewReader(""), &out, &errs)
	if content(t, dir) != before {
		t.Errorf("%q changed the directory", args)
	}
	return code, out.String(), errs.String()
}

func flip(t *testing.T, name string, off int64) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err == nil {
		b[off] ^= 4
		err = os.WriteFile(name, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestCheck(t *testing.T) {
	dir, checkpoint := dataDir(t)
	wants := func(code, want int, out string, parts ...string) {
		t.Helper()
		if code != want {
			t.Errorf("exit code %d, want %d:\n%s", code, want, out)
		}
		for _, p := range parts {
			if !regexp.MustCompile(p).MatchString(out) {
				t.Errorf("nothing matches %q in\n%s", p, out)
			}
		}
	}
	code, out, errs := runUnchanged(t, dir, "check", dir)
	wants(code, 0, out+errs, `FILE +KIND +VERSION`,
		`history/0000000000000001-0000000000000001-00000000.seg +sealed +1 +1 .* ok\n`,
		`\.log +open +1`, `wal/0000000000000001.wal +segment +1`, `cluster c1, member 11`,
		`revision 59, .* term 2, index 59`,
		`entries 2 to 59, the last of term 2, committed up to 59`, `nothing is damaged\n$`)
	code, out, errs = runUnchanged(t, checkpoint, "check", checkpoint+"/")
	wants(code, 0, out+errs, `\(checkpoint\)`, `revision 59`)
	code, out, _ = runUnchanged(t, dir, "check", "-w", "simple", filepath.Join(dir, "wal"))
	wants(code, 0, out, `(?m)^0000000000000001\.wal, segment, 1, 1, .*, ok$`)
	code, out, _ = runUnchanged(t, dir, "check", "--write-out=json", dir)
	var r datadir.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || r.Revision != 59 ||
		r.LastIndex != 59 || r.LastTerm != 2 || len(r.Files) < 5 || r.Damages == nil {
		t.Errorf("%d, %v:\n%s", code, err, out)
	}

	// The raft log elsewhere.
	moved := filepath.Join(filepath.Dir(dir), "moved")
	if err := os.Rename(filepath.Join(dir, "wal"), moved); err != nil {
		t.Fatal(err)
	}
	code, out, _ = runUnchanged(t, dir, "check", dir)
	wants(code, 1, out, `DAMAGED .*/wal: offset 0: there is a store and no raft log`)
	code, out, _ = runUnchanged(t, dir, "check", "--wal-dir", moved, dir)
	wants(code, 0, out, `entries 2 to 59`)
	if err := os.Rename(moved, filepath.Join(dir, "wal")); err != nil {
		t.Fatal(err)
	}

	// Damage in two files.
	seg, log := filepath.Join(dir, "history", "0000000000000001-0000000000000001-00000000.seg"),
		filepath.Join(dir, "wal", "0000000000000001.wal")
	flip(t, seg, 1000)
	flip(t, log, 5000)
	code, out, errs = runUnchanged(t, dir, "check", dir)
	wants(code, 1, out, `DAMAGED `+seg+`: offset \d+: `, `DAMAGED `+log+`: offset \d+: `,
		`damaged at \d+\n`, `2 damaged\n$`)
	if errs != "" {
		t.Errorf("stderr: %s", errs)
	}
	code, out, _ = runUnchanged(t, dir, "check", "-w", "json", dir)
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 1 || len(r.Damages) != 2 ||
		r.Damages[0].Path != seg || r.Damages[0].Offset > 1000 {
		t.Errorf("%d, %v:\n%s", code, err, out)
	}

	// In use.
	lock, err := vfs.OS().Lock(filepath.Join(dir, "LOCK"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	for _, d := range []string{dir, filepath.Join(dir, "history"), filepath.Join(dir, "wal")} {
		code, out, errs = runUnchanged(t, dir, "check", d)
		wants(code, 2, errs, `a running member has .* open; .*--live`)
		if out != "" {
			t.Errorf("stdout: %s", out)
		}
	}
	code, out, _ = runUnchanged(t, dir, "check", "--live", dir)
	wants(code, 1, out, `sealed segments only`, `DAMAGED `+seg+`: offset`,
		`\n\d+ files, .* 1 damaged\n$`)
}

func TestCheckRefuses(t *testing.T) {
	empty, etcd := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(etcd, "member", "snap"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"check"}, 128, "takes one directory, not 0"},
		{[]string{"check", "a", "b"}, 128, "takes one directory, not 2"},
		{[]string{"check", "-w", "xml", "a"}, 1, `"xml".*must be table, simple or json`},
		{[]string{"check", "--nonsense", "a"}, 1, "nonsense"},
		{[]string{"nonsense"}, 1, `unknown command "nonsense"`},
		{[]string{"check", "/does/not/exist"}, 2, "no such file"},
		{[]string{"check", file}, 2, "not a data directory"},
		{[]string{"check", empty}, 2,
			"not a data directory: there is neither history nor wal in it"},
		{[]string{"check", etcd}, 2, "of an etcd member; use etcdutl"},
	} {
		code, out, errs := runUnchanged(t, empty, c.args...)
		if code != c.code || out != "" || !regexp.MustCompile(c.want).MatchString(errs) ||
			strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", c.args, code, out, errs)
		}
	}
	var out, errs bytes.Buffer
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	dir, _ := dataDir(t)
	if code := run(canceled, []string{"check", dir}, strings.NewReader(""), &out,
		&errs); code != 2 || !strings.Contains(errs.String(), "interrupted") {
		t.Errorf("exit code %d, %s", code, errs.String())
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"check", "--help"}, {"help", "check"}, {}} {
		var out, errs bytes.Buffer
		if code := run(context.Background(), args, strings.NewReader(""), &out, &errs); code != 0 ||
			!strings.Contains(out.String(), "Usage:") || errs.Len() > 0 {
			t.Errorf("%q: exit code %d\n%s%s", args, code, out.String(), errs.String())
		}
	}
}
