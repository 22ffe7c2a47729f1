package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
	"vigil/internal/member/calls"
	"vigil/internal/member/replica/transfer"
	"vigil/internal/offline/datadir"
	"vigil/internal/state/cluster"
	"vigil/internal/vfs"
	"vigil/internal/vfs/memfs"
)

// mesh connects members in one process: it can cut members off, drop messages, and spoil transfers.
type mesh struct {
	mu      sync.Mutex
	members map[uint64]*Replica
	cut     map[uint64]bool
	drop    func(m *raftpb.Message) bool
	// spoil, if set, is asked for each transfer what to do with it.
	spoil func(r io.Reader) io.Reader
	// sent are the bytes of each transfer.
	sent []int64
	last struct{ header, body []byte }
	keep bool
	// unheard, if set, is whose answers to questions for hashes do not come.
	unheard uint64
	// noOffer: a member that is asked for its state answers that it has none.
	noOffer bool
	// offering, if set, is called before a member is asked for its state; its error is the answer.
	offering func(ctx context.Context) error
}

func newMesh() *mesh { return &mesh{members: map[uint64]*Replica{}, cut: map[uint64]bool{}} }

func (n *mesh) connected(a, b uint64) *Replica {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut[a] || n.cut[b] {
		return nil
	}
	return n.members[b]
}

func (n *mesh) setCut(id uint64, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[id] = cut
}

func (n *mesh) transfers() []int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]int64(nil), n.sent...)
}

// end is a member's end of the mesh. The id is known when the member is open.
type end struct {
	net *mesh
	id  atomic.Uint64
}

func (e *end) Send(msgs []*raftpb.Message) {
	for _, m := range msgs {
		to := e.net.connected(e.id.Load(), m.GetTo())
		e.net.mu.Lock()
		drop := e.net.drop != nil && e.net.drop(m)
		e.net.mu.Unlock()
		if to != nil && !drop {
			to.Step(proto.Clone(m).(*raftpb.Message))
		}
	}
}

// SetMembers implements Network: the mesh knows its members.
func (e *end) SetMembers(uint64, *cluster.State) {}

// ConnectedSince implements Network: all members are connected, as far as a member knows.
func (e *end) ConnectedSince(uint64) time.Time { return time.Unix(1, 0) }

// Open opens a member without others.
func Open(c Config) (*Replica, error) { return openWith(c, nil) }

func openWith(c Config, n Network) (*Replica, error) {
	d, err := OpenData(c)
	if err != nil {
		return nil, err
	}
	return New(d, n)
}

var errCut = errors.New("the member is cut off")

func (e *end) Call(ctx context.Context, id uint64, kind uint8, payload []byte) ([]byte, error) {
	to := e.net.connected(e.id.Load(), id)
	e.net.mu.Lock()
	unheard := e.net.unheard == id
	e.net.mu.Unlock()
	if kind == calls.Hashes && unheard {
		// As long as a caller may be kept waiting, in short.
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
		return nil, errCut
	}
	if to != nil && kind == calls.Hashes {
		return to.AnswerHash(ctx, payload)
	}
	if to != nil && kind == calls.Lease {
		return to.Leases.ServeCall(ctx, payload)
	}
	if to == nil || kind != calls.SnapshotOffer {
		return nil, errCut
	}
	e.net.mu.Lock()
	nothing, offering := e.net.noOffer, e.net.offering
	e.net.mu.Unlock()
	if offering != nil {
		if err := offering(ctx); err != nil {
			return nil, err
		}
	}
	if nothing {
		return transfer.Answer{}.Encode(), nil
	}
	return to.OfferSnapshot(ctx, e.id.Load(), payload)
}

func (e *end) SendBulk(ctx context.Context, id uint64, meta []byte, r io.Reader) error {
	to := e.net.connected(e.id.Load(), id)
	if to == nil {
		return errCut
	}
	e.net.mu.Lock()
	spoil, keep := e.net.spoil, e.net.keep
	at := len(e.net.sent)
	e.net.sent = append(e.net.sent, 0)
	e.net.mu.Unlock()
	if spoil != nil {
		r = spoil(r)
	}
	var body bytes.Buffer
	pr, pw := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 10_000)
		for {
			k, err := r.Read(buf)
			if e.net.connected(e.id.Load(), id) == nil {
				err = errCut
			}
			if err != nil {
				pw.CloseWithError(err)
				return
			}
			if keep {
				body.Write(buf[:k])
			}
			e.net.mu.Lock()
			e.net.sent[at] += int64(k)
			e.net.mu.Unlock()
			if _, err := pw.Write(buf[:k]); err != nil {
				return
			}
		}
	}()
	err := to.ReceiveBulk(ctx, e.id.Load(), meta, pr)
	pr.CloseWithError(errCut)
	<-ended // the reader is the caller's again
	if keep && err == nil {
		e.net.mu.Lock()
		e.net.last.header, e.net.last.body = bytes.Clone(meta), body.Bytes()
		e.net.mu.Unlock()
	}
	return err
}

