package link

import (
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// echo is a node that returns the bytes it receives; it runs in this process, like the connecting
// node.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go serveEcho(l)
	return l.Addr().String()
}

func serveEcho(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(c, c)
			_ = c.(*net.TCPConn).CloseWrite()
		}()
	}
}

func dial(t *testing.T, addr string) net.Conn {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// turn sends a byte and waits for its return.
func turn(t *testing.T, c net.Conn) time.Duration {
	t.Helper()
	began := time.Now()
	if _, err := c.Write([]byte{7}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return time.Since(began)
}

func TestRules(t *testing.T) {
	n := New(t)
	n.Runs("a", os.Getpid())
	addr := n.Node("b", echo(t))
	c := dial(t, addr)
	turn(t, c)

	n.Set("a", "b", Rule{Delay: 50 * time.Millisecond})
	n.Set("b", "a", Rule{Delay: 30 * time.Millisecond})
	if d := turn(t, c); d < 80*time.Millisecond {
		t.Errorf("back after %v", d)
	}
	// Each direction alone holds a byte back until the network heals.
	for _, w := range []way{{"a", "b"}, {"b", "a"}} {
		n.Heal()
		n.Set(w.from, w.to, Rule{Stall: true})
		back := make(chan time.Duration)
		go func() { back <- turn(t, c) }()
		select {
		case <-back:
			t.Fatalf("a byte came through: %v", n)
		case <-time.After(50 * time.Millisecond):
		}
		// A new connection waits too.
		late := dial(t, addr)
		n.Heal()
		<-back
		turn(t, late)
	}
	// The rule of another pair is not of this one.
	n.Set("b", "c", Rule{Stall: true})
	turn(t, c)

	// A way in which no connection can be made carries the bytes of those that there are.
	n.Set("a", "b", Rule{NoDial: true})
	turn(t, c)
	if _, err := io.ReadFull(dial(t, addr), make([]byte, 1)); err == nil {
		t.Error("a connection was made")
	}

	n.Set("a", "b", Rule{Rate: 1000})
	began := time.Now()
	if _, err := c.Write(make([]byte, 200)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 200)); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d < 200*time.Millisecond {
		t.Errorf("200 bytes at 1000 a second took %v", d)
	}
	n.Heal()

	half := dial(t, addr)
	turn(t, half)
	if k := n.HalfClose("b", "a"); k == 0 {
		t.Error("nothing was closed")
	}
	if _, err := half.Write([]byte{7}); err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(half); err != nil || len(rest) != 0 {
		t.Errorf("after half of the end: %q, %v", rest, err)
	}
	c = dial(t, addr)
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(c); err != nil || len(rest) != 0 {
		t.Errorf("after the end: %q, %v", rest, err)
	}
	c = dial(t, addr)
	turn(t, c)
	if k := n.Reset("b", "a"); k == 0 {
		t.Error("nothing was reset")
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection lives")
	}
}
