package server

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
)

// TestStalledCalls makes many calls on a connection whose client allows no answer to be sent:
// together their answers are bounded by the limit, whether they come from reads or from writes and
// how large each is.
//
//vigil:norace
func TestStalledCalls(t *testing.T) {
	const limit = 16 << 20
	m, addr := member(t, Config{UnsafeNoSync: true, MaxRangeBytesInFlight: limit})
	kvs := pb.NewKVClient(dial(t, addr))
	for key, size := range map[string]int{"a0": 20 << 10, "a1": 20 << 10, "b": 999_000, "d": 32_740,
		"e/1": 999_000} {
		value := make([]byte, size)
		rand.Read(value) // compression makes it no smaller
		if _, err := kvs.Put(timeout(t),
			&pb.PutRequest{Key: []byte(key), Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	one := &pb.RangeRequest{Key: []byte("b")}
	txn := &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("c")}}}}}
	for range 40 {
		txn.Success = append(txn.Success,
			&pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: one}})
	}
	for _, c := range []struct {
		what, method, coding string
		req                  proto.Message
		calls                int
		heap                 int64 // may be more
	}{
		{"one of 32 KiB", "etcdserverpb.KV/Range", "identity", &pb.RangeRequest{Key: []byte("d")},
			1500, 256 << 20},
		{"two of 20 KiB", "etcdserverpb.KV/Range", "identity",
			&pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("b")}, 1500, 96 << 20},
		{"one of 1 MB", "etcdserverpb.KV/Range", "identity", one, 400, 96 << 20},
		{"one of 1 MB, compressed", "etcdserverpb.KV/Range", "gzip", one, 400, 96 << 20},
		// as a LeaderRequest
		{"the leader of an election, with a value of 1 MB", "v3electionpb.Election/Leader",
			"identity", &pb.RangeRequest{Key: []byte("e")}, 400, 256 << 20},
		{"40 of 1 MB in a transaction that writes", "etcdserverpb.KV/Txn", "identity", txn,
			20, 256 << 20},
		// The store itself keeps the 95 MiB that these write, in its open segment, and 48 MiB may
		// be counted.
		{"a previous value of 1 MB", "etcdserverpb.KV/Put", "identity",
			&pb.PutRequest{Key: []byte("b"), IgnoreValue: true, PrevKv: true}, 100, 144 << 20},
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		service, method, _ := strings.Cut(c.method, "/")
		labels := fmt.Sprintf(`grpc_method="%s",grpc_service="%s",`, method, service)
		begun, ended := countCalls(t, addr, "started", labels),
			countCalls(t, addr, "handled", labels)
		conn := stall(t, addr, c.method, c.coding, c.req, c.calls)
		// A write makes its answer before that is counted, so all writes must have ended.
		writes := method == "Txn" || method == "Put"
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
			begun, ended := countCalls(t, addr, "started", labels)-begun,
				countCalls(t, addr, "handled", labels)-ended
			if begun == c.calls && (!writes || ended == c.calls) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("of %d calls for %s, %d have begun and %d ended", c.calls,
					c.what, begun, ended)
			}
		}
		var most int64
		for range 20 {
			time.Sleep(50 * time.Millisecond)
			most = max(most, m.ranges.Stats().Held)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		grew := int64(after.HeapAlloc) - int64(before.HeapAlloc)
		t.Logf("%d calls for %s: %d MiB more on the heap, %d MiB counted", c.calls, c.what,
			grew>>20, most>>20)
		// One answer may be larger than the limit.
		if most > 48<<20 || grew > c.heap {
			t.Errorf("%d calls for %s: %d bytes more on the heap, %d counted, the limit is %d",
				c.calls, c.what, grew, most, limit)
		}
		conn.Close()
		for deadline := time.Now().Add(2 * time.Minute); m.ranges.Stats().Held > 0 ||
			m.ranges.Stats().Waiting > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("after %s: %+v", c.what, m.ranges.Stats())
			}
		}
	}
}

// countCalls returns how many calls of a method have started or were handled, with any code.
func countCalls(t *testing.T, addr, what, labels string) (n int) {
	t.Helper()
	_, metrics := get(t, "http://"+addr+"/metrics")
	for line := range strings.Lines(metrics) {
		if _, rest, ok := strings.Cut(line, "grpc_server_"+what+"_total{"); ok &&
			strings.Contains(rest, labels) {
			_, count, _ := strings.Cut(rest, "} ")
			k, err := strconv.Atoi(strings.TrimSpace(count))
			if err != nil {
				t.Fatal(err)
			}
			n += k
		}
	}
	return n
}

// stall makes calls by hand, with a window of 0 for each answer.
func stall(t *testing.T, addr, method, coding string, req proto.Message, calls int) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	msg, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(msg))), msg...)
	var block bytes.Buffer
	head := hpack.NewEncoder(&block)
	out := &bytes.Buffer{}
	out.WriteString(http2.ClientPreface)
	f := http2.NewFramer(out, nil)
	_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	for i := range calls {
		block.Reset()
		for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"},
			{":path", "/" + method}, {":authority", "x"},
			{"content-type", "application/grpc"}, {"te", "trailers"}, {"grpc-encoding", coding}} {
			_ = head.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
		}
		id := uint32(2*i + 1)
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(),
			EndHeaders: true})
		_ = f.WriteData(id, true, body)
	}
	if _, err := conn.Write(out.Bytes()); err != nil {
		t.Fatal(err)
	}
	return conn
}
