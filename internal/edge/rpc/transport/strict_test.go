package transport

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// strictClient sends no byte that the windows of its streams and of the connection do not allow, in frames of random size with
// random padding, which counts for both windows.
type strictClient struct {
	*http2.Framer
	t      *testing.T
	rand   *rand.Rand
	frames chan http2.Frame
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
	c := &strictClient{Framer: rawFrames(t, addr), t: t, rand: rand.New(rand.NewPCG(seed, 0)), frames: make(chan http2.Frame), window: 65535, first: 65535,
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
			switch d := f.(type) {
			case *http2.DataFrame: // its bytes are valid until the next frame
				f = &strictData{d.FrameHeader, len(d.Data())}
			case *http2.SettingsFrame:
				f = copySettings(d)
			}
			select {
			case c.frames <- f:
			case <-done:
				return
			}
		}
	}()
	return c
}

// strictData is a DATA frame without its bytes, strictSettings the settings that matter.
type strictData struct {
	http2.FrameHeader
	n int
}

type strictSettings struct {
	http2.FrameHeader
	window int // -1 without
}

func copySettings(f *http2.SettingsFrame) http2.Frame {
	s := &strictSettings{f.FrameHeader, -1}
	if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
		s.window = int(v)
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
	s := &strictCall{window: c.first, path: []string{"Echo", "Chat", "Sum", "Missing"}[c.rand.IntN(4)]}
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
	near := []int{0, 5, 255, 16 << 10, 32 << 10, 48 << 10, 65535, 65535 - 16<<10, maxTestMessage - 400}[c.rand.IntN(9)]
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

func (c *strictClient) received(f http2.Frame) {
	id := f.Header().StreamID
	s := c.open[id]
	switch f := f.(type) {
	case *strictSettings:
		if f.window >= 0 {
			for _, s := range c.open {
				s.window += f.window - c.first
			}
			c.first = f.window
		}
		if !f.Flags.Has(http2.FlagSettingsAck) {
			c.must(c.WriteSettingsAck())
		}
	case *http2.WindowUpdateFrame:
		if id == 0 {
			c.window += int(f.Increment)
		} else if s != nil {
			s.window += int(f.Increment)
		}
	case *strictData:
		s.got += f.n
		if f.n > 0 {
			c.must(c.WriteWindowUpdate(id, uint32(f.n)))
		}
	case *http2.MetaHeadersFrame:
		if f.StreamEnded() {
			if s.want >= 0 && s.got != s.want {
				c.t.Errorf("call %d of %s: %d bytes, want %d: %v", id, s.path, s.got, s.want, f.Fields)
			}
			delete(c.open, id)
		}
	case *http2.GoAwayFrame:
		c.t.Fatalf("GOAWAY %v %s", f.ErrCode, f.DebugData())
	case *http2.RSTStreamFrame:
		if s != nil {
			c.t.Fatalf("call %d of %s was reset: %v", id, s.path, f.ErrCode)
		}
	}
}

// TestStrictWindows: whatever the size of messages, frames and padding, a client that keeps to the windows can send all of its
// messages, and gets all answers.
func TestStrictWindows(t *testing.T) {
	onBoth(t, func(t *testing.T, own bool) {
		for _, padded := range []float64{0, 0.3, 1} {
			t.Run(fmt.Sprint("padded ", padded), func(t *testing.T) {
				_, addr := startServer(t, own, nil)
				seed := rand.Uint64()
				t.Log("seed", seed)
				for i := range uint64(5) { // connections
					c := newStrictClient(t, addr, seed+i, padded)
					for calls := 0; calls < 60 || len(c.open) > 0; {
						if calls < 60 && len(c.open) < 6 {
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
