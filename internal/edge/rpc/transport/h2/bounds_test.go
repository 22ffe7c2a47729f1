package h2

import (
	"errors"
	"fmt"
	"math"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestLongSilence: a connection that was silent for very long may send frames, and no more of them
// than a new one.
func TestLongSilence(t *testing.T) {
	for _, d := range []time.Duration{time.Minute, 24 * time.Hour, 54 * 24 * time.Hour,
		200 * 24 * time.Hour, math.MaxInt64} {
		if n := refillFrames(-1, framesAtOnce, framesPerSecond, d, 0); n != framesAtOnce {
			t.Errorf("after %v there are %d frames", d, n)
		}
	}
	if n := refillFrames(-1, framesAtOnce, framesPerSecond, time.Second,
		5); n != framesPerSecond+4 {
		t.Errorf("after a second there are %d frames", n)
	}
	if n := refillFrames(-1, framesAtOnce, framesPerSecond, 0, math.MaxInt); n != framesAtOnce {
		t.Errorf("after many answers there are %d frames", n)
	}
}

// refused reads frames until a stream is refused.
func (c *client) refused(id uint32) {
	c.t.Helper()
	c.await("a refused stream", func(f http2.Frame) bool {
		r, ok := f.(*http2.RSTStreamFrame)
		if ok && (r.StreamID != id || r.ErrCode != http2.ErrCodeRefusedStream) {
			c.t.Fatalf("%v, want stream %d to be refused", r, id)
		}
		return ok
	})
}

// unread waits until the client occupies nothing any more.
func (c *client) nothingUnread() {
	c.t.Helper()
	eventually(c.t, "nothing is unread", func() bool { return c.conn.link.unread.Load() == 0 })
}

// TestUnreadRequests: the requests that have no handler yet are bounded for each connection, and
// others are refused.
func TestUnreadRequests(t *testing.T) {
	const most = 64 << 10
	header := func(c *client, id uint32) error {
		return c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true,
			BlockFragment: c.block(":method", "POST", ":scheme", "http", ":path", "/keep", "large",
				fmt.Sprint(id)+stringOf(3000))})
	}
	c := connect(t, Options{MaxUnreadBytes: most})
	for id := uint32(1); id < 100; id += 2 {
		c.must(header(c, id))
	}
	first := uint32(0)
	c.await("a refused stream", func(f http2.Frame) bool {
		r, ok := f.(*http2.RSTStreamFrame)
		if ok {
			first = r.StreamID
		}
		return ok && r.ErrCode == http2.ErrCodeRefusedStream
	})
	if first < 20 || first > 50 {
		t.Errorf("stream %d is the first that is refused", first)
	}
	for id := uint32(1); id < first; id += 2 {
		c.must(c.WriteRSTStream(id, http2.ErrCodeCancel))
	}
	c.must(c.WritePing(false, [8]byte{1}))
	c.await("the answer to a ping",
		func(f http2.Frame) bool { _, ok := f.(*http2.PingFrame); return ok })
	c.nothingUnread()
	c.must(c.open(201, "10", true))
	c.awaitEnd(201)

	// Bodies that nothing takes count as well. The request that exceeds the limit is refused, since
	// it has no handler.
	c = connect(t, Options{MaxUnreadBytes: most})
	c.must(c.open(1, "keep", false))
	c.must(c.open(3, "keep", false))
	for range 3 {
		c.must(c.WriteData(1, false, make([]byte, 16_000)))
	}
	c.must(c.WriteData(3, false, make([]byte, 16_000)))
	c.must(c.WriteData(3, false, make([]byte, 16_000)))
	c.refused(3)
	c.must(c.WriteData(3, false, make([]byte, 16_000)))
	c.must(c.WriteData(1, false, make([]byte, 14_000)))
	for id := uint32(5); id < 45; id += 2 {
		c.must(c.open(id, "keep", false))
	}
	c.await("a refused stream", func(f http2.Frame) bool {
		r, ok := f.(*http2.RSTStreamFrame)
		return ok && r.ErrCode == http2.ErrCodeRefusedStream && r.StreamID == 43
	})
	for id := uint32(1); id < 43; id += 2 {
		c.must(c.WriteRSTStream(id, http2.ErrCodeCancel))
	}
	c.must(c.open(47, "10", true))
	c.awaitEnd(47)
	c.nothingUnread()
}

