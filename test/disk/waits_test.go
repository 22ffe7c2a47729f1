package disk

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

// TestEntriesWait fills the disk of a single member further than puts are accepted: a deletion that
// is larger than what is kept for deletions is committed and cannot be applied. The member says so
// everywhere, and that nothing but free space helps. With space again it goes on, and the deletion
// has its effect.
func TestEntriesWait(t *testing.T) {
	vigilOnly(t)
	dir := mountSmall(t, "tmpfs", 256*mib)
	s := proc.Start(t, proc.Config{DataDir: dir + "/data"})
	c := dial(t, s)
	const keys = 60_000
	fillKeys(t, c, keys)
	file, _ := foreign(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), 2*within)
	defer cancel()
	refused := 0
	await(t, "all puts are rejected", func() bool {
		// What a sealed segment returns is taken, too.
		foreign(t, dir)
		refused++
		for _, n := range []int{64 << 10, 1 << 10} {
			if _, err := c.Put(ctx, "a", strings.Repeat("v", n)); !errors.Is(err,
				rpctypes.ErrNoSpace) {
				refused = 0
			}
		}
		return refused > 50
	})
	// The history goes on returning space.
	stopFilling := keepFull(t, file)
	full(t, s, "1")
	stage(t, s, "m1", "its disk is full: it rejects puts")
	if _, err := c.Delete(ctx, "k/000000"); err != nil {
		t.Errorf("a small deletion in the first stage: %v", err)
	}
	if code, body := get(t, s, "/readyz"); code != http.StatusOK {
		t.Errorf("/readyz in the first stage: %d %s", code, body)
	}

	// The second stage.
	short, stop := context.WithTimeout(ctx, 3*time.Second)
	defer stop()
	if _, err := c.Delete(short, "k/", clientv3.WithPrefix()); err == nil {
		t.Fatal("the disk has room for a deletion of all keys")
	}
	whileWaiting(t, s, c)
	stage(t, s, "m1", `its disk is full, and [1-9]\d* committed entries wait: deletions, compactions and linearizable reads fail too`)
	if d := doctor(t, s); strings.Contains(d, "may be stopped") ||
		strings.Contains(d, "vigilctl compaction") {
		t.Errorf("doctor advises what does not help:\n%s", d)
	}
	for what, call := range map[string]func(context.Context) error{
		"a put": func(ctx context.Context) error {
			_,
				err := c.Put(ctx, "a", "b")
			return err
		},
		"a deletion": func(ctx context.Context) error {
			_,
				err := c.Delete(ctx, "a")
			return err
		},
		"a compaction": func(ctx context.Context) error {
			_,
				err := c.Compact(ctx, 100)
			return err
		},
		"a linearizable read": func(ctx context.Context) error {
			_, err := c.Get(ctx, "k/000001")
			return err
		},
	} {
		short, stop := context.WithTimeout(ctx, time.Second)
		if err := call(short); err == nil {
			t.Errorf("%s succeeds while entries wait", what)
		}
		stop()
	}
	if _, err := c.Get(ctx, "k/000001", clientv3.WithSerializable()); err != nil {
		t.Errorf("a serializable read: %v", err)
	}

	stopFilling()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	await(t, "the deletion is applied", func() bool {
		r, err := c.Get(ctx, "k/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && r.Count == 0
	})
	over(t, s)
	if _, err := c.Put(ctx, "a", "b"); err != nil {
		t.Error(err)
	}
}

// TestEntriesWaitAmongThree is the same for one of three members, a follower and the leader, whose
// disk holds the data or only the raft log: the others go on, and the member may be stopped.
func TestEntriesWaitAmongThree(t *testing.T) {
	vigilOnly(t)
	for _, leads := range []bool{false, true} {
		for _, part := range []string{"data", "wal"} {
			t.Run(map[bool]string{false: "follower", true: "leader"}[leads]+"/"+part,
				func(t *testing.T) {
					if testing.Short() && !(leads && part == "data") {
						t.Skip("one case is enough for the short form; make processes has all")
					}
					amongThree(t, part, leads)
				})
		}
	}
}

