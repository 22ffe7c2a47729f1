package backup

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

// TestRoundTrip: a stock etcd, its snapshot in Vigil, Vigil's snapshot in a stock etcd, all with
// the same content.
func TestRoundTrip(t *testing.T) {
	etcd := proc.Start(t, proc.Config{Program: proc.Etcd, Memory: true})
	fill(t, client(t, etcd, false))
	want := dump(t, etcd, true, 3)
	file := save(t, etcd, "etcd.db", true)
	etcd.Kill()
	t.Logf("the dump has %d lines", strings.Count(want, "\n"))

	// What both tools say of a file is the same.
	for _, format := range []string{"simple", "json", "fields", "table"} {
		theirs := run(t, proc.Etcdutl, "-w", format, "snapshot", "status", file)
		if ours := run(t, proc.Vigilctl, "snapshot", "status", file, "-w", format); ours != theirs {
			t.Errorf("status -w %s\n%s\netcdutl says\n%s", format, ours, theirs)
		}
	}

	ours := run(t, proc.Vigilctl, "hashkv", file)
	before := run(t, proc.Vigilctl, "hashkv", file, "--rev", "150", "-w", "json")

	vigil := restore(t, proc.Vigilctl, proc.Vigil, file)
	equal(t, "Vigil", dump(t, vigil, true, 3), want)
	// etcdutl may change the file.
	if theirs := run(t, proc.Etcdutl, "hashkv", file); ours != theirs {
		t.Errorf("hashkv %setcdutl says %s", ours, theirs)
	}
	if theirs := run(t, proc.Etcdutl, "hashkv", file, "--rev", "150", "-w",
		"json"); before != theirs {
		t.Errorf("hashkv --rev %setcdutl says %s", before, theirs)
	}
	back := save(t, vigil, "vigil.db", true)
	own := filepath.Join(proc.Dir(t), "own.db")
	run(t, proc.Vigilctl, "snapshot", "save", own, "--endpoints", vigil.Addr(), "--user", root)
	vigil.Kill()
	// Only the position in the raft log is another one.
	_, a, _ := strings.Cut(run(t, proc.Vigilctl, "snapshot", "status", back), ", ")
	_, b, _ := strings.Cut(run(t, proc.Vigilctl, "snapshot", "status", own), ", ")
	if a != b {
		t.Errorf("etcdctl has saved %sand vigilctl %s", a, b)
	}
	theirs := run(t, proc.Etcdutl, "snapshot", "status", back)
	if ours := run(t, proc.Vigilctl, "snapshot", "status", back); ours != theirs {
		t.Errorf("status %setcdutl says %s", ours, theirs)
	}

	again := restore(t, proc.Etcdutl, proc.Etcd, back)
	equal(t, "etcd again", dump(t, again, true, 3), want)
	// It goes on: the file is one that the database can change.
	c := client(t, again, true)
	for i := range 300 {
		must(c.Put(t.Context(), "key-01", strings.Repeat("x", i)))(t)
	}
	rev := must(c.Get(t.Context(), "key-01"))(t).Header.Revision
	must(c.Compact(t.Context(), rev, clientv3.WithCompactPhysical()))(t)
	must(c.Defragment(t.Context(), again.Addr()))(t)
}

// TestDataDir: the data directory of an etcd that was killed while it was written to, with its raft
// log, holds in Vigil what it holds in etcd.
func TestDataDir(t *testing.T) {
	etcd := proc.Start(t, proc.Config{Program: proc.Etcd, Memory: true})
	c := client(t, etcd, false)
	fill(t, c)
	c = client(t, etcd, true)
	ctx := t.Context()
	// The database is written ten times a second; what comes now is in the raft log only when the
	// member is killed.
	l := must(c.Grant(ctx, 777))(t)
	must(c.Put(ctx, "last-1", "1", clientv3.WithLease(l.ID)))(t)
	must(c.Txn(ctx).If(clientv3.Compare(clientv3.Value("last-1"), "=",
		"1")).Then(clientv3.OpPut("last-2", "2"),
		clientv3.OpDelete("key-", clientv3.WithPrefix())).Commit())(t)
	must(c.RoleAdd(ctx, "late"))(t)
	must(c.UserAdd(ctx, "late", "late"))(t)
	must(c.UserGrantRole(ctx, "late", "late"))(t)
	must(c.UserChangePassword(ctx, "bob", "bob's"))(t)
	rev := must(c.Put(ctx, "last-3", "3"))(t).Header.Revision
	must(c.Compact(ctx, rev-5))(t)
	must(c.Put(ctx, "last-4", "4"))(t)
	etcd.Kill()

	copied := filepath.Join(proc.Dir(t), "copy")
	if err := os.CopyFS(copied, os.DirFS(etcd.DataDir())); err != nil {
		t.Fatal(err)
	}
	vigil := restore(t, proc.Vigilctl, proc.Vigil, copied)
	etcd.Restart()
	equal(t, "Vigil", dump(t, vigil, true, 10), dump(t, etcd, true, 10))

	// While a member uses the directory it is refused.
	if out := refused(t, proc.Vigilctl, "snapshot", "restore", etcd.DataDir(), "--data-dir",
		filepath.Join(proc.Dir(t), "no")); !strings.Contains(out, "in use: stop the etcd member") {
		t.Errorf("a directory in use: %s", out)
	}
}

