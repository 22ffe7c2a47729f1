package holder

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A process finds itself as the one that listens and holds a lock.
func TestHolder(t *testing.T) {
	self := fmt.Sprintf(", process %d", os.Getpid())
	for _, c := range []struct{ listen, ask string }{
		{"127.0.0.1:0", "127.0.0.1"}, {"0.0.0.0:0", "127.0.0.1"}, {"[::]:0", "[::1]"}, {"[::1]:0", "[::1]"}, {"127.0.0.1:0", "0.0.0.0"},
	} {
		l, err := net.Listen("tcp", c.listen)
		if err != nil {
			t.Logf("%s: %v", c.listen, err)
			continue
		}
		defer l.Close()
		address := fmt.Sprintf("%s:%d", c.ask, l.Addr().(*net.TCPAddr).Port)
		if got := OfAddress("tcp", address); !strings.HasSuffix(got, self) {
			t.Errorf("on %s: %q", address, got)
		}
	}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := OfAddress("unix", socket); !strings.HasSuffix(got, self) {
		t.Errorf("on the socket: %q", got)
	}
	for _, unused := range []string{"127.0.0.1:1", "nonsense", ""} {
		if got := OfAddress("tcp", unused); got != "" {
			t.Errorf("on %q: %q", unused, got)
		}
	}

	file := filepath.Join(t.TempDir(), "LOCK")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := OfLock(file); got != "" {
		t.Errorf("before the lock: %q", got)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if got := OfLock(file); !strings.HasSuffix(got, self) {
		t.Errorf("the lock: %q", got)
	}
}
