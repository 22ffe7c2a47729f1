package transport

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// strictClient sends no byte that the windows of its streams and of the connection do not allow, in
// frames of random size with random padding, which counts for both windows.
type strictClient struct {
	*http2.Framer
	t      *testing.T
	rand   *rand.Rand
	frames chan strictFrame
	window int // of the connection
	first  int // the window of a new stream
	open   map[uint32]*strictCall
	next   uint32
	padded float64 // how many of the frames
}

type strictCall struct {
	path   string
	rest   []byte // not sent yet
	ended  bool   // END_STREAM was sent
	window int
	got    int // bytes of the answer
	want   int // and how many there should be, -1 if any number is right
}

func newStrictClient(t *testing.T, addr string, seed uint64, padded float64) *strictClient {
	c := &strictClient{Framer: rawFrames(t, addr), t: t, rand: rand.New(rand.NewPCG(seed, 0)),
		frames: make(chan strictFrame), window: 65535, first: 65535,
		open: map[uint32]*strictCall{}, next: 1, padded: padded}
	c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
	c.must(c.WriteWindowUpdate(0, 1<<30))
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	go func() {
		defer close(c.frames)
		for {
			f, err := c.ReadFrame()
			if err != nil {
				return
			}
			select {
			case c.frames <- copied(f):
			case <-done:
				return
			}
		}
	}()
	return c
}

// strictFrame is what matters of a frame, which is itself valid only until the next is read.
type strictFrame struct {
	http2.FrameHeader
	data      int // bytes
	increment int // of a window
	window    int // of SETTINGS; -1 without
	fields    []hpack.HeaderField
	code      http2.ErrCode
}

func copied(f http2.Frame) strictFrame {
	s := strictFrame{FrameHeader: f.Header(), window: -1}
	switch f := f.(type) {
	case *http2.DataFrame:
		s.data = len(f.Data())
	case *http2.SettingsFrame:
		if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
			s.window = int(v)
		}
	case *http2.WindowUpdateFrame:
		s.increment = int(f.Increment)
	case *http2.MetaHeadersFrame:
		s.fields = f.Fields
	case *http2.GoAwayFrame:
		s.code = f.ErrCode
	case *http2.RSTStreamFrame:
		s.code = f.ErrCode
	}
	return s
}

func (c *strictClient) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// call begins a call with some messages of random size around the window.
func (c *strictClient) call() {
	s := &strictCall{window: c.first,
		path: []string{"Echo", "Chat", "Sum", "Missing"}[c.rand.IntN(4)]}
	messages := 1
	if s.path == "Chat" || s.path == "Sum" {
		messages = 1 + c.rand.IntN(5)
	}
	for range messages {
		m := message(string(make([]byte, c.size())))
		s.rest, s.want = append(s.rest, m...), s.want+len(m)
	}
	if s.path == "Sum" || s.path == "Missing" {
		s.want = -1
	}
	r := request{path: s.path}
	r.begin(c.t, c.Framer, c.next, false)
	c.open[c.next] = s
	c.next += 2
}

// size returns the size of a message: any, or one near the numbers at which something changes.
func (c *strictClient) size() int {
	if c.rand.IntN(3) == 0 {
		return c.rand.IntN(maxTestMessage - 10)
	}
	near := []int{0, 5, 255, 16 << 10, 32 << 10, 48 << 10, 65535, 65535 - 16<<10,
		maxTestMessage - 400}[c.rand.IntN(9)]
	return max(near-300+c.rand.IntN(600), 0)
}

// send sends one frame of a call, if the windows let something pass.
func (c *strictClient) send(id uint32, s *strictCall) bool {
	most := min(s.window, c.window, 16<<10)
	pad := -1 // not padded
	if c.rand.Float64() < c.padded && most > 1 {
		pad = min(c.rand.IntN(256), most-2) // with room for content
	}
	n := min(len(s.rest), most-pad-1)
	if c.rand.IntN(4) == 0 {
		n = c.rand.IntN(n + 1)
	}
	if most == 0 && len(s.rest) > 0 {
		return false
	}
	s.ended = n == len(s.rest) && c.rand.IntN(3) > 0
	if pad < 0 {
		c.must(c.WriteData(id, s.ended, s.rest[:n]))
	} else {
		c.must(c.WriteDataPadded(id, s.ended, s.rest[:n], make([]byte, pad)))
	}
	s.window, c.window = s.window-n-pad-1, c.window-n-pad-1
	s.rest = s.rest[n:]
	return true
}

// turn sends what the windows allow, or waits for a frame of the server.
func (c *strictClient) turn() {
	sent := false
	for id, s := range c.open {
		if !s.ended && c.send(id, s) {
			sent = true
			break
		}
	}
	patience := 20 * time.Second
	if sent {
		patience = 0
	}
	select {
	case f, ok := <-c.frames:
		if !ok {
			c.t.Fatalf("the connection has ended, with the calls %s", c.state())
		}
		c.received(f)
	case <-time.After(patience):
		if !sent {
			c.t.Fatalf("the server sends nothing, and the windows are closed: connection %d, calls %s", c.window, c.state())
		}
	}
}

func (c *strictClient) state() (out string) {
	for id, s := range c.open {
		out += fmt.Sprintf("\n%d %s: window %d, %d bytes to send, ended %v, %d of %d bytes received", id, s.path, s.window, len(s.rest), s.ended, s.got, s.want)
	}
	return out
}

func (c *strictClient) received(f strictFrame) {
	s := c.open[f.StreamID]
	switch f.Type {
	case http2.FrameSettings:
		if f.window >= 0 {
			for _, s := range c.open {
				s.window += f.window - c.first
			}
			c.first = f.window
		}
		if !f.Flags.Has(http2.FlagSettingsAck) {
			c.must(c.WriteSettingsAck())
		}
	case http2.FrameWindowUpdate:
		if f.StreamID == 0 {
			c.window += f.increment
		} else if s != nil {
			s.window += f.increment
		}
	case http2.FrameData:
		s.got += f.data
		if f.data > 0 {
			c.must(c.WriteWindowUpdate(f.StreamID, uint32(f.data)))
		}
	case http2.FrameHeaders:
		if f.Flags.Has(http2.FlagHeadersEndStream) {
			if s.want >= 0 && s.got != s.want {
				c.t.Errorf("call %d of %s: %d bytes, want %d: %v", f.StreamID, s.path, s.got,
					s.want, f.fields)
			}
			delete(c.open, f.StreamID)
		}
	case http2.FrameGoAway:
		c.t.Fatalf("GOAWAY %v", f.code)
	case http2.FrameRSTStream:
		if s != nil {
			c.t.Fatalf("call %d of %s was reset: %v", f.StreamID, s.path, f.code)
		}
	}
}

// TestStrictWindows: whatever the size of messages, frames and padding, a client that keeps to the
// windows can send all of its messages, and gets all answers.
func TestStrictWindows(t *testing.T) {
	conns, most := uint64(5), 60
	if testing.Short() {
		conns, most = 2, 40
	}
	onBoth(t, func(t *testing.T, ours bool) {
		for _, padded := range []float64{0, 0.3, 1} {
			t.Run(fmt.Sprint("padded ", padded), func(t *testing.T) {
				_, addr := startServer(t, ours, nil)
				seed := rand.Uint64()
				t.Log("seed", seed)
				for i := range conns {
					c := newStrictClient(t, addr, seed+i, padded)
					for calls := 0; calls < most || len(c.open) > 0; {
						if calls < most && len(c.open) < 6 {
							c.call()
							calls++
						}
						c.turn()
					}
				}
			})
		}
	})
}
