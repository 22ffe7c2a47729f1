package cluster

import (
	"slices"
	"testing"
)

// The level is that of the member that knows least; who never served does not count, and who served and
// said nothing knows the first.
func TestLevel(t *testing.T) {
	s := &State{}
	if s.Level() != 1 {
		t.Errorf("level %d without members", s.Level())
	}
	for i, c := range []struct {
		member Member
		want   uint64
	}{
		{Member{ID: 1, PeerURLs: []string{"a"}, ClientURLs: []string{"c"}, Level: 5}, 5},
		{Member{ID: 2, PeerURLs: []string{"b"}, Name: "added"}, 5},
		{Member{ID: 3, PeerURLs: []string{"c"}, ClientURLs: []string{"c"}, Level: 3}, 3},
		{Member{ID: 4, PeerURLs: []string{"d"}, ClientURLs: []string{"c"}}, 1},
	} {
		next, rec, err := s.Change(Change{Op: Add, Member: c.member})
		if err != nil {
			t.Fatal(err)
		}
		s = next
		if s.Level() != c.want {
			t.Errorf("level %d after %d members, want %d", s.Level(), i+1, c.want)
		}
		got, err := DecodeMember(rec.ID, rec.Value)
		if err != nil || got.Level != c.member.Level || !slices.Equal(got.PeerURLs, c.member.PeerURLs) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	next, _, err := s.Change(Change{Op: SetAttributes, Member: Member{ID: 4, Level: 7}})
	if err != nil || next.Level() != 3 {
		t.Errorf("level %d after an upgrade, %v", next.Level(), err)
	}
}
