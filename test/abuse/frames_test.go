package abuse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"vigil/test/proc"
)

// frames is a connection that sends any frames.
type frames struct {
	*http2.Framer
	nc    net.Conn
	block bytes.Buffer
	enc   *hpack.Encoder
	ended chan http2.ErrCode // receives how the server has ended the connection; closed at its end
	acked chan struct{}      // receives when the server has answered a ping
	side  *side              // what its requests are; nil for gRPC
}

func dialFrames(t *testing.T, s *proc.Server, read bool,
	settings ...http2.Setting) (*frames, error) {
	nc, err := net.Dial("tcp", s.Addr())
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return nil, err
	}
	return newFrames(nc, read, settings...)
}

// newFrames begins HTTP/2 on a connection.
func newFrames(nc net.Conn, read bool, settings ...http2.Setting) (*frames, error) {
	c := &frames{Framer: http2.NewFramer(nc, nc), nc: nc, ended: make(chan http2.ErrCode, 10),
		acked: make(chan struct{}, 1)}
	c.AllowIllegalWrites = true
	c.enc = hpack.NewEncoder(&c.block)
	if _, err := io.WriteString(nc, http2.ClientPreface); err != nil {
		return nil, err
	}
	if read {
		go func() {
			defer close(c.ended)
			for {
				f, err := c.ReadFrame()
				if err != nil {
					return
				}
				switch f := f.(type) {
				case *http2.GoAwayFrame:
					c.ended <- f.ErrCode
				case *http2.PingFrame:
					if f.IsAck() && f.Data == settled {
						c.acked <- struct{}{}
					}
				}
			}
		}()
	}
	return c, c.WriteSettings(settings...)
}

// fields compresses a header of a call, and further fields.
func (c *frames) fields(method string, more ...string) []byte {
	c.block.Reset()
	kind := "application/grpc"
	if c.side != nil {
		method, kind = c.side.path, c.side.kind
	}
	list := append([]string{":method", "POST", ":scheme", "http", ":path", method, ":authority",
		"x", "content-type", kind, "te", "trailers"}, more...)
	for i := 0; i < len(list); i += 2 {
		// a buffer does not fail
		_ = c.enc.WriteField(hpack.HeaderField{Name: list[i], Value: list[i+1]})
	}
	return c.block.Bytes()
}

func (c *frames) call(id uint32, method string, end bool) error {
	return c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, EndStream: end,
		BlockFragment: c.fields(method)})
}

// settled marks the pings of settle.
var settled = [8]byte{'s', 'e', 't', 't', 'l', 'e', 'd'}

// settle returns when the server has read everything that was sent, or has ended the connection.
// Only the reading client can call it.
func (c *frames) settle() {
	if c.WritePing(false, settled) != nil {
		return
	}
	for {
		select {
		case <-c.acked:
			return
		case _, ok := <-c.ended:
			if !ok {
				return
			}
		}
	}
}

const (
	rangeMethod = "/etcdserverpb.KV/Range"
	watchMethod = "/etcdserverpb.Watch/Watch"
)

// flood is a way to send frames without effect.
type flood struct {
	name string
	send func(c *frames, i uint32) error
}

// TestFrames: clients that send frames without effect as fast as they can lose their connection,
// again and again for a time. The server's cost is that of the frames it accepts.
func TestFrames(t *testing.T) {
	for _, row := range floods() {
		t.Run(row.name, func(t *testing.T) {
			attack{
				do: func(t *testing.T, s *proc.Server) error {
					conns, sent := 0, 0
					for end := time.Now().Add(spell(2 * time.Second)); time.Now().Before(end); conns++ {
						c, err := dialFrames(t, s, true,
							http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
						if err != nil {
							return err
						}
						late := false
						for i := uint32(0); row.send(c, i) == nil && !late; i++ {
							sent++
							late = i%100 == 99 && time.Now().After(end)
						}
						if late { // on a machine that is busy, the flood may be none
							c.nc.Close()
							continue
						}
						code := http2.ErrCode(0xff)
						for got := range c.ended {
							code = got
						}
						// The reason is lost if the server has closed the connection while frames
						// were on the way.
						if code != http2.ErrCodeEnhanceYourCalm && code != 0xff {
							return fmt.Errorf("ended with %v", code)
						}
						c.nc.Close()
					}
					t.Logf("%d frames on %d connections", sent, conns)
					return nil
				},
				most: figures{memory: 150 * mib, log: 256 << 10, files: 20, worst: 2e9,
					processor: 20 * time.Second},
			}.run(t)
		})
	}
}

func floods() []flood {
	settings := make([]http2.Setting, 2000)
	for i := range settings {
		settings[i] = http2.Setting{ID: []http2.SettingID{http2.SettingHeaderTableSize,
			http2.SettingInitialWindowSize}[i%2], Val: uint32(i)}
	}
	return []flood{
		{"rapid reset, CVE-2023-44487", func(c *frames, i uint32) error {
			return errors.Join(c.call(2*i+1, watchMethod, false),
				c.WriteRSTStream(2*i+1, http2.ErrCodeCancel))
		}},
		{"made you reset, CVE-2025-8671", func(c *frames, i uint32) error {
			return errors.Join(c.call(2*i+1, watchMethod, false), c.WriteWindowUpdate(2*i+1, 0))
		}},
		{"continuation flood, CVE-2023-45288", func(c *frames, i uint32) error {
			if i == 0 {
				return c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1,
					BlockFragment: c.fields(rangeMethod)})
			}
			return c.WriteContinuation(1, false, []byte{0x10, 1, 'a', 1, 'b'})
		}},
		{"empty continuations, CVE-2026-33871", func(c *frames, i uint32) error {
			if i == 0 {
				return c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1,
					BlockFragment: c.fields(rangeMethod)})
			}
			return c.WriteContinuation(1, false, nil)
		}},
		{"large continuations, CVE-2024-27316", func(c *frames, i uint32) error {
			if i == 0 {
				return c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1,
					BlockFragment: c.fields(rangeMethod)})
			}
			return c.WriteContinuation(1, false, make([]byte, 16_000))
		}},
		{"pings, CVE-2019-9512",
			func(c *frames, i uint32) error { return c.WritePing(false, [8]byte{byte(i)}) }},
		{"settings, CVE-2019-9515", func(c *frames, i uint32) error {
			return c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: i % 2})
		}},
		{"large settings, CVE-2020-11080",
			func(c *frames, _ uint32) error { return c.WriteSettings(settings...) }},
		{"priorities, CVE-2019-9513", func(c *frames, i uint32) error {
			return c.WritePriority(2*i+3, http2.PriorityParam{StreamDep: 2*i + 1, Weight: byte(i)})
		}},
		{"empty data, CVE-2019-9518", func(c *frames, i uint32) error {
			if i == 0 {
				return c.call(1, watchMethod, false)
			}
			return c.WriteData(1, false, nil)
		}},
		{"window updates, CVE-2019-9511", func(c *frames, i uint32) error {
			if i == 0 {
				return c.call(1, watchMethod, false)
			}
			return c.WriteWindowUpdate(1, 1)
		}},
		{"invalid requests, CVE-2019-9514, CVE-2022-2048", func(c *frames, i uint32) error {
			return c.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, EndHeaders: true,
				BlockFragment: c.fields(rangeMethod, "Upper", "case")})
		}},
		{"unknown frames", func(c *frames,
			_ uint32) error {
			return c.WriteRawFrame(0x77, 0, 0, nil)
		}},
	}
}