// TestBumpRevision: with a raised revision, no client takes what it knows for a part of the new
// state.
func TestBumpRevision(t *testing.T) {
	etcd := proc.Start(t, proc.Config{Program: proc.Etcd, Memory: true})
	fill(t, client(t, etcd, false))
	c := client(t, etcd, true)
	file := save(t, etcd, "etcd.db", true)
	seen := must(c.Put(t.Context(), "later", "lost"))(t).Header.Revision
	etcd.Kill()
	bump := []string{"--bump-revision", "1000", "--mark-compacted"}
	vigil := restore(t, proc.Vigilctl, proc.Vigil, file, bump...)
	stock := restore(t, proc.Etcdutl, proc.Etcd, file, bump...)
	for _, s := range []*proc.Server{vigil, stock} {
		c := client(t, s, true)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		now := must(c.Get(ctx, "key-01"))(t)
		if want := seen - 1 + 1000; now.Header.Revision != want {
			t.Errorf("%s is at revision %d, want %d", s.DataDir(), now.Header.Revision, want)
		}
		_, err := c.Get(ctx, "key-01", clientv3.WithRev(seen))
		if err == nil || !strings.Contains(err.Error(), "required revision has been compacted") {
			t.Errorf("a read at what was seen: %v", err)
		}
		r, ok := <-c.Watch(ctx, "key-01", clientv3.WithRev(seen+1))
		if !ok || r.CompactRevision != seen-1+1000 {
			t.Errorf("a watch from what was seen: %+v", r)
		}
		if put := must(c.Put(ctx, "key-01", "new"))(t); put.Header.Revision != seen+1000 {
			t.Errorf("the next revision is %d", put.Header.Revision)
		}
	}
}

// TestDamaged: a damaged file is rejected by etcdutl's rules and no file remains.
func TestDamaged(t *testing.T) {
	vigil := proc.Start(t, proc.Config{Memory: true})
	c := client(t, vigil, false)
	for range 20 {
		must(c.Put(t.Context(), "k", strings.Repeat("v", 500)))(t)
	}
	file := save(t, vigil, "good.db", false)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := proc.Dir(t)
	try := func(what string, b []byte, words ...string) {
		t.Helper()
		bad, to := filepath.Join(dir, "bad.db"), filepath.Join(dir, "to")
		if err := os.WriteFile(bad, b, 0o600); err != nil {
			t.Fatal(err)
		}
		out := refused(t, proc.Vigilctl, "snapshot", "restore", bad, "--data-dir", to)
		for _, w := range append(words, bad) {
			if !strings.Contains(out, w) {
				t.Errorf("%s: %s", what, out)
			}
		}
		if _, err := os.Stat(to); !os.IsNotExist(err) {
			t.Fatalf("%s: %s is left", what, to)
		}
	}
	for at := 100; at < len(good); at += len(good)/6 + 1 {
		b := append([]byte(nil), good...)
		b[at] ^= 1
		try("a flipped bit", b, "expected sha256")
	}
	try("without hash", good[:len(good)-32], "snapshot missing hash but --skip-hash-check=false")
	try("cut", good[:len(good)/2], "snapshot missing hash")
	try("cut to look whole", good[:4096*4+32], "expected sha256")
	try("nothing", nil, "snapshot missing hash")
	// A file without its hash is taken if that is asked for.
	bare := filepath.Join(dir, "bare.db")
	if err := os.WriteFile(bare, good[:len(good)-32], 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, proc.Vigilctl, "snapshot", "restore", bare, "--data-dir", filepath.Join(dir, "bare"),
		"--skip-hash-check")
}
