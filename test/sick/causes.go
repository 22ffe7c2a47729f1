package sick

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sys/unix"

	"vigil/test/link"
	"vigil/test/proc"
)

// kill kills members.
func kill(numbers ...int) func(*group) {
	return func(g *group) {
		for _, n := range numbers {
			g.m(n).Kill()
		}
	}
}

// freezeFollower stops m3, which follows m1.
func freezeFollower(g *group) {
	g.lead(g.m(1))
	g.pause(g.m(3))
}

// freezeLeader stops m3, which leads.
func freezeLeader(g *group) {
	g.lead(g.m(3))
	g.pause(g.m(3))
}

// freezeConsole stops m1, whose console a reader looks at.
func freezeConsole(g *group) {
	g.lead(g.m(2))
	g.live = g.follow(g.m(1))
	g.until("the overview", func() bool { return len(g.live.view()) > 0 })
	g.pause(g.m(1))
}

// pause stops a process until the test ends.
func (g *group) pause(m *member) {
	g.t.Helper()
	m.Pause()
}

// startOneAlone starts m1 while the others are down.
func startOneAlone(g *group) {
	for _, m := range g.list {
		m.Kill()
	}
	g.launch(g.m(1))
}

// swapDirectories starts m2 and m3 with each other's data directory.
func swapDirectories(g *group) {
	a, b := g.m(2), g.m(3)
	a.Kill()
	b.Kill()
	spare := a.DataDir() + ".spare"
	for _, r := range [][2]string{{a.DataDir(), spare}, {b.DataDir(), a.DataDir()},
		{spare, b.DataDir()}} {
		if err := os.Rename(r[0], r[1]); err != nil {
			g.t.Fatal(err)
		}
	}
	for _, m := range []*member{a, b} {
		g.launch(m)
		if code := m.Wait(); code == 0 {
			g.t.Errorf("%s exits with 0", m.name)
		}
	}
}

// restoreAlone restores m3 from a backup as a member of a new cluster, which the others are not.
func restoreAlone(g *group) {
	m := g.m(3)
	backup := filepath.Join(g.dir, "backup.db")
	ctl := func(args ...string) {
		g.t.Helper()
		if r := proc.Run(g.t, patience,
			proc.Spec{Name: proc.Path(g.t, proc.Vigilctl), Args: args}); r.Code != 0 {
			g.t.Fatal(r.Stderr)
		}
	}
	ctl("snapshot", "save", backup, "--endpoints="+g.m(1).Addr())
	m.Kill()
	if err := os.RemoveAll(m.DataDir()); err != nil {
		g.t.Fatal(err)
	}
	ctl("snapshot", "restore", backup, "--data-dir="+m.DataDir(), "--name="+m.name,
		"--initial-cluster="+g.initialCluster(),
		"--initial-advertise-peer-urls="+m.peerURL, "--initial-cluster-token=restored")
	g.launch(m)
}

// fill takes all the space of m3's file system.
func fill(g *group) {
	f, err := os.Create(filepath.Join(g.m(3).volume, "foreign"))
	if err != nil {
		g.t.Fatal(err)
	}
	defer f.Close()
	for at, piece := int64(0), int64(64<<20); piece >= 4096; {
		switch err := unix.Fallocate(int(f.Fd()), 0, at, piece); {
		case errors.Is(err, unix.ENOSPC):
			piece /= 4
		case err == nil:
			at += piece
		case !errors.Is(err, unix.EINTR):
			g.t.Fatal(err)
		}
	}
}

// fillDisk takes all the space, and lets m3 notice.
func fillDisk(g *group) {
	fill(g)
	g.until("m3 rejects a put", func() bool {
		ctx, cancel := context.WithTimeout(g.t.Context(), 5*time.Second)
		defer cancel()
		_, err := g.m(3).client.Put(ctx, "k", strings.Repeat("v", 1<<20))
		return err != nil
	})
}

// overfillDisk takes all the space of m3, and writes at m1 until m3 cannot take what the others
// have.
func overfillDisk(g *group) {
	g.lead(g.m(1))
	fill(g)
	log, applies := g.m(3).Log().Wait("the raft log cannot take entries"),
		g.m(3).Log().Wait("applying waits for room")
	value := strings.Repeat("v", 512<<10)
	for n := range 200 { // more than what it frees by itself
		g.put(g.m(1), fmt.Sprintf("large/%03d", n), value)
	}
	select {
	case <-log:
	case <-applies:
	case <-time.After(patience):
		g.t.Fatal("m3 has room for 100 MiB on a full disk")
	}
}

