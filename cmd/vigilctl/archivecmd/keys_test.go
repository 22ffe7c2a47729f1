package archivecmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"vigil/client"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/dumpfile"
	"vigil/cmd/vigilctl/exit"
	"vigil/internal/bucket"
	"vigil/internal/offline/archived"
	"vigil/internal/vfs"
	"vigil/server/servertest"
)

// golden is an archive whose newest revision is 82, with keys that begin with k.
const golden = "../../../internal/offline/archived/testdata/v1"

// world is a member, and the archive of another cluster.
type world struct {
	t        *testing.T
	endpoint string
	c        *client.Client
	dir, url string
	// onTxn, if set, is called before each transaction of the command; an error is the answer.
	onTxn func(n int, req any) error
	// lost are the numbers of the transactions, from 1 on, whose answers are lost.
	lost  map[int]bool
	txns  int
	stdin io.Reader
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, endpoint: servertest.Start(t), dir: filepath.Join(t.TempDir(), "archive"),
		stdin: strings.NewReader("")}
	if err := os.CopyFS(w.dir, os.DirFS(golden)); err != nil {
		t.Fatal(err)
	}
	w.url = "file://" + w.dir
	var err error
	if w.c, err = client.New(client.Config{Endpoints: []string{w.endpoint}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.c.Close() })
	return w
}

// intercept is between the command and the member.
func (w *world) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if !strings.HasSuffix(method, "KV/Txn") {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	w.txns++
	if w.onTxn != nil {
		if err := w.onTxn(w.txns, req); err != nil {
			return err
		}
	}
	err := invoke(ctx, method, req, reply, cc, opts...)
	if err == nil && w.lost[w.txns] {
		return rpctypes.ErrGRPCTimeout
	}
	return err
}

// restore runs the command.
func (w *world) restore(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	w.t.Helper()
	var out, text bytes.Buffer
	env := &cli.Env{Stdin: w.stdin, Stdout: cli.NewOutput(&out), Stderr: &text}
	env.Config.DialOptions = []grpc.DialOption{grpc.WithUnaryInterceptor(w.intercept)}
	root := &cobra.Command{Use: "vigilctl", PersistentPreRunE: env.Prepare, SilenceErrors: true,
		SilenceUsage: true}
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	env.AddFlags(root.PersistentFlags())
	root.AddCommand(Restore(env))
	root.SetArgs(append([]string{"restore", w.url, "--endpoints", w.endpoint}, args...))
	w.txns = 0
	err := root.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintln(&text, "Error:", err)
	}
	return exit.Code(err), out.String(), text.String()
}

// want is the state of the archive at a target: values by key.
func (w *world) want(t archived.Target, prefix string) map[string]string {
	w.t.Helper()
	p := w.past(t)
	defer p.Close()
	out := map[string]string{}
	for k, err := range p.Keys(w.t.Context(), prefix, client.PrefixEnd(prefix)) {
		w.must(err)
		out[string(k.Key)] = string(k.Value)
	}
	return out
}

func (w *world) past(t archived.Target) *archived.Past {
	w.t.Helper()
	a := w.open()
	p, err := a.OpenPast(w.t.Context(), t, vfs.OS(), w.t.TempDir(), nil)
	w.must(err)
	return p
}

// have is the state of the member.
func (w *world) have(prefix string) map[string]string {
	w.t.Helper()
	r, err := w.c.Get(w.t.Context(), prefix, client.WithPrefix())
	w.must(err)
	out := map[string]string{}
	for _, kv := range r.KVs {
		out[kv.Key] = string(kv.Value)
	}
	return out
}

func (w *world) revision() int64 {
	w.t.Helper()
	r, err := w.c.Get(w.t.Context(), "x")
	w.must(err)
	return r.Header.Revision
}

