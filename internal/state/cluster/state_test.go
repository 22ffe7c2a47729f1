package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// The ids that a stock etcd gives to its default cluster, and to a well-known one of three.
func TestIDsAreEtcds(t *testing.T) {
	s, err := Initial("etcd-cluster", []Member{{Name: "default", PeerURLs: []string{"http://localhost:2380"}}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.IDs(), []uint64{0x8e9e05c52164694d}; !slices.Equal(got, want) {
		t.Errorf("member ids %x, want %x", got, want)
	}
	if got, want := ID(s.IDs()), uint64(0xcdf818194e3a8c32); got != want {
		t.Errorf("cluster id %x, want %x", got, want)
	}

	s, err = Initial("etcd-cluster-1", []Member{
		{Name: "infra1", PeerURLs: []string{"http://127.0.0.1:12380"}},
		{Name: "infra2", PeerURLs: []string{"http://127.0.0.1:22380"}},
		{Name: "infra3", PeerURLs: []string{"http://127.0.0.1:32380"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.IDs(), []uint64{0x8211f1d0f64f3269, 0x91bc3c398fb3c146, 0xfd422379fda50e48}; !slices.Equal(got, want) {
		t.Errorf("member ids %x, want %x", got, want)
	}
	if got, want := ID(s.IDs()), uint64(0xef37ad9dc622a7c4); ID([]uint64{0xfd422379fda50e48, 0x8211f1d0f64f3269, 0x91bc3c398fb3c146}) != want {
		t.Errorf("cluster id %x, want %x", got, want)
	}
}

func TestMemberIDIgnoresTheOrderOfURLsAndKnowsTime(t *testing.T) {
	a := MemberID([]string{"http://a:1", "http://b:1"}, "t", 0)
	if b := MemberID([]string{"http://b:1", "http://a:1"}, "t", 0); a != b {
		t.Errorf("%x and %x", a, b)
	}
	if b := MemberID([]string{"http://a:1", "http://b:1"}, "t", 1700000000); a == b {
		t.Error("a member added later has the same id")
	}
}

func TestInitialRefuses(t *testing.T) {
	for name, list := range map[string][]Member{
		"none":        nil,
		"no peer url": {{Name: "a"}},
		"same urls":   {{Name: "a", PeerURLs: []string{"http://x:1"}}, {Name: "b", PeerURLs: []string{"http://x:1"}}},
		"shared url":  {{Name: "a", PeerURLs: []string{"http://x:1", "http://y:1"}}, {Name: "b", PeerURLs: []string{"http://y:1"}}},
	} {
		if _, err := Initial("t", list); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestChangeRefuses(t *testing.T) {
	s := &State{}
	apply := func(c Change, want error) {
		t.Helper()
		next, _, err := s.Change(c)
		if !errors.Is(err, want) {
			t.Fatalf("%+v: %v, want %v", c, err, want)
		}
		if err != nil && next != s {
			t.Fatalf("%+v: refused, and yet another state", c)
		}
		s = next
	}
	voter := Member{ID: 1, PeerURLs: []string{"http://a:1"}}
	learner := Member{ID: 2, PeerURLs: []string{"http://b:1"}, Learner: true}
	apply(Change{Op: Update, Member: voter}, ErrIDNotFound)
	apply(Change{Op: Add, Member: voter}, nil)
	apply(Change{Op: Add, Member: voter}, ErrIDExists)
	apply(Change{Op: Add, Member: Member{ID: 3, PeerURLs: []string{"http://a:1"}}}, ErrPeerURLExists)
	apply(Change{Op: Promote, Member: voter}, ErrNotLearner)
	apply(Change{Op: Add, Member: learner}, nil)
	apply(Change{Op: Promote, Member: learner}, nil)
	apply(Change{Op: Update, Member: Member{ID: 2, PeerURLs: []string{"http://a:1"}}}, ErrPeerURLExists)
	apply(Change{Op: Update, Member: Member{ID: 2, PeerURLs: []string{"http://c:1"}}}, nil)
	apply(Change{Op: SetAttributes, Member: Member{ID: 2, Name: "two", ClientURLs: []string{"http://c:2"}}}, nil)
	m, _ := s.Member(2)
	want := Member{ID: 2, Name: "two", PeerURLs: []string{"http://c:1"}, ClientURLs: []string{"http://c:2"}}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("%+v, want %+v", m, want)
	}
	apply(Change{Op: Remove, Member: Member{ID: 2}}, nil)
	apply(Change{Op: Remove, Member: Member{ID: 2}}, ErrIDRemoved)
	apply(Change{Op: Add, Member: learner}, ErrIDRemoved)
	if _, _, err := s.Change(Change{Op: ChangeOp(99), Member: voter}); err == nil {
		t.Error("an unknown change was accepted")
	}
}

// The limits that a change carries hold against what was applied before it, whatever its proposer has seen.
func TestChangeHoldsItsLimits(t *testing.T) {
	started := func(id uint64) Member {
		return Member{ID: id, Name: fmt.Sprint("m", id), PeerURLs: []string{fmt.Sprint("http://m:", id)}, ClientURLs: []string{"http://c:1"}}
	}
	unstarted := func(id uint64) Member {
		m := started(id)
		m.Name, m.ClientURLs = "", nil
		return m
	}
	learner := func(id uint64) Member {
		m := unstarted(id)
		m.Learner = true
		return m
	}
	of := func(members ...Member) *State {
		s := &State{}
		for _, m := range members {
			next, _, err := s.Change(Change{Op: Add, Member: m})
			if err != nil {
				t.Fatal(err)
			}
			s = next
		}
		return s
	}
	var most []Member
	for id := range uint64(MaxVoters) {
		most = append(most, started(id+1))
	}
	full := of(append(most, learner(1000))...)
	remove := func(id uint64) Change { return Change{Op: Remove, Member: Member{ID: id}} }
	strict := func(c Change) Change {
		c.Strict = true
		return c
	}
	for name, c := range map[string]struct {
		state  *State
		change Change
		want   error
	}{
		"last voter":                   {of(started(1)), remove(1), ErrLastVoter},
		"last voter next to a learner": {of(started(1), learner(2)), remove(1), ErrLastVoter},
		"last learner":                 {of(started(1), learner(2)), remove(2), nil},
		"one of two":                   {of(started(1), started(2)), remove(1), nil},
		"learners at the limit":        {of(started(1), learner(2)), Change{Op: Add, Member: learner(3), MaxLearners: 1}, ErrTooManyLearners},
		"learners below the limit":     {of(started(1), learner(2)), Change{Op: Add, Member: learner(3), MaxLearners: 2}, nil},
		"learners without a limit":     {of(started(1), learner(2)), Change{Op: Add, Member: learner(3)}, nil},
		"voters at the limit":          {full, Change{Op: Add, Member: started(1001)}, ErrTooManyVoters},
		"promotion at the limit":       {full, Change{Op: Promote, Member: Member{ID: 1000}}, ErrTooManyVoters},
		"learner next to most voters":  {full, Change{Op: Add, Member: learner(1001)}, nil},
		"removal at the limit":         {full, remove(1), nil},
		"voters below the limit":       {of(most[1:]...), Change{Op: Add, Member: started(1)}, nil},
		"a voter next to learners":     {of(started(1), learner(2)), Change{Op: Add, Member: started(3), MaxLearners: 1}, nil},
		"what is wrong with it first":  {of(started(1), learner(2)), Change{Op: Add, Member: learner(2), MaxLearners: 1}, ErrIDExists},

		"strict: second voter":              {of(started(1)), strict(Change{Op: Add, Member: unstarted(2)}), nil},
		"strict: third, second unstarted":   {of(started(1), unstarted(2)), strict(Change{Op: Add, Member: unstarted(3)}), ErrNotEnoughStarted},
		"lax: third, second unstarted":      {of(started(1), unstarted(2)), Change{Op: Add, Member: unstarted(3)}, nil},
		"strict: fourth":                    {of(started(1), started(2), started(3)), strict(Change{Op: Add, Member: unstarted(4)}), nil},
		"strict: sixth, two unstarted":      {of(started(1), started(2), started(3), unstarted(4), unstarted(5)), strict(Change{Op: Add, Member: unstarted(6)}), ErrNotEnoughStarted},
		"strict: learner":                   {of(started(1), unstarted(2)), strict(Change{Op: Add, Member: learner(3)}), nil},
		"strict: remove a started one":      {of(started(1), unstarted(2)), strict(remove(1)), ErrNotEnoughStarted},
		"strict: remove the unstarted one":  {of(started(1), unstarted(2)), strict(remove(2)), nil},
		"strict: remove the last":           {of(started(1)), strict(remove(1)), ErrLastVoter},
		"strict: promote":                   {of(started(1), started(2), unstarted(3), learner(4)), strict(Change{Op: Promote, Member: Member{ID: 4}}), nil},
		"strict: promote next to unstarted": {of(started(1), unstarted(2), unstarted(3), learner(4)), strict(Change{Op: Promote, Member: Member{ID: 4}}), ErrNotEnoughStarted},
	} {
		if _, _, err := c.state.Change(c.change); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// Random changes: the invariants hold after each, an older State never changes, and the records
// written on the way rebuild the State.
func TestRandomChanges(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	s := &State{}
	stored := map[string][]byte{}
	for i := range 3000 {
		c := Change{Op: ChangeOp(1 + rng.IntN(5)), Member: Member{
			ID:       uint64(1 + rng.IntN(200)),
			Name:     fmt.Sprint("m", rng.IntN(9)),
			PeerURLs: []string{fmt.Sprint("http://p:", rng.IntN(400))},
			Learner:  rng.IntN(2) == 0,
		}, MaxLearners: rng.Uint32N(9), Strict: rng.IntN(8) == 0}
		if rng.IntN(2) == 0 {
			c.Member.ClientURLs = []string{fmt.Sprint("http://c:", i)}
		}
		before := fmt.Sprintf("%+v", *s)
		next, rec, err := s.Change(c)
		if after := fmt.Sprintf("%+v", *s); after != before {
			t.Fatalf("seed %d step %d: %+v changed the state it was asked of", seed, i, c)
		}
		if err != nil {
			continue
		}
		stored[string(rec.Key())] = rec.Value
		if err := next.valid(); err != nil {
			t.Fatalf("seed %d step %d: %v", seed, i, err)
		}
		if s.voters() > 0 && next.voters() == 0 {
			t.Fatalf("seed %d step %d: invariant 5: %+v left no voter", seed, i, c)
		}
		s = next
	}
	got := &State{}
	for _, k := range slices.Sorted(func(yield func(string) bool) {
		for k := range stored {
			if !yield(k) {
				return
			}
		}
	}) {
		if err := got.Load([]byte(k), stored[k]); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", s); a != b {
		t.Errorf("seed %d: rebuilt\n%s\nfrom\n%s", seed, a, b)
	}
	again := &State{}
	for _, r := range s.Records() {
		if err := again.Load(r.Key(), r.Value); err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(again.Records(), s.Records()) {
		t.Error("Records does not rebuild the state")
	}
}

func TestLoadRefuses(t *testing.T) {
	s := &State{}
	rec := Record{ID: 1, Value: EncodeMember(Member{PeerURLs: []string{"http://a:1"}})}
	if err := s.Load(rec.Key(), rec.Value); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]struct{ key, value []byte }{
		"twice":       {rec.Key(), rec.Value},
		"short key":   {[]byte{1}, rec.Value},
		"empty":       {Record{ID: 2}.Key(), nil},
		"new version": {Record{ID: 2}.Key(), []byte{2, 0, 0, 0, 0}},
		"flags":       {Record{ID: 2}.Key(), []byte{1, flagRemoved | 8}},
		"trailing":    {Record{ID: 2}.Key(), append(slices.Clone(rec.Value), 0)},
		"cut":         {Record{ID: 2}.Key(), rec.Value[:len(rec.Value)-1]},
	} {
		if err := s.Load(r.key, r.value); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestConfState(t *testing.T) {
	for _, cs := range []*raftpb.ConfState{
		{},
		{Voters: []uint64{1}},
		{Voters: []uint64{1, 2, 1 << 63}, Learners: []uint64{4}, VotersOutgoing: []uint64{1, 2, 3}, LearnersNext: []uint64{3}, AutoLeave: new(true)},
	} {
		got, err := DecodeConfState(EncodeConfState(cs))
		if err != nil || !proto.Equal(got, cs) {
			t.Errorf("%v: %v, %v", cs, got, err)
		}
	}
}

// What a later version says about a member is kept as it is: through attributes, other changes and records, and until
// the member says something else.
func TestLaterVersions(t *testing.T) {
	own := Member{ID: 1, Name: "a", PeerURLs: []string{"http://a:1"}, ClientURLs: []string{"http://a:2"}, Level: 2}
	s, _, err := (&State{}).Change(Change{Op: Add, Member: Member{ID: 1, PeerURLs: own.PeerURLs, Learner: true}})
	if err != nil {
		t.Fatal(err)
	}
	for _, flags := range []byte{1 << 3, 1 << 7, 0xf8} {
		for _, fields := range []string{"", "zone eu", strings.Repeat("x", 1000)} {
			b := EncodeMember(Member{Name: "a", ClientURLs: own.ClientURLs, Level: 3})
			b[1] |= flags
			b = append(b, fields...)
			said, err := DecodeMember(1, b)
			if err != nil {
				t.Fatalf("flags %x with %d bytes: %v", flags, len(fields), err)
			}
			next, _, err := s.Change(Change{Op: SetAttributes, Member: said})
			if err != nil {
				t.Fatal(err)
			}
			next, rec, err := next.Change(Change{Op: Promote, Member: Member{ID: 1}})
			if err != nil || rec.Value[1]&^byte(knownFlags) != flags || !strings.HasSuffix(string(rec.Value), fields) {
				t.Errorf("flags %x with %d bytes: the record is %x, %v", flags, len(fields), rec.Value, err)
			}
			again := &State{}
			if err := again.Load(rec.Key(), rec.Value); err != nil || !reflect.DeepEqual(again, next) {
				t.Errorf("flags %x with %d bytes: loaded %+v, %v", flags, len(fields), again, err)
			}
			if next, _, err = next.Change(Change{Op: SetAttributes, Member: own}); err != nil {
				t.Fatal(err)
			}
			if m, _ := next.Member(1); !reflect.DeepEqual(m, own) {
				t.Errorf("after it said something else: %+v", m)
			}
		}
	}
	for _, bad := range [][]byte{{recordVersion, flagRemoved | 1<<3}, {recordVersion, flagRemoved | flagLevel, 1}, append(EncodeMember(own), 1)} {
		if m, err := DecodeMember(1, bad); err == nil {
			t.Errorf("%x is %+v", bad, m)
		}
	}
}

func FuzzDecode(f *testing.F) {
	b := EncodeMember(Member{Name: "a", Level: 3})
	b[1] |= 1 << 5
	f.Add(append(b, "more"...))
	f.Add(EncodeMember(Member{Name: "a", PeerURLs: []string{"http://a:1"}, ClientURLs: []string{"http://a:2", "x"}, Learner: true}))
	f.Add(encodeRemoved())
	f.Add(EncodeConfState(&raftpb.ConfState{Voters: []uint64{1, 2}, Learners: []uint64{3}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := DecodeMember(7, b); err == nil {
			if got := EncodeMember(m); !slices.Equal(got, b) {
				t.Errorf("%x decodes to %+v, which encodes to %x", b, m, got)
			}
		}
		if cs, err := DecodeConfState(b); err == nil {
			if got := EncodeConfState(cs); !slices.Equal(got, b) {
				t.Errorf("%x decodes to %v, which encodes to %x", b, cs, got)
			}
		}
	})
}

// Members of a new cluster may begin with the names of the others or without: what is decided about changes is the
// same on both.
func TestStrictChangesAreDecidedWithoutNames(t *testing.T) {
	members := []Member{{Name: "a", PeerURLs: []string{"http://a:1"}}, {Name: "b", PeerURLs: []string{"http://b:1"}}, {Name: "c", PeerURLs: []string{"http://c:1"}}}
	named, err := Initial("t", members)
	if err != nil {
		t.Fatal(err)
	}
	for i := range members {
		members[i].Name = ""
	}
	unnamed, err := Initial("t", members)
	if err != nil {
		t.Fatal(err)
	}
	add := Change{Op: Add, Member: Member{ID: 4, PeerURLs: []string{"http://d:1"}}, Strict: true}
	for i := 0; ; i++ {
		_, _, with := named.Change(add)
		_, _, without := unnamed.Change(add)
		if (with == nil) != (without == nil) {
			t.Errorf("%d of 3 have started: %v with names, %v without", i, with, without)
		}
		if i == len(members) {
			return
		}
		says := Change{Op: SetAttributes, Member: Member{ID: named.IDs()[i], Name: "x", ClientURLs: []string{"http://c:1"}}}
		for _, s := range []**State{&named, &unnamed} {
			if *s, _, err = (*s).Change(says); err != nil {
				t.Fatal(err)
			}
		}
	}
}
