package listen

import "testing"

func TestShareConns(t *testing.T) {
	for _, c := range []struct {
		files                     uint64
		clients, members, metrics int
	}{
		{0, 16, 16, 8}, {200, 26, 16, 8}, {256, 82, 16, 8}, {1024, 624, 96, 48},
		{20000, 13720, 1024, 256},
		{1 << 20, 785152, 1024, 256}, {1<<64 - 1, 805305088, 1024, 256},
	} {
		if clients, members, metrics := shareConns(c.files); clients != c.clients ||
			members != c.members || metrics != c.metrics {
			t.Errorf("of %d: %d, %d and %d, want %d, %d and %d", c.files, clients, members, metrics,
				c.clients, c.members, c.metrics)
		}
	}
}
