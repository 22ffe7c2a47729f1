package transport

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// dialog is a connection with a server and records the server's frames by stream; number 0 has the
// frames of the connection. It leaves out windows, settings and answers to pings, because the
// server may choose their number and order.
type dialog struct {
	*http2.Framer
	t      *testing.T
	server testServer
	seen   map[uint32][]string
	data   map[uint32]int
	lost   bool
}

func (d *dialog) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// call sends the header of a request, and a message that ends it unless more follows.
func (d *dialog) call(id uint32, path, in string, more bool) {
	d.t.Helper()
	r := request{path: path}
	r.begin(d.t, d.Framer, id, false)
	d.must(d.WriteData(id, !more, message(in)))
}

// await reads until a frame fits, or the connection is closed.
func (d *dialog) await(what string, fits func(http2.Frame) bool) {
	d.t.Helper()
	for !d.lost {
		f, err := d.ReadFrame()
		if err != nil {
			d.lost = true
			d.note(0, "closed")
			return
		}
		id := f.Header().StreamID
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			d.flush(id)
			var list []string
			for _, h := range f.Fields {
				list = append(list, h.Name+": "+h.Value)
			}
			d.note(id, fmt.Sprint(list, " end ", f.StreamEnded()))
		case *http2.DataFrame:
			d.data[id] += len(f.Data())
		case *http2.RSTStreamFrame:
			d.flush(id)
			d.note(id, "reset "+f.ErrCode.String())
		case *http2.GoAwayFrame:
			d.note(0, fmt.Sprintf("GOAWAY %v, last %d, %s", f.ErrCode, f.LastStreamID,
				f.DebugData()))
		case *http2.PingFrame:
			if !f.IsAck() {
				d.must(d.WritePing(true, f.Data))
			}
		case *http2.SettingsFrame:
			if !f.IsAck() {
				d.must(d.WriteSettingsAck())
			}
		}
		if fits(f) {
			return
		}
	}
	if what != "the end" {
		d.t.Fatalf("waiting for %s: %v", what, d.seen)
	}
}

func (d *dialog) note(id uint32, s string) { d.seen[id] = append(d.seen[id], s) }

// flush notes the data of a stream: frames may be divided in any way.
func (d *dialog) flush(id uint32) {
	if n := d.data[id]; n > 0 {
		d.note(id, fmt.Sprint(n, " bytes"))
	}
	delete(d.data, id)
}

// ended waits for the end of a stream.
func (d *dialog) ended(id uint32) {
	d.t.Helper()
	d.await(fmt.Sprint("the end of stream ", id), func(f http2.Frame) bool {
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			return f.StreamID == id && f.StreamEnded()
		case *http2.RSTStreamFrame:
			return f.StreamID == id
		}
		return false
	})
}

// received waits until a stream has so many bytes of data.
func (d *dialog) received(id uint32, n int) {
	d.t.Helper()
	for d.data[id] < n {
		d.await(fmt.Sprint("data of stream ", id),
			func(f http2.Frame) bool { _, ok := f.(*http2.DataFrame); return ok })
	}
}

// over waits until the server has closed the connection.
func (d *dialog) over() { d.await("the end", func(http2.Frame) bool { return false }) }

