package server

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// TestVanishingReaders: whatever way large answers end by, with a reader that stalls, leaves or
// cancels, over gRPC or the gateway, their memory is free in the end and nothing else is left.
func TestVanishingReaders(t *testing.T) {
	m, addr := member(t, Config{UnsafeNoSync: true, MaxRangeBytesInFlight: 16 << 20})
	cc := dial(t, addr)
	for i := range 8 {
		put := &pb.PutRequest{Key: fmt.Appendf(nil, "k%02d", i),
			Value: bytes.Repeat([]byte{byte(i)}, 1<<20)}
		if _, err := pb.NewKVClient(cc).Put(timeout(t), put); err != nil {
			t.Fatal(err)
		}
	}
	all := &pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l")}
	rng := func(r *rand.Rand) *pb.RangeRequest {
		return &pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l"), Limit: r.Int64N(8)}
	}
	kinds := []func(ctx context.Context, cc *grpc.ClientConn, r *rand.Rand){
		func(ctx context.Context, cc *grpc.ClientConn, r *rand.Rand) {
			_, _ = pb.NewKVClient(cc).Range(ctx, rng(r), grpc.MaxCallRecvMsgSize(1<<30))
		},
		func(ctx context.Context, cc *grpc.ClientConn, r *rand.Rand) {
			s, err := pb.NewKVClient(cc).RangeStream(ctx, all)
			for i := 0; err == nil && i < r.IntN(8); i++ {
				_, err = s.Recv()
			}
		},
		func(ctx context.Context, cc *grpc.ClientConn, r *rand.Rand) {
			op := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: rng(r)}}
			_, _ = pb.NewKVClient(cc).Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{op, op}},
				grpc.MaxCallRecvMsgSize(1<<30))
		},
		func(ctx context.Context, cc *grpc.ClientConn, r *rand.Rand) {
			put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("other")}}}
			op := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: rng(r)}}
			_, _ = pb.NewKVClient(cc).Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{op, put}},
				grpc.MaxCallRecvMsgSize(1<<30))
		},
		func(ctx context.Context, cc *grpc.ClientConn, r *rand.Rand) {
			s, err := pb.NewMaintenanceClient(cc).Snapshot(ctx, &pb.SnapshotRequest{})
			for i := 0; err == nil && i < r.IntN(400); i++ {
				_, err = s.Recv()
			}
		},
		func(ctx context.Context, _ *grpc.ClientConn, r *rand.Rand) {
			path := []string{"kv/range", "kv/txn", "watch"}[r.IntN(3)]
			body := map[string]string{"kv/range": `{"key":"aw==","range_end":"bA=="}`,
				"kv/txn": `{"success":[{"request_range":{"key":"aw==","range_end":"bA=="}}]}`,
				"watch":  `{"create_request":{"key":"aw==","range_end":"bA==","start_revision":1}}`}[path]
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v3/"+path,
				strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			tr := &http.Transport{DisableKeepAlives: true}
			res, err := tr.RoundTrip(req)
			if err == nil {
				_, _ = res.Body.Read(make([]byte, r.IntN(1<<20)+1))
				res.Body.Close()
			}
		},
		func(ctx context.Context, _ *grpc.ClientConn, r *rand.Rand) {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				return
			}
			defer c.Close()
			const body = `{"key":"aw==","range_end":"bA=="}`
			fmt.Fprintf(c, "POST /v3/kv/range HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s",
				len(body), body)
			<-ctx.Done()
			if r.IntN(2) == 0 {
				c.(*net.TCPConn).SetLinger(0)
			}
		},
	}
	var wg sync.WaitGroup
	end := time.Now().Add(1500 * time.Millisecond)
	for w := range 12 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(w)))
			for time.Now().Before(end) {
				cc, err := grpc.NewClient(addr,
					grpc.WithTransportCredentials(insecure.NewCredentials()))
				if err != nil {
					t.Error(err)
					return
				}
				ctx, cancel := context.WithTimeout(t.Context(),
					time.Duration(r.IntN(400))*time.Millisecond)
				var calls sync.WaitGroup
				for range 1 + r.IntN(3) {
					kind, own := kinds[r.IntN(len(kinds))], rand.New(rand.NewPCG(r.Uint64(), 0))
					calls.Go(func() { kind(ctx, cc, own) })
				}
				if r.IntN(3) == 0 {
					time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
					cc.Close()
				}
				calls.Wait()
				cancel()
				cc.Close()
			}
		})
	}
	wg.Wait()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		st, streams := m.ranges.Stats(), len(m.replica.Hub().Stats().Streams)
		if st.Held == 0 && st.Waiting == 0 && streams == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v, %d streams", st, streams)
		}
	}
	if _, err := pb.NewKVClient(cc).Range(timeout(t), all,
		grpc.MaxCallRecvMsgSize(1<<30)); err != nil {
		t.Error(err)
	}
}
