package source

import (
	"context"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
	"vigil/internal/state/lineage"
)

// member is the member of a Source. Applied advances when it is asked, as if apply committed at
// that moment.
type member struct {
	source   *Source
	applied  uint64
	next     *lineage.State
	term     uint64
	forcing  bool
	proposed []*fsm.Request
}

func (m *member) Applied() uint64 {
	applied := m.applied
	if m.next != nil {
		m.source.Follow(m.next)
		m.applied, m.next = m.applied+1, nil
	}
	return applied
}
func (m *member) LeadTerm() uint64           { return m.term }
func (m *member) Membership() *cluster.State { return nil }
func (m *member) Forcing() bool              { return m.forcing }
func (m *member) Propose(_ context.Context, req *fsm.Request) (fsm.Result, error) {
	m.proposed = append(m.proposed, req)
	return fsm.Result{}, kv.ErrTimeout
}

func newSource() (*Source, *member) {
	m := &member{applied: 10, term: 3}
	m.source = New(Options{Pipeline: m, Force: m}, &lineage.State{})
	return m.source, m
}

// The position is at or before the one of the claims, also if a commit comes between the two.
func TestLineagePosition(t *testing.T) {
	s, m := newSource()
	next, _ := s.Claims().Claim(lineage.Claim{Term: 3, ID: lineage.ID{1}})
	m.next = next
	if claims, at := s.Lineage(); claims != next || at != 10 {
		t.Errorf("claims of the next commit: %t, position %d; want the claims and the position before", claims == next, at)
	}
}

// A member that is becoming the only one of its cluster does not lead an archive.
func TestLeading(t *testing.T) {
	s, m := newSource()
	if s.Leading() != 3 {
		t.Errorf("leading in term %d", s.Leading())
	}
	m.forcing = true
	if s.Leading() != 0 {
		t.Errorf("while it is forced: leading in term %d", s.Leading())
	}
}

// A new incarnation begins only where there are claims of the history before.
func TestBeginIncarnation(t *testing.T) {
	s, m := newSource()
	if err := s.BeginIncarnation(t.Context()); err != nil || len(m.proposed) != 0 {
		t.Errorf("without claims: %v, %d proposals", err, len(m.proposed))
	}
	next, _ := s.Claims().Claim(lineage.Claim{Term: 2, ID: lineage.ID{1}})
	s.Follow(next)
	if err := s.BeginIncarnation(t.Context()); err != kv.ErrTimeout || len(m.proposed) != 1 {
		t.Fatalf("with claims: %v, %d proposals", err, len(m.proposed))
	}
	if c := m.proposed[0].Claim; !c.Restart || c.Term != 3 || c.ID == (lineage.ID{}) {
		t.Errorf("claimed %+v", c)
	}
}