// TestHeldHeaders: a few bytes mean a large header, which the server keeps for each call that does
// not end (CVE-2026-49975, CVE-2026-47774).
func TestHeldHeaders(t *testing.T) {
	for _, fields := range []int{900, 15_000} {
		t.Run(fmt.Sprint(fields), func(t *testing.T) { heldHeaders(t, fields) })
	}
}

func heldHeaders(t *testing.T, fields int) {
	attack{
		do: func(t *testing.T, s *proc.Server) error {
			var list []*frames
			for range 2 {
				c, err := dialFrames(t, s, true,
					http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
				if err != nil {
					return err
				}
				list = append(list, c)
				block := append([]byte(nil), c.fields(watchMethod, "a", "")...)
				if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true,
					BlockFragment: block}); err != nil {
					return err
				}
				one := append([]byte(nil), c.fields(watchMethod, "a", "")...)
				for range fields {
					one = append(one, one[len(one)-1]) // a field of one byte
				}
				for i := uint32(1); i < 1500; i++ {
					if c.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, EndHeaders: true,
						BlockFragment: one}) != nil {
						break
					}
				}
			}
			for _, c := range list {
				c.settle()
			}
			return nil
		},
		most: figures{memory: 150 * mib, log: 256 << 10, files: 20, worst: 2e9,
			processor: 20 * time.Second},
	}.run(t)
}

// TestStalledWatches: streams whose windows are closed take no events from the store (the hub
// bounds what waits there).
func TestStalledWatches(t *testing.T) {
	const streams = 2000
	attack{
		do: func(t *testing.T, s *proc.Server) error {
			c, err := dialFrames(t, s, true,
				http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			if err != nil {
				return err
			}
			// A create request for the key "k".
			create := []byte{0, 0, 0, 0, 5, 0x0a, 3, 0x0a, 1, 'k'}
			for i := range uint32(streams) {
				if err := errors.Join(c.call(2*i+1, watchMethod, false),
					c.WriteData(2*i+1, false, create)); err != nil {
					return err
				}
			}
			c.settle()
			kv := s.Client()
			for i := range 200 {
				if _, err := kv.Put(proc.Context(t), "k", fmt.Sprintf("%01024d", i)); err != nil {
					return err
				}
			}
			c.settle()
			return nil
		},
		// Each stream takes some kilobytes, and the hub has 32 MiB.
		most: figures{memory: 150 * mib, log: 64 << 10, files: 20, worst: 2e9,
			processor: 20 * time.Second},
	}.run(t)
}

// TestSlowPreface: clients that send the beginning of a connection a byte at a time, or nothing.
func TestSlowPreface(t *testing.T) {
	attack{
		do: func(t *testing.T, s *proc.Server) error {
			var list []net.Conn
			for range 1000 {
				nc, err := net.Dial("tcp", s.Addr())
				if err != nil {
					return err
				}
				t.Cleanup(func() { nc.Close() })
				list = append(list, nc)
			}
			for i := range 20 {
				for _, nc := range list {
					_, _ = nc.Write([]byte{http2.ClientPreface[i]}) // it may be closed
				}
				time.Sleep(100 * time.Millisecond) // slowly
			}
			return nil
		},
		most: figures{memory: 150 * mib, log: 64 << 10, files: 1100, worst: 2e9,
			processor: 10 * time.Second},
	}.run(t)
}
