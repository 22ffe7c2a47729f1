package server

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
)

// TestStopTellsOutcomes stops a member while clients connect and write. A client that gets no
// answer knows that its write was not sent, or not taken.
func TestStopTellsOutcomes(t *testing.T) {
	for round := range 2 {
		m, addr := member(t, Config{UnsafeNoSync: true})
		var puts, unknown atomic.Int64
		var wg sync.WaitGroup
		stopped := make(chan struct{})
		put := func(cc *grpc.ClientConn, key string) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			var sent atomic.Bool
			ctx = context.WithValue(ctx, attemptKey{}, &sent)
			_, err := etcdserverpb.NewKVClient(cc).Put(ctx,
				&etcdserverpb.PutRequest{Key: []byte(key), Value: []byte("v")})
			if err != nil && sent.Load() {
				if unknown.Add(1) <= 3 {
					t.Errorf("round %d: unknown outcome: %v", round, err)
				}
			}
			puts.Add(1)
			return err
		}
		for w := range 24 {
			wg.Go(func() {
				var cc *grpc.ClientConn
				for i := 0; ; i++ {
					select {
					case <-stopped:
						cc.Close()
						return
					default:
					}
					if cc == nil || w%3 > 0 { // two of three connect for each write
						if cc != nil {
							cc.Close()
						}
						var err error
						if cc, err = grpc.NewClient(addr,
							grpc.WithTransportCredentials(insecure.NewCredentials()),
							grpc.WithStatsHandler(attempts{})); err != nil {
							t.Error(err)
							return
						}
					}
					_ = put(cc, fmt.Sprint(w, "-", i))
				}
			})
		}
		for puts.Load() < 300 {
			time.Sleep(time.Millisecond)
		}
		stop(t, m)
		close(stopped)
		wg.Wait()
		if n := unknown.Load(); n > 0 {
			t.Errorf("round %d: %d of %d writes have an unknown outcome", round, n, puts.Load())
		}
	}
}

// attempts knows of each call whether its last attempt was sent.
type attempts struct{}

type attemptKey struct{}

func (attempts) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (attempts) HandleRPC(ctx context.Context, s stats.RPCStats) {
	sent, ok := ctx.Value(attemptKey{}).(*atomic.Bool)
	if !ok {
		return
	}
	switch s.(type) {
	case *stats.Begin: // also of an attempt that follows one that the server has not looked at
		sent.Store(false)
	case *stats.OutHeader:
		sent.Store(true)
	}
}

func (attempts) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (attempts) HandleConn(context.Context, stats.ConnStats)                       {}

// TestStopWithSilentClients stops a member to which clients have connected that then said no more.
func TestStopWithSilentClients(t *testing.T) {
	m, addr := member(t, Config{UnsafeNoSync: true})
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	for _, said := range []string{"", "P", preface,
		preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00", "POST /v3/kv/range HTTP/1.1\r\n",
		preface + "\x00"} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := c.Write([]byte(said)); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(1500 * time.Millisecond) // longer than it takes to count as a client of gRPC
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	began := time.Now()
	if err := m.Close(ctx); err != nil {
		t.Error(err)
	}
	// it closes such connections by itself after 10 s
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("the stop took %v", took)
	}
}
