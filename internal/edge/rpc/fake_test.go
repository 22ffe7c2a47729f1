package rpc

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"vigil/internal/edge/rpc/clusterapi"
	"vigil/internal/edge/rpc/maintenanceapi"
	"vigil/internal/edge/rpc/watchapi"
	"vigil/internal/kv"
	"vigil/internal/store/watch"
)

// fakeKV is a store of one revision per write, without history. Hooks stand in for what a test
// wants to go wrong.
type fakeKV struct {
	noStarter
	fail atomic.Pointer[error]                           // every call fails with it
	hook atomic.Pointer[func(ctx context.Context) error] // runs at the start of every call

	mu struct {
		sync.Mutex
		rev  int64
		keys map[string]*mvccpb.KeyValue
		got  []any // the requests, in order
	}
}

func newFakeKV() *fakeKV {
	f := &fakeKV{}
	f.mu.rev, f.mu.keys = 1, map[string]*mvccpb.KeyValue{}
	return f
}

func (f *fakeKV) enter(ctx context.Context, r any) error {
	if h := f.hook.Load(); h != nil {
		if err := (*h)(ctx); err != nil {
			return err
		}
	}
	if err := f.fail.Load(); err != nil {
		return *err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.got = append(f.mu.got, r)
	return nil
}

// takeRequests returns the requests so far, and forgets them.
func (f *fakeKV) takeRequests() []any {
	f.mu.Lock()
	defer f.mu.Unlock()
	got := f.mu.got
	f.mu.got = nil
	return got
}

func (f *fakeKV) setFail(err error) { f.fail.Store(&err) }

func encode(m *mvccpb.KeyValue) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

func (f *fakeKV) Range(ctx context.Context, r *kv.RangeRequest) (*kv.RangeResult, error) {
	if err := f.enter(ctx, r); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rangeLocked(r), nil
}

func (f *fakeKV) rangeLocked(r *kv.RangeRequest) *kv.RangeResult {
	var keys []string
	for k := range f.mu.keys {
		in := k == string(r.Key)
		if len(r.End) > 0 {
			in = k >= string(r.Key) && (bytes.Equal(r.End, []byte{0}) || k < string(r.End))
		}
		if in {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	res := &kv.RangeResult{Revision: f.mu.rev, Count: int64(len(keys))}
	if r.CountOnly {
		return res
	}
	if r.Limit > 0 && int64(len(keys)) > r.Limit {
		keys, res.More = keys[:r.Limit], true
	}
	for _, k := range keys {
		res.KVs.Buf = append(res.KVs.Buf, encode(f.mu.keys[k])...)
		res.KVs.Close()
	}
	return res
}

func (f *fakeKV) putLocked(r *kv.PutRequest, rev int64) *kv.PutResult {
	old := f.mu.keys[string(r.Key)]
	res := &kv.PutResult{Revision: rev}
	m := &mvccpb.KeyValue{Key: r.Key, Value: r.Value, Lease: r.Lease, ModRevision: rev,
		CreateRevision: rev, Version: 1}
	if old != nil {
		m.CreateRevision, m.Version = old.CreateRevision, old.Version+1
		if r.PrevKV {
			res.PrevKV = encode(old)
		}
	}
	f.mu.keys[string(r.Key)] = m
	return res
}

func (f *fakeKV) Put(ctx context.Context, r *kv.PutRequest) (*kv.PutResult, error) {
	if err := f.enter(ctx, r); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.rev++
	return f.putLocked(r, f.mu.rev), nil
}

func (f *fakeKV) DeleteRange(ctx context.Context,
	r *kv.DeleteRangeRequest) (*kv.DeleteRangeResult, error) {
	if err := f.enter(ctx, r); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	found := f.rangeLocked(&kv.RangeRequest{Key: r.Key, End: r.End})
	f.mu.rev++
	res := &kv.DeleteRangeResult{Revision: f.mu.rev, Deleted: found.Count}
	if r.PrevKV {
		res.PrevKVs = found.KVs
	}
	return res, nil
}

// Do carries out a write. A lease gets a longer TTL.
func (f *fakeKV) Do(ctx context.Context, w kv.Write) (o kv.Outcome) {
	switch {
	case w.Put != nil:
		o.Put, o.Err = f.Put(ctx, w.Put)
	case w.DeleteRange != nil:
		o.DeleteRange, o.Err = f.DeleteRange(ctx, w.DeleteRange)
	case w.Txn != nil:
		o.Txn, o.Err = f.Txn(ctx, w.Txn)
	default:
		o.Lease, o.Err = &kv.LeaseResult{Revision: 9, ID: w.Grant.ID, TTL: w.Grant.TTL + 1},
			f.enter(ctx, w.Grant)
	}
	return o
}

// Txn runs the puts and ranges of the success branch; nested transactions too.
func (f *fakeKV) Txn(ctx context.Context, r *kv.TxnRequest) (*kv.TxnResult, error) {
	if err := f.enter(ctx, r); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.rev++
	return f.txnLocked(r), nil
}

func (f *fakeKV) txnLocked(r *kv.TxnRequest) *kv.TxnResult {
	res := &kv.TxnResult{Revision: f.mu.rev, Succeeded: true}
	for _, op := range r.Success {
		var o kv.OpResult
		switch {
		case op.Put != nil:
			o.Put = f.putLocked(op.Put, f.mu.rev)
		case op.Range != nil:
			o.Range = f.rangeLocked(op.Range)
		case op.Delete != nil:
			o.Delete = &kv.DeleteRangeResult{Revision: f.mu.rev}
		case op.Txn != nil:
			o.Txn = f.txnLocked(op.Txn)
		}
		res.Responses = append(res.Responses, o)
	}
	return res
}

func (f *fakeKV) Compact(ctx context.Context, r *kv.CompactRequest) (*kv.CompactResult, error) {
	if err := f.enter(ctx, r); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return &kv.CompactResult{Revision: f.mu.rev}, nil
}

// fakeMember has the ids 0xc1 and 0xa1 and, at first, a leader.
type fakeMember struct {
	kv        *fakeKV
	leader    atomic.Uint64
	learner   atomic.Bool
	diskFull  atomic.Bool
	untrusted atomic.Bool
	// reclaimed counts the calls of Reclaim.
	reclaimed atomic.Int32
	fail      atomic.Pointer[error]

	mu     sync.Mutex
	alarms []kv.Alarm
}

// Alarms and ChangeAlarm keep one alarm of a type.
func (f *fakeMember) Alarms(context.Context) ([]kv.Alarm, error) {
	if err := f.fail.Load(); err != nil {
		return nil, *err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.alarms), nil
}

func (f *fakeMember) ChangeAlarm(_ context.Context, c kv.AlarmChange) (*kv.Alarm, error) {
	if err := f.fail.Load(); err != nil {
		return nil, *err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.Index(f.alarms, c.Alarm)
	switch {
	case c.Clear && i < 0:
		return nil, nil
	case c.Clear:
		f.alarms = slices.Delete(f.alarms, i, i+1)
	case i < 0:
		f.alarms = append(f.alarms, c.Alarm)
	}
	return &c.Alarm, nil
}

func (f *fakeMember) Header() kv.Header {
	f.kv.mu.Lock()
	defer f.kv.mu.Unlock()
	return kv.Header{ClusterID: 0xc1, MemberID: 0xa1, Revision: f.kv.mu.rev, Term: 7}
}

func (f *fakeMember) Leader() uint64  { return f.leader.Load() }
func (f *fakeMember) IsLearner() bool { return f.learner.Load() }
func (f *fakeMember) Trusted() bool   { return !f.untrusted.Load() }
func (f *fakeMember) Reclaim(context.Context) error {
	f.reclaimed.Add(1)
	return nil
}

func (f *fakeMember) Status() maintenanceapi.Status {
	return maintenanceapi.Status{Version: "3.7.3", StorageVersion: "3.7.0", DBSize: 4096,
		DBSizeInUse: 100, DBSizeQuota: 2 << 30,
		RaftIndex: 12, RaftAppliedIndex: 11, Alarms: f.list(), DiskFull: f.diskFull.Load()}
}

func (f *fakeMember) list() []kv.Alarm {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.alarms)
}

func (f *fakeMember) Members(ctx context.Context,
	linearizable bool) ([]clusterapi.MemberInfo, error) {
	if err := f.fail.Load(); err != nil && linearizable {
		return nil, *err
	}
	return []clusterapi.MemberInfo{{ID: 0xa1, Name: "one", PeerURLs: []string{"http://a:2380"},
		ClientURLs: []string{"http://a:2379"}},
		{ID: 0xa2, PeerURLs: []string{"http://b:2380"}, IsLearner: true}}, nil
}

// The hub's streams are what the service wants.
var _ watchapi.HubStream = (*watch.Stream)(nil)

// fakeHub makes watch streams that tests feed by hand.
type fakeHub struct {
	streams chan *fakeStream
}

func (h *fakeHub) NewStream(info watch.StreamInfo) watchapi.HubStream {
	s := &fakeStream{info: info, in: make(chan any, 1000), out: make(chan []watch.Response, 1000),
		fail: make(chan error, 1), next: make(chan taken, 1), closed: make(chan struct{})}
	h.streams <- s
	return s
}

// Nothing is kept back.
func (h *fakeHub) Withheld() int64 { return 0 }
func (h *fakeHub) Release(int64)   {}

// fakeStream is one: what the client asks comes out of in, what is put into out goes to the client.
type fakeStream struct {
	info   watch.StreamInfo
	in     chan any // watch.CreateRequest, int64 (cancel), string (progress)
	out    chan []watch.Response
	next   chan taken // for Take
	closed chan struct{}
	fail   chan error  // what Next returns
	panics atomic.Bool // Create panics
}

func (s *fakeStream) Create(r watch.CreateRequest) bool {
	if s.panics.Load() {
		panic("the hub is broken")
	}
	s.in <- r
	return true
}
func (s *fakeStream) Cancel(id int64)      { s.in <- id }
func (s *fakeStream) Progress()            { s.in <- "progress" }
func (s *fakeStream) Refuse(reason string) { s.in <- "refuse " + reason }
func (s *fakeStream) Revoke(func(key, end []byte) string) {
}
func (s *fakeStream) Close() { close(s.closed) }

// NotifyReady reports the stream after each list in out, when the one before was taken, and after
// fail or the end of out.
func (s *fakeStream) NotifyReady(to *watch.Ready, owner any) {
	go func() {
		for {
			var n taken
			select {
			case list, ok := <-s.out:
				if n.list = list; !ok {
					n.err = watch.ErrClosed
				}
			case n.err = <-s.fail:
			case <-s.closed:
				return
			}
			select {
			case s.next <- n:
				to.Add(owner)
			case <-s.closed:
				return
			}
		}
	}()
}

// taken is what Take returns.
type taken struct {
	list []watch.Response
	err  error
}

func (s *fakeStream) Take(dst []watch.Response, _ int64) ([]watch.Response, error) {
	select {
	case n := <-s.next:
		return append(dst, n.list...), n.err
	default:
		return dst, nil
	}
}

func (s *fakeStream) Next(ctx context.Context, dst []watch.Response) ([]watch.Response, error) {
	select {
	case list, ok := <-s.out:
		if !ok {
			return nil, watch.ErrClosed
		}
		return append(dst, list...), nil
	case err := <-s.fail:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fixture is a server on loopback with a client.
type fixture struct {
	*Server
	kv     *fakeKV
	member *fakeMember
	hub    *fakeHub
	log    *logBuffer
	// config is the server's configuration, metrics its metrics.
	config  Config
	metrics *Metrics
	addr    string
	conn    *grpc.ClientConn

	KV          etcdserverpb.KVClient
	Watch       etcdserverpb.WatchClient
	Maintenance etcdserverpb.MaintenanceClient
	Cluster     etcdserverpb.ClusterClient
}

// logBuffer is a log that tests read.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func start(t testing.TB, change func(*Config)) *fixture {
	t.Helper()
	f := &fixture{kv: newFakeKV(), hub: &fakeHub{streams: make(chan *fakeStream, 1000)},
		log: &logBuffer{}}
	f.member = &fakeMember{kv: f.kv}
	f.member.leader.Store(0xa1)
	c := Config{KV: f.kv, Member: f.member, Alarms: f.member, Hasher: fakeHasher{},
		NewWatchStream: f.hub.NewStream, WatchHub: f.hub, ElectionTimeout: time.Second,
		Logger: slog.New(slog.NewTextHandler(f.log, nil))}
	if change != nil {
		change(&c)
	}
	if _, ok := c.KV.(*fakeStarter); !ok {
		c.KV = &fakeStarter{KV: c.KV}
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(false)
	}
	f.config, f.metrics = c.WithDefaults(), c.Metrics
	var err error
	if f.Server, err = NewServer(c); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- f.Serve(l) }()
	f.conn = f.dial(t)
	f.KV = etcdserverpb.NewKVClient(f.conn)
	f.Watch = etcdserverpb.NewWatchClient(f.conn)
	f.Maintenance = etcdserverpb.NewMaintenanceClient(f.conn)
	f.Cluster = etcdserverpb.NewClusterClient(f.conn)
	t.Cleanup(func() {
		f.conn.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		f.Stop(ctx)
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return f
}

func (f *fixture) dial(t testing.TB, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(f.addr,
		append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(1<<30),
				grpc.MaxCallRecvMsgSize(1<<30))}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// eventually waits until ok holds; the test fails if it never does.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}

// within receives from a channel, or fails the test.
func within[T any](t testing.TB, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(time.Minute):
		t.Fatal("nothing came within a minute")
		panic("unreachable")
	}
}
