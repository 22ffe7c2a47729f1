package cluster

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

// past is a cluster with an archive, of which keys are restored.
type past struct {
	*group
	url string
}

func startPast(t *testing.T, n int, args ...string) *past {
	t.Helper()
	bucket := filepath.Join(dir(t), "bucket")
	if err := os.Mkdir(bucket, 0o700); err != nil {
		t.Fatal(err)
	}
	p := &past{url: "file://" + bucket}
	p.group = start(t, n, append(args, "--archive="+p.url)...)
	// Only what is written after the first base state can be restored.
	p.until("the first base state", func() bool {
		for _, m := range p.list {
			if st, ok := p.archive(m); ok && st.Bases > 0 {
				return true
			}
		}
		return false
	})
	return p
}

// restore is the command line that restores the keys of a revision.
func (p *past) restore(revision int64, prefix string, args ...string) []string {
	var endpoints []string
	for _, m := range p.list {
		endpoints = append(endpoints, m.Addr())
	}
	return append([]string{"archive", "restore", p.url, "--to-revision",
		strconv.FormatInt(revision, 10), "--prefix", prefix, "--endpoints",
		strings.Join(endpoints, ",")}, args...)
}

// run runs the command.
func (p *past) run(code int, args ...string) (stdout, stderr string) {
	p.t.Helper()
	r := proc.Run(p.t, patience, proc.Spec{Name: proc.Path(p.t, proc.Vigilctl), Args: args})
	if r.Code != code {
		p.t.Errorf("vigilctl %q: exit code %d, want %d\n%s%s", args, r.Code, code,
			r.Stdout, r.Stderr)
	}
	return r.Stdout, r.Stderr
}

// process starts the command, whose question the test answers.
func (p *past) process(args ...string) (c *exec.Cmd, answer io.WriteCloser, out *proc.Log) {
	p.t.Helper()
	c = exec.Command(proc.Path(p.t, proc.Vigilctl), args...)
	out = &proc.Log{}
	c.Stdout, c.Stderr = out, out
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	answer, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return c, answer, out
}

// keys returns the values and leases of the keys with a prefix, and the revision.
func (p *past) keys(prefix string) (map[string]string, int64) {
	p.t.Helper()
	r, err := p.list[0].client.Get(proc.Context(p.t), prefix, clientv3.WithPrefix())
	if err != nil {
		p.t.Fatal(err)
	}
	out := map[string]string{}
	for _, kv := range r.Kvs {
		out[string(kv.Key)] = fmt.Sprintf("%q with lease %x", kv.Value, kv.Lease)
	}
	return out, r.Header.Revision
}

func (p *past) delete(key string, opts ...clientv3.OpOption) {
	p.t.Helper()
	if _, err := p.list[0].client.Delete(proc.Context(p.t), key, opts...); err != nil {
		p.t.Fatal(err)
	}
}

