package server

import (
	"log/slog"
	"net"
	"testing"
	"time"

	"vigil/internal/portmux"
)

func TestShareConns(t *testing.T) {
	for _, c := range []struct {
		files                     uint64
		clients, members, metrics int
	}{
		{0, 16, 16, 8}, {200, 26, 16, 8}, {256, 82, 16, 8}, {1024, 624, 96, 48}, {20000, 13720, 1024, 256},
		{1 << 20, 785152, 1024, 256}, {1<<64 - 1, 805305088, 1024, 256},
	} {
		if clients, members, metrics := shareConns(c.files); clients != c.clients || members != c.members || metrics != c.metrics {
			t.Errorf("of %d: %d, %d and %d, want %d, %d and %d", c.files, clients, members, metrics, c.clients, c.members, c.metrics)
		}
	}
}

// TestConnectionsOfMembers: those who hold all connections to metrics, or of clients, keep no member out.
func TestConnectionsOfMembers(t *testing.T) {
	l := newConnLimits(slog.New(slog.DiscardHandler))
	// Fewer than there are, so that a test can hold them all.
	held := portmux.NewLimit(4, time.Hour, slog.New(slog.DiscardHandler))
	for _, d := range []*clientListener{{metrics: true}, {grpc: true}} {
		if l.forClients(d) == l.members {
			t.Fatalf("%+v takes connections of members", d)
		}
	}
	l.metrics = held
	root, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	metrics, members := l.forClients(&clientListener{metrics: true}).Listener(root), l.members.Listener(root)
	accept := func(from net.Listener) net.Conn {
		c, err := net.Dial("tcp", root.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		s, err := from.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for range held.Max() {
		portmux.CallMade(accept(metrics))
	}
	accept(members)
}
