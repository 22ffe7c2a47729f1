package wire

import (
	"bytes"
	"testing"
)

// TestAlike: the encoding of a response, with the watch id of one that is alike, is the encoding of that.
func TestAlike(t *testing.T) {
	alike := 0
	for seed := range uint64(5000) {
		g := newGen(seed)
		a, b := g.watchResponse(), g.watchResponse()
		if g.IntN(4) > 0 {
			*b = *a
			b.WatchID = g.number()
		}
		if g.IntN(4) == 0 {
			b.Header.Revision++
		}
		if !b.Alike(a) {
			continue
		}
		alike++
		got := a.AppendTo(nil)
		b.PutWatchID(got)
		if want := b.AppendTo(nil); !bytes.Equal(got, want) {
			t.Fatalf("seed %d: %+v after %+v is %x, want %x", seed, b, a, got, want)
		}
	}
	if alike < 200 {
		t.Errorf("%d of 5000 pairs are alike", alike)
	}
}