// Somebody has deleted a prefix, and others have written since. What was deleted comes back, by the
// cluster's own archive, and no other newer change is lost, also one that is made while the plan is
// shown.
func TestRestoreDeletedPrefix(t *testing.T) {
	t.Parallel()
	p := startPast(t, 3, steady)
	ctx := proc.Context(t)
	m := p.list[0]
	lives, err := m.client.Grant(ctx, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	ends, err := m.client.Grant(ctx, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 230 {
		p.put(m, fmt.Sprintf("app/%03d", i), fmt.Sprintf("value %d", i))
	}
	p.put(m, "app/\x00\xff\xfe", "\x00\xff\n\x80")
	p.put(m, "app/large", strings.Repeat("\xff\x00", 600<<10))
	p.put(m, "app/leased", "l", clientv3.WithLease(lives.ID))
	p.put(m, "app/session", "s", clientv3.WithLease(ends.ID))
	p.put(m, "apq", "next")
	want, good := p.keys("app/")

	// The mistake, and what happens after it.
	p.delete("app/", clientv3.WithPrefix())
	p.delete("apq")
	p.put(m, "app/000", "value 0") // somebody has repaired it
	p.put(m, "app/001", "newer")
	p.put(m, "app/new", "new")
	if _, err := m.client.Revoke(ctx, ends.ID); err != nil {
		t.Fatal(err)
	}
	_, rev := p.keys("app/")
	p.awaitArchived(rev)

	summary := ": 232 to create, 1 to change, 0 to delete, 1 the same"
	out, _ := p.run(0, p.restore(good, "app/", "--dry-run")...)
	for _, s := range []string{summary, "change app/001\n", "create \"app/\\x00\\xff\\xfe\"\n",
		"... and 213 more", "1 key did not exist then and is left",
		"1 key had a lease that has ended and is created without one"} {
		if !strings.Contains(out, s) {
			t.Errorf("no %q in\n%s", s, out)
		}
	}
	if _, now := p.keys("app/"); now != rev {
		t.Fatalf("the dry run has written: revision %d, it was %d", now, rev)
	}

	// While the question is open, others change keys.
	c, answer, log := p.process(p.restore(good, "app/")...)
	select {
	case <-log.Wait("Type yes: "):
	case <-ctx.Done():
		t.Fatal(log)
	}
	p.put(m, "app/001", "newest")
	p.put(m, "app/007", "theirs")
	p.delete("app/000")
	if _, err := io.WriteString(answer, "yes\n"); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // the exit code is looked at
	if code := c.ProcessState.ExitCode(); code != 6 {
		t.Errorf("exit code %d\n%s", code, log)
	}
	for _, s := range []string{"CONFLICT app/001 was changed at revision ",
		"CONFLICT app/007 was created, and changed at revision ",
		"restored: 231 created, 0 changed, 0 deleted, 2 conflicts"} {
		if !strings.Contains(log.String(), s) {
			t.Errorf("no %q in\n%s", s, log)
		}
	}
	have, _ := p.keys("app/")
	if have["app/001"] != `"newest" with lease 0` || have["app/007"] != `"theirs" with lease 0` ||
		have["app/new"] == "" || have["app/000"] != "" {
		t.Errorf("newer changes are lost: %q %q %q %q", have["app/001"], have["app/007"],
			have["app/new"], have["app/000"])
	}

	// A new plan has what is left.
	want["app/session"] = `"s" with lease 0`
	out, _ = p.run(0, p.restore(good, "app/", "--yes", "--delete-new", "-w", "json")...)
	if !strings.Contains(out,
		`{"result":{"created":1,"changed":2,"deleted":1,"conflicts":0,"skippedLeased":0}}`) {
		t.Error(out)
	}
	have, rev = p.keys("app/")
	if !maps.Equal(have, want) {
		t.Errorf("%d keys, want %d", len(have), len(want))
		for k, v := range want {
			if have[k] != v && len(v) < 1000 {
				t.Errorf("%q is %s, want %s", k, have[k], v)
			}
		}
	}
	if other, _ := p.keys("apq"); len(other) > 0 {
		t.Error("a key without the prefix was restored")
	}
	p.run(0, p.restore(good, "app/", "--yes", "--delete-new")...)
	if _, now := p.keys("app/"); now != rev {
		t.Errorf("a restore of what is there has written: revision %d, it was %d", now, rev)
	}
}

// A restore that is interrupted has made some of the changes; the next one makes the others.
func TestRestoreInterrupted(t *testing.T) {
	t.Parallel()
	p := startPast(t, 3, steady)
	ctx := proc.Context(t)
	m := p.list[0]
	const n = 20_000
	value := strings.Repeat("x", 100)
	for i := 0; i < n; i += 100 {
		var ops []clientv3.Op
		for j := range 100 {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("app/%05d", i+j), value))
		}
		if _, err := m.client.Txn(ctx).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	_, good := p.keys("app/")
	p.delete("app/", clientv3.WithPrefix())
	_, rev := p.keys("app/")
	p.awaitArchived(rev)
	have := 0
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		begun := m.client.Watch(ctx, "app/", clientv3.WithPrefix())
		c, answer, log := p.process(p.restore(good, "app/", "--yes")...)
		_ = answer.Close()
		if _, ok := <-begun; !ok {
			t.Fatal(log)
		}
		if err := c.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait() // the exit code is looked at
		if code := c.ProcessState.ExitCode(); sig == syscall.SIGINT &&
			(code != 5 || !strings.Contains(log.String(), "The same command does the rest")) {
			t.Errorf("exit code %d\n%s", code, log)
		}
		keys, _ := p.keys("app/")
		if len(keys) <= have || len(keys) >= n {
			t.Fatalf("%v: %d keys of %d, before it were %d\n%s", sig, len(keys), n, have, log)
		}
		have = len(keys)
	}
	out, _ := p.run(0, p.restore(good, "app/", "--yes")...)
	if want := fmt.Sprintf("restored: %d created, 0 changed",
		n-have); !strings.Contains(out, want) {
		t.Errorf("no %q in\n%s", want, out)
	}
	if keys, _ := p.keys("app/"); len(keys) != n {
		t.Errorf("%d keys", len(keys))
	}
}