// TestUnreadSmallAnswers: the answers that a client does not take are bounded for each connection,
// and further requests refused.
func TestUnreadSmallAnswers(t *testing.T) {
	c := connect(t, Options{MaxUnreadBytes: 64 << 10},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	refused := map[uint32]bool{}
	last := uint32(1)
	for ; len(refused) == 0; last += 2 {
		if last > 1000 {
			t.Fatal("no request is refused")
		}
		c.must(c.open(last, "10", true))
		c.await("a header or a reset", func(f http2.Frame) bool {
			if r, ok := f.(*http2.RSTStreamFrame); ok {
				refused[r.StreamID] = r.ErrCode == http2.ErrCodeRefusedStream
			}
			return f.Header().StreamID == last
		})
		eventually(t, "the handler has ended", func() bool { return c.site.running.Load() == 0 })
	}
	if !refused[last-2] || last < 50 {
		t.Errorf("stream %d was reset", last-2)
	}
	c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000}))
	for id := uint32(1); id < last-2; id += 2 {
		c.await("an answer",
			func(f http2.Frame) bool {
				h, ok := f.(*http2.MetaHeadersFrame)
				return ok &&
					h.StreamEnded()
			})
	}
	c.must(c.open(last, "10", true))
	c.awaitEnd(last)
	c.nothingUnread()
}

// TestExpected: long messages are let in as far as there is memory for them, and the rest when
// others were taken.
func TestExpected(t *testing.T) {
	c := connect(t, Options{MaxUnreadBytes: 200_000})
	granted := map[uint32]int{}
	note := func(f http2.Frame) {
		if w, ok := f.(*http2.WindowUpdateFrame); ok {
			granted[w.StreamID] += int(w.Increment)
		}
	}
	for id := uint32(1); id < 40; id += 2 {
		c.must(c.open(id, "long", false))
	}
	c.must(c.WritePing(false, [8]byte{1}))
	c.await("the answer to a ping",
		func(f http2.Frame) bool { note(f); _, ok := f.(*http2.PingFrame); return ok })
	long := 0
	for id, n := range granted {
		if id != 0 && n > 0 {
			long++
		}
	}
	if long == 0 || long > 6 { // 14,465 bytes each
		t.Errorf("%d of 20 long messages may be sent", long)
	}
	for id := uint32(1); id < 40; id += 2 { // each waits until it is granted
		for granted[id] == 0 {
			c.await("a window", func(f http2.Frame) bool {
				note(f)
				_,
					ok := f.(*http2.WindowUpdateFrame)
				return ok
			})
		}
		if id == 5 {
			c.must(c.WriteRSTStream(id, http2.ErrCodeCancel))
			continue
		}
		for range 5 {
			c.must(c.WriteData(id, false, make([]byte, 16_000)))
		}
		c.must(c.WriteData(id, true, nil))
	}
	eventually(t, "nothing is promised", func() bool {
		c.conn.link.mu.Lock()
		defer c.conn.link.mu.Unlock()
		return c.conn.link.mu.promises.given == 0 && len(c.conn.link.mu.promises.waiting) == 0
	})
}

// fullConn is a connection whose client reads nothing.
type fullConn struct {
	net.Conn
	closed chan struct{}
	once   sync.Once
}

func (c *fullConn) Write([]byte) (int, error) {
	<-c.closed
	return 0, net.ErrClosed
}

