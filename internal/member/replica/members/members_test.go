package members

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/member/raftnode"
	"vigil/internal/member/replica/proposal"
	"vigil/internal/state/auth"
	"vigil/internal/state/cluster"
)

// world is all that Members use. Its queue accepts nothing, so that a change that passes all checks
// ends with errProposed.
type world struct {
	status    raftnode.Status
	progress  map[uint64]raftnode.Progress
	connected int
	away      bool
	admin     error
	calls     []string
}

var errProposed = errors.New("proposed")

func (w *world) Status() raftnode.Status { return w.status }
func (w *world) LeadTerm() uint64 {
	if w.progress != nil {
		return w.status.Term
	}
	return 0
}
func (w *world) Progress() (map[uint64]raftnode.Progress, error)      { return w.progress, nil }
func (w *world) ProposeConfChange(raftpb.ConfChangeI) (uint64, error) { return 0, nil }
func (w *world) Register() (*proposal.Change, error)                  { return nil, errProposed }
func (w *world) Admin(context.Context) (auth.Identity, error) {
	return auth.Identity{User: "root"}, w.admin
}
func (w *world) Identity(context.Context) (auth.Identity, error) {
	return auth.Identity{}, nil
}
func (w *world) CountConnected([]cluster.Member, time.Time) int { return w.connected }
func (w *world) Away(uint64) bool                               { return w.away }
func (w *world) WaitError(err error, _ time.Time) error         { return err }
func (w *world) HandOver(context.Context) {
	w.calls = append(w.calls, "hand over")
}
func (w *world) TakeOver(context.Context) {
	w.calls = append(w.calls, "take over")
}
func (w *world) AwaitReadable(context.Context, bool) (time.Duration, error) { return 0, nil }
func (w *world) SetMembers(index uint64, m *cluster.State) {
	w.calls = append(w.calls, fmt.Sprintf("%d members at %d", len(m.Members()), index))
}