// A user restores what the user may read and write, and learns of everything else before anything
// is written.
func TestRestoreDenied(t *testing.T) {
	t.Parallel()
	p := startPast(t, 1, "--bcrypt-cost=4")
	ctx := proc.Context(t)
	c := p.list[0].client
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p.put(p.list[0], "app/1", "x")
	p.put(p.list[0], "app/2", "x")
	keys, good := p.keys("app/")
	p.delete("app/", clientv3.WithPrefix())
	for user, permission := range map[string]clientv3.PermissionType{"root": 0,
		"reader": clientv3.PermissionType(clientv3.PermRead),
		"writer": clientv3.PermissionType(clientv3.PermWrite),
		"both":   clientv3.PermissionType(clientv3.PermReadWrite)} {
		must(c.UserAdd(ctx, user, "secret"))
		must(c.RoleAdd(ctx, user))
		if user != "root" {
			must(c.RoleGrantPermission(ctx, user, "app/", "app0", permission))
		}
		must(c.UserGrantRole(ctx, user, user))
	}
	_, rev := p.keys("app/")
	p.awaitArchived(rev)
	must(c.AuthEnable(ctx))
	for user, want := range map[string]string{"reader": "permission denied",
		"writer": "permission denied", "nobody": "authentication failed",
		"both:wrong": "authentication failed"} {
		name, password, _ := strings.Cut(user, ":")
		if password == "" {
			password = "secret"
		}
		if r := proc.Run(t, patience,
			proc.Spec{Name: proc.Path(t, proc.Vigilctl),
				Args: p.restore(good, "app/", "--yes", "--user",
					name+":"+password)}); r.Code == 0 || !strings.Contains(r.Stderr, want) {
			t.Errorf("%s: %d %s%s", user, r.Code, r.Stdout, r.Stderr)
		}
	}
	if _, stderr := p.run(1,
		p.restore(good, "a", "--yes", "--user", "both:secret")...); !strings.Contains(stderr,
		"permission denied") {
		t.Error(stderr)
	}
	root := proc.Run(t, patience,
		proc.Spec{Name: proc.Path(t, proc.Vigilctl),
			Args: []string{"get", "--prefix", "app/", "-w", "fields", "--user", "root:secret",
				"--endpoints", p.list[0].Addr()}})
	if root.Code != 0 || strings.Contains(root.Stdout, "\"Key\"") ||
		!strings.Contains(root.Stdout, fmt.Sprintf("\"Revision\" : %d", rev)) {
		t.Errorf("something was written: %s%s", root.Stdout, root.Stderr)
	}
	if out, _ := p.run(0,
		p.restore(good, "app/", "--yes", "--user", "both:secret")...); !strings.Contains(out,
		fmt.Sprintf("restored: %d created", len(keys))) {
		t.Error(out)
	}
}
