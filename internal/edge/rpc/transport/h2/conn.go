package h2

import (
	"context"
	"crypto/tls"
	"math"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/mem"
)

const (
	// streamWindow is how many bytes a client may send on a stream before they are taken, connWindow on all of them before
	// they are read.
	streamWindow = 64<<10 - 1
	connWindow   = 16 << 20
	// heldHead is how many bytes of a header are not counted any more when a handler runs. Others are counted until the stream
	// ends: a few bytes may mean a large header, of which a client could let the server keep many.
	heldHead = 4 << 10
	// streamCost is about what a stream occupies besides its header, its body and its answer.
	streamCost = 1 << 10
	// lingerTime and lingerBytes bound how long a connection is read after the last output: closing it at once could
	// destroy that. The output may take reasonTime, since the writer may wait for its turn on a busy machine.
	lingerTime  = time.Second
	lingerBytes = 256 << 10
	reasonTime  = 5 * time.Second
	// drainTime is how long Drain waits for the client's acknowledgement; a client without a handshake has lateTime.
	drainTime = 5 * time.Second
	lateTime  = 200 * time.Millisecond
	// maxCrowd is how many streams a connection may have had at once that keeps the memory of their list.
	maxCrowd = 1000
	// maxAbandoned is how many handlers may be running whose streams the client has reset.
	maxAbandoned = 1000
)

// Conn is a connection with a client.
type Conn struct {
	nc      net.Conn
	socket  net.Conn // nc without its wrappers, if it can write several buffers at once; otherwise nil
	direct  direct   // writes to the socket without waiting; owned by the writer
	o       *Options
	handler Handler
	values  context.Context

	lastRead atomic.Int64 // in nanoseconds after epoch
	// unread is how many bytes the client occupies without a handler's consent: requests without a handler, bodies that were
	// not taken, answers that the client does not take.
	unread atomic.Int64

	// Owned by the reader.
	in       input
	framer   *http2.Framer
	decoder  *hpack.Decoder
	head     requestHead
	guard    guard
	recv     int64 // how many bytes the client may send on all streams
	pings    pingPolicy
	greeting bool // the handshake is not complete

	mu struct {
		sync.Mutex
		changed sync.Cond // the writer has written, a handler has ended, the connection is lost

		streams   map[uint32]*Stream
		crowd     int    // the largest number of streams since the map was made
		lastID    uint32 // the highest number of a stream so far
		accepted  uint32 // the highest number that was not ignored
		beginning bool   // a request was accepted and is not in streams yet
		recent    recentStreams
		skipped   skippedNumbers
		promised  int64     // bytes of long messages that clients may send
		expecting []*Stream // streams whose long messages wait for that
		withdrawn int       // streams in expecting that do not wait any more

		encoder   *headerEncoder
		mostHead  int64   // the largest header that the client accepts, not compressed
		control   []byte  // frames that wait for the writer and belong to no answer
		prompt    *[]byte // frames of small answers that wait for the writer; nil if there are none
		prompts   int     // how many
		readyList list
		stalled   list      // streams that wait for the window of the connection
		fills     []*Stream // streams that may have output to be queued; there is a writer, or will be
		filled    int       // bytes that they have queued
		waking    bool      // WakeAll is about to start a writer
		costly    bool      // Fill of a stream takes much time
		dropping  int       // calls of dropStreams
		window    int64     // how many bytes may be sent on all streams
		initial   int64     // the window of a new stream
		writing   bool      // there is a writer
		dropped   mem.BufferSlice
		earned    int  // frames that the client may send more, see guard
		answered  bool // something was sent since the last ping
		abandoned int  // handlers of closed streams

		greeted  bool
		draining int   // 1 after the first GOAWAY, 2 after the second
		fatal    bool  // a GOAWAY with an error was queued
		shut     bool  // nothing is written any more
		lost     bool  // the connection is closed
		err      error // why it is closed, or will be
		keep     keepAlive
		drain    *time.Timer
	}
}

// New makes a connection of one that was accepted. Call Serve.
func New(nc net.Conn, o Options) *Conn {
	o = o.withDefaults()
	c := &Conn{nc: nc, socket: socketOf(nc), o: &o, recv: connWindow, greeting: true}
	c.in.c = c
	c.direct.init(c.socket)
	c.framer = http2.NewFramer(nil, &c.in)
	c.framer.SetMaxReadFrameSize(maxFrame)
	c.framer.SetReuseFrames()
	c.decoder = hpack.NewDecoder(4096, c.head.add)
	c.decoder.SetMaxStringLength(int(o.MaxHeaderBytes))
	c.head.stop = func() { c.decoder.SetEmitEnabled(false) }
	c.guard = newGuard(framesAtOnce)
	c.mu.changed.L = &c.mu
	c.mu.streams = map[uint32]*Stream{}
	c.mu.encoder = newHeaderEncoder()
	c.mu.window, c.mu.initial, c.mu.mostHead = 65535, 65535, math.MaxUint32
	settings := []http2.Setting{{ID: http2.SettingMaxFrameSize, Val: maxFrame}}
	if o.MaxConcurrentStreams != 1<<32-1 {
		settings = append(settings, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: o.MaxConcurrentStreams})
	}
	settings = append(settings, http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: o.MaxHeaderBytes})
	c.mu.control = appendWindowUpdate(appendSettings(nil, settings...), 0, connWindow-65535)
	return c
}

