package main

import (
	"context"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"vigil/client"
	"vigil/cmd/vigilctl/exit"
	"vigil/server/servertest"
)

// broken is an output whose writes fail.
type broken struct{ err error }

func (b broken) Write([]byte) (int, error) { return 0, b.err }

// TestOutputFails: a command whose output cannot be written ends, and cleans up.
func TestOutputFails(t *testing.T) {
	at := servertest.Start(t)
	c, err := client.New(client.Config{Endpoints: []string{at}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, args := range [][]string{{"lock", "l", "--ttl=600"}, {"elect", "l", "me"},
		{"member", "list", "--watch"}} {
		for _, x := range []struct {
			err  error
			code int
			text string
		}{
			{syscall.ENOSPC, exit.Failure, "Error: standard output: no space left on device\n"},
			{syscall.EPIPE, exit.ClosedPipe, ""},
		} {
			if x.err == syscall.EPIPE && signal.Ignored(syscall.SIGPIPE) {
				continue // as of this process' parent: it is an error like any other
			}
			// ends what would go on for ever
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			var text strings.Builder
			if code := run(ctx, append(args, "--endpoints="+at), strings.NewReader(""),
				broken{x.err}, &text); code != x.code || text.String() != x.text {
				t.Errorf("%q, %v: %d %s", args, x.err, code, text.String())
			}
			cancel()
		}
	}
	if n, err := c.Count(t.Context(), "", client.WithPrefix()); err != nil || n != 0 {
		t.Errorf("%d keys are left, %v", n, err)
	}
}
