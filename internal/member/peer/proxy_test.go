package peer

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy is a plain TCP proxy that delays, drops, resets and alters what goes through it.
type proxy struct {
	url  string
	to   string
	l    net.Listener
	wg   sync.WaitGroup
	seen atomic.Int64 // connections ever made
	up   atomic.Int64 // bytes from the side that dialed

	delay atomic.Int64 // of each piece, in nanoseconds
	pace  atomic.Int64 // bytes a second towards the target, 0 for no bound
	// dropUp and dropDown swallow what comes: a partition in one direction.
	dropUp, dropDown atomic.Bool
	// flip is the count of bytes, all connections together, at which one bit is altered; cutAt that
	// at which the connection ends. 0 for never.
	flip, cutAt atomic.Int64

	mu     sync.Mutex
	closed bool
	live   map[net.Conn]struct{}
}

func newProxy(t *testing.T, url string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	scheme, addr, _ := strings.Cut(url, "://")
	p := &proxy{url: scheme + "://" + l.Addr().String(), to: addr, l: l,
		live: map[net.Conn]struct{}{}}
	p.wg.Go(p.run)
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		p.reset()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) conns() int       { return int(p.seen.Load()) }
func (p *proxy) bytes() int       { return int(p.up.Load()) }
func (p *proxy) rate(perSec int)  { p.pace.Store(int64(perSec)) }
func (p *proxy) dropAll(yes bool) { p.dropUp.Store(yes); p.dropDown.Store(yes) }

func (p *proxy) run() {
	for {
		in, err := p.l.Accept()
		if err != nil {
			return
		}
		in.(*net.TCPConn).SetReadBuffer(64 << 10) // so that messages wait at the sender
		out, err := net.Dial("tcp", p.to)
		if err != nil {
			in.Close()
			continue
		}
		p.mu.Lock()
		if p.closed {
			in.Close()
			out.Close()
		} else {
			p.live[in], p.live[out] = struct{}{}, struct{}{}
		}
		p.mu.Unlock()
		p.seen.Add(1)
		p.wg.Go(func() { p.pipe(out, in, true) })
		p.wg.Go(func() { p.pipe(in, out, false) })
	}
}

// reset ends every connection with a RST.
func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.live {
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
		delete(p.live, c)
	}
}

func (p *proxy) pipe(to, from net.Conn, up bool) {
	defer to.Close()
	defer from.Close()
	drop := &p.dropDown
	if up {
		drop = &p.dropUp
	}
	size := 32 << 10
	for buf := make([]byte, size); ; {
		pace := p.pace.Load()
		if up && pace > 0 {
			buf = buf[:4<<10]
		} else {
			buf = buf[:size]
		}
		n, err := from.Read(buf)
		if d := p.delay.Load(); d > 0 {
			time.Sleep(time.Duration(d)) // the fault itself, not a wait for something
		}
		if up && pace > 0 {
			time.Sleep(time.Duration(n) * time.Second / time.Duration(pace))
		}
		b := buf[:n]
		if up && n > 0 {
			total := p.up.Add(int64(n))
			before := total - int64(n)
			if at := p.flip.Load(); at > 0 && before < at && at <= total {
				b[at-before-1] ^= 0x10
			}
			if at := p.cutAt.Load(); at > 0 && before < at && at <= total {
				to.Write(b[:at-before])
				return
			}
		}
		if !drop.Load() {
			if _, err := to.Write(b); err != nil {
				return
			}
		}
		if err != nil {
			if err == io.EOF {
				to.(*net.TCPConn).CloseWrite()
				// Let what is on its way back arrive.
				io.Copy(io.Discard, from)
			}
			return
		}
	}
}
