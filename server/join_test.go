package server

import (
	"slices"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/state/cluster"
)

func describe(s *cluster.State) []byte {
	b := []byte{1}
	for _, r := range s.Records() {
		b = le.AppendUint64(b, r.ID)
		b = le.AppendUint32(b, uint32(len(r.Value)))
		b = append(b, r.Value...)
	}
	return b
}

// FuzzDecodeCluster: what another process says the membership is ends in an error or a membership,
// and a membership is what it was encoded from.
func FuzzDecodeCluster(f *testing.F) {
	s, err := cluster.Initial("t",
		[]cluster.Member{{Name: "a", PeerURLs: []string{"http://a:1"}},
			{Name: "b", PeerURLs: []string{"http://b:1"}}})
	if err != nil {
		f.Fatal(err)
	}
	s, _, err = s.Change(cluster.Change{Op: cluster.Remove, Member: s.Members()[0]})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(describe(s))
	f.Add([]byte{})
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 1, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeCluster(b)
		if err != nil {
			return
		}
		again, err := decodeCluster(describe(s))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(s.IDs(), again.IDs()) ||
			!slices.Equal(s.RemovedIDs(), again.RemovedIDs()) {
			t.Errorf("%v and %v", s, again)
		}
	})
}

// A cluster keeps the ids of all members that were ever removed. They keep no member from joining.
func TestManyRemovedMembersAreDescribed(t *testing.T) {
	s, err := cluster.Initial("t", []cluster.Member{{Name: "a", PeerURLs: []string{"http://a:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	add := cluster.Change{Op: cluster.Add, Member: cluster.Member{PeerURLs: []string{"http://b:1"}}}
	for range 5000 {
		add.Member.ID += 1 << 50
		for _, c := range []cluster.Change{add,
			{Op: cluster.Remove, Member: cluster.Member{ID: add.Member.ID}}} {
			if s, _, err = s.Change(c); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, err := decodeCluster(describe(s))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.IDs(), got.IDs()) || !slices.Equal(s.RemovedIDs(), got.RemovedIDs()) {
		t.Errorf("%d members, %d removed", len(got.IDs()), len(got.RemovedIDs()))
	}
}

func TestRefusalsKeepTheirIdentity(t *testing.T) {
	for _, err := range append([]error{nil}, refusals[1:]...) {
		if got := decodeRefusal(encodeRefusal(err)); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
	if got := decodeRefusal(encodeRefusal(kv.ErrFutureRev)); got == nil || got == kv.ErrFutureRev {
		t.Errorf("another error became %v", got)
	}
	if decodeRefusal(nil) == nil {
		t.Error("an empty answer is no error")
	}
}
