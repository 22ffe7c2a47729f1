package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/freeze"
	"vigil/test/link"
	"vigil/test/proc"
)

// patience is the timeout of a condition.
const patience = 60 * time.Second

// slot is a place for a member: fixed addresses, and the current member.
type slot struct {
	*proc.Server
	n    int
	node string // in the network
	// peerURL is the advertised URL: the proxy if there is one.
	peerURL    string
	host       string
	clientPort int
	peerPort   int
	client     *clientv3.Client
	// life counts the members that were here, and run the starts of a process.
	life   int
	run    atomic.Int64
	id     uint64
	paused bool
	up     bool
	// mounted is set if the slot has a file system of its own.
	mounted bool
	// disk is that file system if it can hang, or nil.
	disk *freeze.Disk
	// voter is set while clients are to ask the member.
	voter atomic.Bool
}

func (s *slot) name() string { return fmt.Sprintf("%s.%d", s.node, s.life) }

// endpoint is where clients find the member.
func (s *slot) endpoint() string { return fmt.Sprintf("%s:%d", s.host, s.clientPort) }

// group is a cluster whose members are connected through proxies or a switch. Its methods are for
// the goroutine of the test.
type group struct {
	t    *testing.T
	rng  *rand.Rand
	dir  string // of the data and logs
	keep string // see kept
	net  network
	// proxies or wire is the network, the other one is nil.
	proxies *link.Network
	wire    *link.Switch
	slots   []*slot // members now
	spare   *slot   // a place for one more
	args    []string
	// calm disables disturbances of connections.
	calm atomic.Bool
}

// newGroup runs a cluster that is connected by a switch, or through proxies if that is nil.
func newGroup(t *testing.T, rng *rand.Rand, wire *link.Switch, args ...string) *group {
	unmountDead(t)
	proc.Path(t, proc.Subject()) // not to be built in a namespace
	g := &group{t: t, rng: rng, dir: proc.Dir(t), wire: wire, net: wire, args: args}
	if wire == nil {
		g.proxies = link.New(t)
		g.net = g.proxies
	}
	for n := range members + 1 {
		s := &slot{n: n, node: nodeOf(n)}
		g.connect(s)
		var err error
		if s.client, err = g.dial(s.endpoint()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.client.Close() })
		g.mount(s)
		if n == members {
			g.spare = s
		} else {
			g.slots = append(g.slots, s)
		}
	}
	t.Cleanup(g.keepLogs)
	for _, s := range g.slots {
		g.place(s, g.initialCluster(), "new")
	}
	for _, s := range g.slots {
		g.serving(s)
		s.voter.Store(true)
	}
	return g
}

func (g *group) initialCluster() string {
	var parts []string
	for _, s := range g.slots {
		parts = append(parts, s.name()+"="+s.peerURL)
	}
	return strings.Join(parts, ",")
}

func (g *group) dataDir(s *slot) string { return filepath.Join(g.dir, s.node, s.name()) }

func (g *group) logFile(s *slot) string { return filepath.Join(g.dir, s.name()+".log") }

// place runs a new member, with an empty disk, in a slot.
func (g *group) place(s *slot, cluster, state string) {
	g.t.Helper()
	s.Server = proc.New(g.t, proc.Config{
		Name: s.name(), InitialCluster: cluster, DataDir: g.dataDir(s),
		Host: s.host, ClientPort: s.clientPort, PeerPort: s.peerPort,
		Args: append([]string{"--initial-advertise-peer-urls=" + s.peerURL,
			"--initial-cluster-state=" + state,
			"--log-outputs=stderr," + g.logFile(s)}, g.args...),
	})
	s.id = 0
	g.launch(s)
}

// launch runs the process of a slot.
func (g *group) launch(s *slot) {
	g.t.Helper()
	s.run.Add(1)
	g.run(s)
	s.up, s.paused = true, false
}

func (g *group) kill(s *slot) {
	s.Kill()
	s.up, s.paused = false, false
}

