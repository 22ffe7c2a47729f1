package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

// healthy waits until the membership may be changed, which needs connections that are some seconds
// old.
func (g *group) healthy(change func() error) {
	g.t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		err = change()
		if err == nil || err.Error() != rpctypes.ErrUnhealthy.Error() &&
			!errors.Is(err, rpctypes.ErrNoLeader) && !errors.Is(err, rpctypes.ErrLeaderChanged) {
			break
		}
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *group) add(at *member, name string, learner bool) *member {
	g.t.Helper()
	m := g.configure(name)
	add := at.client.MemberAdd
	if learner {
		add = at.client.MemberAddAsLearner
	}
	g.healthy(func() error { _, err := add(proc.Context(g.t), []string{m.peerURL}); return err })
	return m
}

// A cluster grows by a learner that is promoted and shrinks by its leader, while clients write.
func TestGrowAndShrink(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	w := g.write()
	w.more(100)
	four := g.add(g.list[0], "m4", true)
	g.join(four)
	id := four.id(g)
	if _, err := four.client.Get(proc.Context(t), "k"); err == nil ||
		!strings.Contains(err.Error(), "rpc not supported for learner") {
		t.Errorf("a linearizable read at a learner: %v", err)
	}
	if _, err := four.client.Get(proc.Context(t), "k", clientv3.WithSerializable()); err != nil {
		t.Errorf("a serializable read at a learner: %v", err)
	}
	// At a member that does not lead: it asks the leader.
	at := g.others(g.leader())[0]
	g.until("promotion", func() bool {
		_, err := at.client.MemberPromote(proc.Context(t), id)
		if err != nil && !interrupted(err) &&
			!strings.Contains(err.Error(),
				"can only promote a learner member which is in sync with leader") {
			t.Fatal(err)
		}
		return err == nil
	})
	w.more(100)
	lead := g.leader()
	leadID := lead.id(g)
	g.healthy(func() error {
		_,
			err := lead.client.MemberRemove(proc.Context(t), leadID)
		return err
	})
	if code := lead.Wait(); code != 0 {
		t.Errorf("the member that was removed ended with %d:\n%s", code, lead.Log().Tail(5))
	}
	g.drop(lead)
	w.more(100)
	w.check()
	g.agree()
	// It stays away.
	if proc.Subject() == proc.Vigil {
		lead.Launch()
		lead.Wait()
		if log := lead.Log().String(); !strings.Contains(log, "removed from") {
			t.Errorf("the member that was removed starts again:\n%s", log)
		}
	}
}

// A member that lost its disk does not come back under its old identity, but as a new one. What it
// says is the way there: the commands are run as they stand.
func TestReplaceMemberWithoutItsDisk(t *testing.T) {
	t.Parallel()
	g := start(t, 3, steady)
	w := g.write()
	w.more(100)
	lost := g.others(g.leader())[0]
	id := lost.id(g)
	lost.Kill()
	if err := os.RemoveAll(lost.DataDir()); err != nil {
		t.Fatal(err)
	}
	lost.Launch()
	if code := lost.Wait(); code == 0 ||
		!strings.Contains(lost.Log().String(), "has already been bootstrapped") {
		t.Errorf("exit code %d:\n%s", code, lost.Log().Tail(3))
	}
	at := g.leader()
	said := regexp.MustCompile("`etcdctl (member [^`]*)`").FindAllStringSubmatch(lost.Log().String(), -1)
	if want := fmt.Sprintf("member remove %x", id); len(said) != 2 || said[0][1] != want ||
		!strings.HasPrefix(said[1][1], "member add "+lost.name+" ") {
		t.Fatalf("it says %q", said)
	}
	for _, command := range said {
		g.healthy(func() error {
			args := append(strings.Fields(command[1]), "--endpoints="+at.Addr())
			res := proc.Run(t, 20*time.Second,
				proc.Spec{Name: proc.Path(t, proc.Etcdctl), Args: args})
			if strings.Contains(res.Stderr, "unhealthy cluster") {
				return rpctypes.ErrUnhealthy
			}
			if res.Code != 0 {
				return errors.New(res.Stderr)
			}
			t.Logf("etcdctl %s:\n%s", command[1], res.Stdout)
			return nil
		})
	}
	lost.SetArgs(append(slices.Clone(g.args), "--initial-cluster-state=existing")...)
	lost.Restart()
	if again := lost.id(g); again == id {
		t.Error("it came back as the member that it was")
	}
	w.more(100)
	w.check()
	g.agree()
}

