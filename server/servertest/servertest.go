// Package servertest runs a cluster of one member in the process of a test, for packages whose tests and examples
// need a server and do not care how it is run. What depends on processes, disks and networks is tested in
// the module test.
package servertest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"vigil/server"
)

// Run starts a member on a free port, sets endpoint to where it serves clients, runs the tests and exits. It
// is called by TestMain.
func Run(m *testing.M, endpoint *string) {
	if slices.Contains(os.Args, "-test.fuzzworker") {
		os.Exit(m.Run()) // fuzzing needs none
	}
	code, err := run(m, endpoint)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M, endpoint *string) (code int, err error) {
	dir, err := os.MkdirTemp("", "servertest-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	s, err := start(dir)
	if err != nil {
		return 0, err
	}
	*endpoint = s.ClientAddrs()[0].String()
	code = m.Run()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return code, s.Close(ctx)
}

func start(dir string) (*server.Member, error) {
	return server.Start(server.Config{DataDir: dir, ListenClientURLs: []string{"http://127.0.0.1:0"}, ListenPeerURLs: []string{"http://127.0.0.1:0"},
		UnsafeNoSync: true, Logger: slog.New(slog.DiscardHandler)})
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