func (g *group) stop(s *slot) {
	g.t.Helper()
	if code := s.Stop(); code != 0 && proc.Subject() == proc.Vigil {
		g.t.Errorf("%s exits with %d after SIGTERM", s.name(), code)
	}
	s.up = false
}

func (g *group) pause(s *slot) {
	g.t.Helper()
	s.Pause()
	s.paused = true
}

func (g *group) resume(s *slot) {
	g.t.Helper()
	if s.paused {
		s.Resume()
		s.paused = false
	}
}

// serving waits until a member answers linearizable reads.
func (g *group) serving(s *slot) {
	g.t.Helper()
	g.until(s.name()+" serves", func() (bool, any) {
		if !s.Running() {
			g.t.Fatalf("%s has ended:\n%s", s.name(), s.Log().Tail(30))
		}
		ctx, cancel := context.WithTimeout(g.t.Context(), 2*time.Second)
		defer cancel()
		r, err := s.client.Get(ctx, "serving")
		if err != nil {
			return false, err
		}
		s.id = r.Header.MemberId
		return true, nil
	})
}

// until waits for a condition; the text that it returns is reported at a timeout.
func (g *group) until(what string, done func() (bool, any)) {
	g.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		ok, why := done()
		if ok {
			return
		}
		if time.Now().After(end) {
			g.t.Fatalf("%s: not within %v: %v", what, patience, why)
		}
	}
}

func (g *group) status(s *slot) (*pb.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(g.t.Context(), time.Second)
	defer cancel()
	r, err := s.client.Status(ctx, s.endpoint())
	return (*pb.StatusResponse)(r), err
}

// able returns the members that run and are not paused.
func (g *group) able() (out []*slot) {
	for _, s := range g.slots {
		if s.up && !s.paused {
			out = append(out, s)
		}
	}
	return out
}

// leader waits until a member leads, in the newest term of those that answer.
func (g *group) leader() (lead *slot) {
	g.t.Helper()
	g.until("a leader", func() (bool, any) {
		term := uint64(0)
		var last any
		for _, s := range g.able() {
			st, err := g.status(s)
			if err != nil {
				last = err
				continue
			}
			if st.RaftTerm > term {
				term, lead = st.RaftTerm, nil
			}
			if st.RaftTerm == term && st.Leader == st.Header.MemberId {
				lead = s
			}
		}
		return lead != nil, last
	})
	return lead
}

// follower returns a member that does not lead.
func (g *group) follower() *slot {
	g.t.Helper()
	rest := g.others(g.leader())
	return rest[g.rng.IntN(len(rest))]
}

func (g *group) others(not *slot) (out []*slot) {
	for _, s := range g.slots {
		if s != not {
			out = append(out, s)
		}
	}
	return out
}

// cut sets the rule between a member and all others, for what it sends, what it is sent, or both.
func (g *group) cut(s *slot, out, in bool, r link.Rule) {
	for _, o := range g.others(s) {
		if out {
			g.net.Set(s.node, o.node, r)
		}
		if in {
			g.net.Set(o.node, s.node, r)
		}
	}
}

// heal reverts everything except changes of disks: all members run again.
func (g *group) heal() {
	g.t.Helper()
	g.net.Heal()
	for _, s := range g.slots {
		g.resume(s)
		if !s.up {
			g.launch(s)
		}
	}
	for _, s := range g.slots {
		g.serving(s)
	}
}

// ask makes a call at any member that is able to answer.
func (g *group) ask(what string, do func(context.Context, *clientv3.Client) error) {
	g.t.Helper()
	g.until(what, func() (bool, any) {
		var last error
		for _, s := range g.able() {
			ctx, cancel := context.WithTimeout(g.t.Context(), 5*time.Second)
			err := do(ctx, s.client)
			cancel()
			if err == nil {
				return true, nil
			}
			last = errors.Join(last, fmt.Errorf("%s: %w", s.name(), err))
		}
		return false, last
	})
}