// One member is kept with all data when the others are gone for good, and the cluster grows again.
func TestForceNewCluster(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	w := g.write()
	w.more(100)
	w.check()
	g.agree()
	keep := g.list[0]
	hash, err := keep.client.HashKV(proc.Context(t), keep.Addr(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range g.list {
		m.Kill()
	}
	g.list = []*member{keep}
	args := slices.Clone(keep.cfg.Args)
	keep.SetArgs(append(slices.Clone(args), "--force-new-cluster")...)
	keep.Restart()
	check := func() {
		t.Helper()
		g.until("a single member", func() bool {
			members, err := keep.client.MemberList(proc.Context(t))
			return err == nil && len(members.Members) == 1
		})
		now, err := keep.client.HashKV(proc.Context(t), keep.Addr(), hash.Header.Revision)
		if err != nil || now.Hash != hash.Hash {
			t.Errorf("%v, %v: the data changed", now, err)
		}
	}
	check()
	g.put(keep, "after", "x")
	keep.Kill()
	keep.SetArgs(args...)
	keep.Restart()
	check()
	g.join(g.add(keep, "m5", false))
	g.agree()
}

// Who does not belong to a cluster is refused with one line.
func TestRefusals(t *testing.T) {
	t.Parallel()
	if proc.Subject() != proc.Vigil {
		t.Skip("the words are ours")
	}
	g := start(t, 3)
	at := g.list[0]
	four := g.add(at, "m4", false)
	all := g.initialCluster()
	fresh := func(change func(*proc.Config)) *proc.Server {
		c := four.cfg
		c.DataDir = filepath.Join(dir(t), "m4")
		c.InitialCluster = all + ",m4=" + four.peerURL
		c.Args = []string{"--initial-cluster-state=existing"}
		change(&c)
		s := proc.New(t, c)
		s.Launch()
		return s
	}
	for _, tc := range []struct {
		name   string
		change func(*proc.Config)
		want   string
	}{
		{"too few members", func(c *proc.Config) {
			c.InitialCluster = "m1=" + at.peerURL + ",m4=" +
				four.peerURL
		}, "member count is unequal"},
		{"another URL", func(c *proc.Config) {
			c.InitialCluster = strings.Replace(c.InitialCluster, g.list[1].peerURL,
				"http://127.0.0.1:1", 1)
		}, "no match found for existing member"},
		{"not added", func(c *proc.Config) {
			c.Name = "m2"
			c.Args = append(c.Args, "--initial-advertise-peer-urls="+g.list[1].peerURL)
		}, "has been started before"},
		{"no member there", func(c *proc.Config) {
			c.InitialCluster = "m1=http://127.0.0.1:1,m4=" +
				four.peerURL
		}, "could not retrieve cluster information"},
		{"a URL twice", func(c *proc.Config) {
			c.InitialCluster = "m1=" + four.peerURL + ",m4=" +
				four.peerURL
		}, "is listed twice"},
		{"no such name", func(c *proc.Config) { c.InitialCluster = all },
			`no member is named "m4"`},
		{"certificates without files",
			func(c *proc.Config) { c.Args = append(c.Args, "--peer-cert-file=x") },
			"--peer-cert-file and --peer-key-file go together"},
	} {
		t.Run(strings.ReplaceAll(tc.name, " ", "-"), func(t *testing.T) {
			s := fresh(tc.change)
			if code := s.Wait(); code == 0 {
				t.Error("exit code 0")
			}
			var plain []string // besides the log
			for line := range strings.Lines(s.Log().String()) {
				if !strings.HasPrefix(line, "{") {
					plain = append(plain, line)
				}
			}
			if len(plain) != 1 || !strings.Contains(plain[0], tc.want) {
				t.Errorf("want one line with %q:\n%s", tc.want, s.Log())
			}
			if _, err := os.Stat(s.DataDir()); err == nil {
				t.Error("something was written")
			}
		})
	}
	// Another token makes another cluster: a member of it does not begin it among these members.
	c := g.list[1].cfg
	c.DataDir = filepath.Join(dir(t), "other")
	c.InitialCluster = all
	c.Args = []string{"--initial-cluster-token=other"}
	g.list[1].Kill()
	s := proc.New(t, c)
	s.Launch()
	g.until("a line about the other cluster",
		func() bool { return strings.Contains(s.Log().String(), "belongs to another cluster") })
	if code := s.Stop(); code != 0 {
		t.Errorf("another token: exit code %d:\n%s", code, s.Log())
	}
	if _, err := os.Stat(s.DataDir()); err == nil {
		t.Error("another token: something was written")
	}
	// One that began it before they were there never gets a leader out of them, and both sides say
	// why.
	g.list[0].Kill()
	g.list[2].Kill()
	s = proc.New(t, c)
	s.Launch()
	g.until("the beginning of another cluster", func() bool {
		_, err := os.Stat(filepath.Join(c.DataDir, "wal"))
		return err == nil
	})
	g.list[0].Launch()
	g.list[2].Launch()
	g.until("a line on both sides", func() bool {
		return strings.Contains(s.Log().String(), "wrong cluster") &&
			strings.Contains(at.Log().String(), "wrong cluster")
	})
	s.Kill()
	g.list[1].Restart()
	g.agree()
}

// A member joins by the meaning of the URLs in --initial-cluster, whatever names the others are
// listed under: a program that adds a member may know neither the names nor the spelling.
func TestJoinByMeaning(t *testing.T) {
	t.Parallel()
	g := start(t, 1)
	at := g.list[0]
	host := strings.TrimPrefix(at.peerURL, "http://127.0.0.1")
	for i, listed := range []string{
		"8e9e05c52164694d=" + at.peerURL, // the hex id instead of a name
		"m1=http://localhost" + host,
		"m1=HTTP://LOCALHOST" + host,
	} {
		m := g.add(at, fmt.Sprintf("m%d", i+2), false)
		m.cfg.InitialCluster = listed
		for _, o := range g.list[1:] {
			m.cfg.InitialCluster += ",x" + o.name + "=" + o.peerURL
		}
		m.cfg.InitialCluster += "," + m.name + "=" + m.peerURL
		m.cfg.Args = append(slices.Clone(g.args), "--initial-cluster-state=existing")
		m.Server = proc.New(t, m.cfg)
		m.Launch()
		g.serving(m)
		g.list = append(g.list, m)
	}
	g.agree()
}

// The members of a cluster are replaced in place, one after the other, by those of another one with
// another token. What is not yet replaced keeps the others waiting.
func TestReplacedInPlace(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	g.put(g.list[0], "old", "x")
	var fresh []*proc.Server
	for _, m := range g.list {
		m.Kill()
		c := m.cfg
		c.DataDir = filepath.Join(dir(t), "new")
		c.InitialCluster = g.initialCluster()
		c.Args = append(slices.Clone(c.Args), "--initial-cluster-token=second")
		s := proc.New(t, c)
		s.Launch()
		fresh = append(fresh, s)
		if len(fresh) < len(g.list) {
			g.until("a line about the other cluster", func() bool {
				return proc.Subject() != proc.Vigil ||
					strings.Contains(s.Log().String(), "belongs to another cluster")
			})
		}
	}
	for _, s := range fresh {
		s.Ready()
	}
	r, err := fresh[0].Client().Get(proc.Context(t), "old")
	if err != nil || r.Count != 0 {
		t.Errorf("%v, %v: the new cluster has a key of the old one", r, err)
	}
}

// TestAMemberWithAWrongAddress: a member whose advertised peer URL leads nowhere serves, follows
// and leads: it connects to the others, and they use that. Its log says what is wrong.
func TestAMemberWithAWrongAddress(t *testing.T) {
	t.Parallel()
	g := &group{t: t}
	for i := range 3 {
		g.list = append(g.list, g.configure(fmt.Sprintf("m%d", i+1)))
	}
	odd := g.list[2]
	listens := odd.peerURL
	odd.peerURL = fmt.Sprintf("http://127.0.0.1:%d", proc.FreePort(t))
	odd.cfg.Args = append([]string{"--listen-peer-urls=" + listens,
		"--initial-advertise-peer-urls=" + odd.peerURL}, odd.cfg.Args...)
	for _, m := range g.list {
		m.cfg.InitialCluster = g.initialCluster()
		m.Server = proc.New(t, m.cfg)
		m.Launch()
	}
	for _, m := range g.list {
		g.serving(m)
	}
	g.put(odd, "a", "1")
	g.logged(odd, "a member cannot connect to a peer URL of this member")
	lead := g.leader()
	if lead != odd {
		if _, err := lead.client.MoveLeader(proc.Context(t), odd.id(g)); err != nil {
			t.Fatal(err)
		}
	}
	g.put(odd, "b", "2")
	for _, m := range g.others(odd) {
		// A lease is renewed by a call to the leader.
		grant, err := m.client.Grant(proc.Context(t), 60)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.client.KeepAliveOnce(proc.Context(t), grant.ID); err != nil {
			t.Fatal(err)
		}
	}
	g.agree()
	g.logged(odd, "no member has connected to a peer URL of this member")
}
