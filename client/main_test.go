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
	"vigil/client/internal/serverprocess"
)

// endpoint is the address of a member, for examples and for tests that need no fake.
var endpoint string

func TestMain(m *testing.M) { serverprocess.Run(m, &endpoint) }

func connect(t *testing.T, change ...func(*client.Config)) *client.Client {
	t.Helper()
	cfg := client.Config{Endpoints: []string{endpoint}}
	for _, f := range change {
		f(&cfg)
	}
	return open(t, cfg).In(fmt.Sprintf("%s/%d/", t.Name(), run.Add(1)))
}

// run numbers the clients, so that a repeated test finds no keys of its former run.
var run atomic.Int64

// leaky counts the tests that check for goroutines at their end.
var leaky sync.Map

// open returns a client that is closed with the test. The test fails if a goroutine of a client
// remains then.
func open(t *testing.T, cfg client.Config) *client.Client {
	t.Helper()
	if _, known := leaky.LoadOrStore(t, true); !known {
		t.Cleanup(func() { noneLeft(t) })
	}
	if cfg.DialTimeout == 0 {
		cfg.DialTimeout = time.Minute // a busy machine may take longer than the default
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
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		var left []string
		for _, s := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(s, "vigil/client.(*") ||
				strings.Contains(s, "grpc.(*ClientConn)") ||
				strings.Contains(s, "transport.(*http2Client)") {
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