func (w *world) put(key, value string, opts ...client.PutOption) {
	w.t.Helper()
	_, err := w.c.Put(w.t.Context(), key, []byte(value), opts...)
	w.must(err)
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// expect runs the command, and checks its exit code and what it prints.
func (w *world) expect(code int, texts []string, args ...string) (stdout, stderr string) {
	w.t.Helper()
	got, stdout, stderr := w.restore(w.t.Context(), args...)
	if got != code {
		w.t.Errorf("%q: exit code %d, want %d\n%s%s", args, got, code, stdout, stderr)
	}
	for _, s := range texts {
		if !strings.Contains(stdout+stderr, s) {
			w.t.Errorf("%q does not print %q\n%s%s", args, s, stdout, stderr)
		}
	}
	return stdout, stderr
}

// Keys are created and changed, new ones are left or deleted, and only after the question was
// answered.
func TestRestoreKeys(t *testing.T) {
	w := newWorld(t)
	target := archived.Target{Revision: 82}
	want := w.want(target, "k")
	if len(want) < 10 {
		t.Fatalf("the archive has %d keys", len(want))
	}
	names := slices.Sorted(maps.Keys(want))
	w.put(names[0], "another value")
	w.put(names[1], want[names[1]])
	w.put("k-new", "x")
	w.put("other", "x")
	rev := w.revision()
	args := []string{"--to-revision", "82", "--prefix", "k"}
	counts := func(delete int) string {
		return fmt.Sprintf("revision 82 of the archive (index 115) against revision %d of cluster",
			rev) + "|" +
			fmt.Sprintf(": %d to create, 1 to change, %d to delete, 1 the same",
				len(want)-2, delete)
	}
	for _, c := range []struct {
		code   int
		args   []string
		answer string
		texts  []string
	}{
		{0, []string{"--dry-run"}, "yes\n",
			append(strings.Split(counts(0), "|"), "change "+names[0], "create "+names[2],
				"1 key did not exist then and is left")},
		{0, []string{"--dry-run", "--delete-new"}, "yes\n",
			append(strings.Split(counts(1), "|"), "delete k-new")},
		{0, []string{"--dry-run", "--list", "1"}, "",
			[]string{fmt.Sprintf("... and %d more", len(want)-2)}},
		{exit.Failure, nil, "", []string{"Type yes", "nothing was changed"}},
		{exit.Failure, nil, "no\n", []string{"nothing was changed"}},
	} {
		w.stdin = strings.NewReader(c.answer)
		w.expect(c.code, c.texts, append(args, c.args...)...)
		if now := w.revision(); now != rev {
			t.Fatalf("%q: revision %d, it was %d", c.args, now, rev)
		}
	}
	w.stdin = strings.NewReader("yes\n")
	w.expect(0, []string{fmt.Sprintf("restored: %d created, 1 changed, 0 deleted, 0 conflicts",
		len(want)-2), "note: the archive is of cluster 7 and"}, args...)
	have := w.have("k")
	if have["k-new"] != "x" {
		t.Error("the new key is gone")
	}
	delete(have, "k-new")
	if !maps.Equal(have, want) {
		t.Errorf("%v, want %v", have, want)
	}
	// Again there is nothing to do.
	rev = w.revision()
	w.expect(0, []string{fmt.Sprintf("0 to create, 0 to change, 0 to delete, %d the same",
		len(want))}, args...)
	if now := w.revision(); now != rev {
		t.Errorf("revision %d, it was %d", now, rev)
	}
	// As JSON, with the deletion.
	out, _ := w.expect(0, nil, append(args, "--yes", "--delete-new", "-w", "json")...)
	var lines []map[string]any
	for line := range strings.Lines(out) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		lines = append(lines, v)
	}
	if len(lines) != 3 || lines[0]["change"] != "delete" || lines[0]["key"] != "k-new" ||
		lines[1]["plan"].(map[string]any)["delete"] != 1.0 ||
		lines[2]["result"].(map[string]any)["deleted"] != 1.0 {
		t.Errorf("%s", out)
	}
	if have := w.have(""); len(have) != len(want)+1 || have["other"] != "x" {
		t.Errorf("%v", have)
	}
	// All keys.
	w.expect(0, []string{"1 key did not exist then and is left"}, "--to-revision", "82", "--prefix",
		"", "--dry-run")
}

