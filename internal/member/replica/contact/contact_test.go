package contact

import (
	"context"
	"testing"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/raftnode"
	"vigil/internal/state/cluster"
)

type world struct {
	status raftnode.Status
	since  map[uint64]time.Time
	state  *cluster.State
}

func (w *world) Status() raftnode.Status            { return w.status }
func (w *world) ConnectedSince(id uint64) time.Time { return w.since[id] }
func (w *world) State() *cluster.State              { return w.state }

func TestTimeoutCause(t *testing.T) {
	state, err := cluster.Initial("token", []cluster.Member{
		{Name: "a", PeerURLs: []string{"http://a:1"}},
		{Name: "b", PeerURLs: []string{"http://b:1"}},
		{Name: "c", PeerURLs: []string{"http://c:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	ids := state.IDs()
	self, other, third := ids[0], ids[1], ids[2]
	now := time.Now()
	long, begun := now.Add(-time.Hour), now.Add(-5*time.Second)
	for name, c := range map[string]struct {
		lead      uint64
		leadSince time.Time
		since     map[uint64]time.Time
		want      error
	}{
		"no leader": {0, time.Time{}, nil, kv.ErrTimeout},
		"an election since": {other, begun.Add(time.Second),
			map[uint64]time.Time{other: long}, kv.ErrTimeoutLeaderFailure},
		"an election long after": {other, begun.Add(4 * time.Second),
			map[uint64]time.Time{other: long}, kv.ErrTimeout},
		"connected to the leader": {other, long, map[uint64]time.Time{other: long},
			kv.ErrTimeout},
		"not connected to the leader": {other, long, map[uint64]time.Time{third: long},
			kv.ErrTimeoutConnectionLost},
		"connected to the leader again": {other, long, map[uint64]time.Time{other: now},
			kv.ErrTimeoutConnectionLost},
		"leads, connected to a quorum": {self, long, map[uint64]time.Time{third: long},
			kv.ErrTimeout},
		"leads, connected to no one": {self, long, nil, kv.ErrTimeoutConnectionLost},
		"leads, connected to a quorum again": {self, long, map[uint64]time.Time{third: now},
			kv.ErrTimeoutConnectionLost},
	} {
		w := &world{raftnode.Status{}, c.since, state}
		w.status.Lead, w.status.LeadSince = c.lead, c.leadSince
		contacts := New(Options{MemberID: self, Raft: w, Network: w, Membership: w,
			ElectionTimeout: time.Second})
		if got := contacts.TimeoutCause(begun); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if got := contacts.WaitError(context.DeadlineExceeded, begun); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if got := contacts.WaitError(context.Canceled, begun); got != context.Canceled {
			t.Errorf("%s: a canceled wait: %v", name, got)
		}
	}
}
