package wire

import (
	"bytes"
	"testing"
)

// TestAlso: the messages of a response for several watchers have their sizes, and messages of the
// same size differ in the watch id only.
func TestAlso(t *testing.T) {
	same := 0
	for seed := range uint64(5000) {
		g := newGen(seed)
		m := g.watchResponse()
		for range g.IntN(5) {
			m.Also = append(m.Also, g.number())
		}
		size := 0
		for i := range m.Count() {
			one := m.One(i)
			want := one.AppendTo(nil)
			size += len(want)
			if i == 0 || !m.SameSize(one.WatchID) {
				continue
			}
			same++
			got := m.AppendTo(nil)
			m.PutWatchID(got, one.WatchID)
			if !bytes.Equal(got, want) {
				t.Fatalf("seed %d: %+v for watcher %d is %x, want %x", seed, m,
					one.WatchID, got, want)
			}
		}
		if got := m.SizeEach(); got != size {
			t.Fatalf("seed %d: the messages of %+v have %d bytes, want %d", seed, m, got, size)
		}
	}
	if same < 200 {
		t.Errorf("%d messages have the size of the first one", same)
	}
}
