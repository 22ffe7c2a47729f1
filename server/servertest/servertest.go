// Package servertest runs a cluster of one member in the process of a test, for packages whose
// tests need a server and do not care how it is run. Tests that depend on processes, disks and
// networks are in the module test.
package servertest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"vigil/server"
)

func start(dir string) (*server.Member, error) {
	return server.Start(server.Config{DataDir: dir,
		ListenClientURLs: []string{"http://127.0.0.1:0"},
		ListenPeerURLs:   []string{"http://127.0.0.1:0"},
		UnsafeNoSync:     true, Logger: slog.New(slog.DiscardHandler)})
}

// Start starts a member on a free port for one test, and returns where it serves clients.
func Start(t testing.TB) (endpoint string) {
	t.Helper()
	s, err := start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s.ClientAddrs()[0].String()
}
