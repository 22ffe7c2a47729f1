package operate

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"vigil/test/proc"
)

// TestSystemd: a member says that it serves when it does, feeds the watchdog, and says that it
// stops.
func TestSystemd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	next := func() string {
		t.Helper()
		b := make([]byte, 100)
		if err := l.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, err := l.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	s := proc.New(t, proc.Config{Program: proc.Vigil, Memory: true,
		Env: []string{"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=300000"}})
	s.Launch()
	if got := next(); got != "READY=1" {
		t.Fatalf("first %q", got)
	}
	// It serves now, and not only soon.
	c := s.Client()
	ctx := proc.Context(t)
	if _, err := c.Put(ctx, "k", "v"); err != nil {
		t.Fatal(err)
	}
	// The watchdog needs no user.
	if _, err := c.UserAdd(ctx, "root", "p"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.UserGrantRole(ctx, "root", "root"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AuthEnable(ctx); err != nil {
		t.Fatal(err)
	}
	for range 5 { // of which some may be from before
		if got := next(); got != "WATCHDOG=1" {
			t.Fatalf("then %q", got)
		}
	}
	if code := s.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	for {
		switch got := next(); got {
		case "WATCHDOG=1":
			continue
		case "STOPPING=1":
			return
		default:
			t.Fatalf("last %q", got)
		}
	}
}
