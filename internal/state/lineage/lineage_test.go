package lineage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// entry is an entry of a history: its identity is its place in memory.
type entry struct{ term uint64 }

// branch is a history, and the State after each of its entries: entry i+1 is entries[i].
type branch struct {
	entries []*entry
	states  []*State
}

func (b *branch) add(e *entry, c *Claim) {
	s := &State{}
	if n := len(b.states); n > 0 {
		s = b.states[n-1]
	}
	b.entries = append(b.entries, e)
	s, _ = s.Follow(e.term, uint64(len(b.entries)))
	if c != nil {
		s, _ = s.Claim(*c)
	}
	b.states = append(b.states, s)
}

// fork returns a history that begins with the first n entries.
func (b *branch) fork(n int) *branch {
	return &branch{entries: slices.Clone(b.entries[:n]), states: slices.Clone(b.states[:n])}
}

// reign adds a term's entries, the claim at a place among them, or none.
func (b *branch) reign(r *rand.Rand, term uint64) {
	n := 1 + r.IntN(5)
	at := r.IntN(n + 1)
	for i := range n {
		var c *Claim
		if i == at {
			c = &Claim{Term: term, ID: newID(r)}
		}
		b.add(&entry{term}, c)
	}
}

func newID(r *rand.Rand) (id ID) {
	binary.LittleEndian.PutUint64(id[:], r.Uint64())
	binary.LittleEndian.PutUint64(id[8:], r.Uint64())
	return id
}

// TestJudge: histories that part from each other at any place, with terms of equal numbers, compared with what they have in common. What
// a sender may have written is judged at every position of the other history, and a Foreign verdict stays.
func TestJudge(t *testing.T) {
	same, foreign := 0, 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		root := &branch{}
		term := uint64(2)
		for range 1 + r.IntN(3) {
			root.reign(r, term)
			term += 1 + r.Uint64N(2)
		}
		a, b := root, root.fork(r.IntN(len(root.entries)+1))
		for _, x := range []*branch{a, b} {
			// The terms of the two may be equal: raft has one leader a term in a cluster, and there are two.
			next := uint64(2)
			if n := len(x.entries); n > 0 {
				next = x.entries[n-1].term + 1
			}
			for range 1 + r.IntN(4) {
				x.reign(r, next)
				next += 1 + r.Uint64N(2)
			}
		}
		// A sender of a has written up to last, which it knows by the newest claim at its position.
		for at := range a.states {
			m := a.states[at].Newest()
			for last := 1; last <= at+1; last++ {
				if a.entries[last-1].term > m.Term {
					continue
				}
				is := last <= len(b.entries) && b.entries[last-1] == a.entries[last-1]
				before := Unknown
				for applied := range b.states {
					v := b.states[applied].Judge(m, uint64(last), uint64(applied)+1)
					if v == Same && !is || before == Foreign && v != Foreign || before == Same && v != Same {
						t.Fatalf("seed %d: %d after %d for entry %d by the claim %v at %d, which is the same: %v", seed, v, before, last, m, applied+1, is)
					}
					before = v
				}
				// At its end a history has had an entry of a later term, or is too short to say.
				switch {
				case before == Same:
					same++
				case before == Foreign:
					foreign++
				case b.states[len(b.states)-1].Newest().Term > m.Term:
					t.Fatalf("seed %d: no verdict on entry %d by the claim %v", seed, last, m)
				}
			}
		}
		// A history is its own.
		end := len(a.states)
		if m := a.states[end-1].Newest(); m.Term > 0 && a.entries[end-1].term == m.Term && a.states[end-1].Judge(m, uint64(end), uint64(end)) != Same {
			t.Fatalf("seed %d: a history is not its own", seed)
		}
	}
	if same < 1000 || foreign < 1000 {
		t.Errorf("%d and %d verdicts", same, foreign)
	}
}

// TestRecords: the records that changes return rebuild the State, also beyond the limit and after a new incarnation.
func TestRecords(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	s, stored := &State{}, map[string]Record{}
	keep := func(next *State, list []Record) {
		t.Helper()
		for _, x := range list {
			if x.Deleted {
				delete(stored, string(x.Key))
			} else {
				stored[string(x.Key)] = x
			}
		}
		s = next
		if err := s.valid(); err != nil {
			t.Fatal(err)
		}
		for _, list := range [][]Record{slices.Collect(maps.Values(stored)), s.Records()} {
			again, err := Load(list)
			if err != nil || fmt.Sprint(again) != fmt.Sprint(s) {
				t.Fatalf("%v: rebuilt %v of %d records, want %v", err, again, len(list), s)
			}
		}
	}
	index := uint64(1)
	for term := uint64(1); term < MaxTerms+40; term++ {
		index += 1 + r.Uint64N(3)
		if term > 40 && term < MaxTerms-10 { // quickly to the limit
			s, _ = s.Follow(term, index)
			s, _ = s.Claim(Claim{Term: term, ID: newID(r)})
			if term == MaxTerms-11 {
				keep(s, s.Records())
			}
			continue
		}
		next, list := s.Follow(term, index)
		keep(next, list)
		if term%3 > 0 || term > 40 {
			next, list = s.Claim(Claim{Term: term, ID: newID(r)})
			keep(next, list)
		}
		if next, list := s.Claim(Claim{Term: term - min(term, 1), ID: newID(r)}); next != s || list != nil {
			t.Fatal("a claim of an older term counts")
		}
	}
	for i := range MaxArchives {
		next, list, err := s.Begin(Archive{PlaceOf(fmt.Sprint(i)), newID(r)})
		if err != nil {
			t.Fatal(err)
		}
		if i < 10 || i > MaxArchives-10 {
			keep(next, list)
		} else if s = next; i == MaxArchives-10 {
			keep(s, s.Records())
		}
		if next, list, err := s.Begin(Archive{PlaceOf(fmt.Sprint(i)), newID(r)}); next != s || list != nil || err != nil {
			t.Fatal("an archive was replaced")
		}
	}
	if _, _, err := s.Begin(Archive{PlaceOf("one more"), newID(r)}); !errors.Is(err, ErrTooManyArchives) {
		t.Errorf("one more archive: %v", err)
	}
	if len(s.terms) != MaxTerms {
		t.Errorf("%d claims", len(s.terms))
	}
	before := s.Incarnation()
	next, list := s.Claim(Claim{Term: s.Newest().Term, ID: newID(r), Restart: true})
	keep(next, list)
	if _, found := s.Archive("0"); found || len(s.terms) != 1 || s.Incarnation() == before {
		t.Errorf("after a restart: %v", s)
	}
	for _, bad := range []Record{{}, {Key: rootKey}, {Key: rootKey, Value: make([]byte, 17)}, {Key: make([]byte, 8), Value: s.terms[0].record().Value}, {Key: []byte("x"), Value: s.root().Value},
		{Key: rootKey, Value: append(s.root().Value, 0)}, {Key: s.terms[0].key(), Value: s.root().Value}, s.root(), {Key: make([]byte, 32), Value: s.root().Value}} {
		if _, err := Load([]Record{bad}); err == nil {
			t.Errorf("accepted %+v", bad)
		}
	}
}
