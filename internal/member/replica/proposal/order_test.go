package proposal

import (
	"errors"
	"testing"
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
)

// sequence is a queue with groups of one request, and its checks.
type sequence struct {
	*Queue
	t     *testing.T
	calls []*Call
}

func newSequence(t *testing.T) *sequence {
	return &sequence{t: t,
		Queue: New(Options{Member: 1, MaxGroupBytes: 1 << 20, MaxGroupRequests: 1,
			MaxPendingBytes: 1 << 20,
			MaxRequestBytes: 1 << 20, Space: &disk{}, Answers: nobody{}})}
}

// add adds requests for the keys a, b, c and so on.
func (s *sequence) add(n int) {
	s.t.Helper()
	for range n {
		c, err := s.StartWaited(s.t.Context(),
			fsm.Request{Put: &kv.PutRequest{Key: []byte{byte('a' + len(s.calls))}}}, 1, time.Now())
		if err != nil {
			s.t.Fatal(err)
		}
		s.calls = append(s.calls, c)
	}
}

// next takes groups in a term until there is none, which must be of the keys want, and returns
// their sequences.
func (s *sequence) next(term uint64, want string) (list []uint64) {
	s.t.Helper()
	got := ""
	for b := s.NextGroup(term); b != nil; b = s.NextGroup(term) {
		var d fsm.Decoder
		h, err := d.Reset(b)
		if err != nil {
			s.t.Fatal(err)
		}
		r, err := d.Next()
		if err != nil {
			s.t.Fatal(err)
		}
		got, list = got+string(r.Put.Key), append(list, h.Sequence)
	}
	if got != want {
		s.t.Fatalf("proposed in term %d: %q, want %q", term, got, want)
	}
	return list
}

func (s *sequence) apply(seq uint64) {
	s.t.Helper()
	g := s.Claim(seq)
	if g == nil {
		s.t.Fatal("an applied group has no waiters")
	}
	g.AddResult(fsm.Result{})
	g.Resolve(nil)
}

// wants checks which requests have a result: a letter for each, o if it is one, l if the leader
// changed, - if it waits.
func (s *sequence) wants(want string) {
	s.t.Helper()
	got := ""
	for _, c := range s.calls {
		select {
		case <-c.ready:
			c.ready <- struct{}{} // for the next check
			switch err := c.Result.Err; {
			case err == nil:
				got += "o"
			case errors.Is(err, kv.ErrLeaderChanged):
				got += "l"
			default:
				got += "?"
			}
		default:
			got += "-"
		}
	}
	if got != want {
		s.t.Errorf("results %s, want %s", got, want)
	}
}

// Groups that may be lost with a leader are settled before later ones are proposed to the next.
func TestOrderAfterLostLeader(t *testing.T) {
	s := newSequence(t)
	s.add(3)
	first := s.next(1, "abc")
	s.add(1)
	s.next(2, "") // it is not known yet which of the first are lost
	s.apply(first[0])
	s.next(2, "")
	s.next(3, "") // nor with a leader after the next
	if !s.Requeue(2) {
		t.Error("there is nothing to propose")
	}
	second := s.next(3, "bcd")
	s.add(1)
	s.next(3, "e")
	s.wants("o----")
	if s.Requeue(3) {
		t.Error("there is something to propose again")
	}
	for _, seq := range second {
		s.apply(seq)
	}
	s.wants("oooo-")
}

// Later groups wait no longer than those that may be lost, whatever ends these.
func TestOrderIsLive(t *testing.T) {
	for name, end := range map[string]func(*sequence, []uint64){
		"applied": func(s *sequence, list []uint64) {
			for _, seq := range list {
				s.apply(seq)
			}
		},
		"expired":  func(s *sequence, _ []uint64) { s.Expire(time.Now().Add(time.Hour)); s.add(1) },
		"snapshot": func(s *sequence, _ []uint64) { s.TakePending() },
		"refused": func(s *sequence, list []uint64) {
			for _, seq := range list {
				s.failPending(seq)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSequence(t)
			s.add(2)
			list := s.next(1, "ab")
			s.add(1)
			s.next(2, "")
			end(s, list)
			want := "c"
			if name == "expired" {
				want = "d"
			}
			s.next(2, want)
		})
	}
}

// A group that was lost on its way to a leader that got a later one is not proposed again: it would
// take effect after that one.
func TestLostBeforeLaterFails(t *testing.T) {
	s := newSequence(t)
	s.add(3)
	list := s.next(1, "abc")
	s.apply(list[1])
	s.Requeue(2)
	s.next(2, "c")
	s.wants("lo-")
	if s.Failed() != 1 || s.Pending() != 1 {
		t.Errorf("%d failed, %d pending", s.Failed(), s.Pending())
	}
}
