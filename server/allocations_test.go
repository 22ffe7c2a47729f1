//go:build !race

package server

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"vigil/internal/allocs"
)

// TestAllocations compares a member with the table of package allocs. The client of the test
// allocates nothing.
//
//vigil:norace
func TestAllocations(t *testing.T) {
	_, addr := member(t, Config{UnsafeNoSync: true})
	c := dialRaw(t, addr)
	for i := range 500 {
		c.call(t, "KV/Put", &etcdserverpb.PutRequest{Key: fmt.Appendf(nil, "key%03d", i),
			Value: make([]byte, 256)})()
	}
	c.call(t, "Lease/LeaseGrant", &etcdserverpb.LeaseGrantRequest{ID: 7, TTL: 1000})()
	key, value := []byte("key000"), make([]byte, 256)
	txn := &etcdserverpb.TxnRequest{
		Compare: []*etcdserverpb.Compare{{Key: key, Target: etcdserverpb.Compare_VERSION,
			Result: etcdserverpb.Compare_GREATER, TargetUnion: &etcdserverpb.Compare_Version{}}},
		Success: []*etcdserverpb.RequestOp{{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: &etcdserverpb.PutRequest{Key: key, Value: value}}}},
		Failure: []*etcdserverpb.RequestOp{{Request: &etcdserverpb.RequestOp_RequestRange{RequestRange: &etcdserverpb.RangeRequest{Key: key}}}},
	}
	// The puts first: what comes after them reads values in memory.
	runs := map[string]struct {
		run func()
		n   int // calls of one run
	}{
		"put": {c.calls(t, "KV/Put",
			&etcdserverpb.PutRequest{Key: key, Value: value}, 1000), 1000},
		"put alone": {c.calls(t, "KV/Put",
			&etcdserverpb.PutRequest{Key: key, Value: value}, 1), 1},
		"transaction": {c.calls(t, "KV/Txn", txn, 1000), 1000},
		"deletion": {c.calls(t, "KV/DeleteRange",
			&etcdserverpb.DeleteRangeRequest{Key: []byte("absent")}, 1000), 1000},
		"lease grant": {c.calls(t, "Lease/LeaseGrant",
			&etcdserverpb.LeaseGrantRequest{TTL: 1000}, 1000), 1000},
		"get": {c.calls(t, "KV/Range", &etcdserverpb.RangeRequest{Key: key}, 100),
			100},
		"serializable get": {c.calls(t, "KV/Range",
			&etcdserverpb.RangeRequest{Key: key, Serializable: true}, 100), 100},
		"range of 500 keys": {c.calls(t, "KV/Range",
			&etcdserverpb.RangeRequest{Key: []byte("key"), RangeEnd: []byte("kez"),
				Limit: 500}, 10), 10},
		"keep-alive": {c.messages(t, "Lease/LeaseKeepAlive",
			&etcdserverpb.LeaseKeepAliveRequest{ID: 7}, 100), 100},
	}
	for _, row := range allocs.Rows("server") {
		r, ok := runs[row.What]
		if !ok {
			t.Fatalf("%s is not measured", row.What)
		}
		row.Check(t, mallocs(r.run, r.n, row.Most+row.Spare))
	}
}

// mallocs returns how many times one of the n calls of run allocates, background work of the member
// included: the least of several measurements. There are more of them while the result is above
// what is accepted, since the machine may be busy.
func mallocs(run func(), n int, accepted float64) float64 {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it empties pools
	least := math.Inf(1)
	for try := range 40 {
		if try >= 5 && least <= accepted {
			break
		}
		rounds := max(1, 200/n)
		run()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range rounds {
			run()
		}
		runtime.ReadMemStats(&after)
		least = min(least, float64(after.Mallocs-before.Mallocs)/float64(rounds*n))
	}
	return least
}

// rawClient makes calls without allocating memory.
type rawClient struct {
	nc   net.Conn
	in   *bufio.Reader
	next uint32 // the number of the next stream
	got  uint32 // bytes of data since the window was opened
	open [13]byte
}

