package server

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
)

// TestStalledCalls makes many calls on a connection whose client allows no answer to be sent: together their answers
// are bounded by the limit, whether they come from reads or from writes and how large each is.
func TestStalledCalls(t *testing.T) {
	const limit = 16 << 20
	m, addr := member(t, Config{UnsafeNoSync: true, MaxRangeBytesInFlight: limit})
	kvs := pb.NewKVClient(dial(t, addr))
	for key, size := range map[string]int{"a0": 20 << 10, "a1": 20 << 10, "b": 999_000} {
		if _, err := kvs.Put(timeout(t), &pb.PutRequest{Key: []byte(key), Value: bytes.Repeat([]byte{'v'}, size)}); err != nil {
			t.Fatal(err)
		}
	}
	one := &pb.RangeRequest{Key: []byte("b")}
	txn := &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("c")}}}}}
	for range 40 {
		txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: one}})
	}
	for _, c := range []struct {
		what, method string
		req          proto.Message
		calls        int
	}{
		{"two of 20 KiB", "Range", &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("b")}, 1500},
		{"one of 1 MB", "Range", one, 400},
		{"40 of 1 MB in a transaction that writes", "Txn", txn, 20},
		{"a previous value of 1 MB", "Put", &pb.PutRequest{Key: []byte("b"), IgnoreValue: true, PrevKv: true}, 100},
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		conn := stall(t, addr, c.method, c.req, c.calls)
		var most int64
		for range 20 {
			time.Sleep(50 * time.Millisecond)
			most = max(most, m.ranges.Stats().Held)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		grew := int64(after.HeapAlloc) - int64(before.HeapAlloc)
		t.Logf("%d calls for %s: %d MiB more on the heap, %d MiB counted", c.calls, c.what, grew>>20, most>>20)
		// One answer may be larger than the limit, and a few are just being made.
		if most > 48<<20 || grew > 256<<20 {
			t.Errorf("%d calls for %s: %d bytes more on the heap, %d counted, the limit is %d", c.calls, c.what, grew, most, limit)
		}
		conn.Close()
		for deadline := time.Now().Add(20 * time.Second); m.ranges.Stats().Held > 0 || m.ranges.Stats().Waiting > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("after %s: %+v", c.what, m.ranges.Stats())
			}
		}
	}
}

// stall makes calls by hand, with a window of 0 for each answer.
func stall(t *testing.T, addr, method string, req proto.Message, calls int) net.Conn {
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
		for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", fmt.Sprint("/etcdserverpb.KV/", method)}, {":authority", "x"},
			{"content-type", "application/grpc"}, {"te", "trailers"}} {
			_ = head.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
		}
		id := uint32(2*i + 1)
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true})
		_ = f.WriteData(id, true, body)
	}
	if _, err := conn.Write(out.Bytes()); err != nil {
		t.Fatal(err)
	}
	return conn
}