// group3 is a cluster of members in one process.
type group3 struct {
	t    *testing.T
	net  *mesh
	list []*Replica
	fs   []*memfs.FS
	cfg  []Config
	ends []*end
}

// memberConfig is the configuration of member i (from 1) of a cluster of three.
func memberConfig(fsys vfs.FS, i int) Config {
	c := config(fsys)
	c.Name = fmt.Sprintf("m%d", i)
	c.InitialMembers = nil
	for k := 1; k <= 3; k++ {
		c.InitialMembers = append(c.InitialMembers,
			cluster.Member{Name: fmt.Sprintf("m%d", k),
				PeerURLs: []string{fmt.Sprintf("http://127.0.0.1:%d", 20000+k)}})
	}
	c.TickInterval, c.ElectionTicks = 20*time.Millisecond, 20
	c.RequestTimeout = patience
	c.SnapshotCount, c.SnapshotCatchUpEntries = 50, 10
	return c
}

// steady is for tests that no election must disturb: a member that stands still for long keeps its
// role.
func steady(_ int, c *Config) { c.ElectionTicks = 1000 }

// startGroup starts three members and waits until they serve.
func startGroup(t *testing.T, change func(i int, c *Config)) *group3 {
	t.Helper()
	g := &group3{t: t, net: newMesh()}
	for i := 1; i <= 3; i++ {
		disk := memfs.New()
		c := memberConfig(disk, i)
		if change != nil {
			change(i, &c)
		}
		g.add(disk, c)
	}
	// All are there, so the first election need not wait.
	if _, err := g.list[0].node.AdvanceElection(2 * g.cfg[0].ElectionTicks); err != nil {
		t.Fatal(err)
	}
	for _, r := range g.list {
		g.ready(r)
	}
	// A strict change counts the members that have said something of themselves.
	for _, r := range g.list {
		await(t, "members that have started", func() bool {
			return !slices.ContainsFunc(r.Membership().Members(),
				func(m cluster.Member) bool { return m.Level == 0 })
		})
	}
	return g
}

// add opens and starts a member.
func (g *group3) add(disk *memfs.FS, c Config) *Replica {
	g.t.Helper()
	e := &end{net: g.net}
	c.NoInitialElectionTickAdvance = true
	r, err := openWith(c, e)
	if err != nil {
		g.t.Fatal(err)
	}
	e.id.Store(r.memberID)
	g.net.mu.Lock()
	g.net.members[r.memberID] = r
	g.net.mu.Unlock()
	g.list, g.fs, g.cfg, g.ends = append(g.list, r), append(g.fs, disk), append(g.cfg, c),
		append(g.ends, e)
	r.Start()
	g.t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		r.Stop(ctx)
	})
	return r
}

// restart stops a member and starts it again; between changes its disk before that.
func (g *group3) restart(r *Replica, between func(c *Config)) *Replica {
	g.t.Helper()
	for i, m := range g.list {
		if m != r {
			continue
		}
		if err := r.Stop(g.t.Context()); err != nil {
			g.t.Fatal(err)
		}
		disk, c := g.fs[i], g.cfg[i]
		if between != nil {
			between(&c)
		}
		g.list = append(g.list[:i], g.list[i+1:]...)
		g.fs, g.cfg, g.ends = append(g.fs[:i], g.fs[i+1:]...), append(g.cfg[:i], g.cfg[i+1:]...),
			append(g.ends[:i], g.ends[i+1:]...)
		return g.add(disk, c)
	}
	g.t.Fatal("no such member")
	return nil
}

func (g *group3) ready(r *Replica) {
	g.t.Helper()
	select {
	case <-r.Ready():
	case err := <-r.Failed():
		g.t.Fatalf("member %s failed: %v", r.cfg.Name, err)
	case <-time.After(patience):
		g.t.Fatalf("member %s is not ready after %v", r.cfg.Name, patience)
	}
}