// What somebody has changed since the plan was made is left and named; the rest is restored.
func TestRestoreConflicts(t *testing.T) {
	w := newWorld(t)
	want := w.want(archived.Target{}, "k")
	names := slices.Sorted(maps.Keys(want))
	for _, n := range names[:3] {
		w.put(n, "old")
	}
	w.put("k-new", "x")
	w.onTxn = func(n int, _ any) error {
		if n == 1 {
			w.put(names[0], "newer")                    // changed
			_, err := w.c.Delete(t.Context(), names[1]) // deleted
			w.must(err)
			w.put(names[2], want[names[2]]) // as it should be
			w.put(names[3], "newer")        // created
			w.put("k-new", "newer")
		}
		return nil
	}
	_, _ = w.expect(exit.Conflict, []string{
		"CONFLICT " + names[0] + " was changed at revision",
		"CONFLICT " + names[1] + " was deleted",
		"CONFLICT " + names[3] + " was created, and changed at revision",
		"CONFLICT k-new was changed",
		fmt.Sprintf("restored: %d created, 1 changed, 0 deleted, 4 conflicts", len(want)-4),
		"4 keys changed after the plan was made and left",
	}, "--latest", "--prefix", "k", "--yes", "--delete-new")
	have := w.have("k")
	if have[names[0]] != "newer" || have[names[3]] != "newer" || have["k-new"] != "newer" {
		t.Errorf("newer changes are lost: %v", have)
	}
	if _, ok := have[names[1]]; ok {
		t.Error("a key that was deleted later is back")
	}
	for _, n := range names[4:] {
		if have[n] != want[n] {
			t.Errorf("%s is %q", n, have[n])
		}
	}
	w.onTxn = nil
	w.expect(0, []string{"restored: 1 created, 2 changed, 1 deleted, 0 conflicts"}, "--latest",
		"--prefix", "k", "--yes", "--delete-new")
	if have := w.have("k"); !maps.Equal(have, want) {
		t.Errorf("%v, want %v", have, want)
	}
}

// Transactions are as small as the member wants them; lost answers and an interruption lose
// nothing.
func TestRestoreSmallTransactions(t *testing.T) {
	w := newWorld(t)
	want := w.want(archived.Target{}, "k")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	const most = 4
	limit := func(_ int, req any) error {
		if size(req) > most {
			return rpctypes.ErrGRPCTooManyOps
		}
		return nil
	}
	begun := 0
	w.onTxn = func(n int, req any) error {
		if err := limit(n, req); err != nil {
			return err
		}
		if begun++; begun == 3 {
			interrupt()
		}
		return nil
	}
	code, out, text := w.restore(ctx, "--latest", "--prefix", "k", "--yes")
	if code != exit.Interrupted || !strings.Contains(text, "not all is restored: ") ||
		!strings.Contains(text, "The same command does the rest") {
		t.Errorf("%d %s %s", code, out, text)
	}
	part := len(w.have("k"))
	if part == 0 || part >= len(want) {
		t.Fatalf("%d of %d keys after an interruption", part, len(want))
	}
	w.onTxn = limit
	w.lost = map[int]bool{2: true, 5: true, 6: true, 7: true, 8: true, 9: true}
	w.expect(0, []string{"0 conflicts", fmt.Sprintf("%d the same", part)}, "--latest",
		"--prefix", "k", "--yes")
	if have := w.have("k"); !maps.Equal(have, want) {
		t.Errorf("%v, want %v", have, want)
	}
	// A limit below one operation is an error that names the key.
	w.lost = nil
	w.onTxn = func(int, any) error { return rpctypes.ErrGRPCTooManyOps }
	_, err := w.c.Delete(t.Context(), "k", client.WithPrefix())
	w.must(err)
	names := slices.Sorted(maps.Keys(want))
	w.expect(exit.Failure,
		[]string{names[0] + " and the keys after it: etcdserver: too many operations", "0 created"},
		"--latest", "--prefix", "k", "--yes")
}

// size returns the number of conditions of a transaction.
func size(req any) int { return reflect.ValueOf(req).Elem().FieldByName("Compare").Len() }

