package h2

import (
	"errors"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// source is an exchange without a handler. It sends as many bytes as were produced, and ends after
// the client's last byte.
type source struct {
	Stream
	site     *site
	produced atomic.Int64
	sent     int64 // owned by Fill
	begun    bool
	running  atomic.Int32 // calls of Fill
	ended    atomic.Int32 // calls of Ended
	piece    int
	begin    chan *source
}

func (s *source) Base() *Stream { return &s.Stream }
func (s *source) Start() {
	if s.Hold() {
		s.Notify(false)
	}
	if s.begin != nil {
		s.begin <- s
	}
}
func (s *source) Receive(r io.Reader, n int) error {
	s.Taken(n)
	return discard(r, n)
}
func (s *source) EndReceive() { s.FinishSoon(okTrailer, wholeAnswer) }
func (s *source) Ended() {
	if s.ended.Add(1) > 1 {
		s.site.t.Error("ended twice")
	}
	s.Finish(nil, nil) // releases it
}
func (s *source) Fill(int) {
	if s.running.Add(1) > 1 {
		s.site.t.Error("Fill is called concurrently")
	}
	defer s.running.Add(-1)
	for {
		n := min(s.produced.Load()-s.sent, int64(s.piece))
		if n == 0 {
			return
		}
		var header *Header
		if !s.begun {
			header, s.begun = okHeader, true
		}
		room, err := s.Queue(header, s.site.pool.buffers(make([]byte, n)))
		if err != nil {
			if !errors.Is(err, ErrEnded) {
				s.site.t.Errorf("queue: %v", err)
			}
			return
		}
		s.sent += n
		if !room {
			return
		}
	}
}

// sources is a handler whose requests are sources.
type sources struct {
	*site
	made chan *source
}

func (h *sources) Begin(r *Request) Exchange {
	return &source{site: h.site, piece: len(r.Path) * 7000, begin: h.made}
}

// connectSources starts a connection whose requests are sources.
func connectSources(t *testing.T, settings ...http2.Setting) (*client, *sources) {
	t.Helper()
	h := &sources{made: make(chan *source, 100)}
	c := connectTo(t, func(c *client) Handler { h.site = c.site; return h })
	return c.greet(settings...), h
}

// TestFill: concurrently produced output arrives whole through small windows, with wakes at any
// time.
func TestFill(t *testing.T) {
	c, h := connectSources(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 20_000})
	const streams, rounds = 20, 200
	var total [streams]int64
	for i := range streams {
		must(t, c.open(uint32(2*i+1), "x"[:i%2], false))
		s := <-h.made
		r := rand.New(rand.NewPCG(1, uint64(i)))
		for range rounds {
			total[i] += int64(1 + r.IntN(3000))
		}
		go func() {
			left := total[i]
			for left > 0 {
				n := min(left, int64(1+r.IntN(3000)))
				left -= n
				s.produced.Add(n)
				if r.IntN(4) == 0 {
					WakeAll([]*Stream{&s.Stream, &s.Stream})
				} else {
					s.Wake()
				}
			}
		}()
	}
	var got [streams]int64
	for done := 0; done < streams; {
		c.await("data", func(f http2.Frame) bool {
			d, ok := f.(*http2.DataFrame)
			if ok && len(d.Data()) > 0 {
				i, n := (d.StreamID-1)/2, uint32(len(d.Data()))
				if got[i] += int64(n); got[i] == total[i] {
					done++
				} else if got[i] > total[i] {
					t.Fatalf("stream %d has %d bytes, more than %d", d.StreamID, got[i], total[i])
				}
				must(t, c.WriteWindowUpdate(d.StreamID, n))
				must(t, c.WriteWindowUpdate(0, n))
			}
			return ok
		})
	}
}