// socketOf returns the socket of a connection, if what is written reaches it unchanged.
func socketOf(nc net.Conn) net.Conn {
	for {
		switch c := nc.(type) {
		case *net.TCPConn, *net.UnixConn:
			return c
		case interface{ ConnectionState() tls.ConnectionState }: // *tls.Conn, or what embeds it
			return nil
		case interface{ NetConn() net.Conn }:
			nc = c.NetConn()
		default:
			return nil
		}
	}
}

// passesOn reports whether the wrappers of a connection pass on what is read from its socket, from now on. Those that may not have
// a method that says so.
func passesOn(nc net.Conn) bool {
	for {
		switch c := nc.(type) {
		case *net.TCPConn, *net.UnixConn:
			return true
		case interface {
			NetConn() net.Conn
			PassesOn() bool
		}:
			if !c.PassesOn() {
				return false
			}
			nc = c.NetConn()
		default:
			return false
		}
	}
}

// Serve reads the connection until its end, and closes it. The error says why it has ended; it is nil if the client has closed it.
func (c *Conn) Serve(h Handler) error {
	c.handler, c.values = h, h.Values()
	defer c.in.release()
	err := c.read()
	c.close(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.mu.writing || c.mu.dropping > 0 { // the former fails now, and refers to buffers until then
		c.mu.changed.Wait()
	}
	return c.mu.err
}

// Close closes the connection, and resets its streams.
func (c *Conn) Close() { c.close(net.ErrClosed) }

// close closes the connection for a reason.
func (c *Conn) close(err error) {
	c.mu.Lock()
	if c.mu.lost {
		c.mu.Unlock()
		return
	}
	c.mu.lost = true
	if c.mu.err == nil {
		c.mu.err = err // otherwise the connection was about to end for another reason
	}
	c.mu.keep.stop()
	if c.mu.drain != nil {
		c.mu.drain.Stop()
	}
	c.mu.changed.Broadcast()
	dropped := c.takeStreams()
	c.mu.Unlock()
	c.dropStreams(dropped)
	// The socket first: TLS would wait for a client that does not read, to send it an alert.
	socket := c.nc
	for inner, ok := socket.(interface{ NetConn() net.Conn }); ok; inner, ok = socket.(interface{ NetConn() net.Conn }) {
		socket = inner.NetConn()
	}
	socket.Close()
	c.nc.Close()
}

// dropAtOnce is how many streams are removed before the lock of the connection is released for a moment. Goroutines that work for all
// clients take it, and a connection may have very many streams.
const dropAtOnce = 64

// takeStreams takes all streams, for dropStreams, which must follow. c.mu is held.
func (c *Conn) takeStreams() map[uint32]*Stream {
	taken := c.mu.streams
	c.mu.streams, c.mu.crowd = map[uint32]*Stream{}, 0
	c.mu.dropping++
	return taken
}

// dropStreams removes streams, and ends their contexts. Exchanges are notified one after the other: a goroutine for each would keep others
// from running.
func (c *Conn) dropStreams(taken map[uint32]*Stream) {
	var notified []*Stream
	n := 0
	c.mu.Lock()
	for _, s := range taken {
		c.remove(s)
		if _, notify := s.endQuietly(byCancel); notify {
			notified = append(notified, s)
		}
		if n++; n%dropAtOnce == 0 {
			c.mu.Unlock()
			runtime.Gosched() // or those who wait would rarely get the lock before it is taken again
			c.mu.Lock()
		}
	}
	c.mu.dropping--
	c.mu.changed.Broadcast()
	c.mu.Unlock()
	if len(notified) > 0 {
		c.o.Workers.Run(func() {
			for _, s := range notified {
				s.x.(Filler).Ended()
			}
		})
	}
}

// remove removes a stream, with what it has queued. c.mu is held.
func (c *Conn) remove(s *Stream) {
	if s.closed {
		return
	}
	s.closed = true
	delete(c.mu.streams, s.id)
	if len(c.mu.streams) == 0 && c.mu.crowd > maxCrowd { // a map does not shrink
		c.mu.streams, c.mu.crowd = map[uint32]*Stream{}, 0
	}
	c.mu.recent.add(s.id, s.clientEnded)
	s.unlist()
	s.discharge(s.charged.Load())
	c.mu.promised -= s.promised
	s.promised = 0
	c.withdraw(s)
	c.promise()
	if s.held && s.finished && !s.expired {
		s.held = false
	}
	if s.held {
		c.mu.abandoned++
	}
	for i := range s.out.queue {
		c.drop(&s.out.queue[i])
	}
	s.out.queue, s.out.first, s.out.bytes = nil, [1]message{}, 0
	if s.out.room != nil {
		select {
		case s.out.room <- struct{}{}:
		default:
		}
	}
	if c.over() && !c.mu.writing {
		c.mu.shut = true
		c.o.Workers.Run(c.shut)
	}
}

// drop frees the buffers of a message. A write may refer to one of which a part was taken: that is freed after the write. The
// others are freed at once, since a client that does not read can let a write wait for long. c.mu is held.
func (c *Conn) drop(m *message) {
	data := m.data
	if c.mu.writing && m.off > 0 {
		c.mu.dropped = append(c.mu.dropped, data[0])
		data = data[1:]
	}
	data.Free()
}

// resetLocked resets a stream. c.mu is held; the caller hands the output over and ends the context.
func (c *Conn) resetLocked(s *Stream, code http2.ErrCode) {
	// First, since the removal of the last stream ends a connection that drains when nothing is left to write.
	if !c.mu.lost && !c.mu.fatal {
		c.mu.control = takePrompt(c, c.mu.control) // its last messages precede the reset
		c.mu.control = appendReset(c.mu.control, s.id, code)
	}
	c.remove(s)
}

// fail ends the connection with an error, of which the client is notified. The reader calls it, and reads on for a moment.
func (c *Conn) fail(code http2.ErrCode, text string) error {
	c.mu.Lock()
	if c.mu.lost || c.mu.fatal {
		defer c.mu.Unlock()
		return c.mu.err
	}
	err := &EndedError{code, text}
	c.mu.fatal, c.mu.err = true, err
	c.mu.control = appendGoAway(c.mu.control, c.mu.accepted, code, text)
	dropped := c.takeStreams()
	c.mu.Unlock()
	c.dropStreams(dropped)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handOver()
	return err
}

// EndedError is the error of a connection that was ended because of what the client has done.
type EndedError struct {
	Code http2.ErrCode // that was sent to the client
	Text string
}

// Error implements error.
func (e *EndedError) Error() string { return "ended with " + e.Code.String() + ": " + e.Text }

// Drain notifies the client that there will be no further requests, and closes the connection when those under way are
// answered. Requests that the client has sent before it was notified are still served.
func (c *Conn) Drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.draining > 0 || c.mu.lost || c.mu.fatal {
		return
	}
	c.mu.draining = 1
	wait := lateTime
	if c.mu.greeted {
		wait = drainTime
		c.mu.control = appendGoAway(c.mu.control, 1<<31-1, http2.ErrCodeNo, "graceful_stop")
		c.mu.control = appendPing(c.mu.control, false, drainPing)
		c.handOver()
	}
	c.mu.drain = time.AfterFunc(wait, c.drained)
}

