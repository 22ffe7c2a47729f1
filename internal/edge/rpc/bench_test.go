package rpc

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"vigil/internal/edge/rpc/clusterapi"
	"vigil/internal/edge/rpc/maintenanceapi"
	"vigil/internal/edge/rpc/watchapi"
	"vigil/internal/kv"
	"vigil/internal/store/watch"
)

// The benchmarks of whole calls measure the CPU that the server takes, so it runs in a process of
// its own: this program again, with serverEnv set. It answers every line on its standard input with
// the nanoseconds of CPU and the number of allocations that it has used.
const serverEnv = "VIGIL_RPC_BENCH_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(serverEnv) != "" {
		benchServer()
		return
	}
	os.Exit(m.Run())
}

// constant answers everything at once: what is left is the cost of the calls.
type constant struct {
	noStarter
	put *kv.PutResult
	get *kv.RangeResult
	txn *kv.TxnResult
}

func (c *constant) Range(context.Context, *kv.RangeRequest) (*kv.RangeResult, error) {
	return c.get, nil
}
func (c *constant) Do(_ context.Context, w kv.Write) kv.Outcome {
	switch {
	case w.Put != nil:
		return kv.Outcome{Put: c.put}
	case w.Txn != nil:
		return kv.Outcome{Txn: c.txn}
	}
	return kv.Outcome{DeleteRange: &kv.DeleteRangeResult{}}
}
func (c *constant) Compact(context.Context, *kv.CompactRequest) (*kv.CompactResult, error) {
	return &kv.CompactResult{}, nil
}
func (c *constant) Header() kv.Header {
	return kv.Header{ClusterID: 0xcdf818194e3a8c32, MemberID: 0x8e9e05c52164694d,
		Revision: 1 << 20, Term: 2}
}
func (c *constant) Leader() uint64                { return 1 }
func (c *constant) IsLearner() bool               { return false }
func (c *constant) Trusted() bool                 { return true }
func (c *constant) Reclaim(context.Context) error { return nil }
func (c *constant) Status() maintenanceapi.Status { return maintenanceapi.Status{} }
func (c *constant) Members(context.Context, bool) ([]clusterapi.MemberInfo, error) {
	return nil, nil
}

// ticking sends one event to every stream each time the benchmark asks for it with a put.
type ticking struct {
	mu     sync.Mutex
	batch  []watch.Response
	wakers map[*tickStream]struct{}
}

type tickStream struct {
	t     *ticking
	due   atomic.Bool
	ready *watch.Ready
	owner any
}

func (t *ticking) tick() {
	t.mu.Lock()
	defer t.mu.Unlock()
	var owners []any
	var to *watch.Ready
	for s := range t.wakers {
		s.due.Store(true)
		owners, to = append(owners, s.owner), s.ready
	}
	to.Add(owners...)
}

func (s *tickStream) Create(watch.CreateRequest) bool { return true }
func (s *tickStream) Cancel(int64)                    {}
func (s *tickStream) Progress()                       {}
func (s *tickStream) Refuse(string)                   {}
func (s *tickStream) Revoke(func(key, end []byte) string) {
}
func (s *tickStream) Close() {}
func (s *tickStream) Next(context.Context, []watch.Response) ([]watch.Response, error) {
	panic("not called")
}
func (s *tickStream) NotifyReady(to *watch.Ready, owner any) {
	s.ready, s.owner = to, owner
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.t.wakers[s] = struct{}{}
}
func (s *tickStream) Take(dst []watch.Response, _ int64) ([]watch.Response, error) {
	if s.due.Swap(false) {
		dst = append(dst, s.t.batch...)
	}
	return dst, nil
}

func (constant) Alarms(context.Context) ([]kv.Alarm, error) { return nil, nil }

func (constant) ChangeAlarm(context.Context, kv.AlarmChange) (*kv.Alarm, error) { return nil, nil }

type tickKV struct {
	constant
	*ticking
}

func (k *tickKV) Do(ctx context.Context, w kv.Write) kv.Outcome {
	if w.DeleteRange != nil {
		k.tick()
	}
	return k.constant.Do(ctx, w)
}

func (k *tickKV) Compact(context.Context, *kv.CompactRequest) (*kv.CompactResult, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return &kv.CompactResult{Revision: int64(len(k.wakers))}, nil
}

// watchersPerStream is how many watchers each stream of the watch benchmark has.
const watchersPerStream = 10

func benchServer() {
	// The collector runs when the heap has grown by a fixed number of bytes, as in a program that
	// bounds its garbage instead of keeping it in proportion to a small heap.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(192 << 20)
	record := encode(&mvccpb.KeyValue{Key: make([]byte, 32), Value: make([]byte, 256),
		CreateRevision: 1 << 19, ModRevision: 1 << 20, Version: 3})
	k := &tickKV{ticking: &ticking{wakers: map[*tickStream]struct{}{}}}
	k.put = &kv.PutResult{Revision: 1 << 20}
	k.get = &kv.RangeResult{Revision: 1 << 20, Count: 1,
		KVs: kv.Records{Buf: record, Ends: []int{len(record)}}}
	k.txn = &kv.TxnResult{Revision: 1 << 20, Succeeded: true,
		Responses: []kv.OpResult{{Put: k.put}}}
	ev := append([]byte{0x12}, byte(len(record)&0x7f|0x80), byte(len(record)>>7))
	ev = append(ev, record...)
	events := [][]byte{ev} // as the hub shares them
	for id := range int64(watchersPerStream) {
		k.batch = append(k.batch, watch.Response{WatchID: id, Revision: 1 << 20, Events: events})
	}
	s, err := NewServer(Config{ElectionTimeout: time.Second, KV: k, Member: k, Alarms: k,
		Hasher: fakeHasher{}, NewWatchStream: func(watch.StreamInfo) watchapi.HubStream {
			return &tickStream{t: k.ticking}
		}})
	if err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	go s.Serve(l)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			panic(err)
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Println(u.Utime.Nano()+u.Stime.Nano(), m.Mallocs)
	}
}