// TestSameFrames has the same dialogs with grpc-go's server and ours, about windows, limits, resets
// and the end of the connection.
func TestSameFrames(t *testing.T) {
	release := make(chan chan struct{}, 10)
	for _, c := range []struct {
		name   string
		change func(*Options)
		script func(d *dialog)
	}{
		{"max streams", func(o *Options) { o.MaxConcurrentStreams = 1 }, func(d *dialog) {
			d.call(1, "Chat", "a", true)
			d.received(1, 5)
			d.call(3, "Echo", "b", false)
			d.ended(3)
			d.must(d.WriteData(1, true, nil))
			d.ended(1)
			d.call(5, "Echo", "c", false)
			d.ended(5)
		}},
		{"reset by the client", nil, func(d *dialog) {
			d.call(1, "Chat", "a", true)
			d.received(1, 5)
			d.must(d.WriteRSTStream(1, http2.ErrCodeCancel))
			d.flush(1)
			d.must(d.WriteRSTStream(1, http2.ErrCodeCancel))
			d.must(d.WriteWindowUpdate(1, 100))
			d.call(3, "Echo", "b", false)
			d.ended(3)
		}},
		{"reset before the end of the message", nil, func(d *dialog) {
			r := request{path: "Echo"}
			for id := uint32(1); id < 100; id += 2 {
				r.begin(d.t, d.Framer, id, false)
				d.must(d.WriteData(id, false, message("long text")[:7]))
				d.must(d.WriteRSTStream(id, http2.ErrCodeCancel))
			}
			d.call(101, "Echo", "b", false)
			d.ended(101)
		}},
		{"data after the end of the body", nil, func(d *dialog) {
			r := request{path: "Hold"}
			r.begin(d.t, d.Framer, 1, false)
			d.must(d.WriteData(1, true, message("")))
			held := <-release
			d.must(d.WriteData(1, false, []byte("x")))
			d.ended(1)
			close(held)
			d.call(3, "Echo", "b", false)
			d.ended(3)
		}},
		{"the server ends first", nil, func(d *dialog) {
			d.call(1, "Chat", "quit", true)
			d.await("the reset",
				func(f http2.Frame) bool { _, ok := f.(*http2.RSTStreamFrame); return ok })
			d.must(d.WriteData(1, false, message("late")))
			d.must(d.WriteData(1, true, nil))
			d.call(3, "Echo", "b", false)
			d.ended(3)
		}},
		{"small window", nil, func(d *dialog) {
			d.must(d.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10}))
			d.call(1, "Echo", strings.Repeat("x", 100), false)
			d.received(1, 10)
			d.call(3, "Echo", "y", false) // its window is its own
			d.ended(3)
			d.must(d.WriteWindowUpdate(1, 20))
			d.received(1, 30)
			d.must(d.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
			d.call(5, "Fail", "z", false) // it needs no window
			d.ended(5)
			d.must(d.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000}))
			d.ended(1)
		}},
		{"window update of 0", nil, func(d *dialog) {
			d.call(1, "Chat", "a", true)
			d.received(1, 5)
			d.must(d.WriteWindowUpdate(1, 0))
			d.ended(1)
			d.call(3, "Echo", "b", false)
			d.ended(3)
		}},
		{"large messages", nil, func(d *dialog) {
			for id := uint32(1); id < 20; id += 2 {
				r := request{path: "Echo"}
				r.begin(d.t, d.Framer, id, false)
				all := message(strings.Repeat("x", 60_000))
				for part := range slices.Chunk(all, 16_000) {
					d.must(d.WriteData(id, false, part))
				}
				d.must(d.WriteData(id, true, nil))
				d.ended(id)
			}
		}},
		{"pings", nil, func(d *dialog) {
			for range 4 {
				d.must(d.WritePing(false, [8]byte{1}))
			}
			d.over()
		}},
		{"pings between calls", nil, func(d *dialog) {
			for id := uint32(1); id < 20; id += 2 {
				d.call(id, "Echo", "a", false)
				d.ended(id)
				d.must(d.WritePing(false, [8]byte{1}))
			}
		}},
		{"stop", nil, func(d *dialog) {
			d.call(1, "Hold", "a", false)
			held := <-release
			stopped := make(chan struct{})
			go func() {
				d.server.Stop(context.Background())
				close(stopped)
			}()
			for range 2 {
				d.await("a GOAWAY", func(f http2.Frame) bool {
					_,
						ok := f.(*http2.GoAwayFrame)
					return ok
				})
			}
			d.call(3, "Echo", "ignored", false)
			close(held)
			d.over()
			<-stopped
		}},
		{"GOAWAY of the client", nil, func(d *dialog) {
			d.call(1, "Chat", "a", true)
			d.must(d.WriteGoAway(0, http2.ErrCodeNo, nil))
			d.received(1, 5)
			d.must(d.WriteData(1, true, message("b")))
			d.ended(1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var results []string
			for _, ours := range []bool{false, true} {
				server, addr := startServer(t, ours, func(o *Options) {
					o.Services[0].Methods = append(o.Services[0].Methods,
						Method{Name: "Hold", ServerStreams: true, Stream: func(s Stream) error {
							if err := s.RecvMsg(new(wrapperspb.StringValue)); err != nil {
								return err
							}
							ch := make(chan struct{})
							release <- ch
							<-ch
							return nil
						}})
					if c.change != nil {
						c.change(o)
					}
				})
				d := &dialog{Framer: rawFrames(t, addr), t: t, server: server,
					seen: map[uint32][]string{}, data: map[uint32]int{}}
				d.must(d.WriteWindowUpdate(0, 1<<30))
				c.script(d)
				for id := range d.data {
					d.flush(id)
				}
				var out strings.Builder
				for _, id := range slices.Sorted(maps.Keys(d.seen)) {
					fmt.Fprintf(&out, "%d: %s\n", id, strings.Join(d.seen[id], "\n   "))
				}
				results = append(results, out.String())
			}
			if results[0] != results[1] {
				t.Errorf("the dialog is\n%swant\n%s", results[1], results[0])
			}
			t.Log(results[1])
		})
	}
}
