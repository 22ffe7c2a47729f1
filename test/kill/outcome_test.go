package kill

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"

	"vigil/test/proc"
)

// TestStopOutcomes stops a member by SIGTERM while clients connect and write, stock ones and bare
// ones of gRPC. Without an answer, the write was not sent, or the member did not process it.
func TestStopOutcomes(t *testing.T) {
	const clients = 8 // of each kind
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	for round := range 3 {
		var puts, failed, unknown atomic.Int64
		var sent [2 * clients]atomic.Bool // the write that a client waits for was sent
		var wg sync.WaitGroup
		running, stopped := context.WithCancel(t.Context())
		work := func(sent *atomic.Bool,
			put func(ctx context.Context, key string) error, key string) {
			for i := 0; ; i++ {
				if running.Err() != nil {
					return
				}
				ctx, cancel := context.WithTimeout(context.WithValue(running,
					sentKey{}, sent), within)
				err := put(ctx, fmt.Sprint(key, "-", i))
				cancel()
				puts.Add(1)
				if err == nil {
					sent.Store(false)
					continue
				}
				failed.Add(1)
				if sent.Swap(false) && unknown.Add(1) <= 3 {
					t.Errorf("round %d: unknown outcome: %v", round, err)
				}
			}
		}
		for w := range clients {
			// One client of each kind has a connection for each write.
			wg.Go(func() {
				work(&sent[w], func(ctx context.Context, key string) error {
					cc, err := grpc.NewClient(s.Addr(),
						grpc.WithTransportCredentials(insecure.NewCredentials()),
						grpc.WithStatsHandler(sentAttempts{}))
					if err != nil {
						return err
					}
					defer cc.Close()
					_, err = etcdserverpb.NewKVClient(cc).Put(ctx,
						&etcdserverpb.PutRequest{Key: []byte(key)})
					return err
				}, fmt.Sprint("bare", w))
			})
			wg.Go(func() {
				var c *clientv3.Client
				work(&sent[clients+w], func(ctx context.Context, key string) (err error) {
					if c == nil || w%2 == 0 {
						if c != nil {
							c.Close()
						}
						if c, err = clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()},
							Logger:      zap.NewNop(),
							DialOptions: []grpc.DialOption{grpc.WithStatsHandler(sentAttempts{})}}); err != nil {
							return err
						}
					}
					_, err = c.Put(ctx, key, "")
					return err
				}, fmt.Sprint("stock", w))
				c.Close()
			})
		}
		for puts.Load() < 300 {
			time.Sleep(time.Millisecond)
		}
		if code := s.Stop(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		// Clients learn of the end of a write that was sent. Others may try again and again.
		await(t, "the writes that were sent end", func() bool {
			for i := range sent {
				if sent[i].Load() {
					return false
				}
			}
			return true
		})
		stopped()
		wg.Wait()
		t.Logf("%d writes, %d failed, %d of them of unknown outcome", puts.Load(), failed.Load(),
			unknown.Load())
		s.Restart()
	}
}

type sentKey struct{}

// sentAttempts knows of each call whether its last attempt was sent. One that the server has
// refused without looking at it is followed by another.
type sentAttempts struct{}

func (sentAttempts) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (sentAttempts) HandleRPC(ctx context.Context, s stats.RPCStats) {
	sent, ok := ctx.Value(sentKey{}).(*atomic.Bool)
	if !ok {
		return
	}
	switch s.(type) {
	case *stats.Begin:
		sent.Store(false)
	case *stats.OutHeader:
		sent.Store(true)
	}
}

func (sentAttempts) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return ctx
}
func (sentAttempts) HandleConn(context.Context, stats.ConnStats) {}