func (c *fullConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// TestUnreadResets: the resets that a client causes and does not read are bounded, whatever causes
// them.
func TestUnreadResets(t *testing.T) {
	c := connectThrough(t, Options{}, framesAtOnce/10,
		func(nc net.Conn) net.Conn { return &fullConn{nc, make(chan struct{}), sync.Once{}} })
	_, err := c.nc.Write([]byte(http2.ClientPreface))
	c.must(err)
	c.must(c.WriteSettings())
	const streams = 60_000
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for id := uint32(1); id < 2*streams; id += 2 {
			if c.open(id, "expire", false) != nil {
				return
			}
		}
	}()
	queued := func() (bytes, open int) {
		c.conn.link.mu.Lock()
		defer c.conn.link.mu.Unlock()
		return len(c.conn.link.mu.out.control), len(c.conn.link.mu.table.streams)
	}
	var before, open int
	eventually(t, "resets are queued", func() bool {
		before, open = queued()
		return before > maxControl
	})
	select {
	case <-sent: // the reader does not wait
	case <-time.After(200 * time.Millisecond):
	}
	// The deadlines of open streams may pass, and a read buffer full of requests may follow before
	// the reader waits.
	reset := len(appendReset(nil, 1, 0))
	if n, _ := queued(); n > before+open*reset+largeInput*2 {
		t.Errorf("%d bytes are queued, %d of them before; %d streams were open", n, before, open)
	}
	c.conn.Close()
	<-sent
}

// lateConn has writes that take a while, once more was read than a connection that ends is read.
type lateConn struct {
	net.Conn
	read atomic.Int64
	full chan struct{}
}

func (c *lateConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if read := c.read.Add(int64(n)); read >= lingerBytes && read-int64(n) < lingerBytes {
		close(c.full)
	}
	return n, err
}

func (c *lateConn) Write(p []byte) (int, error) {
	<-c.full
	time.Sleep(20 * time.Millisecond)
	return c.Conn.Write(p)
}

// TestReasonAfterMuch: a client that has sent much after its mistake, before the server could
// write, still receives the reason.
func TestReasonAfterMuch(t *testing.T) {
	c := connectThrough(t, Options{}, framesAtOnce,
		func(nc net.Conn) net.Conn {
			return &lateConn{Conn: nc,
				full: make(chan struct{})}
		}).greet()
	c.must(c.WriteData(0, false, []byte("x")))
	for range 3 * lingerBytes / maxFrame {
		if c.WriteData(0, false, make([]byte, maxFrame)) != nil {
			break // closed
		}
	}
	if code, text := c.goAway(); code != http2.ErrCodeProtocol {
		t.Errorf("ended with %v %q", code, text)
	}
}

// TestLateFramesOfRefused: what a client sends on streams that were refused or reset, before it
// knows, ends nothing else, and its bytes do not use up the window of the connection.
func TestLateFramesOfRefused(t *testing.T) {
	c := connectThrough(t, Options{MaxConcurrentStreams: 1}, framesAtOnce,
		func(nc net.Conn) net.Conn { return nc }).greet()
	c.must(c.open(1, "keep", false))
	c.stream(1)
	c.must(c.open(3, "echo", false))
	c.refused(3)
	c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: 5, EndHeaders: true,
		BlockFragment: c.block("Upper", "case", "name", "of the table")}))
	for _, id := range []uint32{3, 5} {
		for range connWindow / maxFrame {
			c.must(c.WriteData(id, false, make([]byte, maxFrame)))
		}
		c.must(c.WriteWindowUpdate(id, 5))
		c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true,
			EndStream: true, BlockFragment: c.block("name", "of the table", "other", "x")}))
	}
	c.must(c.WriteRSTStream(1, http2.ErrCodeCancel))
	for id := uint32(7); id < 107; id += 2 { // the numbers of the streams before are forgotten
		c.must(c.open(id, "10", true))
		c.awaitEnd(id)
	}
	for _, id := range []uint32{3, 7, 11} {
		c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true,
			EndStream: true, BlockFragment: c.block("name", "of the table")}))
	}
	c.must(c.open(201, "10", true))
	c.awaitEnd(201)
}

