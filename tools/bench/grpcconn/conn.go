package grpcconn

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// maxWindow is the largest flow control window HTTP/2 allows.
	maxWindow = math.MaxInt32
	// defaultWindow is a window's size until a peer says otherwise.
	defaultWindow = 65535
	frameHeader   = 9
	// messageHeader is the compressed flag and length before each gRPC message.
	messageHeader = 5
	// maxFrame is the largest frame payload either side sends; neither side asks for more.
	maxFrame = 16384
)

// ErrClosed is the error of a connection that Close ended.
var ErrClosed = errors.New("connection closed")

// Handler receives what comes back on one stream.
type Handler interface {
	// Message takes one whole message. The time is when the read that completed it returned.
	Message(at time.Time, msg []byte)
	// End takes the outcome of the call.
	End(at time.Time, s Status)
}

// PartHandler is a Handler that takes a message which does not fit one frame in parts, as they
// come, instead of having it put together. Messages inside one frame still go to Message.
type PartHandler interface {
	Handler
	// Part takes the next bytes of a message; last is true with the final ones.
	Part(at time.Time, part []byte, last bool)
}

// Options configure a connection. The zero value is ready to use.
type Options struct {
	// StreamWindow is the receive window of each stream in bytes, at most 2^31-1, which is also
	// the meaning of 0.
	StreamWindow int
	// HoldStreamWindow leaves the receive windows of streams as they were opened: a stream is
	// given StreamWindow bytes and then no more, as by a client that has stopped receiving.
	HoldStreamWindow bool
	// ReadBuffer is the size of the read buffer in bytes; 0 means 128 KiB. It is at least 32 KiB.
	ReadBuffer int
	// UserAgent is sent with each call; empty means "vigil-bench".
	UserAgent string
}

func (o Options) withDefaults() Options {
	if o.StreamWindow <= 0 || o.StreamWindow > maxWindow {
		o.StreamWindow = maxWindow
	}
	if o.ReadBuffer == 0 {
		o.ReadBuffer = 128 << 10
	}
	o.ReadBuffer = max(o.ReadBuffer, 32<<10)
	if o.UserAgent == "" {
		o.UserAgent = "vigil-bench"
	}
	return o
}

// Conn is one HTTP/2 connection. Its methods may be called from any goroutine.
type Conn struct {
	nc        net.Conn
	opts      Options
	authority string
	done      chan struct{} // closed when the reader has ended
	gate      gate

	// writing orders the writes to nc. It is taken before mu, never after it.
	writing sync.Mutex

	mu struct {
		sync.Mutex
		err      error
		out      []byte // frames that wait for a flush
		spare    []byte // the buffer of the flush before
		streams  map[uint32]*stream
		free     []*stream
		nextID   uint32
		window   int64     // what the server lets us send on the connection
		initial  int64     // what it lets us send on a new stream
		blocked  []*stream // streams with queued data, oldest first
		canceled []*stream // streams whose handlers are to be notified
		headers  headerEncoder
	}

	// Owned by the reader goroutine.
	in reader
}

// Dial connects to addr, a host and port, and starts the connection's reader. The context bounds
// the dialing only. The server's settings are applied when they come; nothing waits for them.
func Dial(ctx context.Context, addr string, o Options) (*Conn, error) {
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &Conn{nc: nc, opts: o.withDefaults(), authority: addr, done: make(chan struct{})}
	c.gate.init()
	m := &c.mu
	m.streams = make(map[uint32]*stream)
	m.nextID = 1
	m.window, m.initial = defaultWindow, defaultWindow
	m.headers.init()
	c.in.init(c)

	m.out = append(m.out, http2.ClientPreface...)
	m.out = appendFrameHeader(m.out, 2*6, http2.FrameSettings, 0, 0)
	m.out = appendSetting(m.out, http2.SettingEnablePush, 0)
	m.out = appendSetting(m.out, http2.SettingInitialWindowSize, uint32(c.opts.StreamWindow))
	m.out = appendWindowUpdate(m.out, 0, maxWindow-defaultWindow)
	if err := c.Flush(); err != nil {
		nc.Close()
		return nil, err
	}
	go c.in.readFrames()
	return c, nil
}

// Close ends the connection; every open stream ends with ErrClosed as its reason. It returns when
// the reader has ended, so no handler runs after it. It must not be called by a handler.
func (c *Conn) Close() {
	c.fail(ErrClosed)
	<-c.done
}

