package server

import "testing"

func TestShareConns(t *testing.T) {
	for _, c := range []struct {
		files          uint64
		clients, inner int
	}{
		{0, 16, 16}, {200, 34, 16}, {256, 90, 16}, {1024, 672, 96}, {20000, 13976, 1024}, {1 << 20, 785408, 1024}, {1<<64 - 1, 805305344, 1024},
	} {
		if clients, inner := shareConns(c.files); clients != c.clients || inner != c.inner {
			t.Errorf("of %d: %d and %d, want %d and %d", c.files, clients, inner, c.clients, c.inner)
		}
	}
}
