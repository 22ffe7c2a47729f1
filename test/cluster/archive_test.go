package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

// archiveStatus is what the test reads of /debug/archive.
type archiveStatus struct {
	State            string  `json:"state"`
	Leader           bool    `json:"leader"`
	ArchivedIndex    uint64  `json:"archived_index"`
	ArchivedRevision int64   `json:"archived_revision"`
	LagSeconds       float64 `json:"lag_seconds"`
	Gaps             int     `json:"gaps"`
	Bases            int     `json:"bases"`
	Error            string  `json:"error"`
}

func (g *group) archive(m *member) (st archiveStatus, ok bool) {
	if !m.Running() {
		return st, false
	}
	ctx, cancel := context.WithTimeout(g.t.Context(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.Addr()+"/debug/archive", nil)
	if err != nil {
		g.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return st, false
	}
	defer resp.Body.Close()
	return st, resp.StatusCode == http.StatusOK && json.NewDecoder(resp.Body).Decode(&st) == nil
}

// archiving waits for a member that archives.
func (g *group) archiving() (at *member) {
	g.t.Helper()
	g.until("member that archives", func() bool {
		for _, m := range g.list {
			if st, ok := g.archive(m); ok && st.State == "archiving" {
				at = m
				return true
			}
		}
		return false
	})
	return at
}

// awaitArchived waits until a member says that a revision is archived.
func (g *group) awaitArchived(revision int64) {
	g.t.Helper()
	g.until(fmt.Sprintf("archived revision %d", revision), func() bool {
		for _, m := range g.list {
			if st, ok := g.archive(m); ok && st.ArchivedRevision >= revision {
				return true
			}
		}
		return false
	})
}

// change is an acknowledged change of a key: the number in its value, 0 for a deletion.
type change struct {
	revision int64
	number   int
	at       time.Time
}

// recorder writes and remembers what was acknowledged. Each key belongs to one writer.
type recorder struct {
	g       *group
	mu      sync.Mutex
	changes map[string][]change // in the order of their revisions
	tried   map[string]int      // the newest number that was tried
	unsure  map[string]bool     // keys with a deletion that got no answer
	last    int64               // the newest revision that was acknowledged
	count   int
	stop    chan struct{}
	done    sync.WaitGroup
}

func (r *recorder) write(writer int, pause time.Duration) {
	random := rand.New(rand.NewPCG(uint64(writer), 1))
	for n := 1; ; n++ {
		select {
		case <-r.stop:
			return
		case <-time.After(pause):
		}
		key := fmt.Sprintf("w%d-%d", writer, random.IntN(50))
		m := r.g.list[random.IntN(len(r.g.list))]
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		r.mu.Lock()
		r.tried[key] = n
		r.mu.Unlock()
		number, revision := n, int64(0)
		if random.IntN(8) == 0 {
			number = 0
			switch resp, err := m.client.Delete(ctx, key); {
			case err != nil:
				r.mu.Lock()
				r.unsure[key] = true
				r.mu.Unlock()
			case resp.Deleted > 0:
				revision = resp.Header.Revision
			}
		} else if resp, err := m.client.Put(ctx, key, strconv.Itoa(n)+" "+strings.Repeat("x", 200)); err == nil {
			revision = resp.Header.Revision
		}
		cancel()
		if revision > 0 {
			r.mu.Lock()
			r.changes[key] = append(r.changes[key], change{revision, number, time.Now()})
			r.last = max(r.last, revision)
			r.count++
			r.mu.Unlock()
		}
	}
}

// check compares a store with what was acknowledged up to a revision. What got no answer may be there or not.
func (r *recorder) check(t testing.TB, c *clientv3.Client, revision int64) {
	t.Helper()
	resp, err := c.Get(proc.Context(t), "w", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]int{}
	for _, kv := range resp.Kvs {
		number, _, _ := strings.Cut(string(kv.Value), " ")
		if have[string(kv.Key)], err = strconv.Atoi(number); err != nil {
			t.Fatal(err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	wrong := 0
	for key, list := range r.changes {
		want, acknowledged := 0, map[int]bool{}
		for _, c := range list {
			acknowledged[c.number] = true
			if c.revision <= revision {
				want = c.number
			}
		}
		// A put without an answer has a number that was never acknowledged.
		if got := have[key]; got != want && (acknowledged[got] || got > r.tried[key]) && got != 0 {
			t.Errorf("%s has number %d at revision %d, want %d", key, got, revision, want)
			wrong++
		} else if got == 0 && want != 0 && !r.unsure[key] {
			t.Errorf("%s is missing at revision %d, want number %d", key, revision, want)
			wrong++
		}
		if wrong > 10 {
			t.Fatal("and so on")
		}
	}
}

// vigilctl runs the command and returns what it prints.
func (g *group) vigilctl(args ...string) string {
	g.t.Helper()
	res := proc.Run(g.t, 5*time.Minute, proc.Spec{Name: proc.Path(g.t, proc.Vigilctl), Args: args})
	if res.Code != 0 {
		g.t.Fatalf("vigilctl %q: exit code %d\n%s%s", args, res.Code, res.Stdout, res.Stderr)
	}
	return res.Stdout
}

// restored runs a member with a state of the archive.
func (g *group) restored(url string, target ...string) *clientv3.Client {
	g.t.Helper()
	data := filepath.Join(dir(g.t), "restored")
	port := proc.FreePort(g.t)
	peer := fmt.Sprintf("http://127.0.0.1:%d", port)
	g.vigilctl(append([]string{"archive", "restore", url, "--data-dir", data, "--name", "r1", "--initial-cluster", "r1=" + peer,
		"--initial-advertise-peer-urls", peer, "--bump-revision", "0"}, target...)...)
	s := proc.Start(g.t, proc.Config{Name: "r1", DataDir: data, PeerPort: port})
	return s.Client()
}

// archiveTime is how long writers write, and archiveRate how many writes there are in a second.
func archiveTime() (time.Duration, int) {
	if d, err := time.ParseDuration(os.Getenv("VIGIL_ARCHIVE_TEST")); err == nil {
		return d, 2000
	}
	return 8 * time.Second, 200
}

// TestArchive writes to three members that archive into a directory. The member that archives is killed, the directory is away for a
// time, and then all members are destroyed. What the archive restores is compared with what was acknowledged.
func TestArchive(t *testing.T) {
	long, rate := archiveTime()
	bucket := filepath.Join(dir(t), "bucket")
	if err := os.Mkdir(bucket, 0o700); err != nil {
		t.Fatal(err)
	}
	url := "file://" + bucket
	g := start(t, 3, "--archive="+url, "--archive-base-interval=3s")
	r := &recorder{g: g, changes: map[string][]change{}, tried: map[string]int{}, unsure: map[string]bool{}, stop: make(chan struct{})}
	lease, err := g.list[0].client.Grant(proc.Context(t), 10_000)
	if err != nil {
		t.Fatal(err)
	}
	g.put(g.list[0], "leased", "x", clientv3.WithLease(lease.ID))
	if _, err := g.list[0].client.UserAdd(proc.Context(t), "somebody", "secret"); err != nil {
		t.Fatal(err)
	}
	const writers = 20
	for w := range writers {
		r.done.Go(func() { r.write(w, time.Second*writers/time.Duration(rate)) })
	}
	compact := func() {
		r.mu.Lock()
		last := r.last
		r.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, _ = g.leader().client.Compact(ctx, last-100)
	}
	mark := func() int64 {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.last
	}
	g.awaitArchived(mark())
	for end := time.Now().Add(long); time.Now().Before(end); {
		killed := g.archiving()
		killed.Kill()
		time.Sleep(long / 20)
		g.awaitArchived(mark()) // by another one
		killed.Restart()
		compact()
		// The bucket is away.
		if err := os.Rename(bucket, bucket+".away"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(min(long/4, 2*time.Minute))
		before := mark()
		if err := os.Rename(bucket+".away", bucket); err != nil {
			t.Fatal(err)
		}
		g.awaitArchived(before)
		compact()
	}
	for _, m := range g.list {
		if st, ok := g.archive(m); !ok || st.Gaps != 0 {
			t.Errorf("%s: %+v", m.name, st)
		}
	}
	g.archiving()
	kept := mark()
	g.awaitArchived(kept)
	// All members are destroyed while clients write.
	for _, m := range g.list {
		m.Kill()
	}
	destroyed := time.Now()
	close(r.stop)
	r.done.Wait()
	for _, m := range g.list {
		if err := os.RemoveAll(m.DataDir()); err != nil {
			t.Fatal(err)
		}
	}
	t.Log(g.vigilctl("archive", "list", url))
	t.Log(g.vigilctl("archive", "verify", url))
	c := g.restored(url, "--latest")
	resp, err := c.Get(proc.Context(t), "leased")
	if err != nil || len(resp.Kvs) != 1 || resp.Kvs[0].Lease != int64(lease.ID) {
		t.Errorf("the key with the lease is %v (%v)", resp.Kvs, err)
	}
	users, err := c.UserList(proc.Context(t))
	if err != nil || len(users.Users) != 1 || users.Users[0] != "somebody" {
		t.Errorf("users %v (%v)", users, err)
	}
	revision := resp.Header.Revision
	if revision < kept {
		t.Errorf("the newest state has revision %d, and %d was archived", revision, kept)
	}
	lost := time.Duration(0)
	for _, list := range r.changes {
		for _, c := range list {
			if c.revision > revision {
				lost = max(lost, destroyed.Sub(c.at))
			}
		}
	}
	t.Logf("%d acknowledged changes; restored up to revision %d of %d; the oldest lost change was acknowledged %v before the end", r.count, revision, r.last, lost)
	r.check(t, c, revision)
	at := kept - 50
	r.check(t, g.restored(url, "--to-revision", strconv.FormatInt(at, 10)), at)
}