// TestFillStops: what a client does not let pass stays with its source, but for one piece.
func TestFillStops(t *testing.T) {
	c, h := connectSources(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	const streams, window = 100, 200_000
	var all []*source
	for i := range streams {
		must(t, c.open(uint32(2*i+1), "", false))
		s := <-h.made
		s.produced.Store(1 << 30)
		s.Wake()
		all = append(all, s)
	}
	queued := func() (n, most int) {
		c.conn.link.mu.Lock()
		defer c.conn.link.mu.Unlock()
		if c.conn.link.mu.writing || len(c.conn.link.mu.out.sources) > 0 {
			return 0, 0
		}
		for _, s := range all {
			n, most = n+s.out.bytes, max(most, s.out.bytes)
		}
		return n, most
	}
	piece := all[0].piece
	eventually(t, "each source has queued a piece",
		func() bool { n, most := queued(); return n == streams*piece && most == piece })
	receive := func(n int) {
		t.Helper()
		for got := 0; got < n; {
			c.await("data", func(f http2.Frame) bool {
				d, ok := f.(*http2.DataFrame)
				if ok {
					got += len(d.Data())
				}
				return ok
			})
		}
	}
	// The window of the connection remains, of which one stream gets everything.
	must(t, c.WriteWindowUpdate(1, window))
	receive(65535)
	// Now all others have windows, and wait for the window of the connection.
	for i := 1; i < streams; i++ {
		must(t, c.WriteWindowUpdate(uint32(2*i+1), window))
	}
	c.ping(1)
	eventually(t, "no source has queued more",
		func() bool {
			n, most := queued()
			return n > 0 && n <= (streams+1)*piece &&
				most <= 2*piece
		})
	must(t, c.WriteWindowUpdate(0, streams*window))
	receive(streams*window - 65535)
	eventually(t, "each source has queued a piece",
		func() bool { n, most := queued(); return n > 0 && most <= 2*piece })
}

// TestFillWaits: sources that have nothing queued and wait for a window are filled when it opens,
// whichever it is, and are forgotten when their streams end.
func TestFillWaits(t *testing.T) {
	c, h := connectSources(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	const streams = 50
	var all []*source
	total := 0
	receive := func(n int) {
		t.Helper()
		for want := total + n; total < want; {
			c.await("data", func(f http2.Frame) bool {
				d, ok := f.(*http2.DataFrame)
				if ok {
					total += len(d.Data())
				}
				return ok
			})
		}
	}
	for i := range streams {
		must(t, c.open(uint32(2*i+1), "", false))
		s := <-h.made
		s.produced.Store(10)
		s.Wake()
		receive(10)
		all = append(all, s)
	}
	// The first one uses the window of the connection up, to the byte.
	all[0].produced.Store(int64(10 + 65535 - total))
	all[0].Wake()
	receive(65535 - total)
	for _, s := range all[1:] {
		s.produced.Add(5)
		s.Wake()
	}
	c.ping(1)
	waiting := func() (n int) {
		c.conn.link.mu.Lock()
		defer c.conn.link.mu.Unlock()
		for s := c.conn.link.mu.out.stalled.head; s != nil; s = s.next {
			n++
		}
		return n
	}
	// So does the first one, which may have more.
	eventually(t, "all wait for the window of the connection",
		func() bool { return waiting() == streams })
	const gone = 20
	for i := range gone {
		must(t, c.WriteRSTStream(uint32(2*(i+1)+1), http2.ErrCodeCancel))
	}
	c.ping(2)
	if n := waiting(); n != streams-gone {
		t.Errorf("%d streams wait, %d exist", n, streams-gone)
	}
	must(t, c.WriteWindowUpdate(0, 1<<20))
	receive(5 * (streams - 1 - gone))

	// The same for their own windows.
	must(t, c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	c.ping(3)
	for _, s := range all[gone+1:] {
		s.produced.Add(7)
		s.Wake()
	}
	c.ping(4)
	must(t, c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
	receive(7 * (streams - 1 - gone))
}

// TestFillEnds: each way for a stream to end is notified once.
func TestFillEnds(t *testing.T) {
	for name, end := range map[string]func(c *client, s *source){
		"reset by the client": func(c *client,
			s *source) {
			must(t, c.WriteRSTStream(1, http2.ErrCodeCancel))
		},
		"end of the body":   func(c *client, s *source) { must(t, c.WriteData(1, true, nil)) },
		"finished":          func(c *client, s *source) { s.FinishSoon(okTrailer, wholeAnswer) },
		"reset":             func(c *client, s *source) { s.Reset(http2.ErrCodeCancel) },
		"error":             func(c *client, s *source) { must(t, c.WriteWindowUpdate(1, 0)) },
		"connection closed": func(c *client, s *source) { c.nc.Close() },
		"server closes":     func(c *client, s *source) { c.conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			c, h := connectSources(t)
			must(t, c.open(1, "", false))
			s := <-h.made
			s.produced.Store(1)
			s.Wake()
			c.await("a byte", func(f http2.Frame) bool { _, ok := f.(*http2.DataFrame); return ok })
			end(c, s)
			eventually(t, "the end is noted", func() bool { return s.ended.Load() == 1 })
			s.produced.Store(2)
			s.Wake() // is ignored
		})
	}
}

// TestFillDrains: a draining connection ends after its last source, whichever sources were woken
// before.
func TestFillDrains(t *testing.T) {
	for range 30 {
		c, h := connectSources(t)
		var list []*Stream
		var all []*source
		for i := range 4 {
			must(t, c.open(uint32(2*i+1), "", false))
			s := <-h.made
			list, all = append(list, &s.Stream), append(all, s)
		}
		c.conn.Drain()
		go func() {
			for range 100 {
				WakeAll(list)
			}
		}()
		go func() {
			for _, s := range all {
				s.produced.Add(100)
				s.FinishSoon(okTrailer, wholeAnswer)
			}
		}()
		for {
			f, err := c.ReadFrame()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
				break
			}
			if p, ok := f.(*http2.PingFrame); ok && !p.IsAck() {
				must(t, c.WritePing(true, p.Data))
			}
		}
		c.nc.Close()
		select {
		case <-c.ends:
		case <-time.After(time.Minute):
			t.Fatal("the connection does not end")
		}
	}
}

// TestWakeWhileReaderIsBusy: a wake does not rely on the reader, which has opened a window and now
// handles a request that takes long.
func TestWakeWhileReaderIsBusy(t *testing.T) {
	c, h := connectSources(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
	must(t, c.open(1, "", false))
	full := <-h.made
	full.produced.Store(20_000)
	full.Wake()
	l := &c.conn.link
	eventually(t, "the window is used up", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return !l.mu.writing && full.out.bytes > 0 && full.out.window == 0
	})
	must(t, c.open(3, "", false))
	s := <-h.made
	l.mu.Lock() // what the reader does with a window update, before it writes
	full.out.discardMessages(false)
	if !l.mu.out.openStreamWindow(&full.Stream, 1<<20) || len(l.mu.out.sources) != 1 {
		t.Error("the window does not wake the source")
	}
	l.mu.Unlock()
	s.produced.Store(5)
	s.Wake()
	must(t, c.nc.SetDeadline(time.Now().Add(10*time.Second)))
	c.await("the output", func(f http2.Frame) bool {
		d, ok := f.(*http2.DataFrame)
		return ok && d.StreamID == 3
	})
}