// reachQuota writes until the quota is reached.
func reachQuota(g *group) {
	value := strings.Repeat("v", 1<<20)
	for n := range 64 {
		ctx, cancel := context.WithTimeout(g.t.Context(), 10*time.Second)
		_, err := g.m(1).client.Put(ctx, fmt.Sprintf("large/%03d", n), value)
		cancel()
		if err != nil && strings.Contains(err.Error(), "database space exceeded") {
			return
		}
	}
	g.t.Fatal("64 MiB do not reach the quota")
}

// expirePeer gives m3 a certificate for other members that has expired, and restarts it.
func expirePeer(g *group) {
	g.certify("m3-peer", -time.Hour)
	g.m(3).Kill()
	g.launch(g.m(3))
}

// expireServer gives m3 a certificate for clients that has expired. It reads the file without a
// restart.
func expireServer(g *group) { g.certify("m3-client", -time.Hour) }

// damageSegment changes a byte in the oldest sealed segment of m3.
func damageSegment(g *group) {
	m := g.m(3)
	g.putMany(g.m(1), 32, 200, 64<<10)
	var sealed []string
	g.until("a sealed segment", func() bool {
		sealed, _ = filepath.Glob(filepath.Join(m.DataDir(), "history", "*.seg"))
		return len(sealed) > 0
	})
	f, err := os.OpenFile(slices.Min(sealed), os.O_RDWR, 0)
	if err != nil {
		g.t.Fatal(err)
	}
	_, err = f.WriteAt([]byte{'w'}, 1<<20)
	if err := errors.Join(err, f.Close()); err != nil {
		g.t.Fatal(err)
	}
}

// removeDirectory removes the data directory of m3 while it runs.
func removeDirectory(g *group) {
	if err := os.RemoveAll(g.m(3).DataDir()); err != nil {
		g.t.Fatal(err)
	}
	g.load(g.m(1))
}

// oneWay lets m1 make no connection to m3, which can make them to m1.
func oneWay(g *group) {
	g.lead(g.m(1))
	g.net.Set("m1", "m3", link.Rule{NoDial: true})
	g.net.Reset("m1", "m3")
	g.load(g.m(1))
}

// slowWrite is how long the disk of m3 takes to write when it is slow.
const slowWrite = 50 * time.Millisecond

// slow makes the disk of a member slow, until the returned function is called: a tracer lets each
// synchronization wait.
func (g *group) slow(m *member) (end func()) {
	g.t.Helper()
	p, err := proc.Launch([]string{"strace", "-f", "-p", strconv.Itoa(m.Pid()), "-o", "/dev/null",
		"-e", "trace=fdatasync,fsync",
		"-e", fmt.Sprintf("inject=fdatasync,fsync:delay_enter=%d", slowWrite.Microseconds())}, nil)
	if err != nil {
		g.t.Fatalf("strace (Debian: apt-get install strace): %v", err)
	}
	select {
	case <-p.Log().Wait("attached"):
	case <-p.Exited():
		g.t.Fatalf("strace: %s", p.Log())
	case <-time.After(patience):
		g.t.Fatalf("strace has not attached itself: %s", p.Log())
	}
	end = sync.OnceFunc(func() {
		if err := p.Signal(syscall.SIGTERM); err == nil { // it detaches itself
			<-p.Exited()
		}
	})
	g.t.Cleanup(end)
	return end
}

// slowDown makes the disk of m3 slow, after a time in which it was fast.
func slowDown(g *group) {
	g.lead(g.m(1))
	g.putMany(g.m(1), 1, 2500, 10)
	g.load(g.m(1))
	g.slow(g.m(3))
}

// slowUntilNow makes the disk of m3 slow for a time. It is fast again.
func slowUntilNow(g *group) {
	g.load(g.m(1))
	end := g.slow(g.m(3))
	g.until("slow writes", func() bool { return g.slowWrites(g.m(3)) > 150 })
	end()
}