// leader waits until the members that are not cut off agree on a leader among them.
func (g *group3) leader() *Replica {
	g.t.Helper()
	var lead *Replica
	await(g.t, "leader", func() bool {
		lead = nil
		for _, r := range g.list {
			if g.net.connected(r.memberID, r.memberID) == nil {
				continue
			}
			l := g.net.connected(r.memberID, r.node.Status().Lead)
			if l == nil || lead != nil && l != lead {
				return false
			}
			lead = l
		}
		return lead != nil
	})
	return lead
}

// other returns a member that does not lead.
func (g *group3) other() *Replica {
	lead := g.leader()
	for _, r := range g.list {
		if r != lead {
			return r
		}
	}
	return nil
}

// put writes through the leader, and again after a change of leader.
func (g *group3) put(key string, value []byte) int64 {
	g.t.Helper()
	for range 20 {
		res, err := g.leader().Put(g.t.Context(), &kv.PutRequest{Key: []byte(key), Value: value})
		if err == nil {
			return res.Revision
		}
	}
	g.t.Fatal("no leader takes a put")
	return 0
}

// caughtUp waits until a member has applied all that the leader has, and compares them.
func (g *group3) caughtUp(r *Replica) {
	g.t.Helper()
	lead := g.leader()
	index := max(lead.applied.Load(), r.applied.Load()) // the leader need not be the first
	await(g.t, fmt.Sprintf("member %s and the leader at index %d", r.cfg.Name, index), func() bool {
		select {
		case err := <-r.Failed():
			g.t.Fatalf("member %s failed: %v", r.cfg.Name, err)
		default:
		}
		return min(lead.applied.Load(), r.applied.Load()) >= index
	})
	sameState(g.t, lead, r)
}

// sameState compares the whole histories of two members that have applied the same.
func sameState(t testing.TB, a, b *Replica) {
	t.Helper()
	ra, rb := a.Status().Revision, b.Status().Revision
	rev := min(ra, rb)
	ha, err := a.HashKV(t.Context(), rev)
	if err != nil {
		t.Fatal(err)
	}
	hb, err := b.HashKV(t.Context(), rev)
	if err != nil {
		t.Fatal(err)
	}
	if ha.Hash != hb.Hash || ha.CompactRevision != hb.CompactRevision {
		t.Errorf("at revision %d: hash %08x compacted at %d, and %08x at %d", rev, ha.Hash,
			ha.CompactRevision, hb.Hash, hb.CompactRevision)
	}
	ma, _ := a.Members.List(t.Context(), false)
	mb, _ := b.Members.List(t.Context(), false)
	if fmt.Sprint(ma) != fmt.Sprint(mb) {
		t.Errorf("members %v and %v", ma, mb)
	}
	if fmt.Sprint(a.Alarms.Active()) != fmt.Sprint(b.Alarms.Active()) {
		t.Errorf("alarms %v and %v", a.Alarms.Active(), b.Alarms.Active())
	}
}

// tidy waits until nothing is left next to the store.
func tidy(t testing.TB, disk vfs.FS, c Config) {
	t.Helper()
	var names []string
	ok := func() bool {
		names, _ = disk.List(filepath.Dir(c.HistoryDir))
		names = slices.DeleteFunc(names,
			func(n string) bool { return n == filepath.Base(datadir.StartedName(c.HistoryDir)) })
		return fmt.Sprint(names) == "[history wal]"
	}
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("left next to the store: %v", names)
			return
		}
	}
}

// copyFS returns a file system with the same files, all durable.
func copyFS(t testing.TB, from vfs.FS, dirs ...string) *memfs.FS {
	t.Helper()
	out := memfs.New()
	for _, dir := range dirs {
		names, err := from.List(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = out.MkdirAll(dir)
		}
		for _, name := range names {
			if err == nil {
				err = copyFile(from, out, filepath.Join(dir, name))
			}
		}
		if err == nil {
			err = out.SyncDir(dir)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func copyFile(from, to vfs.FS, name string) error {
	src, err := from.Open(name)
	if err != nil {
		return err
	}
	defer src.Close()
	size, err := src.Size()
	if err != nil {
		return err
	}
	b := make([]byte, size)
	if _, err := src.ReadAt(b, 0); err != nil && err != io.EOF {
		return err
	}
	dst, err := to.Create(name)
	if err != nil {
		return err
	}
	defer dst.Close()
	if _, err := dst.WriteAt(b, 0); err != nil {
		return err
	}
	return dst.Sync()
}

func newDisk() *memfs.FS { return memfs.New() }

// deaf drops the entries that are sent to a member.
func deaf(id uint64) func(m *raftpb.Message) bool {
	return func(m *raftpb.Message) bool { return m.GetTo() == id && m.GetType() == raftpb.MsgApp }
}
