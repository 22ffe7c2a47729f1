package mirror_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"vigil/client"
	"vigil/server"
)

// endpoint is a member in this process.
var endpoint string

func TestMain(m *testing.M) {
	code, err := withServer(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func withServer(run func() int) (code int, err error) {
	dir, err := os.MkdirTemp("", "mirror-test-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	m, err := server.Start(server.Config{DataDir: dir, ListenClientURLs: []string{"http://127.0.0.1:0"},
		ListenPeerURLs: []string{"http://127.0.0.1:0"}, UnsafeNoSync: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return 0, err
	}
	endpoint = m.ClientAddrs()[0].String()
	code = run()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return code, m.Close(ctx)
}

// connect returns a client whose keys are those of the test.
func connect(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.Connect(t.Context(), client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c.In(t.Name() + "/")
}