// Done returns a channel that is closed when the connection has ended and every handler has been
// notified.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why the connection has ended, nil while it stands.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.err
}

// Pause makes the reader stop reading from the socket after the read it is in, so that the
// server's data piles up in the kernel and then at the server, until Resume.
func (c *Conn) Pause() { c.gate.set(true) }

// Resume lets the reader go on.
func (c *Conn) Resume() { c.gate.set(false) }

// fail ends the connection with err; only the first one counts. The reader notices the closed
// socket and ends the streams.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	if c.mu.err == nil {
		c.mu.err = err
	}
	c.mu.Unlock()
	c.nc.Close()
	c.gate.open()
}

// Flush writes the queued frames in one write.
func (c *Conn) Flush() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	out := c.mu.out
	if c.mu.err != nil || len(out) == 0 {
		err := c.mu.err
		c.mu.Unlock()
		return err
	}
	c.mu.out = c.mu.spare[:0]
	c.mu.Unlock()

	_, err := c.nc.Write(out)

	c.mu.Lock()
	c.mu.spare = out[:0]
	if cap(out) > 4<<20 {
		c.mu.spare = nil
	}
	c.mu.Unlock()
	if err != nil {
		err = fmt.Errorf("write: %w", err)
		c.fail(err)
	}
	return err
}

// gate holds the reader back while the connection is paused.
type gate struct {
	mu     sync.Mutex
	cond   *sync.Cond
	shut   bool
	broken bool // open for good
}

func (g *gate) init() { g.cond = sync.NewCond(&g.mu) }

func (g *gate) set(shut bool) {
	g.mu.Lock()
	g.shut = shut && !g.broken
	g.mu.Unlock()
	g.cond.Broadcast()
}

func (g *gate) open() {
	g.mu.Lock()
	g.shut, g.broken = false, true
	g.mu.Unlock()
	g.cond.Broadcast()
}

func (g *gate) pass() {
	g.mu.Lock()
	for g.shut {
		g.cond.Wait()
	}
	g.mu.Unlock()
}

// headerEncoder makes the header block of a call. After a method's first calls its fields all sit
// in the dynamic table, its block no longer changes, and it is kept.
type headerEncoder struct {
	buf  bytes.Buffer
	enc  *hpack.Encoder
	kept map[string][]byte
}

func (h *headerEncoder) init() {
	h.enc = hpack.NewEncoder(&h.buf)
	h.kept = make(map[string][]byte)
}

func (h *headerEncoder) block(authority, method, agent string) []byte {
	if b, ok := h.kept[method]; ok {
		return b
	}
	h.buf.Reset()
	for _, f := range [...]hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: method},
		{Name: ":authority", Value: authority},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "user-agent", Value: agent},
		{Name: "te", Value: "trailers"},
	} {
		// Writing to a bytes.Buffer does not fail.
		_ = h.enc.WriteField(f)
	}
	b := h.buf.Bytes()
	for _, x := range b {
		// A byte without the top bit begins or is part of a literal, which moved the table.
		if x < 0x80 {
			clear(h.kept)
			return b
		}
	}
	h.kept[method] = bytes.Clone(b)
	return b
}

func (h *headerEncoder) setTableSize(n uint32) {
	h.enc.SetMaxDynamicTableSizeLimit(n)
	h.enc.SetMaxDynamicTableSize(min(n, 4096))
	clear(h.kept)
}

func appendFrameHeader(b []byte, n int, t http2.FrameType, flags http2.Flags, id uint32) []byte {
	b = append(b, byte(n>>16), byte(n>>8), byte(n), byte(t), byte(flags))
	return binary.BigEndian.AppendUint32(b, id)
}

func appendSetting(b []byte, id http2.SettingID, v uint32) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(id))
	return binary.BigEndian.AppendUint32(b, v)
}

func appendWindowUpdate(b []byte, id uint32, n uint32) []byte {
	b = appendFrameHeader(b, 4, http2.FrameWindowUpdate, 0, id)
	return binary.BigEndian.AppendUint32(b, n)
}

func appendReset(b []byte, id uint32, code http2.ErrCode) []byte {
	b = appendFrameHeader(b, 4, http2.FrameRSTStream, 0, id)
	return binary.BigEndian.AppendUint32(b, uint32(code))
}