// TestLateFramesOfIgnored: requests after the last GOAWAY are ignored with everything that belongs
// to them, while the ones before are served.
func TestLateFramesOfIgnored(t *testing.T) {
	c := connectThrough(t, Options{}, framesAtOnce,
		func(nc net.Conn) net.Conn { return nc }).greet()
	c.must(c.open(1, "echo", false))
	c.stream(1)
	c.conn.Drain()
	c.must(c.WritePing(true, drainPing))
	isGoAway := func(f http2.Frame) bool { _, ok := f.(*http2.GoAwayFrame); return ok }
	c.await("the first GOAWAY", isGoAway)
	c.await("the second GOAWAY", isGoAway)
	for _, id := range []uint32{3, 5} {
		c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true,
			BlockFragment: c.block(":method", "POST", ":scheme", "http", ":path", "/echo", "name",
				fmt.Sprint("of the table", id))}))
		for range connWindow / maxFrame {
			c.must(c.WriteData(id, false, make([]byte, maxFrame)))
		}
		c.must(c.WriteWindowUpdate(id, 5))
		c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true,
			EndStream: true, BlockFragment: c.block("name", fmt.Sprint("of the table", id))}))
	}
	// Trailers that need the table that the ignored headers have filled.
	c.must(c.WriteData(1, false, []byte("last")))
	c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true,
		BlockFragment: c.block("name", "of the table3")}))
	if n := c.awaitEnd(1); n != 4+headSize {
		t.Errorf("%d bytes", n)
	}
	// An error names the last request that was served.
	c = connect(t, Options{})
	c.must(c.open(1, "wait", true))
	c.stream(1)
	c.conn.Drain()
	c.must(c.WritePing(true, drainPing))
	c.await("the first GOAWAY", isGoAway)
	c.await("the second GOAWAY", isGoAway)
	c.must(c.open(3, "10", true))
	c.must(c.WriteData(0, false, []byte("x")))
	if f := c.await("the last GOAWAY",
		isGoAwayWith(http2.ErrCodeProtocol)).(*http2.GoAwayFrame); f.LastStreamID != 1 {
		t.Errorf("%v", f)
	}
}

func isGoAwayWith(code http2.ErrCode) func(http2.Frame) bool {
	return func(f http2.Frame) bool {
		g, ok := f.(*http2.GoAwayFrame)
		return ok &&
			g.ErrCode == code
	}
}

// TestDrainDuringBegin: a request that was accepted before the last GOAWAY is answered, also if it
// begins after that was written.
func TestDrainDuringBegin(t *testing.T) {
	c := connectSilently(t, Options{})
	c.site.begin = func() {
		c.conn.Drain()
		c.conn.link.cutOffRequests()
		eventually(t, "the GOAWAY is written", func() bool {
			c.conn.link.mu.Lock()
			defer c.conn.link.mu.Unlock()
			return !c.conn.link.mu.writing && len(c.conn.link.mu.out.control) == 0
		})
	}
	_, err := c.nc.Write([]byte(http2.ClientPreface))
	c.must(err)
	c.must(c.WriteSettings())
	c.must(c.open(1, "10", true))
	if n := c.awaitEnd(1); n != 10+headSize {
		t.Errorf("%d bytes", n)
	}
}

// TestReason: Serve returns why a connection was ended, and the client gets the same reason.
func TestReason(t *testing.T) {
	c := connect(t, Options{})
	c.must(c.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 2}))
	code, text := c.goAway()
	if code != http2.ErrCodeProtocol || text != "invalid setting [ENABLE_PUSH = 2]" {
		t.Errorf("ended with %v %q", code, text)
	}
	c.nc.Close()
	var ended *EndedError
	if err := <-c.ends; !errors.As(err, &ended) || ended.Text != text || ended.Code != code {
		t.Errorf("%v", err)
	}
	// The first settings have the same bounds.
	c = connect(t, Options{}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31})
	if code, text := c.goAway(); code != http2.ErrCodeFlowControl || text != "invalid frame" {
		t.Errorf("ended with %v %q", code, text)
	}
	// What fails after the decision is not the reason.
	c = connect(t, Options{})
	c.must(c.open(1, "wait", true))
	c.stream(1)
	_ = c.conn.link.failConn(http2.ErrCodeEnhanceYourCalm, "first")
	c.conn.link.closeConn(net.ErrClosed)
	if err := <-c.ends; !errors.As(err, &ended) || ended.Text != "first" {
		t.Errorf("%v", err)
	}
}