// named returns a membership of named voters.
func named(t *testing.T, n int) *cluster.State {
	t.Helper()
	var list []cluster.Member
	for i := range n {
		list = append(list, cluster.Member{Name: fmt.Sprint("m", i),
			PeerURLs: []string{fmt.Sprintf("http://m%d:1", i)}})
	}
	s, err := cluster.Initial("token", list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newMembers(w *world, state *cluster.State, forced bool) *Members {
	self := state.Voters()[0].ID
	return New(Options{MemberID: self, Roster: NewRoster(self, w, state), Raft: w, Queue: w,
		Access: w, Contacts: w, Leadership: w, Reads: w,
		Forced: forced, MaxLearners: 1, RequestTimeout: time.Second, TickInterval: time.Millisecond,
		Logger: slog.New(slog.DiscardHandler)})
}

// change returns the membership after a change.
func change(t *testing.T, s *cluster.State, c cluster.Change) *cluster.State {
	t.Helper()
	next, _, err := s.Change(c)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// A change that its limits forbid, or that may cost the quorum, is not proposed.
func TestRejectedBeforeProposal(t *testing.T) {
	three := named(t, 3)
	learner := change(t, three,
		cluster.Change{Op: cluster.Add,
			Member: cluster.Member{ID: 77, PeerURLs: []string{"http://l:1"}, Learner: true}})
	add := func(learner bool) func(*Members) error {
		return func(ms *Members) error {
			_, _, err := ms.AddMember(t.Context(), []string{"http://n:1"}, learner)
			return err
		}
	}
	remove := func(ms *Members) error {
		_, err := ms.RemoveMember(t.Context(), three.IDs()[1])
		return err
	}
	promote := func(ms *Members) error {
		_, err := ms.PromoteMember(t.Context(), 77)
		return err
	}
	self := three.IDs()[0]
	for name, c := range map[string]struct {
		world world
		state *cluster.State
		do    func(*Members) error
		want  error
	}{
		"add": {world{connected: 3}, three, add(false), errProposed},
		"add by another user": {world{connected: 3, admin: kv.ErrPermissionDenied}, three,
			add(false), kv.ErrPermissionDenied},
		"add without a quorum": {world{connected: 2}, three, add(false), kv.ErrUnhealthy},
		"add a second learner": {world{connected: 3}, learner, add(true),
			kv.ErrTooManyLearners},
		"remove":                    {world{connected: 3}, three, remove, errProposed},
		"remove from half a quorum": {world{connected: 2}, three, remove, kv.ErrUnhealthy},
		"remove a member that is away": {world{connected: 2, away: true}, three,
			remove, errProposed},
		"promote at another member":  {world{}, learner, promote, kv.ErrNotLeader},
		"promote an unknown member":  {world{progress: map[uint64]raftnode.Progress{self: {Match: 100}}}, learner, promote, kv.ErrMemberNotFound},
		"promote a member that lags": {world{progress: map[uint64]raftnode.Progress{self: {Match: 100}, 77: {Match: 89}}}, learner, promote, kv.ErrLearnerNotReady},
		"promote a member that is a voter": {world{progress: map[uint64]raftnode.Progress{self: {},
			77: {}}},
			change(t, learner, cluster.Change{Op: cluster.Promote, Member: cluster.Member{ID: 77}}),
			promote, kv.ErrNotLearner},
		"promote": {world{progress: map[uint64]raftnode.Progress{self: {Match: 100},
			77: {Match: 90}}}, learner, promote, errProposed},
	} {
		if err := c.do(newMembers(&c.world, c.state, false)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// The leader hands over before it is removed, or the member that removes it takes over.
func TestRemoveLeader(t *testing.T) {
	state := named(t, 3)
	for i, want := range []string{"hand over", "take over"} {
		w := &world{connected: 3}
		w.status.Lead = state.IDs()[i]
		ms := newMembers(w, state, false)
		if _, err := ms.RemoveMember(t.Context(), w.status.Lead); err != errProposed ||
			len(w.calls) != 1 || w.calls[0] != want {
			t.Errorf("%v, %q; want %q", err, w.calls, want)
		}
	}
}

// A new membership is announced once, and the removal of this member is noted.
func TestRoster(t *testing.T) {
	w, state := &world{}, named(t, 3)
	r := NewRoster(state.IDs()[0], w, state)
	isRemoved := func() bool {
		select {
		case <-r.removed:
			return true
		default:
			return false
		}
	}
	r.Follow(state, 7)
	if len(w.calls) != 0 || isRemoved() {
		t.Errorf("the same membership: %q", w.calls)
	}
	two := change(t, state,
		cluster.Change{Op: cluster.Remove, Member: cluster.Member{ID: state.IDs()[1]}})
	r.Follow(two, 8)
	one := change(t, two,
		cluster.Change{Op: cluster.Remove, Member: cluster.Member{ID: state.IDs()[0]}})
	if isRemoved() || r.Alone() {
		t.Error("another member was removed")
	}
	r.Follow(one, 9)
	r.Follow(one, 10)
	if !isRemoved() || !r.Alone() || r.State() != one {
		t.Error("this member was removed")
	}
	if want := []string{"2 members at 8",
		"1 members at 9"}; fmt.Sprint(w.calls) != fmt.Sprint(want) {
		t.Errorf("announced %q, want %q", w.calls, want)
	}
}

// The word of a learner does not settle a removal while this member leads.
func TestNoteRemoved(t *testing.T) {
	state := change(t, named(t, 3),
		cluster.Change{Op: cluster.Add,
			Member: cluster.Member{ID: 77, PeerURLs: []string{"http://l:1"}, Learner: true}})
	w := &world{}
	w.status.Term, w.progress = 2, map[uint64]raftnode.Progress{}
	ms := newMembers(w, state, false)
	if ms.NoteRemoved(77) || !ms.NoteRemoved(state.IDs()[1]) || !ms.NoteRemoved(99) {
		t.Error("while this member leads")
	}
	w.progress = nil
	if !ms.NoteRemoved(77) {
		t.Error("while another member leads")
	}
}

// A member that is forced to be the only one becomes a voter first, and then removes the others.
func TestForcedChanges(t *testing.T) {
	state := named(t, 3)
	ms := newMembers(&world{}, state, true)
	if !ms.Forcing() || !ms.MustForce() {
		t.Error("there is nothing to force")
	}
	if c, ok := ms.nextForced(); !ok || c.Op != cluster.Remove || c.Member.ID == ms.o.MemberID {
		t.Errorf("the first change is %+v", c)
	}
	if err := ms.BeAlone(t.Context()); err != errProposed || !ms.Forcing() {
		t.Errorf("%v, forcing %t", err, ms.Forcing())
	}
	for _, id := range state.IDs()[1:] {
		state = change(t, state, cluster.Change{Op: cluster.Remove, Member: cluster.Member{ID: id}})
	}
	ms.o.Roster.Follow(state, 9)
	if err := ms.BeAlone(t.Context()); err != nil || ms.Forcing() || ms.MustForce() {
		t.Errorf("%v, forcing %t", err, ms.Forcing())
	}
	learner := change(t, named(t, 2),
		cluster.Change{Op: cluster.Add,
			Member: cluster.Member{ID: 1, PeerURLs: []string{"http://l:1"}, Learner: true}})
	ms = newMembers(&world{}, learner, true)
	ms.o.MemberID = 1
	if c, ok := ms.nextForced(); !ok || c.Op != cluster.Promote || c.Member.ID != 1 {
		t.Errorf("the first change of a learner is %+v", c)
	}
}

func TestPromotionPayload(t *testing.T) {
	ms := newMembers(&world{}, named(t, 3), false)
	b, err := ms.EncodePromotion(t.Context(), 77)
	if err != nil {
		t.Fatal(err)
	}
	if id, who, err := decodePromotion(b); id != 77 || who.User != "root" || err != nil {
		t.Errorf("%d, %+v, %v", id, who, err)
	}
	for _, bad := range [][]byte{nil, b[:7], b[:len(b)-1], append(b, 0)} {
		if _, _, err := decodePromotion(bad); err == nil {
			t.Errorf("%x is accepted", bad)
		}
	}
}