// drainPing is the ping whose acknowledgement proves that the client has received the first GOAWAY.
var drainPing = [8]byte{'d', 'r', 'a', 'i', 'n', 'i', 'n', 'g'}

// drained ends the time in which new requests are accepted after Drain.
func (c *Conn) drained() {
	c.mu.Lock()
	if c.mu.draining != 1 || c.mu.lost {
		c.mu.Unlock()
		return
	}
	c.mu.draining = 2
	if !c.mu.greeted {
		c.mu.Unlock()
		c.close(net.ErrClosed)
		return
	}
	c.mu.control = appendGoAway(c.mu.control, c.mu.accepted, http2.ErrCodeNo, "graceful_stop")
	c.handOver()
	c.mu.Unlock()
}

// over reports whether everything that the connection is for was written. c.mu is held.
func (c *Conn) over() bool {
	return !c.mu.lost && !c.mu.shut && !c.hasOutput() && (c.mu.fatal || c.mu.draining == 2 && len(c.mu.streams) == 0 && !c.mu.beginning)
}

// shut ends the output of a connection that is over. The reader sees the client's end, or closes it after lingerTime. What
// the client's frames require until then is not written: that would fail, and end the connection while its last answers are on
// the way.
func (c *Conn) shut() {
	for nc := c.nc; ; {
		if w, ok := nc.(interface{ CloseWrite() error }); ok {
			_ = w.CloseWrite() // the client may have closed it
			break
		}
		inner, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		nc = inner.NetConn()
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(lingerTime)) // fails after a close only
}