func amongThree(t *testing.T, part string, leads bool) {
	var dir, file, reason, what string
	var cfg proc.Config
	switch part {
	case "data":
		dir = mountSmall(t, "tmpfs", 256*mib)
		cfg.DataDir = dir + "/data"
		reason, what = "committed entries wait",
			`its disk is full,( and)? [1-9]\d* committed entries wait`
	case "wal":
		// There is room for one segment of the raft log, and not for the next one.
		dir = mountSmall(t, "tmpfs", 8*mib)
		file = filepath.Join(dir, "foreign")
		if err := os.WriteFile(file, make([]byte, 4*mib), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg.DataDir, cfg.Args = filepath.Join(t.TempDir(), "data"),
			[]string{"--wal-dir=" + dir + "/wal"}
		reason, what = "the raft log takes no entries",
			"its disk is full, and its raft log takes no entries"
	}
	list := startThree(t, cfg)
	sick, healthy := list[0], list[1]
	c, at := dial(t, healthy), dial(t, sick)
	ctx, cancel := context.WithTimeout(t.Context(), 2*within)
	defer cancel()
	lead(t, list, leads)
	value := strings.Repeat("v", 128<<10)
	put := func(n int) {
		t.Helper()
		for i := 0; i < n; {
			short, end := context.WithTimeout(ctx, 5*time.Second)
			_, err := c.Put(short, fmt.Sprintf("k/%02d", i%20), value)
			end()
			if err == nil {
				i++
			} else if ctx.Err() != nil {
				t.Fatal(err)
			}
		}
	}
	if part == "data" {
		put(20)
		file, _ = foreign(t, dir)
	}
	// What is allocated there is used up by what the others accept.
	await(t, "the member waits for space", func() bool {
		put(10)
		_, body := get(t, sick, "/readyz")
		return strings.Contains(body, reason)
	})
	whileWaiting(t, sick, nil)
	stage(t, sick, "m1", what)
	if d := doctor(t, sick); !strings.Contains(d, "it may be stopped") {
		t.Errorf("doctor does not say that the others serve without the member:\n%s", d)
	}
	put(20)
	if _, err := at.Get(ctx, "k/00", clientv3.WithSerializable()); err != nil {
		t.Errorf("a serializable read at the member that waits: %v", err)
	}
	await(t, "another member leads", func() bool {
		st, err := c.Status(ctx, healthy.Addr())
		return err == nil && st.Leader != 0 && st.Leader != id(t, sick)
	})

	// It is stopped, and started again on the full disk.
	sick.Kill()
	put(20)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Compact(ctx, revision(t, c, healthy)); err != nil {
		t.Fatal(err)
	}
	sick.Restart()
	over(t, sick)
	await(t, "it has caught up", func() bool {
		a, aerr := at.Status(ctx, sick.Addr())
		b, berr := c.Status(ctx, healthy.Addr())
		return aerr == nil && berr == nil && a.Header.Revision == b.Header.Revision &&
			len(a.Errors) == 0
	})
}

func vigilOnly(t *testing.T) {
	if proc.Subject() != proc.Vigil {
		t.Skip("this is about what Vigil says")
	}
}

// fillKeys puts keys with long names and short values: their deletion takes more space than they.
func fillKeys(t *testing.T, c *clientv3.Client, n int) {
	t.Helper()
	name := strings.Repeat("x", 400)
	for i := 0; i < n; {
		var ops []clientv3.Op
		for ; len(ops) < 100 && i < n; i++ {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("k/%06d", i)+
				map[bool]string{true: "", false: name}[i < 10], ""))
		}
		if _, err := c.Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
}

// whileWaiting waits until a member says that it waits for space, and checks what programs ask.
func whileWaiting(t *testing.T, s *proc.Server, c *clientv3.Client) {
	t.Helper()
	await(t, "a metric says that something waits for space", func() bool { return waiting(t, s) })
	full(t, s, "1")
	for _, path := range []string{"/readyz", "/health"} {
		var code int
		var body string
		await(t, path+" fails with the reason", func() bool {
			code, body = get(t, s, path)
			return code == http.StatusServiceUnavailable &&
				strings.Contains(body, "the disk is full")
		})
		t.Logf("%s: %d %s", path, code, strings.TrimSpace(body))
	}
	for _, path := range []string{"/livez", "/health?serializable=true"} {
		if code, body := get(t, s, path); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if c != nil {
		st, err := c.Status(t.Context(), s.Addr())
		if err != nil || !strings.Contains(strings.Join(st.Errors, " "),
			"committed entries wait, and nothing is applied") {
			t.Errorf("the errors of the status: %v, %v", st, err)
		}
		if log := s.Log().String(); !strings.Contains(log,
			"nothing is applied: committed entries wait") {
			t.Error("the log does not say it")
		}
	}
}

// over waits until nothing waits for space any more.
func over(t *testing.T, s *proc.Server) {
	t.Helper()
	full(t, s, "0")
	await(t, "nothing waits", func() bool {
		_, body := get(t, s, "/metrics")
		code, _ := get(t, s, "/readyz")
		return code == http.StatusOK &&
			strings.Contains(body, "\nvigil_apply_waits_for_space 0\n") &&
			strings.Contains(body, "\nvigil_raft_log_waits_for_space 0\n")
	})
}

// doctor returns what doctor says, without line breaks.
func doctor(t *testing.T, s *proc.Server) string {
	t.Helper()
	d := proc.Run(t, within,
		proc.Spec{Name: proc.Path(t, proc.Vigilctl),
			Args: []string{"doctor", "--command-timeout=3s", "--endpoints=" + s.Addr()}})
	return strings.Join(strings.Fields(d.Stdout+d.Stderr), " ")
}

// keepFull takes all space that a disk gets, for a file on it, until stop is called or the test
// ends.
func keepFull(t *testing.T, file string) (stop func()) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer f.Close()
		piece := make([]byte, 4096)
		for {
			if _, err := f.Write(piece); err == nil {
				continue
			}
			select {
			case <-end:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		close(end)
		<-ended
	})
	t.Cleanup(stop)
	return stop
}