// slowConn is a connection whose Close waits for the client, as with TLS, unless the socket is
// closed.
type slowConn struct {
	net.Conn
	socket closingConn
}

type closingConn struct {
	net.Conn
	closed chan struct{}
}

func (c closingConn) Close() error {
	close(c.closed)
	return c.Conn.Close()
}

func (c slowConn) NetConn() net.Conn { return c.socket }
func (c slowConn) Close() error {
	<-c.socket.closed
	return nil
}

// TestCloseAtOnce: Close waits for no client.
func TestCloseAtOnce(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	c := New(slowConn{here, closingConn{here, make(chan struct{})}}, Options{Workers: testWorkers})
	c.Close()
}

// TestWorkersEnd: workers that were idle for long end.
func TestWorkersEnd(t *testing.T) {
	p := NewWorkers(100)
	p.keep = time.Millisecond
	defer p.Close()
	for range 3 {
		running, release := make(chan struct{}), make(chan struct{})
		for range 50 {
			p.Run(func() {
				running <- struct{}{}
				<-release
			})
		}
		for range 50 {
			<-running
		}
		close(release)
		eventually(t, "all workers have ended", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.mu.idle) == 0 && !p.mu.timed
		})
	}
}

// TestIdleStreams: an invalid frame of a stream that does not exist yet ends the connection: a
// client would not accept its reset.
func TestIdleStreams(t *testing.T) {
	for name, send := range map[string]func(c *client) error{
		"window update of 0": func(c *client) error {
			return c.WriteRawFrame(http2.FrameWindowUpdate, 0, 5, make([]byte, 4))
		},
		"priority, depends on itself": func(c *client) error {
			return c.WritePriority(5,
				http2.PriorityParam{StreamDep: 5})
		},
		"padding that is longer": func(c *client) error {
			return c.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersPadded, 5, []byte{9, 0x82})
		},
		"padding of trailers, longer": func(c *client) error {
			return c.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersPadded, 1, []byte{9, 0x82})
		},
		"window update of an even number": func(c *client) error {
			return c.WriteRawFrame(http2.FrameWindowUpdate, 0, 2, make([]byte, 4))
		},
	} {
		c := connect(t, Options{})
		c.must(c.open(1, "echo", false))
		c.stream(1)
		c.must(send(c))
		for {
			f, err := c.ReadFrame()
			if err != nil {
				t.Errorf("%s: no GOAWAY: %v", name, err)
				break
			}
			if r, ok := f.(*http2.RSTStreamFrame); ok {
				t.Errorf("%s: stream %d is reset", name, r.StreamID)
				break
			}
			if g, ok := f.(*http2.GoAwayFrame); ok {
				if g.ErrCode != http2.ErrCodeProtocol {
					t.Errorf("%s: ended with %v", name, g.ErrCode)
				}
				break
			}
		}
	}
}

// TestCrowd: a connection that has had very many streams at once does not keep the memory of their
// list.
func TestCrowd(t *testing.T) {
	c := connectThrough(t, Options{}, 1<<20, func(nc net.Conn) net.Conn { return nc }).greet()
	const streams = 50_000
	begun := 0
	c.site.begin = func() { begun++ }
	for i := range uint32(streams) {
		c.must(c.open(2*i+1, "never", false))
	}
	c.ping(1)
	c.conn.link.mu.Lock()
	open, list := len(c.conn.link.mu.table.streams), c.conn.link.mu.table.streams
	c.conn.link.mu.Unlock()
	if open != streams || begun != streams {
		t.Fatalf("%d of %d streams are open", open, begun)
	}
	for i := range uint32(streams) {
		c.must(c.WriteRSTStream(2*i+1, http2.ErrCodeCancel))
	}
	c.ping(2)
	with := heap()
	runtime.KeepAlive(list)
	list = nil
	if freed := with - heap(); freed < 1<<20 {
		t.Errorf("the list of %d streams that have ended keeps its memory: %d bytes were freed",
			streams, freed)
	}
	c.must(c.open(2*streams+1, "10", true))
	c.awaitEnd(2*streams + 1)
}
