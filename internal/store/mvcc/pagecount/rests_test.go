package pagecount

import (
	"slices"
	"testing"
)

// TestRestsBounded remembers more rests than there is room for.
func TestRestsBounded(t *testing.T) {
	var p Rests
	for i := range int64(3 * maxRests) {
		p.Remember(i, "k", "", i)
	}
	if len(p.mu.left) != maxRests || len(p.mu.ring) != maxRests {
		t.Fatalf("%d rests", len(p.mu.left))
	}
	for i := range int64(3 * maxRests) {
		if n, ok := p.Find(i, "k\x00", ""); ok != (i >= 2*maxRests) || ok && n != i {
			t.Fatalf("rest %d is %d, %v", i, n, ok)
		}
	}
	p.Remember(1, string(slices.Repeat([]byte("k"), maxRestKeys+1)), "", 1)
	if len(p.mu.ring) != maxRests || p.mu.next != 0 {
		t.Fatal("a long key is kept")
	}
}
