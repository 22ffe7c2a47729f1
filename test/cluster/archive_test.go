package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
	return readArchive(m.Addr())
}

// readArchive reads what the member at an address says.
func readArchive(addr string) (st archiveStatus, ok bool) {
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Get("http://" + addr + "/debug/archive")
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

// vigilctl runs the command and returns what it prints.
func (g *group) vigilctl(args ...string) string {
	g.t.Helper()
	res := proc.Run(g.t, 5*time.Minute, proc.Spec{Name: proc.Path(g.t, proc.Vigilctl), Args: args})
	if res.Code != 0 {
		g.t.Fatalf("vigilctl %q: exit code %d\n%s%s", args, res.Code, res.Stdout, res.Stderr)
	}
	return res.Stdout
}

// promised is how old an acknowledged change may be that is lost with all members: a second until
// it is sent, and what that takes on a machine that is busy.
const promised = 2 * time.Second

// exposure measures how old the oldest acknowledged change is that no member says is archived,
// until the function that it returns is called, which returns the most that it was.
func (r *recorder) exposure() (stop func() time.Duration) {
	quit, result := make(chan struct{}), make(chan time.Duration)
	go func() {
		worst, archived := time.Duration(0), int64(0)
		for {
			for i := range r.up {
				if r.up[i].Load() {
					if st, ok := readArchive(r.addrs[i]); ok {
						archived = max(archived, st.ArchivedRevision)
					}
				}
			}
			worst = max(worst, r.exposed(archived))
			select {
			case <-quit:
				result <- worst
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	return func() time.Duration {
		close(quit)
		return <-result
	}
}

// restorer restores states of an archive, each in a member of its own.
type restorer struct {
	g *group
	s storage
}

// restore runs a member with a state of the archive, until use returns.
func (x *restorer) restore(use func(c *clientv3.Client), target ...string) {
	t := x.g.t
	t.Helper()
	data := filepath.Join(dir(t), "restored")
	port := proc.FreePort(t)
	peer := fmt.Sprintf("http://127.0.0.1:%d", port)
	args := append([]string{"archive", "restore", x.s.url(), "--data-dir", data, "--name", "r1",
		"--initial-cluster", "r1=" + peer,
		"--initial-advertise-peer-urls", peer, "--bump-revision", "0"}, x.s.ctl()...)
	x.g.vigilctl(append(args, target...)...)
	s := proc.Start(t, proc.Config{Name: "r1", DataDir: data, PeerPort: port})
	use(s.Client())
	s.Kill()
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
}

// archiveSizes are those of TestArchive: how long writers write, how many writes there are in a
// second, for how long the storage is away, and how many pictures are compared at the end.
// VIGIL_ARCHIVE_TEST is the time of the long one.
func archiveSizes() (long time.Duration, rate int, away time.Duration, pictures int) {
	if d, err := time.ParseDuration(os.Getenv("VIGIL_ARCHIVE_TEST")); err == nil {
		return d, 2000, 2 * time.Minute, 20
	}
	return 8 * time.Second, 200, 2 * time.Second, 4
}

// TestArchive writes to three members that archive. The member that archives is killed again and
// again, other members too, and the storage is away for a time and slow for another. Then all
// members are destroyed. What the archive restores is compared with what was acknowledged, with
// every event, and with pictures of the living cluster.
func TestArchive(t *testing.T) {
	long, rate, away, pictures := archiveSizes()
	s := newStorage(t)
	g := start(t, 3, append([]string{"--archive=" + s.url(),
		"--archive-base-interval=" + max(long/20, 3*time.Second).String()}, s.server()...)...)
	x := &restorer{g, s}
	r := newRecorder(g)
	g.archiving()
	w := newWitness(r)
	r.begin(rate)
	begun := time.Now()
	until := func(what string, worst time.Duration) {
		t.Logf("%v: %s; the oldest change that was not archived had %v; %d changes",
			time.Since(begun).Round(time.Second), what, worst.Round(time.Millisecond), r.count)
	}
	// killed kills a member, and restarts it when another one archives.
	killed := func(what string, m *member, part time.Duration) {
		stop := r.exposure()
		r.kill(m)
		w.during(t, part, 3)
		g.awaitArchived(r.mark())
		until(what, stop())
		r.restart(m)
	}
	other := func() *member {
		sender, leader := g.archiving(), g.leader()
		for _, m := range g.list {
			if m != sender && m != leader {
				return m
			}
		}
		return leader
	}
	part := (long - away) / 6
	killed("the member that archives was killed", g.archiving(), part)
	stop := r.exposure()
	s.hang()
	w.during(t, away/2, 2)
	s.refuse()
	w.during(t, away/2, 2)
	before := r.mark()
	s.back()
	g.awaitArchived(before)
	until("the storage was away", stop())
	killed("the leader was killed", g.leader(), part)
	if s.slow(time.Second) {
		killed("the storage was slow, and the member that archives killed", g.archiving(), part)
		s.slow(0)
	}
	for time.Since(begun) < long {
		killed("the member that archives was killed", g.archiving(), part)
		killed("another member was killed", other(), part/2)
	}
	for _, m := range g.list {
		if st, ok := g.archive(m); !ok || st.Gaps != 0 {
			t.Errorf("%s: %+v", m.name, st)
		}
	}
	g.archiving()
	kept := r.mark()
	g.awaitArchived(kept)
	stop = r.exposure()
	w.during(t, 3*time.Second, 1)
	until("nothing failed", stop())
	// All members are destroyed while clients write.
	destroyed := time.Now()
	r.kill(g.list...)
	w.end()
	r.end()
	took := destroyed.Sub(begun)
	t.Logf("%d changes in %v, %.0f a second; with deletions of missing keys %.0f requests a second",
		r.count, took.Round(time.Second),
		float64(r.count)/took.Seconds(), float64(r.count+r.idle)/took.Seconds())
	for i, n := range r.paces(begun, destroyed) {
		if n < rate/2 {
			t.Logf("only %d changes in second %d", n, i)
		}
	}
	for _, m := range g.list {
		if err := os.RemoveAll(m.DataDir()); err != nil {
			t.Fatal(err)
		}
	}
	t.Log(g.vigilctl(append([]string{"archive", "list", s.url()}, s.ctl()...)...))
	t.Log(g.vigilctl(append([]string{"archive", "verify", s.url()}, s.ctl()...)...))
	var revision int64
	x.restore(func(c *clientv3.Client) {
		resp, err := c.HashKV(proc.Context(t), c.Endpoints()[0], 0)
		if err != nil {
			t.Fatal(err)
		}
		revision = resp.Header.Revision
		if revision < kept {
			t.Errorf("the newest state has revision %d, and %d was archived", revision, kept)
		}
		r.check(t, c, revision)
		w.compareEvents(t, c, resp.CompactRevision, revision)
		if w.compareReads(t, c, resp.CompactRevision, revision+1) == 0 {
			t.Error("no picture was compared")
		}
	}, "--latest")
	lost := r.lost(revision, destroyed)
	t.Logf("restored up to revision %d of %d; the oldest lost change was acknowledged %v before the end", revision, r.last, lost.Round(time.Millisecond))
	if lost > promised {
		t.Errorf("a change was lost that was acknowledged %v before the end, more than %v",
			lost, promised)
	}
	// Random revisions, and random moments.
	// of the last second
	w.pictures = slices.DeleteFunc(w.pictures,
		func(p *picture) bool { return p.revision > revision })
	chosen := w.random.Perm(len(w.pictures))
	if len(chosen) < pictures {
		t.Errorf("there are %d pictures, want %d", len(chosen), pictures)
	}
	for _, i := range chosen[:min(pictures, len(chosen))] {
		p := w.pictures[i]
		x.restore(func(c *clientv3.Client) {
			w.compare(t, c, p)
			r.check(t, c, p.revision)
		}, "--to-revision", strconv.FormatInt(p.revision, 10))
		t.Logf("revision %d of %v, compacted at %d: %d keys, %d leases, %d users", p.revision,
			p.at.Sub(begun).Round(time.Second), p.compact, len(p.kvs), len(p.leases), len(p.users))
	}
	for range max(pictures/5, 2) {
		at := begun.Add(part +
			time.Duration(w.random.Int64N(int64(destroyed.Sub(begun)-part-promised))))
		// Times of revisions are known once a second, and no more often than there is a leader.
		least, most := r.around(at.Add(-3*time.Second), at)
		x.restore(func(c *clientv3.Client) {
			resp, err := c.HashKV(proc.Context(t), c.Endpoints()[0], 0)
			if err != nil {
				t.Fatal(err)
			}
			got := resp.Header.Revision
			if got < least || got >= most {
				t.Errorf("the state of %v has revision %d, want %d to %d", at.Sub(begun),
					got, least, most-1)
			}
			r.check(t, c, got)
			w.compareEvents(t, c, resp.CompactRevision, got)
			t.Logf("time %v: revision %d", at.Sub(begun).Round(time.Millisecond), got)
		}, "--to-time", at.UTC().Format(time.RFC3339Nano))
	}
}

// TestArchiveSuccession kills the member that archives, the leader, and both, and measures how old
// a change becomes before it is archived.
func TestArchiveSuccession(t *testing.T) {
	s := newStorage(t)
	g := start(t, 5, append([]string{"--archive=" + s.url()}, s.server()...)...)
	r := newRecorder(g)
	r.begin(200)
	defer r.end()
	for _, c := range []struct {
		what string
		most time.Duration
		kill func(sender, leader *member) []*member
	}{
		{"the member that archives", 3 * time.Second,
			func(sender, _ *member) []*member { return []*member{sender} }},
		{"the leader", 3 * time.Second,
			func(_, leader *member) []*member { return []*member{leader} }},
		{"both", 4 * time.Second,
			func(sender, leader *member) []*member { return []*member{sender, leader} }},
		{"the member that archives again", 3 * time.Second,
			func(sender, _ *member) []*member { return []*member{sender} }},
	} {
		var sender, leader *member
		// A sender that has become the leader goes on for a while, so that its successor can begin.
		g.until(c.what+": a member that archives and does not lead", func() bool {
			sender, leader = g.archiving(), g.leader()
			return sender != leader
		})
		g.awaitArchived(r.mark())
		stop := r.exposure()
		time.Sleep(2 * time.Second)
		quiet := stop()
		stop = r.exposure()
		list := c.kill(sender, leader)
		r.kill(list...)
		at := time.Now()
		mark := r.mark()
		g.awaitArchived(mark)
		took := time.Since(at)
		time.Sleep(3 * time.Second)
		worst := stop()
		t.Logf("%s: all of before was archived after %v; the oldest change that was not archived had %v, before that %v", c.what, took.Round(time.Millisecond),
			worst.Round(time.Millisecond), quiet.Round(time.Millisecond))
		if worst > c.most {
			t.Errorf("%s: a change had %v before it was archived, more than %v",
				c.what, worst, c.most)
		}
		for _, m := range list {
			r.restart(m)
		}
	}
	for _, m := range g.list {
		if st, ok := g.archive(m); !ok || st.Gaps != 0 {
			t.Errorf("%s: %+v", m.name, st)
		}
	}
}
