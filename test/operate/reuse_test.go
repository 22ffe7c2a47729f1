package operate

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vigil/test/proc"
)

// TestReusePort: with --socket-reuse-port another process that asks for it too may have the port at
// the same time, without it none may.
func TestReusePort(t *testing.T) {
	for _, reuse := range []bool{true, false} {
		s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true,
			Args: []string{fmt.Sprintf("--socket-reuse-port=%v", reuse),
				fmt.Sprintf("--socket-reuse-address=%v", reuse)}})
		lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			return c.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET,
					unix.SO_REUSEPORT, 1)
			})
		}}
		l, err := lc.Listen(context.Background(), "tcp", s.Addr())
		if (err == nil) != reuse {
			t.Errorf("--socket-reuse-port=%v: a second listener: %v", reuse, err)
		}
		if err == nil {
			l.Close()
		}
	}
}

// TestMemoryLock: nothing of the process is swapped out, or it says that it may not ask for that.
func TestMemoryLock(t *testing.T) {
	s := proc.New(t, proc.Config{Program: proc.Vigil, Memory: true,
		Args: []string{"--memory-mlock"}})
	s.Launch()
	select {
	case <-s.Log().Wait("ready to serve client requests"):
		if locked := statusField(t, s.Pid(), "VmLck"); locked == 0 {
			t.Error("no memory is locked")
		}
	case <-s.Log().Wait("vigil: --memory-mlock:"):
		if code := s.Wait(); code != 1 {
			t.Errorf("exit code %d", code)
		}
	case <-time.After(time.Minute):
		t.Fatal(s.Log())
	}
}
