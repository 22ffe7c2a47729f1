package replica

import (
	"testing"

	"vigil/internal/state/lineage"
)

// TestClaims: a leader claims its term, the other members know the claim with the position, and a
// later leader's claim shows where the log has left the term. A member that is forced to be alone
// begins another incarnation before it removes the others, and leads for nobody until then; later
// starts keep it, with force and without.
func TestClaims(t *testing.T) {
	g := startGroup(t, nil)
	lead := g.leader()
	term := lead.Source.Leading()
	if err := lead.Source.Claim(t.Context(), term); err != nil {
		t.Fatal(err)
	}
	if err := lead.Source.Claim(t.Context(), term+1); err == nil {
		t.Error("a claim of another term")
	}
	first, at := lead.Source.Lineage()
	if first.Newest().Term != term || first.Incarnation() != first.Newest().ID ||
		first.Judge(first.Newest(), at, at) != lineage.Same {
		t.Fatalf("%+v at %d", first, at)
	}
	other := g.other()
	await(t, "the claim arrives",
		func() bool { s, _ := other.Source.Lineage(); return s.Newest() == first.Newest() })
	if other.Source.Leading() != 0 {
		t.Error("a follower leads")
	}
	if err := other.Source.NoteArchive(t.Context(), "file:///a", lineage.ID{1}); err != nil {
		t.Fatal(err)
	}
	g.put("a", nil)
	if err := lead.Leadership.MoveLeader(t.Context(), other.memberID); err != nil {
		t.Fatal(err)
	}
	g.put("b", nil)
	await(t, "the next term", func() bool { return other.Source.Leading() > term })
	if err := other.Source.Claim(t.Context(), other.Source.Leading()); err != nil {
		t.Fatal(err)
	}
	second, at := other.Source.Lineage()
	if id, ok := second.Archive("file:///a"); !ok || id != (lineage.ID{1}) ||
		second.Incarnation() != first.Incarnation() {
		t.Errorf("archive %v, %v; %+v", id, ok, second)
	}
	if second.Judge(first.Newest(), at, at) != lineage.Foreign ||
		second.Judge(second.Newest(), at, at) != lineage.Same {
		t.Errorf("%+v at %d", second, at)
	}

	for _, r := range g.list {
		if err := r.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	c := other.cfg
	c.ForceNewCluster = true
	var forced *lineage.State
	for start := range 3 {
		r, err := openWith(c, &end{net: newMesh()})
		if err != nil {
			t.Fatal(err)
		}
		r.Start()
		await(t, "the member leads", func() bool {
			s, _ := r.Source.Lineage()
			if leads := r.Source.Leading() != 0; leads &&
				(s.Incarnation() == second.Incarnation() || len(r.Membership().Members()) > 1) {
				t.Fatalf("it leads the history of the others: %+v", s)
			} else {
				return leads
			}
			return false
		})
		s, _ := r.Source.Lineage()
		if start == 0 {
			forced = s
		}
		if _, ok := s.Archive("file:///a"); ok || s.Incarnation() != forced.Incarnation() {
			t.Errorf("start %d: incarnation %s, want %s; it has the archive: %v", start,
				s.Incarnation(), forced.Incarnation(), ok)
		}
		if err := r.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.ForceNewCluster = start == 0
	}
}
