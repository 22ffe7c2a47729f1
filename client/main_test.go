package client_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vigil/client"
	"vigil/client/internal/servertest"
)

// endpoint is where a member serves, for the examples and for what needs no other kind of server.
var endpoint string

func TestMain(m *testing.M) { servertest.Run(m, &endpoint) }

func connect(t *testing.T, change ...func(*client.Config)) *client.Client {
	t.Helper()
	cfg := client.Config{Endpoints: []string{endpoint}}
	for _, f := range change {
		f(&cfg)
	}
	return open(t, cfg).In(fmt.Sprintf("%s/%d/", t.Name(), run.Add(1)))
}

// run numbers the clients, so that a test that runs again finds no keys of its own.
var run atomic.Int64

// leaky is the tests that look for goroutines at their end.
var leaky sync.Map

// open makes a client that is closed with the test, and has the test fail if anything of any client is left then.
func open(t *testing.T, cfg client.Config) *client.Client {
	t.Helper()
	if _, known := leaky.LoadOrStore(t, true); !known {
		t.Cleanup(func() { noneLeft(t) })
	}
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// noneLeft waits until no goroutine of a client or of a connection of one runs.
func noneLeft(t *testing.T) {
	t.Helper()
	stacks := make([]byte, 1<<20)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		var left []string
		for _, s := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(s, "vigil/client.(*") || strings.Contains(s, "grpc.(*ClientConn)") || strings.Contains(s, "transport.(*http2Client)") {
				left = append(left, s)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d goroutines are left:\n%s", len(left), strings.Join(left, "\n\n"))
		}
	}
}
