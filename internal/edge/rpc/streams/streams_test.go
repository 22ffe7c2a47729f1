package streams

import (
	"errors"
	"math/rand/v2"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// noted notes by what a stream was ended.
type noted struct{ by error }

func (n *noted) End(err error) { n.by = err }

// TestStreams adds and removes streams in random orders: those that are open, and no others, are
// ended.
func TestStreams(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	s := &Set{}
	open := map[*Stream]bool{}
	for range 2000 {
		st := &Stream{Ender: &noted{}, NeedsLeader: rng.IntN(2) == 0}
		s.Remove(st) // was not added
		if err := s.Add(st); err != nil {
			t.Fatal(err)
		}
		open[st] = true
		for st := range open {
			if rng.IntN(20) == 0 {
				s.Remove(st)
				s.Remove(st)
				delete(open, st)
				if st.prev != nil || st.next != nil {
					t.Fatal("a stream that was removed keeps others in memory")
				}
				if err := s.Add(st); err == nil && rng.IntN(2) == 0 { // again
					open[st] = true
				} else {
					s.Remove(st)
				}
			}
		}
		n := 0
		for st := s.mu.first; st != nil; st = st.next {
			if n++; !open[st] {
				t.Fatal("a stream that was removed is in the list")
			}
		}
		if n != len(open) {
			t.Fatalf("%d streams are in the list, %d are open", n, len(open))
		}
	}
	check := func(want func(*Stream) error) {
		t.Helper()
		for st := range open {
			n := st.Ender.(*noted)
			if n.by != want(st) {
				t.Fatalf("a stream was ended by %v, want %v", n.by, want(st))
			}
			n.by = nil
		}
	}
	s.EndLeaderless()
	check(func(st *Stream) error {
		if st.NeedsLeader {
			return rpctypes.ErrGRPCNoLeader
		}
		return nil
	})
	failed := errors.New("failed")
	s.End(failed)
	check(func(*Stream) error { return failed })
	s.Stop()
	check(func(*Stream) error { return rpctypes.ErrGRPCStopped })
	if err := s.Add(&Stream{Ender: &noted{}}); err != rpctypes.ErrGRPCStopped {
		t.Errorf("adding to a server that has stopped: %v", err)
	}
}
