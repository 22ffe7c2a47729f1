package client_test

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

// endpoint is a member in this process, for the examples and for what needs no other kind of server.
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
	dir, err := os.MkdirTemp("", "client-test-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	m, err := server.Start(server.Config{DataDir: dir, ListenClientURLs: []string{"http://127.0.0.1:0"},
		UnsafeNoSync: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return 0, err
	}
	endpoint = m.ClientAddrs()[0].String()
	code = run()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return code, m.Close(ctx)
}

func connect(t *testing.T, change ...func(*client.Config)) *client.Client {
	t.Helper()
	cfg := client.Config{Endpoints: []string{endpoint}}
	for _, f := range change {
		f(&cfg)
	}
	c, err := client.Connect(t.Context(), cfg)
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