// benchClient starts a server process and returns connections to it and a function that reads its
// counters.
func benchClient(b *testing.B, conns int) (list []*grpc.ClientConn, usage func() serverUsage) {
	b.Helper()
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), serverEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	line := func() string {
		if !lines.Scan() {
			b.Fatal("the server process has ended")
		}
		return strings.TrimSpace(lines.Text())
	}
	addr := line()
	for range conns {
		c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		list = append(list, c)
	}
	b.Cleanup(func() {
		for _, c := range list {
			c.Close()
		}
		in.Close()
		cmd.Wait()
	})
	return list, func() (u serverUsage) {
		if _, err := fmt.Fprintln(in); err != nil {
			b.Fatal(err)
		}
		if _, err := fmt.Sscan(line(), &u.cpu, &u.allocs); err != nil {
			b.Fatal(err)
		}
		return u
	}
}

// serverUsage is what the server process has used so far.
type serverUsage struct{ cpu, allocs int64 }

// report reports the usage since an earlier one for each of n operations.
func (u serverUsage) report(b *testing.B, since serverUsage, n int) {
	b.ReportMetric(float64(u.cpu-since.cpu)/float64(n)/1e3, "server-µs/op")
	b.ReportMetric(float64(u.allocs-since.allocs)/float64(n), "server-allocs/op")
}

// BenchmarkCall: 100 connections with 10 calls under way on each.
func BenchmarkCall(b *testing.B) {
	key, value := make([]byte, 32), make([]byte, 256)
	put := &etcdserverpb.PutRequest{Key: key, Value: value}
	get := &etcdserverpb.RangeRequest{Key: key}
	txn := &etcdserverpb.TxnRequest{
		Compare: []*etcdserverpb.Compare{{Key: key, Target: etcdserverpb.Compare_MOD,
			TargetUnion: &etcdserverpb.Compare_ModRevision{ModRevision: 1 << 20}}},
		Success: []*etcdserverpb.RequestOp{{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: put}}},
		Failure: []*etcdserverpb.RequestOp{{Request: &etcdserverpb.RequestOp_RequestRange{RequestRange: get}}}}
	for _, c := range []struct {
		name string
		call func(context.Context, etcdserverpb.KVClient) error
	}{
		{"put", func(ctx context.Context, c etcdserverpb.KVClient) error {
			_,
				err := c.Put(ctx, put)
			return err
		}},
		{"range", func(ctx context.Context, c etcdserverpb.KVClient) error {
			_,
				err := c.Range(ctx, get)
			return err
		}},
		{"txn", func(ctx context.Context, c etcdserverpb.KVClient) error {
			_,
				err := c.Txn(ctx, txn)
			return err
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			conns, usage := benchClient(b, 100)
			var left atomic.Int64
			run := func(n int64) {
				left.Store(n)
				var wg sync.WaitGroup
				for _, conn := range conns {
					client := etcdserverpb.NewKVClient(conn)
					for range 10 {
						wg.Go(func() {
							for left.Add(-1) >= 0 {
								if err := c.call(b.Context(), client); err != nil {
									b.Error(err)
									return
								}
							}
						})
					}
				}
				wg.Wait()
			}
			run(10000)
			before := usage()
			b.ResetTimer()
			run(int64(b.N))
			b.StopTimer()
			usage().report(b, before, b.N)
		})
	}
}

// BenchmarkEvent: 100 streams of 10 watchers, all of which get one event at a time; the operation
// is the delivery of one event.
func BenchmarkEvent(b *testing.B) {
	conns, usage := benchClient(b, 100)
	var got sync.WaitGroup
	for _, conn := range conns {
		s, err := etcdserverpb.NewWatchClient(conn).Watch(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Send(create("k")); err != nil {
			b.Fatal(err)
		}
		go func() {
			for {
				if _, err := s.Recv(); err != nil {
					return
				}
				got.Done()
			}
		}()
	}
	client := etcdserverpb.NewKVClient(conns[0])
	// Streams open in their own time. The head of a compaction's answer says how many there are.
	for opened := int64(0); opened < int64(len(conns)); {
		r, err := client.Compact(b.Context(), &etcdserverpb.CompactionRequest{})
		if err != nil {
			b.Fatal(err)
		}
		opened = r.Header.Revision
	}
	tick := func() {
		got.Add(len(conns) * watchersPerStream)
		if _, err := client.DeleteRange(b.Context(),
			&etcdserverpb.DeleteRangeRequest{Key: []byte("tick")}); err != nil {
			b.Fatal(err)
		}
		got.Wait()
	}
	tick()
	rounds := max(b.N/(len(conns)*watchersPerStream), 1)
	before := usage()
	b.ResetTimer()
	for range rounds {
		tick()
	}
	b.StopTimer()
	usage().report(b, before, rounds*len(conns)*watchersPerStream)
}
