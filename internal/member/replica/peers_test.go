package replica

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"vigil/internal/member/calls"
	"vigil/internal/member/peer"
	"vigil/internal/state/cluster"
	"vigil/internal/vfs/memfs"
)

// streams is a transport as a Network. The test sets its members.
type streams struct{ *peer.Transport }

func (streams) SetMembers(uint64, *cluster.State) {}

// offers answers the calls of other members.
type offers struct{ r *Replica }

func (o offers) ServeCall(ctx context.Context, from peer.Caller, kind uint8,
	payload []byte) ([]byte, error) {
	if kind != calls.SnapshotOffer || from.Member == 0 {
		return nil, fmt.Errorf("a call of kind %d", kind)
	}
	return o.r.OfferSnapshot(ctx, from.Member, payload)
}

// Members on loopback: one is away for longer than the log reaches, and a snapshot comes to it over
// the real transport.
func TestSnapshotOverTheNetwork(t *testing.T) {
	template := memberConfig(nil, 1)
	ls := make([]net.Listener, 3)
	var members []cluster.Member
	for i := range ls {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ls[i] = l
		members = append(members,
			cluster.Member{Name: fmt.Sprintf("m%d", i+1),
				PeerURLs: []string{"http://" + l.Addr().String()}})
	}
	state, err := cluster.Initial(template.Token, members)
	if err != nil {
		t.Fatal(err)
	}
	var peers []peer.Member
	for _, m := range state.Members() {
		peers = append(peers, peer.Member{ID: m.ID, URLs: m.PeerURLs})
	}
	g := &group3{t: t, net: newMesh()}
	transports := make([]*peer.Transport, 3)
	open := func(i int, disk *memfs.FS, l net.Listener) (*Replica, func()) {
		c := memberConfig(disk, i+1)
		c.InitialMembers = members
		id := uint64(0)
		for _, m := range state.Members() {
			if m.Name == c.Name {
				id = m.ID
			}
		}
		tr, err := peer.New(peer.Options{ClusterID: cluster.ID(state.IDs()), MemberID: id,
			BackoffMin: 5 * time.Millisecond, BackoffMax: 50 * time.Millisecond,
			DeadAfter: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		c.NoInitialElectionTickAdvance = true
		r, err := openWith(c, streams{tr})
		if err != nil {
			t.Fatal(err)
		}
		transports[i] = tr
		tr.SetMembers(1, peers, nil)
		if err := tr.Start(peer.Receivers{Raft: r, Calls: offers{r}, Bulk: r}); err != nil {
			t.Fatal(err)
		}
		served := make(chan struct{})
		go func() { tr.Serve(l); close(served) }()
		r.Start()
		stop := func() {
			tr.Close()
			r.Stop(context.Background())
			<-served
		}
		g.net.mu.Lock()
		g.net.members[id] = r // leader looks there
		g.net.mu.Unlock()
		return r, stop
	}
	disks := []*memfs.FS{memfs.New(), memfs.New(), memfs.New()}
	stops := make([]func(), 3)
	defer func() {
		for _, stop := range stops {
			if stop != nil {
				stop()
			}
		}
	}()
	for i := range 3 {
		var r *Replica
		r, stops[i] = open(i, disks[i], ls[i])
		g.list = append(g.list, r)
	}
	for _, r := range g.list {
		g.ready(r)
	}
	for i := range 200 {
		g.put(fmt.Sprintf("k%d", i), junk(1000))
	}
	away := 0
	if g.list[0] == g.leader() {
		away = 1
	}
	r := g.list[away]
	stops[away]()
	g.lag(r, 1000)
	// It comes back at another address: its port may be in use by now.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for i := range peers {
		if peers[i].ID == r.memberID {
			peers[i].URLs = []string{"http://" + l.Addr().String()}
		}
	}
	for i, tr := range transports {
		if i != away {
			tr.SetMembers(2, peers, nil)
		}
	}
	r, stops[away] = open(away, disks[away], l)
	g.list[away] = r
	g.net.setCut(r.memberID, false)
	g.ready(r)
	await(t, "a snapshot", func() bool { return r.receiver.Stats().Installed > 0 })
	g.caughtUp(r)
}
