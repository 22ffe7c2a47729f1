package h2

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// ping waits for the answer to a ping: everything before was read.
func (c *client) ping(n byte) {
	c.t.Helper()
	c.must(c.WritePing(false, [8]byte{n}))
	c.await("the answer to a ping", func(f http2.Frame) bool {
		p, ok := f.(*http2.PingFrame)
		return ok && p.IsAck() && p.Data[0] == n
	})
}

// TestExpectedAndReset: a stream that is reset while its long message waits for memory is
// forgotten, although others wait.
func TestExpectedAndReset(t *testing.T) {
	c := connect(t, Options{MaxUnreadBytes: 200_000})
	const waiting = 20
	for id := uint32(1); id < 2*waiting; id += 2 {
		c.must(c.open(id, "long", false)) // more than may be sent at once
	}
	for id := uint32(2*waiting + 1); id < 1000; id += 2 {
		c.must(c.open(id, "long", false))
		c.must(c.WriteRSTStream(id, http2.ErrCodeCancel))
	}
	c.ping(1)
	c.conn.link.mu.Lock()
	n := len(c.conn.link.mu.promises.waiting)
	c.conn.link.mu.Unlock()
	if n > 2*waiting+1 {
		t.Errorf("%d streams are remembered, of which %d exist", n, waiting)
	}
}

// blockedConn is a connection whose writes wait from some moment on.
type blockedConn struct {
	net.Conn
	block   atomic.Bool
	blocked chan struct{} // receives when a write waits
	release chan struct{}
	once    sync.Once
}

func newBlockedConn(nc net.Conn) *blockedConn {
	return &blockedConn{Conn: nc, blocked: make(chan struct{}, 1), release: make(chan struct{})}
}

func (c *blockedConn) Write(p []byte) (int, error) {
	if c.block.Load() {
		select {
		case c.blocked <- struct{}{}:
		default:
		}
		<-c.release
	}
	return c.Conn.Write(p)
}

func (c *blockedConn) unblock() { c.once.Do(func() { close(c.release) }) }

func (c *blockedConn) Close() error {
	c.unblock()
	return c.Conn.Close()
}

// TestDroppedDuringWrite: answers of streams that are reset while the client does not read are
// freed at once.
func TestDroppedDuringWrite(t *testing.T) {
	var nc *blockedConn
	c := connectThrough(t, Options{}, framesAtOnce,
		func(inner net.Conn) net.Conn { nc = newBlockedConn(inner); return nc }).greet()
	c.ping(1)
	nc.block.Store(true)
	c.must(c.WritePing(false, [8]byte{2}))
	<-nc.blocked
	for id := uint32(1); id < 1000; id += 2 {
		c.must(c.open(id, "5000", true))
		s := c.stream(id)
		eventually(t, "the answer is complete", func() bool {
			c.conn.link.mu.Lock()
			defer c.conn.link.mu.Unlock()
			return s.state.answered()
		})
		c.must(c.WriteRSTStream(id, http2.ErrCodeCancel))
	}
	eventually(t, "no stream is left", func() bool {
		c.conn.link.mu.Lock()
		defer c.conn.link.mu.Unlock()
		return len(c.conn.link.mu.table.streams) == 0
	})
	if n := c.site.pool.used.Load(); n > 10 {
		t.Errorf("%d buffers of answers that nothing will send are in use", n)
	}
}

