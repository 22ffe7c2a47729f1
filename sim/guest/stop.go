//go:build wasip1

package main

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"

	"vigil/client"
	"vigil/server"
	"vigil/sim/guest/sys"
	"vigil/sim/scenario/setup"
)

// stopTimeout is how long a member completes requests when it stops, and how long its goroutines
// may take to end then.
const stopTimeout = 5 * time.Second

// stopRequest returns a channel that is closed when a process connects to an address of this one.
func stopRequest(address string) (<-chan struct{}, error) {
	l, err := sys.Network{}.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	requested := make(chan struct{})
	go func() {
		if c, err := l.Accept(); err == nil {
			c.Close()
		}
		l.Close()
		close(requested)
	}()
	return requested, nil
}

// runStop requests that processes stop.
func runStop(c setup.Stop) error {
	for _, a := range c.Addresses {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		if conn, err := (sys.Network{}).Dial(ctx, "tcp", a); err == nil {
			conn.Close()
		}
		cancel()
	}
	return nil
}

// stopMember closes a member, and reports the goroutines that are left of it; there were some
// before.
func stopMember(m *server.Member, name string, before int) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	_ = m.Close(ctx) // an error says that requests were interrupted
	cancel()
	reportLeft(name, func() bool { return runtime.NumGoroutine() > before })
}

// clients are all clients of the library in this process.
var clients []*client.Client

// stopClients closes the clients of the library, and reports the goroutines that are left in it.
func stopClients(name string) {
	for _, c := range clients {
		_ = c.Close()
	}
	reportLeft(name, func() bool { return strings.Contains(goroutines(), "vigil/client") })
}

// reportLeft waits until nothing is left, or reports all goroutines.
func reportLeft(name string, left func() bool) {
	for end := time.Now().Add(stopTimeout); left(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			report(setup.Report{Failed: fmt.Sprintf("%s: goroutines are left after the end: %.6000s", name, goroutines())})
			return
		}
	}
}

func goroutines() string {
	var b bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
	return b.String()
}
