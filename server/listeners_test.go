package server

import (
	"log/slog"
	"net"
	"testing"
	"time"

	"vigil/internal/edge/listen"
	"vigil/internal/portmux"
)

// TestConnectionsOfMembers: members connect even if all connections of clients, or for metrics, are
// in use.
func TestConnectionsOfMembers(t *testing.T) {
	l := listen.NewLimits(slog.New(slog.DiscardHandler))
	// Fewer than there are, so that a test can hold them all.
	held := portmux.NewLimit(4, time.Hour, slog.New(slog.DiscardHandler))
	for _, d := range []*clientListener{{metrics: true}, {grpc: true}} {
		if d.limit(&l) == l.Members {
			t.Fatalf("%+v takes connections of members", d)
		}
	}
	l.Metrics = held
	root, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	metrics, members := (&clientListener{metrics: true}).limit(&l).Listener(root),
		l.Members.Listener(root)
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
