package rpc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"vigil/internal/edge/rpc/watchapi"
	"vigil/internal/kv"
	"vigil/internal/store/watch"
)

// noHistory is a store at revision 1 without events.
type noHistory struct{}

func (noHistory) Revision() int64        { return 1 }
func (noHistory) CompactRevision() int64 { return 0 }
func (noHistory) EventsIn(_ *kv.EventBuffer, _, to int64, _ int) ([]kv.Event, int64, error) {
	return nil, to + 1, nil
}
func (noHistory) Get([]byte, int64) ([]byte, error) { return nil, nil }

// idleClient is a connection that needs little memory itself.
type idleClient struct {
	net.Conn
	t      *testing.T
	stream uint32
}

func dialIdle(t *testing.T, addr string) *idleClient {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	c := &idleClient{Conn: nc, t: t, stream: 1<<32 - 1} // the next is 1
	c.write([]byte(http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" +
		"\x00\x00\x00\x04\x01\x00\x00\x00\x00"))
	c.readUntil(func(kind http2.FrameType,
		flags byte) bool {
		return kind == http2.FrameSettings && flags == 1
	})
	return c
}

func (c *idleClient) write(b []byte) {
	c.t.Helper()
	if _, err := c.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// readUntil reads frames up to one of a kind.
func (c *idleClient) readUntil(last func(http2.FrameType, byte) bool) {
	c.t.Helper()
	for {
		var head [9]byte
		if _, err := io.ReadFull(c.Conn, head[:]); err != nil {
			c.t.Fatal(err)
		}
		n := int64(binary.BigEndian.Uint32(head[:4]) >> 8)
		if _, err := io.CopyN(io.Discard, c.Conn, n); err != nil {
			c.t.Fatal(err)
		}
		if last(http2.FrameType(head[3]), head[4]) {
			return
		}
	}
}

func appendFrameTo(b []byte, kind http2.FrameType, flags byte, id uint32, body []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(body))<<8|uint32(kind))
	return append(binary.BigEndian.AppendUint32(append(b, flags), id), body...)
}

// open opens a stream.
func (c *idleClient) open(path string) {
	c.t.Helper()
	var head bytes.Buffer
	enc := hpack.NewEncoder(&head)
	enc.SetMaxDynamicTableSizeLimit(0)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", path},
		{":authority", "h"},
		{"content-type", "application/grpc"}, {"te", "trailers"}} {
		if err := enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			c.t.Fatal(err)
		}
	}
	c.stream += 2
	c.write(appendFrameTo(nil, http2.FrameHeaders, 4, c.stream, head.Bytes()))
}

// send sends messages on the last stream.
func (c *idleClient) send(messages ...proto.Message) {
	c.t.Helper()
	var out []byte
	for _, message := range messages {
		m, err := proto.Marshal(message)
		if err != nil {
			c.t.Fatal(err)
		}
		out = appendFrameTo(out, http2.FrameData, 0, c.stream,
			append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(m))), m...))
	}
	c.write(out)
}

// memory returns the bytes of the heap and of stacks that are in use.
func memory() (heap, stacks int64) {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc), int64(m.StackInuse)
}

// TestIdleMemory limits the memory of idle connections, streams and watchers, including the
// client's sockets. It also proves that an idle stream has no goroutine.
func TestIdleMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector takes memory")
	}
	hub := watch.New(noHistory{}, watch.Options{})
	defer hub.Close()
	leases := &fakeLeases{}
	f := start(t, func(c *Config) {
		c.NewWatchStream = func(i watch.StreamInfo) watchapi.HubStream { return hub.NewStream(i) }
		c.Leases = leases
	})
	if _, err := f.KV.Range(t.Context(), &etcdserverpb.RangeRequest{Key: []byte("k")}); err != nil {
		t.Fatal(err)
	}
	watchers := func() (n int) {
		for _, s := range hub.Stats().Streams {
			n += len(s.Watchers)
		}
		return n
	}
	const conns, streams, per, keptWorkers = 200, 20, 100, 512
	before, beforeStacks := memory()
	var list []*idleClient
	for range conns {
		list = append(list, dialIdle(t, f.addr))
	}
	idle, idleStacks := memory()
	goroutines := runtime.NumGoroutine()
	key := 0
	next := func() string { key++; return fmt.Sprintf("/registry/pods/default/%010d", key) }
	for _, c := range list {
		for range streams {
			c.open(etcdserverpb.Watch_Watch_FullMethodName)
			c.send(create(next()))
		}
	}
	eventually(t, "the streams have watchers", func() bool { return watchers() == conns*streams })
	noGoroutines := func() bool { return runtime.NumGoroutine() <= goroutines+keptWorkers+16 }
	eventually(t, "idle streams have no goroutines", noGoroutines)
	some, _ := memory()
	for _, c := range list {
		for range 10 {
			creates := make([]proto.Message, per)
			for i := range creates {
				creates[i] = create(next())
			}
			c.send(creates...)
		}
	}
	eventually(t, "there are many watchers",
		func() bool { return watchers() == conns*(streams+10*per) })
	full, _ := memory()
	for _, c := range list {
		for range streams {
			c.open(etcdserverpb.Lease_LeaseKeepAlive_FullMethodName)
			c.send(&etcdserverpb.LeaseKeepAliveRequest{ID: 5})
		}
	}
	eventually(t, "the leases are kept alive",
		func() bool { return leases.kept.Load() == conns*streams })
	eventually(t, "idle streams have no goroutines", noGoroutines)
	keeping, _ := memory()
	for _, m := range []struct {
		what          string
		bytes, atMost int64
	}{
		// stacks are taken from the system in pieces of 32 KiB
		{"connection", (idle - before + idleStacks - beforeStacks) / conns, 9500},
		{"stream with a watcher", (some - idle) / (conns * streams), 2000},
		{"watcher", (full - some) / (conns * 10 * per), 380},
		{"stream of keep-alives", (keeping - full) / (conns * streams), 900},
	} {
		t.Logf("a %s takes %d bytes", m.what, m.bytes)
		if m.bytes > m.atMost {
			t.Errorf("a %s takes %d bytes, more than %d", m.what, m.bytes, m.atMost)
		}
	}
	if path := os.Getenv("VIGIL_HEAP_PROFILE"); path != "" {
		writeHeap(t, path)
	}
	runtime.KeepAlive(list)
}

func writeHeap(t *testing.T, path string) {
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := pprof.WriteHeapProfile(out); err != nil {
		t.Fatal(err)
	}
}