// TestFramesAfterLast: what a client sends after the last answer of a connection that drains does
// not cost it the answer, of which much is still on the way.
func TestFramesAfterLast(t *testing.T) {
	const size = 1_000_000
	shut := make(chan struct{})
	c := connectThrough(t, Options{}, framesAtOnce, func(inner net.Conn) net.Conn {
		// the answer gets into the socket, and not to the client
		must(t, inner.(*net.TCPConn).SetWriteBuffer(2*size))
		return &shutConn{TCPConn: inner.(*net.TCPConn), shut: shut}
	})
	must(t, c.nc.(*net.TCPConn).SetReadBuffer(128<<10))
	c.greet(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	c.must(c.WriteWindowUpdate(0, 1<<30))
	c.must(c.open(1, fmt.Sprint(size), true))
	eventually(t, "the request has arrived", func() bool {
		c.conn.link.mu.Lock()
		defer c.conn.link.mu.Unlock()
		return c.conn.link.mu.table.accepted == 1
	})
	c.conn.Drain()
	c.must(c.WritePing(true, drainPing))
	<-shut
	for n := range byte(3) {
		c.must(c.WritePing(false, [8]byte{n}))
		c.must(c.WriteWindowUpdate(0, 1))
		time.Sleep(10 * time.Millisecond) // so that the pings arrive one after another
	}
	if n := c.awaitEnd(1); n < size {
		t.Errorf("%d bytes", n)
	}
}

// shutConn notes the end of the output. It waits for the end of the client as long as that takes.
type shutConn struct {
	*net.TCPConn
	once sync.Once
	shut chan struct{}
}

func (c *shutConn) SetReadDeadline(t time.Time) error {
	select {
	case <-c.shut:
		return nil
	default:
		return c.TCPConn.SetReadDeadline(t)
	}
}

func (c *shutConn) CloseWrite() error {
	err := c.TCPConn.CloseWrite()
	c.once.Do(func() { close(c.shut) })
	return err
}

// TestWriterEndsFirst: Serve returns when nothing writes any more, so that no buffer is in use
// afterwards.
func TestWriterEndsFirst(t *testing.T) {
	var nc *stubbornConn
	c := connectThrough(t, Options{}, framesAtOnce, func(inner net.Conn) net.Conn {
		nc = &stubbornConn{Conn: inner, writing: make(chan struct{}), release: make(chan struct{})}
		return nc
	}).greet()
	<-nc.writing
	c.nc.Close()
	eventually(t, "the connection is closed", func() bool {
		c.conn.link.mu.Lock()
		defer c.conn.link.mu.Unlock()
		return c.conn.link.mu.state == connLost
	})
	select {
	case <-c.ends:
		t.Fatal("Serve returns during a write")
	case <-time.After(50 * time.Millisecond): // the longer, the stricter
	}
	close(nc.release)
	<-c.ends
}

// stubbornConn has a write that continues after Close.
type stubbornConn struct {
	net.Conn
	once             sync.Once
	writing, release chan struct{}
}

func (c *stubbornConn) Write(p []byte) (int, error) {
	c.once.Do(func() { close(c.writing) })
	<-c.release
	return c.Conn.Write(p)
}

// TestResetDuringWrite: a handler that sends much ends with its stream, also while a write waits
// for the client.
func TestResetDuringWrite(t *testing.T) {
	var nc *blockedConn
	c := connectThrough(t, Options{}, framesAtOnce,
		func(inner net.Conn) net.Conn { nc = newBlockedConn(inner); return nc })
	c.greet(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	c.must(c.WriteWindowUpdate(0, 1<<30))
	c.ping(1)
	nc.block.Store(true)
	c.must(c.open(1, "bulk", true))
	<-nc.blocked
	c.must(c.WriteRSTStream(1, http2.ErrCodeCancel))
	eventually(t, "the handler has ended", func() bool { return c.site.running.Load() == 0 })
}

// lateWriter is a connection whose writer gets its first turn when the time to read is over.
type lateWriter struct {
	net.Conn
	once sync.Once
	over chan struct{}
}

func (c *lateWriter) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.once.Do(func() { close(c.over) })
	}
	return n, err
}

func (c *lateWriter) Write(p []byte) (int, error) {
	<-c.over
	return c.Conn.Write(p)
}

// TestReasonAfterLong: the reason of an end is written also if the writer gets no turn for as long
// as the reader waits for the client's end.
func TestReasonAfterLong(t *testing.T) {
	c := connectThrough(t, Options{}, framesAtOnce,
		func(nc net.Conn) net.Conn {
			return &lateWriter{Conn: nc,
				over: make(chan struct{})}
		}).greet()
	c.must(c.WriteData(0, false, []byte("x")))
	if code, text := c.goAway(); code != http2.ErrCodeProtocol {
		t.Errorf("ended with %v %q", code, text)
	}
}

