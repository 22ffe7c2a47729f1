package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"vigil/client"
	"vigil/cmd/vigilctl/exit"
	"vigil/server/servertest"
)

// TestLostLock: a command whose lock is lost is asked to end, and its exit code is not success.
func TestLostLock(t *testing.T) {
	at := servertest.Start(t)
	c, err := client.New(client.Config{Endpoints: []string{at}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	read, write := io.Pipe()
	go func() {
		b := make([]byte, 64)
		if n, err := read.Read(b); err != nil || string(b[:n]) != "begun\n" {
			t.Errorf("the command has printed %q, %v", b[:n], err)
		}
		if _, err := c.Delete(context.Background(), "l/", client.WithPrefix()); err != nil {
			t.Error(err)
		}
		_, _ = io.Copy(io.Discard, read) // until the end of the test
	}()
	defer write.Close()
	var text strings.Builder
	began := time.Now()
	// It ends by itself after a while, so that the test does.
	code := run(t.Context(),
		[]string{"lock", "l", "--endpoints=" + at, "--", "sh", "-c",
			"trap 'exit 0' TERM; echo begun; for i in $(seq 600); do sleep 0.05; done; exit 9"},
		strings.NewReader(""), write, &text)
	if code != exit.Failure || !strings.Contains(text.String(), "lock is lost") {
		t.Errorf("%d after %v: %s", code, time.Since(began), text.String())
	}
}

// TestKeepAliveUnanswered: a lease of which nothing is known is not reported as expired.
func TestKeepAliveUnanswered(t *testing.T) {
	var out, text strings.Builder
	code := run(t.Context(),
		[]string{"lease", "keep-alive", "1", "--endpoints=127.0.0.1:1", "--dial-timeout=100ms",
			"--command-timeout=100ms"}, strings.NewReader(""), &out, &text)
	if code != exit.BadConnection || out.String() != "" ||
		!strings.Contains(text.String(), "refused") {
		t.Errorf("%d %s%s", code, out.String(), text.String())
	}
}