// slowWrites returns how many writes of the raft log took longer than 32 ms.
func (g *group) slowWrites(m *member) (n int) {
	r, err := http.Get("http://" + m.Addr() + "/metrics")
	if err != nil {
		return 0
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return 0
	}
	const name = "etcd_disk_wal_fsync_duration_seconds"
	for line := range strings.SplitSeq(string(b), "\n") {
		var count int
		if text, ok := strings.CutPrefix(line, name+`_bucket{le="0.032"} `); ok {
			_, _ = fmt.Sscan(text, &count)
			n -= count
		}
		if text, ok := strings.CutPrefix(line, name+"_count "); ok {
			_, _ = fmt.Sscan(text, &count)
			n += count
		}
	}
	return n
}

// removeUnreachable removes m3 while it cannot hear of that.
func removeUnreachable(g *group) {
	g.lead(g.m(1))
	id := g.id(g.m(3))
	g.asked = []string{g.m(3).shown} // whose list of members is old
	for _, name := range []string{"m1", "m2"} {
		g.net.Set(name, "m3", link.Rule{Stall: true})
		g.net.Set("m3", name, link.Rule{Stall: true})
	}
	g.until("the removal", func() bool {
		ctx, cancel := context.WithTimeout(g.t.Context(), 10*time.Second)
		defer cancel()
		r, err := g.m(1).client.MemberRemove(ctx, id)
		return err == nil && len(r.Members) == 2
	})
}

// addLateLearner adds m4, a learner whose disk hangs.
func addLateLearner(g *group) {
	g.lead(g.m(1))
	m := g.configure("m4")
	m.volume, m.disk = g.mount(m.name)
	m.cfg.DataDir = filepath.Join(m.volume, "data")
	g.until("the learner is added", func() bool {
		ctx, cancel := context.WithTimeout(g.t.Context(), 10*time.Second)
		defer cancel()
		_, err := g.m(1).client.MemberAddAsLearner(ctx, []string{m.peerURL})
		return err == nil
	})
	g.list = append(g.list, m)
	m.cfg.InitialCluster = g.initialCluster()
	m.cfg.Args = append(m.cfg.Args, "--initial-cluster-state=existing")
	m.Server = proc.New(g.t, m.cfg)
	g.t.Cleanup(m.disk.Thaw)
	g.launch(m)
	g.serving(m)
	m.disk.Freeze()
	g.putMany(g.m(1), 2, 6000, 10)
}

// hangDisk freezes the file system of m3, which follows m1.
func hangDisk(g *group) {
	g.lead(g.m(1))
	g.load(g.m(1))
	g.m(3).disk.Freeze()
}

// watchAndSleep has a client with a watcher at m3 that reads nothing while values are written.
func watchAndSleep(g *group) {
	ctx, cancel := context.WithCancel(context.Background())
	g.t.Cleanup(cancel)
	w, err := pb.NewWatchClient(g.m(3).Dial()).Watch(ctx)
	if err == nil {
		err = w.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("many/"), RangeEnd: []byte("many0"), StartRevision: 1}}})
	}
	if err != nil {
		g.t.Fatal(err)
	}
	g.putMany(g.m(1), 4, 16, 1<<20)
}

// changeLeaders moves the leadership around.
func changeLeaders(g *group) {
	for n := range 10 {
		g.lead(g.m(n%2 + 1))
	}
}

// loseBucket takes the bucket away.
func loseBucket(g *group) {
	g.lead(g.m(1))
	g.put(g.m(1), "k", "v")
	dir := filepath.Join(g.dir, "bucket")
	if err := os.Rename(dir, dir+".away"); err != nil {
		g.t.Fatal(err)
	}
	// A directory would be made again.
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		g.t.Fatal(err)
	}
	g.load(g.m(1))
}

// enableUsers enables authentication. vigilctl gives no user.
func enableUsers(g *group) {
	c := g.m(1).client
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	_, err := c.UserAdd(ctx, "root", "secret")
	if err == nil {
		_, err = c.UserGrantRole(ctx, "root", "root")
	}
	if err == nil {
		_, err = c.AuthEnable(ctx)
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

// askEtcd gives vigilctl the endpoint of a stock etcd.
func askEtcd(g *group) {
	e := proc.Start(g.t, proc.Config{Program: proc.Etcd, Name: "e1"})
	g.asked = []string{e.Addr()}
}
