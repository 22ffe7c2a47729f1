package link

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// echoSwitch returns a network of a and b, and the address of an echo at b.
func echoSwitch(t *testing.T) (*Switch, string) {
	w := NewSwitch(t, "a", "b")
	if w == nil {
		t.Skip("no network namespaces")
	}
	var l net.Listener
	var err error
	w.Inside("b", func() { l, err = net.Listen("tcp4", w.Host("b")+":0") })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go serveEcho(l)
	return w, l.Addr().String()
}

// reach connects a to the echo. The error is that of dialing.
func reach(t *testing.T, w *Switch, addr string, patience time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := w.Dial(ctx, "a", addr)
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

func connected(t *testing.T, w *Switch, addr string) net.Conn {
	t.Helper()
	c, err := reach(t, w, addr, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	turn(t, c)
	return c
}

func TestSwitchLosesPackets(t *testing.T) {
	w, addr := echoSwitch(t)
	c := connected(t, w, addr)
	for name, cut := range map[string]func(){
		"from a to b": func() { w.Set("a", "b", Rule{Stall: true}) },
		"from b to a": func() { w.Set("b", "a", Rule{Stall: true}) },
		"all packets": func() { w.Set("a", "b", Rule{Loss: 1}) },
		"no cable":    func() { w.Unplug("b") },
		"neither":     func() { w.Unplug("a"); w.Unplug("b"); w.Unplug("b") },
	} {
		lost := w.Lost()
		cut()
		back := make(chan time.Duration, 1)
		go func() {
			defer close(back) // if it fails
			back <- turn(t, c)
		}()
		// Dialing ends without an answer, and so without an error of the network.
		if _, err := reach(t, w, addr, 300*time.Millisecond); !errors.Is(err,
			os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: dialing: %v", name, err)
		}
		select {
		case <-back:
			t.Fatalf("%s: a byte came through: %v", name, w)
		default:
		}
		// A kernel that knows that its own cable is out may drop all packets before the switch sees
		// them.
		seen := name != "neither"
		// On a busy machine the first packet may be late.
		for end := time.Now().Add(10 * time.Second); seen && w.Lost() == lost &&
			time.Now().Before(end); time.Sleep(time.Millisecond) {
		}
		before := w.Lost()
		w.Heal()
		<-back // the kernel has repeated it
		if seen && before == lost {
			t.Errorf("%s: no packet was lost", name)
		}
	}
}

func TestSwitchReturnsErrors(t *testing.T) {
	w, addr := echoSwitch(t)
	w.Set("a", "b", Rule{Refuse: true})
	if _, err := reach(t, w, addr, 5*time.Second); !errors.Is(err, syscall.EHOSTUNREACH) {
		t.Errorf("an address that is unreachable: %v", err)
	}
	w.Heal()
	c := connected(t, w, addr)
	w.Set("a", "b", Rule{NoDial: true})
	turn(t, c)
	if _, err := reach(t, w, addr, time.Second); err == nil {
		t.Error("a connection was made in a way in which none can be made")
	}
	w.Heal()
	w.Disable("a")
	if _, err := reach(t, w, addr, 5*time.Second); !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("an interface that is disabled: %v", err)
	}
	w.Heal()
	turn(t, c)

	c = connected(t, w, addr)
	if n := w.Reset("b", "a"); n != 2 {
		t.Errorf("%d connections were reset", n)
	}
	if _, err := c.Write([]byte{7}); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection that was reset: %v", err)
	}
	connected(t, w, addr)
}

func TestSwitchShapesPackets(t *testing.T) {
	w, addr := echoSwitch(t)
	c := connected(t, w, addr)
	w.Set("a", "b", Rule{Delay: 50 * time.Millisecond})
	w.Set("b", "a", Rule{Delay: 30 * time.Millisecond})
	if d := turn(t, c); d < 80*time.Millisecond {
		t.Errorf("back after %v", d)
	}
	w.Heal()

	// Small packets pass a way that has lost its large ones.
	w.Set("a", "b", Rule{Largest: 500})
	turn(t, c)
	if _, err := c.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1000)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes, %v", n, err)
	}
	w.Heal()

	// TCP brings everything through in spite of loss, copies and a changed order.
	for _, r := range []Rule{{Loss: 0.05, Twice: 0.1, Jitter: 5 * time.Millisecond},
		{Rate: 500_000}} {
		c := connected(t, w, addr)
		w.Set("a", "b", r)
		began := time.Now()
		sent := make([]byte, 100_000)
		for n := range sent {
			sent[n] = byte(n * n >> 8)
		}
		go func() { _, _ = c.Write(sent) }()
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(c, got); err != nil {
			t.Fatal(err)
		}
		if string(got) != string(sent) {
			t.Error("the bytes are others")
		}
		if d := time.Since(began); r.Rate > 0 && d < 200*time.Millisecond {
			t.Errorf("%d bytes at %d a second took %v", len(sent), r.Rate, d)
		}
		w.Heal()
	}
}