// TestTimersAfterEnd: a stream or connection that has ended gets no timer, which would keep its
// memory.
func TestTimersAfterEnd(t *testing.T) {
	c := connect(t, Options{})
	c.must(c.open(1, "wait", true))
	s := c.stream(1)
	c.conn.Close()
	s.SetDeadline(time.Hour, nil)
	s.ctx.lock.Lock()
	if s.ctx.timer != nil {
		t.Error("a stream that has ended has a timer")
	}
	s.ctx.lock.Unlock()
	<-c.ends
	c.conn.link.mu.Lock()
	defer c.conn.link.mu.Unlock()
	c.conn.link.mu.keep.timer = nil
	if c.conn.link.startKeepAlive(); c.conn.link.mu.keep.timer != nil {
		t.Error("a connection that has ended has a timer")
	}
}

// TestSocket: several buffers are written at once to a socket only, whatever wraps it, and never
// past TLS.
func TestSocket(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	socket := new(net.TCPConn)
	secure := tls.Server(socket, nil)
	for _, row := range []struct{ conn, want net.Conn }{
		{socket, socket},
		{wrapsConn{socket}, socket},
		{wrapsConn{wrapsConn{socket}}, socket},
		{here, nil},
		{wrapsConn{here}, nil},
		{secure, nil},
		{wrapsConn{secure}, nil},
		{struct{ *tls.Conn }{secure}, nil},
		{wrapsConn{struct{ *tls.Conn }{secure}}, nil},
	} {
		if got := plainSocket(row.conn); got != row.want {
			t.Errorf("the socket of %T is %v", row.conn, got)
		}
	}
}

type wrapsConn struct{ net.Conn }

func (c wrapsConn) NetConn() net.Conn { return c.Conn }

// TestContextsAfterServe: when Serve has returned, the contexts of all requests have ended,
// whatever ends them at that moment.
func TestContextsAfterServe(t *testing.T) {
	for i := range 100 {
		h := &sources{made: make(chan *source, 100)}
		c := connectTo(t, func(c *client) Handler { h.site = c.site; return h }).greet()
		var list []*source
		for k := range uint32(4) {
			must(t, c.open(2*k+1, "", false))
			list = append(list, <-h.made)
		}
		var begun sync.WaitGroup
		for k, s := range list {
			begun.Add(1)
			go func() {
				begun.Done()
				if k%2 == i%2 {
					s.expire()
				} else {
					s.FinishSoon(okTrailer, wholeAnswer)
				}
			}()
		}
		begun.Wait()
		c.conn.Close()
		<-c.ends
		for k, s := range list {
			if s.Err() == nil {
				t.Fatalf("the context of request %d has not ended", k)
			}
		}
	}
}

// TestAnswerDuringFailure: while a failed connection drops its streams, an answer does not report
// that its stream is free. Another request would use the stream, and dropStreams would end that.
func TestAnswerDuringFailure(t *testing.T) {
	c := connect(t, Options{})
	c.must(c.open(1, "never", true))
	s := c.stream(1)
	l := &c.conn.link
	l.mu.Lock()
	l.mu.err = io.ErrUnexpectedEOF
	l.mu.state.move(connFail)
	dropped := l.takeStreams()
	l.mu.Unlock()
	if s.AnswerPrompt(okHeader, make([]byte, headSize), okTrailer) {
		t.Error("the stream is free although dropStreams will use it")
	}
	l.dropStreams(dropped)
	if n := l.unread.Load(); n != 0 {
		t.Errorf("%d bytes are unread after the last stream", n)
	}
	if s.SendSoon(nil, make([]byte, headSize)); l.mu.out.prompt != nil {
		t.Error("an answer was queued after the GOAWAY")
	}
}
