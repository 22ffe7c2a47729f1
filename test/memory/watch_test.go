package memory

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"vigil/test/proc"
)

// stalledStreams opens n watch streams on one connection that give the server no room for a single
// byte. The i-th watches the range from key(i) to end(i).
func stalledStreams(t *testing.T, s *proc.Server, n int, key, end func(i int) string) {
	t.Helper()
	nc, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	fr := http2.NewFramer(nc, nc)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err = io.WriteString(nc, http2.ClientPreface)
	must(err)
	must(fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	acked := make(chan struct{})
	go func() {
		for {
			f, err := fr.ReadFrame()
			if err != nil {
				return
			}
			if f, ok := f.(*http2.PingFrame); ok && f.IsAck() {
				close(acked)
			}
		}
	}()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for i := range n {
		block.Reset()
		for _, f := range [][2]string{
			{":method", "POST"}, {":scheme", "http"}, {":path", "/etcdserverpb.Watch/Watch"},
			{":authority", "x"},
			{"content-type", "application/grpc"}, {"te", "trailers"},
		} {
			must(enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
		}
		id := uint32(2*i + 1)
		must(fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true,
			BlockFragment: block.Bytes()}))
		create := &pb.WatchCreateRequest{Key: []byte(key(i)), RangeEnd: []byte(end(i))}
		b, err := proto.Marshal(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}})
		must(err)
		must(fr.WriteData(id, false,
			append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)))
	}
	must(fr.WritePing(false, [8]byte{1}))
	<-acked
}

// metric returns a value of /metrics, 0 if there is none of that name.
func metric(t *testing.T, s *proc.Server, name string) int64 {
	t.Helper()
	resp, err := http.Get("http://" + s.Addr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatal(err)
			}
			return int64(v)
		}
	}
	return 0
}

// TestStalledWatches: what watch streams whose clients do not read keep in memory is near what they
// are charged for, for large and small values, together and alone. In full a stock etcd runs beside
// it, for the figures.
func TestStalledWatches(t *testing.T) {
	name := func(i int) string { return fmt.Sprintf("s%03d", i) }
	past := func(i int) string { return fmt.Sprintf("s%03d~", i) }
	value := func(n int) []byte { return bytes.Repeat([]byte("v"), n) }
	put := func(key string, n int) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: value(n)}}}
	}
	// The open segment is in memory, and the collector leaves garbage.
	const slack = 64*mib + 24*mib
	for _, c := range []struct {
		name          string
		streams, txns int
		txn           func(i int) []*pb.RequestOp
	}{
		{"small values beside large ones", 100, 500, func(i int) []*pb.RequestOp {
			ops := []*pb.RequestOp{put(name(i%100), 20)}
			for k := range 10 {
				ops = append(ops, put(fmt.Sprint("large", k), 100<<10))
			}
			return ops
		}},
		{"pairs of small values", 100, 8000, func(i int) []*pb.RequestOp {
			return []*pb.RequestOp{put(name(i%100)+"a", 20), put(name(i%100)+"b", 20)}
		}},
		{"small values alone", 100, 8000,
			func(i int) []*pb.RequestOp { return []*pb.RequestOp{put(name(i%100), 20)} }},
		{"large values alone", 20, 400,
			func(i int) []*pb.RequestOp { return []*pb.RequestOp{put(name(i%20), 1<<20)} }},
	} {
		programs := []proc.Program{proc.Subject(), proc.Etcd}
		if testing.Short() {
			programs = programs[:1]
		}
		for _, program := range programs {
			t.Run(c.name+"/"+string(program), func(t *testing.T) {
				s := proc.Start(t, proc.Config{Program: program})
				stalledStreams(t, s, c.streams, name, past)
				kvs := pb.NewKVClient(s.Dial())
				large := s.Client().Watch(t.Context(), "large", clientv3.WithPrefix(),
					clientv3.WithCreatedNotify())
				<-large
				go func() { // this client reads
					for range large {
					}
				}()
				before, heapBefore := anonymous(t, s.Pid()),
					metric(t, s, "go_memstats_heap_alloc_bytes")
				sent := int64(0)
				for i := range c.txns {
					r := &pb.TxnRequest{Success: c.txn(i)}
					if _, err := kvs.Txn(t.Context(), r); err != nil {
						t.Fatal(err)
					}
					for _, op := range r.Success {
						if p := op.GetRequestPut(); p.Key[0] == 's' {
							sent += int64(len(p.Key) + len(p.Value))
						}
					}
				}
				charged := metric(t, s, "vigil_watch_queued_bytes")
				most := 2*charged + slack
				// A collection may be minutes away: the member returns memory when it is idle.
				grown, heap := int64(math.MaxInt64), int64(math.MaxInt64)
				for deadline := time.Now().Add(8 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
					grown = min(grown, anonymous(t, s.Pid())-before)
					heap = min(heap, metric(t, s, "go_memstats_heap_alloc_bytes")-heapBefore)
					if testing.Short() && grown <= most && heap <= most {
						break
					}
				}
				t.Logf("events of %.1f MB, charged with %.1f MB: %d MB of memory more, heap %d MB more", float64(sent)/mib, float64(charged)/mib, grown/mib, heap/mib)
				if program != proc.Etcd && (grown > most || heap > most) {
					t.Errorf("%d MB of memory and %d MB of heap more, want %d at most for the %d bytes that are charged", grown/mib, heap/mib, most/mib, charged)
				}
			})
		}
	}
}