// A key has its lease if that exists. A key whose lease has ended has none, or is left out; one
// that exists keeps its lease.
func TestRestoreLeases(t *testing.T) {
	w := newWorld(t)
	key, id := w.leased()
	want := w.want(archived.Target{}, "k")
	restore := []string{"--latest", "--prefix", "k", "--yes"}
	check := func(exists bool, lease client.LeaseID) {
		t.Helper()
		r, err := w.c.Get(t.Context(), key)
		w.must(err)
		if kv := r.KV(); exists != (kv != nil) ||
			kv != nil && (kv.Lease != lease || string(kv.Value) != want[key]) {
			t.Errorf("%s is %+v", key, kv)
		}
	}
	w.expect(0, []string{"1 key had a lease that has ended and is left out"},
		append(restore, "--skip-leased")...)
	check(false, 0)
	w.expect(0, []string{"1 to create, 0 to change",
		"1 key had a lease that has ended and is created without one"}, restore...)
	check(true, 0)
	w.expect(0, []string{"0 to create, 0 to change"}, restore...)

	// The lease exists: the key gets it.
	grant := func(id client.LeaseID) {
		t.Helper()
		_, err := w.c.Grant(t.Context(), 1<<30*time.Second, client.WithLeaseID(id))
		w.must(err)
	}
	grant(id)
	w.expect(0, []string{"0 to create, 1 to change"}, restore...)
	check(true, id)

	// It ends while keys are restored.
	_, err := w.c.Delete(t.Context(), "k", client.WithPrefix())
	w.must(err)
	w.onTxn = func(n int, _ any) error {
		if n == 1 {
			_, err := w.c.Revoke(t.Context(), id)
			w.must(err)
		}
		return nil
	}
	w.expect(0, []string{fmt.Sprintf("restored: %d created", len(want))}, restore...)
	check(true, 0)
	grant(id)
	_, err = w.c.Delete(t.Context(), "k", client.WithPrefix())
	w.must(err)
	w.expect(0, []string{fmt.Sprintf("restored: %d created", len(want)-1)},
		append(restore, "--skip-leased")...)
	check(false, 0)
	w.onTxn = nil

	// The owner of a key has registered it again: it keeps the lease of now.
	const present = client.LeaseID(4711)
	grant(present)
	w.put(key, want[key], client.WithLease(present))
	w.expect(0, []string{"0 to create, 0 to change"}, restore...)
	check(true, present)
	w.put(key, "another value", client.WithLease(present))
	w.expect(0, []string{"0 to create, 1 to change"}, restore...)
	check(true, present)

	// So it does if the one that it was to get ends while keys are restored.
	for _, args := range [][]string{restore, append(restore, "--skip-leased")} {
		grant(id)
		w.put(key, "another value", client.WithLease(present))
		w.onTxn = func(n int, _ any) error {
			if n == 1 {
				_, err := w.c.Revoke(t.Context(), id)
				w.must(err)
			}
			return nil
		}
		w.expect(0, []string{"restored: 0 created, 1 changed, 0 deleted, 0 conflicts\n"}, args...)
		check(true, present)
		w.onTxn = nil
	}
}

// A dump has the keys with their leases, and load and dump agree about its format.
func TestRestoreDump(t *testing.T) {
	w := newWorld(t)
	const rev, at = 82, "82"
	want := w.want(archived.Target{Revision: rev}, "k")
	path := filepath.Join(t.TempDir(), "k.jsonl")
	w.expect(0, []string{fmt.Sprintf("%s: %d keys and ", path, len(want)), " of revision " + at},
		"--to-revision", at, "--prefix", "k", "--dump", path)
	file, err := os.ReadFile(path)
	w.must(err)
	out, _ := w.expect(0, nil, "--to-revision", at, "--prefix", "k", "--dump", "-")
	if out != string(file) {
		t.Error("standard output has another dump")
	}
	d, err := dumpfile.NewReader(bytes.NewReader(file))
	w.must(err)
	if d.Header.ClusterID != "7" || d.Header.Revision != rev || d.Header.Keys != int64(len(want)) ||
		len(d.Header.Prefixes) != 1 || d.Header.Prefixes[0] != "k" {
		t.Errorf("%+v", d.Header)
	}
	have, leases := map[string]string{}, map[int64]bool{}
	for {
		k, l, err := d.Next()
		w.must(err)
		if k == nil && l == nil {
			break
		}
		if l != nil {
			if leases[int64(l.ID)] = true; l.TTL != 60 || l.Remaining < 1 || l.Remaining > 60 {
				t.Errorf("%+v", l)
			}
			continue
		}
		have[string(k.Key)] = string(k.Value)
		if k.Lease != 0 && !leases[int64(k.Lease)] {
			t.Errorf("%s is before its lease", k.Key)
		}
		if k.ModRevision == 0 || k.ModRevision > rev || k.Version == 0 {
			t.Errorf("%+v", k)
		}
	}
	if !maps.Equal(have, want) || len(leases) == 0 {
		t.Errorf("%v with leases %v, want %v", have, leases, want)
	}
	if len(w.have("")) > 0 {
		t.Error("a dump has written into the cluster")
	}
	// A file that exists is replaced, a directory is not, and an error leaves what there is.
	w.expect(exit.Failure, []string{"it is a directory"}, "--latest", "--prefix", "k",
		"--dump", t.TempDir())
	w.expect(exit.Failure, []string{"no key begins with zzz at revision 82"}, "--latest",
		"--prefix", "zzz", "--dump", path)
	if again, err := os.ReadFile(path); err != nil || !bytes.Equal(again, file) {
		t.Errorf("the file was changed: %v", err)
	}
	w.expect(0, []string{`{"dump":`, `"revision":82}`}, "--latest", "--prefix", "k", "--dump",
		path, "-w", "json")
}