// stage waits until doctor and top say what a member cannot do.
func stage(t *testing.T, s *proc.Server, name, what string) {
	t.Helper()
	var said, top string
	defer func() {
		if t.Failed() {
			t.Logf("doctor: %s\ntop: %s", said, top)
		}
	}()
	await(t, "doctor and top say "+what, func() bool {
		said = doctor(t, s)
		d := proc.Run(t, within,
			proc.Spec{Name: proc.Path(t, proc.Vigilctl),
				Args: []string{"top", "--once", "--endpoints=" + s.Addr()}})
		top = strings.Join(strings.Fields(d.Stdout+d.Stderr), " ")
		return matches("CRITICAL "+name+": "+what, said) && matches(what, top)
	})
	t.Logf("doctor: %s", said[:strings.Index(said, " ok ")])
}

// lead makes the first member lead, or another one.
func lead(t *testing.T, list []*proc.Server, first bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	await(t, "the leader that is wanted", func() bool {
		for _, s := range list {
			c := dial(t, s)
			st, err := c.Status(ctx, s.Addr())
			if err != nil || st.Leader != st.Header.MemberId {
				continue
			}
			to := list[0]
			if !first {
				to = list[1]
			}
			if s == to || !first && s != list[0] {
				return true
			}
			_, err = c.MoveLeader(ctx, id(t, to))
			if err != nil && !errors.Is(err, rpctypes.ErrNotLeader) {
				t.Log(err)
			}
		}
		return false
	})
}

func id(t *testing.T, s *proc.Server) uint64 {
	t.Helper()
	st, err := dial(t, s).Status(t.Context(), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return st.Header.MemberId
}

func revision(t *testing.T, c *clientv3.Client, s *proc.Server) int64 {
	t.Helper()
	st, err := c.Status(t.Context(), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return st.Header.Revision
}

// startThree runs a cluster of three, whose first member has a configuration of its own.
func startThree(t *testing.T, first proc.Config) []*proc.Server {
	t.Helper()
	var initial []string
	configs := make([]proc.Config, 3)
	for i := range configs {
		if i == 0 {
			configs[i] = first
		} else {
			configs[i].DataDir = filepath.Join(t.TempDir(), "data")
		}
		configs[i].Name, configs[i].PeerPort, configs[i].ClientPort = fmt.Sprintf("m%d", i+1),
			proc.FreePort(t), proc.FreePort(t)
		initial = append(initial,
			fmt.Sprintf("%s=http://127.0.0.1:%d", configs[i].Name, configs[i].PeerPort))
	}
	var list []*proc.Server
	for _, cfg := range configs {
		cfg.InitialCluster = strings.Join(initial, ",")
		s := proc.New(t, cfg)
		s.Launch()
		list = append(list, s)
	}
	for _, s := range list {
		s.Ready()
	}
	return list
}

func matches(pattern, text string) bool { return regexp.MustCompile(pattern).MatchString(text) }

// waiting reports whether the metrics say that a member waits for space.
func waiting(t *testing.T, s *proc.Server) bool {
	t.Helper()
	_, body := get(t, s, "/metrics")
	return strings.Contains(body, "\nvigil_apply_waits_for_space 1\n") ||
		strings.Contains(body, "\nvigil_raft_log_waits_for_space 1\n")
}