func dialRaw(t *testing.T, addr string) *rawClient {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	b.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&b, nil)
	for _, err := range []error{f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize,
		Val: 1 << 30}), f.WriteWindowUpdate(0, 1<<30)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := nc.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	return &rawClient{nc: nc, in: bufio.NewReaderSize(nc, 256<<10), next: 1,
		open: [13]byte{2: 4, 3: byte(http2.FrameWindowUpdate)}}
}

// head returns the header of a request, as a frame without the number of its stream.
func (c *rawClient) head(t *testing.T, method string) []byte {
	t.Helper()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range []hpack.HeaderField{{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/etcdserverpb." + method},
		{Name: ":authority", Value: "test"}, {Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"}} {
		f.Sensitive = true // so that each block means the same
		if err := enc.WriteField(f); err != nil {
			t.Fatal(err)
		}
	}
	return frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, block.Bytes())
}

// body returns a message as a frame.
func body(t *testing.T, m proto.Message, flags http2.Flags) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return frame(http2.FrameData, flags,
		append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...))
}

func frame(kind http2.FrameType, flags http2.Flags, b []byte) []byte {
	return append([]byte{byte(len(b) >> 16), byte(len(b) >> 8), byte(len(b)), byte(kind),
		byte(flags), 0, 0, 0, 0}, b...)
}

// call returns a function that makes one call.
func (c *rawClient) call(t *testing.T, method string, m proto.Message) func() {
	return c.calls(t, method, m, 1)
}

// calls returns a function that makes n calls at once.
func (c *rawClient) calls(t *testing.T, method string, m proto.Message, n int) func() {
	head, data := c.head(t, method), body(t, m, http2.FlagDataEndStream)
	one := append(bytes.Clone(head), data...)
	all := bytes.Repeat(one, n)
	return func() {
		for i := range n {
			at := i * len(one)
			binary.BigEndian.PutUint32(all[at+5:], c.next)
			binary.BigEndian.PutUint32(all[at+len(head)+5:], c.next)
			c.next += 2
		}
		c.exchange(t, all, http2.FrameHeaders, http2.FlagHeadersEndStream, n)
	}
}

// messages returns a function that sends n messages on one stream and receives as many.
func (c *rawClient) messages(t *testing.T, method string, m proto.Message, n int) func() {
	head, data := c.head(t, method), body(t, m, 0)
	id := c.next
	c.next += 2
	binary.BigEndian.PutUint32(head[5:], id)
	binary.BigEndian.PutUint32(data[5:], id)
	if _, err := c.nc.Write(head); err != nil {
		t.Fatal(err)
	}
	all := bytes.Repeat(data, n)
	return func() { c.exchange(t, all, http2.FrameData, 0, n) }
}

// exchange sends frames, and receives frames until there were n of a kind with flags, or n
// messages: these may share a frame.
func (c *rawClient) exchange(t *testing.T, out []byte, kind http2.FrameType,
	flags http2.Flags, n int) {
	if _, err := c.nc.Write(out); err != nil {
		t.Fatal(err)
	}
	for n > 0 {
		h, err := c.in.Peek(9)
		if err != nil {
			t.Fatal(err)
		}
		size := int(h[0])<<16 | int(h[1])<<8 | int(h[2])
		if http2.FrameType(h[3]) == http2.FrameData {
			c.got += uint32(size)
		}
		switch got := http2.FrameType(h[3]); {
		case got == http2.FrameGoAway, got == http2.FrameRSTStream:
			b, _ := io.ReadAll(io.LimitReader(c.in, int64(9+size)))
			t.Fatalf("the server sent %v %q", got, b)
		case got == kind && got == http2.FrameData:
			b, err := c.in.Peek(9 + size)
			if err != nil {
				t.Fatal(err)
			}
			for b = b[9:]; len(b) > 0; n-- { // whole messages: they are small
				b = b[5+binary.BigEndian.Uint32(b[1:]):]
			}
		case got == kind && http2.Flags(h[4]).Has(flags):
			n--
		}
		if _, err := c.in.Discard(9 + size); err != nil {
			t.Fatal(err)
		}
	}
	if c.got > 1<<28 {
		binary.BigEndian.PutUint32(c.open[9:], c.got)
		c.got = 0
		if _, err := c.nc.Write(c.open[:]); err != nil {
			t.Fatal(err)
		}
	}
}