// leased returns a key of the archive with its lease.
func (w *world) leased() (key string, id client.LeaseID) {
	w.t.Helper()
	p := w.past(archived.Target{})
	defer p.Close()
	for k, err := range p.Keys(w.t.Context(), "k", client.PrefixEnd("k")) {
		w.must(err)
		if k.Lease != 0 {
			return string(k.Key), client.LeaseID(k.Lease)
		}
	}
	w.t.Fatal("the archive has no key with a lease")
	return "", 0
}

// What cannot be restored is one clear error, and nothing is written.
func TestRestoreKeysRefused(t *testing.T) {
	w := newWorld(t)
	w.put("k00", "x")
	rev := w.revision()
	dump := filepath.Join(t.TempDir(), "k.jsonl")
	for _, c := range []struct {
		code int
		text string
		args []string
	}{
		{exit.Failure, "no key begins with zzz at revision 82 of the archive: nothing is restored",
			[]string{"--latest", "--prefix", "zzz"}},
		{exit.Failure, "revision 83 cannot be restored: the archive reaches index 115, which is revision 82", []string{"--to-revision", "83", "--prefix", "k"}},
		{exit.Failure, "is after the end of the archive",
			[]string{"--to-time", "2099-01-01 10:00", "--prefix", "k"}},
		{exit.Failure, "the first state is of 2027-01-15",
			[]string{"--to-time", "2001-01-01 10:00", "--prefix", "k"}},
		{exit.Failure, "index 999 cannot be restored: the archive reaches index 115",
			[]string{"--to-index", "999", "--prefix", "k"}},
		{exit.BadArgs, "which state?", []string{"--prefix", "k"}},
		{exit.BadArgs, "--to-revision -1 is negative",
			[]string{"--to-revision", "-1", "--prefix", "k"}},
		{exit.BadArgs, "--delete-new needs --prefix", []string{"--latest", "--delete-new"}},
		{exit.BadArgs, "--dump needs --prefix", []string{"--latest", "--dump", "x"}},
		{exit.BadArgs, "--data-dir builds a data directory and --prefix restores keys",
			[]string{"--latest", "--prefix", "k", "--data-dir", dump}},
		{exit.BadArgs, "--yes is about a running cluster and --dump writes a file",
			[]string{"--latest", "--prefix", "k", "--dump", dump, "--yes"}},
		{exit.BadArgs, "--dump needs the name of a file",
			[]string{"--latest", "--prefix", "k", "--dump", ""}},
		{exit.BadArgs, "--dry-run and --yes cannot be used together",
			[]string{"--latest", "--prefix", "k", "--dry-run", "--yes"}},
		{exit.BadArgs, "--list -1 is negative",
			[]string{"--latest", "--prefix", "k", "--list", "-1"}},
		{exit.BadArgs, "--prefix prints simple or json, not table",
			[]string{"--latest", "--prefix", "k", "-w", "table"}},
		{exit.Failure, "no such file",
			[]string{"--latest", "--prefix", "k", "--identity", "/does/not/exist"}},
	} {
		args := c.args
		if c.code == exit.Failure {
			args = append(args, "--yes", "--delete-new")
			if strings.Contains(c.text, "no key") {
				args = args[:len(args)-1]
			}
		}
		if _, stderr := w.expect(c.code, []string{c.text},
			args...); strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: %s", args, stderr)
		}
	}
	// Older states were pruned.
	for _, pattern := range []string{"base/0000000000000001-*", "log/0000000000000002-*"} {
		names, err := filepath.Glob(filepath.Join(w.dir, pattern))
		w.must(err)
		for _, n := range names {
			w.must(os.Remove(n))
		}
	}
	w.expect(exit.Failure, []string{"revision 5 cannot be restored: the first state is revision"},
		"--to-revision", "5", "--prefix", "k", "--yes")
	if now := w.revision(); now != rev {
		t.Errorf("revision %d, it was %d", now, rev)
	}
	if _, err := os.Stat(dump); err == nil {
		t.Error("a file is left")
	}
	// No member: before the archive is read.
	w.endpoint = "127.0.0.1:1"
	w.expect(exit.Failure, nil, "--latest", "--prefix", "k", "--yes", "--command-timeout", "100ms",
		"--dial-timeout", "100ms")
}

