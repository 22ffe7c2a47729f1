package peer

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// openPulse returns the link of a side with an interval of 1 s, and a function that returns the
// frames that it has sent since the last call.
func openPulse(t *testing.T, since time.Time) (l *link, other net.Conn, sent func() []frameType) {
	conn, other := net.Pipe()
	var bytes atomic.Uint64
	l, err := greet(conn).open(identity{},
		linkLimits{dead: 4 * time.Second, write: 4 * time.Second, ping: time.Second, since: since},
		maxFrame, &bytes, &bytes)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan frameType, 100)
	go func() {
		for in := (frames{r: greet(other).br, limit: maxFrame}); ; {
			typ, _, err := in.next()
			if err != nil {
				return
			}
			got <- typ
		}
	}()
	t.Cleanup(func() { l.end(ErrClosed) })
	return l, other, func() (all []frameType) {
		synctest.Wait()
		for len(got) > 0 {
			all = append(all, <-got)
		}
		return all
	}
}

// The side that was dialed answers pings, and gives signs of life by itself only when none arrive:
// while its reader is busy, or the other side pings rarely.
func TestSignsOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, other, sent := openPulse(t, time.Time{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.pulse(ctx, frameAlive)
		go func() {
			for {
				typ, payload, err := l.in.next()
				if err != nil {
					return
				}
				if _, err := l.handleCommon(typ, payload, nil); err != nil {
					t.Error(err)
				}
			}
		}()
		if got := sent(); !slices.Equal(got, []frameType{frameAlive}) {
			t.Errorf("first it sent %v", got)
		}
		ping := appendFrame(nil, framePing, 0, make([]byte, 8))
		for n := range 10 {
			time.Sleep(time.Second + time.Duration(n%2)*200*time.Millisecond)
			if _, err := other.Write(ping); err != nil {
				t.Fatal(err)
			}
			if got := sent(); !slices.Equal(got, []frameType{framePong}) {
				t.Errorf("with ping %d it sent %v", n, got)
			}
		}
		for n := range 3 {
			time.Sleep(1250 * time.Millisecond)
			if got := sent(); !slices.Equal(got, []frameType{frameAlive}) {
				t.Errorf("without a ping, after %d signs of life, it sent %v", n, got)
			}
		}
	})
}

// All links of a member ping at the same moments, whenever they were opened.
func TestPingsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var links [3]func() []frameType
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for n := range links {
			time.Sleep(300 * time.Millisecond)
			l, _, sent := openPulse(t, began)
			go l.pulse(ctx, framePing)
			if got := sent(); !slices.Equal(got, []frameType{framePing}) {
				t.Errorf("link %d begins with %v", n, got)
			}
			links[n] = sent
		}
		for n := range 3 {
			time.Sleep(time.Until(began.Add(time.Duration(n+1)*time.Second - time.Nanosecond)))
			for i, sent := range links {
				if got := sent(); len(got) > 0 {
					t.Errorf("before second %d link %d sent %v", n+1, i, got)
				}
			}
			time.Sleep(time.Nanosecond)
			for i, sent := range links {
				if got := sent(); !slices.Equal(got, []frameType{framePing}) {
					t.Errorf("in second %d link %d sent %v", n+1, i, got)
				}
			}
		}
	})
}