// remove removes a member; it may be down.
func (g *group) remove(s *slot) {
	g.t.Helper()
	// Members reject the removal of a connected one unless the others have been connected for some
	// seconds.
	g.calm.Store(true)
	defer g.calm.Store(false)
	id := s.id
	g.slots = g.others(s)
	g.ask("removing "+s.name(), func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.MemberRemove(ctx, id)
		if errors.Is(err, rpctypes.ErrMemberNotFound) {
			return nil
		}
		return err
	})
}

// add adds a new member in a slot whose process is gone, and runs it with an empty disk.
func (g *group) add(s *slot, learner bool) {
	g.t.Helper()
	// Members reject a new member until they have all been connected for some seconds.
	g.calm.Store(true)
	defer g.calm.Store(false)
	g.ask("adding to "+s.node, func(ctx context.Context, c *clientv3.Client) error {
		list, err := c.MemberList(ctx)
		if err != nil {
			return err
		}
		// A call that timed out may have been applied.
		for _, m := range list.Members {
			if slices.Contains(m.PeerURLs, s.peerURL) {
				s.id = m.ID
				return nil
			}
		}
		if learner {
			_, err = c.MemberAddAsLearner(ctx, []string{s.peerURL})
		} else {
			_, err = c.MemberAdd(ctx, []string{s.peerURL})
		}
		if err == nil {
			err = errors.New("added, not listed yet")
		}
		return err
	})
	if err := os.RemoveAll(g.dataDir(s)); err != nil {
		g.t.Fatal(err)
	}
	s.life++
	id := s.id
	g.slots = append(g.slots, s)
	slices.SortFunc(g.slots, func(a, b *slot) int { return a.n - b.n })
	g.place(s, g.initialCluster(), "existing")
	s.id = id
}

// promote makes a voter of a learner, which it must be ready for.
func (g *group) promote(s *slot) {
	g.t.Helper()
	g.ask("promoting "+s.name(), func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.MemberPromote(ctx, s.id)
		if errors.Is(err, rpctypes.ErrMemberNotLearner) {
			return nil
		}
		return err
	})
}

// agree waits until all members are at a revision and compares their hashes of all data.
func (g *group) agree(rev int64) {
	g.t.Helper()
	g.until(fmt.Sprintf("all members at revision %d", rev), func() (bool, any) {
		var hashes []*clientv3.HashKVResponse
		for _, s := range g.slots {
			ctx, cancel := context.WithTimeout(g.t.Context(), 5*time.Second)
			h, err := s.client.HashKV(ctx, s.endpoint(), rev)
			cancel()
			if err != nil {
				return false, fmt.Errorf("%s: %w", s.name(), err)
			}
			hashes = append(hashes, h)
		}
		for n, h := range hashes {
			if h.CompactRevision != hashes[0].CompactRevision {
				return false, fmt.Sprintf("compacted at %d and %d", h.CompactRevision,
					hashes[0].CompactRevision)
			}
			if h.Hash != hashes[0].Hash {
				g.t.Fatalf("at revision %d %s has the hash %x, %s %x", rev, g.slots[0].name(),
					hashes[0].Hash, g.slots[n].name(), h.Hash)
			}
		}
		return true, nil
	})
}

// count returns how often a text is in the logs of all members, former ones too.
func (g *group) count(text string) (n int) {
	files, _ := filepath.Glob(filepath.Join(g.dir, "*.log"))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			g.t.Error(err)
		}
		n += strings.Count(string(b), text)
	}
	return n
}

// kept returns the directory for the files of a failed test.
func (g *group) kept() (string, error) {
	if g.keep == "" {
		var err error
		if g.keep, err = os.MkdirTemp("", "vigil-chaos-"); err != nil {
			return "", err
		}
	}
	return g.keep, nil
}

// keepLogs saves the logs of all members if the test failed.
func (g *group) keepLogs() {
	if !g.t.Failed() {
		return
	}
	dir, err := g.kept()
	if err != nil {
		g.t.Log(err)
		return
	}
	files, _ := filepath.Glob(filepath.Join(g.dir, "*.log"))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(f)), b, 0o600)
		}
		if err != nil {
			g.t.Log(err)
		}
	}
	g.t.Logf("rules of the network: %v; logs and records are in %s", g.net, dir)
}