// The newest objects are damaged: the newest state that can be restored is used, and what is
// missing is printed before the question.
func TestRestoreKeysOfDamagedArchive(t *testing.T) {
	w := newWorld(t)
	logs, err := filepath.Glob(filepath.Join(w.dir, "log", "0000000000000061-*"))
	if err != nil || len(logs) != 1 {
		t.Fatal(logs, err)
	}
	data, err := os.ReadFile(logs[0])
	w.must(err)
	data[len(data)/2] ^= 1
	w.must(os.WriteFile(logs[0], data, 0o600))
	name := "log/" + filepath.Base(logs[0])
	want := w.want(archived.Target{}, "k")
	missing := []string{"MISSING entries 97 to 115 of the archive are not restored",
		"MISSING " + name + " is damaged"}
	_, stderr := w.expect(exit.Failure, missing, "--latest", "--prefix", "k")
	if i, j := strings.Index(stderr, "MISSING"), strings.Index(stderr, "Type yes"); i < 0 || j < i {
		t.Errorf("the question is before what is missing: %s", stderr)
	}
	w.expect(incomplete, append(missing, "restored: ", "is not the newest of the archive"),
		"--latest", "--prefix", "k", "--yes")
	if have := w.have("k"); !maps.Equal(have, want) {
		t.Errorf("%v, want %v", have, want)
	}
	dump := filepath.Join(t.TempDir(), "k.jsonl")
	w.expect(incomplete, missing, "--latest", "--prefix", "k", "--dump", dump)
	if _, err := os.Stat(dump); err != nil {
		t.Error(err)
	}
	// A target in the damaged part is refused.
	rev := w.revision()
	w.expect(exit.Failure, []string{"cannot be restored", name}, "--to-revision", "82",
		"--prefix", "k", "--yes")
	if now := w.revision(); now != rev {
		t.Errorf("revision %d, it was %d", now, rev)
	}
}

func (w *world) open() *archived.Archive {
	w.t.Helper()
	b, err := bucket.NewDirectory(vfs.OS(), w.dir, false)
	w.must(err)
	a, err := archived.Open(w.t.Context(), b, w.dir)
	w.must(err)
	return a
}

// A journal returns what was written, whatever the keys are, and reports a file that was cut off.
func TestJournal(t *testing.T) {
	j, err := newJournal(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer j.close()
	want := []change{{opCreate, "", 0, 0}, {opChange, "\x00\xff", 1 << 60, -7},
		{opDelete, strings.Repeat("k", 70_000), 5, 0}}
	for _, c := range want {
		if err := j.addChange(&c); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.flush(); err != nil {
		t.Fatal(err)
	}
	read := func() (out []change, err error) {
		if err := j.rewind(); err != nil {
			t.Fatal(err)
		}
		for {
			c, err := j.nextChange()
			if err != nil {
				return out, err
			}
			out = append(out, *c)
		}
	}
	if got, err := read(); err != io.EOF || !slices.Equal(got, want) {
		t.Errorf("%v", err)
	}
	if err := j.f.Truncate(60_000); err != nil {
		t.Fatal(err)
	}
	if got, err := read(); err == io.EOF || len(got) != 2 {
		t.Errorf("%d changes, %v", len(got), err)
	}
}
