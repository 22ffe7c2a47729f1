package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"net"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/delivery"
	"vigil/internal/kv"
	"vigil/internal/store/ration"
)

// largeKV answers every range with as many keys as its limit says, of 1 KiB, in pieces of a budget,
// and every transaction with a list that does not wait for the budget.
type largeKV struct {
	*fakeKV
	budget *ration.Budget
}

var largeValue = bytes.Repeat([]byte("v"), 1<<10)

func largeRecord(i int64) []byte {
	return encode(&mvccpb.KeyValue{Key: fmt.Appendf(nil, "%08d", i), Value: largeValue,
		ModRevision: i + 1})
}

// largeRecords returns the records of the first keys as in a range. begins has the offset of each
// record, and the end of the last.
var largeRecords = sync.OnceValues(func() (all []byte, begins []int) {
	for i := range int64(24000) {
		b := largeRecord(i)
		begins = append(begins, len(all))
		all = append(binary.AppendUvarint(append(all, 0x12), uint64(len(b))), b...)
	}
	return all, append(begins, len(all))
})

func (k *largeKV) Range(ctx context.Context, r *kv.RangeRequest) (*kv.RangeResult, error) {
	var first int64
	fmt.Sscan(strings.TrimLeft(strings.TrimRight(string(r.Key), "\x00"), "0"), &first)
	if first > 0 {
		first++ // the key is the one behind a last one
	}
	l := k.budget.Borrow(ctx)
	for {
		if err := ctx.Err(); err != nil { // like mvcc; an answer takes long with the race detector
			l.Drop()
			l.Abandon()
			return nil, err
		}
		res, err := k.build(l, first, r.Limit)
		switch {
		case err == nil:
			l.Finish()
			return res, nil
		case err != ration.ErrFull:
			return nil, err
		}
		if err := l.Wait(ctx); err != nil {
			return nil, err
		}
	}
}

func (k *largeKV) build(l *ration.Loan, first, n int64) (*kv.RangeResult, error) {
	long := &kv.LongRecords{N: int(n), Lender: l, Last: fmt.Sprintf("%08d", first+n-1)}
	all, begins := largeRecords()
	all = all[begins[first]:begins[first+n]]
	long.Bytes = len(all)
	for len(all) > 0 {
		p, err := l.Piece(int64(long.Bytes))
		if err != nil {
			return nil, err
		}
		*p = (*p)[:copy(*p, all)]
		long.Pieces, all = append(long.Pieces, p), all[len(*p):]
	}
	return &kv.RangeResult{Revision: 9, Count: 1 << 20, More: first+n < 20000,
		KVs: kv.Records{Long: long}}, nil
}

func (k *largeKV) Do(ctx context.Context, w kv.Write) (o kv.Outcome) {
	if w.Txn == nil {
		return k.fakeKV.Do(ctx, w)
	}
	o.Txn, o.Err = k.Txn(ctx, w.Txn)
	return o
}

func (k *largeKV) Txn(ctx context.Context, r *kv.TxnRequest) (*kv.TxnResult, error) {
	res := &kv.RangeResult{Revision: 9}
	for i := range int64(8000) {
		res.KVs.Buf = append(res.KVs.Buf, largeRecord(i)...)
		res.KVs.Close()
	}
	return &kv.TxnResult{Revision: 9, Responses: []kv.OpResult{{Range: res}}}, nil
}

var largeTxn = &etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{
	{Request: &etcdserverpb.RequestOp_RequestRange{RequestRange: &etcdserverpb.RangeRequest{Key: []byte("0")}}}}}

func startLarge(t testing.TB, limit int64) (*fixture, *ration.Budget) {
	t.Helper()
	budget, err := ration.New(limit)
	if err != nil {
		t.Fatal(err)
	}
	f := start(t, func(c *Config) {
		c.KV, c.Ranges = &largeKV{c.KV.(*fakeKV), budget}, budget
	})
	return f, budget
}

func returned(t testing.TB, b *ration.Budget) {
	t.Helper()
	eventually(t, "everything is given back",
		func() bool { s := b.Stats(); return s.Held == 0 && s.Waiting == 0 })
}

// TestLargeAnswers: many clients together ask for more than the budget holds. All get their
// answers, and all memory is returned.
func TestLargeAnswers(t *testing.T) {
	f, budget := startLarge(t, 16<<20)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			n := int64(100 + 3000*i)
			var opts []grpc.CallOption
			if i == 3 {
				opts = append(opts, grpc.UseCompressor(gzip.Name))
			}
			res, err := f.KV.Range(t.Context(),
				&etcdserverpb.RangeRequest{Key: []byte("0"), Limit: n}, opts...)
			if err != nil {
				t.Error(err)
				return
			}
			if res.Count != 1<<20 || res.Header.Revision != 9 || int64(len(res.Kvs)) != n {
				t.Errorf("%d keys of %d, count %d", len(res.Kvs), n, res.Count)
			}
			for i, got := range res.Kvs {
				if got.ModRevision != int64(i)+1 || !bytes.Equal(got.Value, largeValue) {
					t.Errorf("key %d is %q", i, got.Key)
					return
				}
			}
		})
	}
	wg.Go(func() {
		res, err := f.KV.Txn(t.Context(), largeTxn)
		if err != nil || len(res.Responses[0].GetResponseRange().Kvs) != 8000 {
			t.Errorf("the transaction: %v", err)
		}
	})
	wg.Wait()
	returned(t, budget)
}

// TestLargeStream: a streamed range holds only the memory of its chunks.
func TestLargeStream(t *testing.T) {
	f, budget := startLarge(t, 16<<20)
	stream, err := f.KV.RangeStream(t.Context(),
		&etcdserverpb.RangeRequest{Key: []byte("0"), RangeEnd: []byte{0}})
	if err != nil {
		t.Fatal(err)
	}
	n, most := int64(0), int64(0)
	for {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, budget.Stats().Held)
		for _, got := range m.RangeResponse.Kvs {
			if n++; got.ModRevision != n {
				t.Fatalf("key %q is the %dth", got.Key, n)
			}
		}
		if m.RangeResponse.Header != nil {
			break
		}
	}
	if n < 20000 || most > 10<<20 {
		t.Errorf("%d keys, up to %d bytes were held", n, most)
	}
	returned(t, budget)
}

// rawClient is an HTTP/2 client that sends requests and does not read.
type rawClient struct {
	net.Conn
	fr *http2.Framer
}

// ask sends a call on a stream. The window stays at its first 64 KiB.
func (c *rawClient) ask(t testing.TB, stream uint32, method string, m proto.Message) {
	t.Helper()
	var head bytes.Buffer
	enc := hpack.NewEncoder(&head)
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method},
		{":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"}} {
		if err := enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			t.Fatal(err)
		}
	}
	b := encodeAny(t, m)
	err := errors.Join(
		c.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head.Bytes(),
			EndHeaders: true}),
		c.fr.WriteData(stream, true,
			append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)))
	if err != nil {
		t.Fatal(err)
	}
}

func encodeAny(t testing.TB, m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func dialRaw(t testing.TB, addr string) *rawClient {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	c := &rawClient{conn, http2.NewFramer(conn, conn)}
	if err := c.fr.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return c
}

const rangeMethod = "/etcdserverpb.KV/Range"

// TestStalledClient: a client that does not read its answer holds only the memory of this answer.
// Its connection is closed when others wait for the memory and its time is over.
func TestStalledClient(t *testing.T) {
	f, budget := startLarge(t, 24<<20)
	f.deliveries.Patience = delivery.Patience{Interval: 50 * time.Millisecond,
		MaxStill: 50 * time.Millisecond, MaxSlow: time.Hour, OwnMaxStill: time.Hour}
	slow := dialRaw(t, f.addr)
	slow.ask(t, 1, rangeMethod, &etcdserverpb.RangeRequest{Key: []byte("0"), Limit: 12000})
	eventually(t, "the answer is on its way", func() bool { return budget.Stats().Held > 10<<20 })

	// Calls for which there is room pass, and the client stays connected.
	for range 20 {
		if _, err := f.KV.Range(t.Context(),
			&etcdserverpb.RangeRequest{Key: []byte("0"), Limit: 2000}); err != nil {
			t.Fatal(err)
		}
	}
	if held := budget.Stats().Held; held < 10<<20 {
		t.Fatalf("%d bytes are held by who does not read", held)
	}
	// A call that waits is served at the expense of the slow client.
	if _, err := f.KV.Range(t.Context(),
		&etcdserverpb.RangeRequest{Key: []byte("0"), Limit: 15000}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(f.log.String(),
		"closing the connection of a client that does not take its answer") {
		t.Error("nothing is said of it")
	}
	returned(t, budget)
}

// TestWaitingCallGivesUp: a call that waits for memory leaves the queue when its client cancels it.
func TestWaitingCallGivesUp(t *testing.T) {
	f, budget := startLarge(t, 24<<20)
	f.deliveries.Patience = delivery.Patience{Interval: time.Hour, MaxStill: time.Hour,
		MaxSlow: time.Hour, OwnMaxStill: time.Hour}
	slow := dialRaw(t, f.addr)
	slow.ask(t, 1, rangeMethod, &etcdserverpb.RangeRequest{Key: []byte("0"), Limit: 12000})
	eventually(t, "the answer is on its way", func() bool { return budget.Stats().Held > 10<<20 })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := f.KV.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte("0"), Limit: 15000})
		done <- err
	}()
	eventually(t, "it waits", func() bool { return budget.Waiting() })
	cancel()
	if err := within(t, done); status.Code(err) != codes.Canceled {
		t.Fatal(err)
	}
	eventually(t, "it has left", func() bool { return !budget.Waiting() })
	slow.Close()
	returned(t, budget)
}

// TestLargeLost: an answer whose call or connection ends gives back the memory that was not sent.
func TestLargeLost(t *testing.T) {
	f, budget := startLarge(t, 160<<20)
	list := &etcdserverpb.RangeRequest{Key: []byte("0"), RangeEnd: []byte{0}, Limit: 8000}
	t.Run("reset", func(t *testing.T) {
		c := dialRaw(t, f.addr)
		for i := range uint32(4) {
			c.ask(t, 2*i+1, rangeMethod, list)
		}
		eventually(t, "they are held", func() bool { return budget.Stats().Held > 30<<20 })
		for i := range uint32(4) {
			if err := c.fr.WriteRSTStream(2*i+1, http2.ErrCodeCancel); err != nil {
				t.Fatal(err)
			}
		}
		returned(t, budget)
	})
	t.Run("closed", func(t *testing.T) {
		c := dialRaw(t, f.addr)
		c.ask(t, 1, rangeMethod, list)
		c.ask(t, 3, "/etcdserverpb.KV/RangeStream", list)
		c.ask(t, 5, "/etcdserverpb.KV/Txn", largeTxn)
		eventually(t, "they are held", func() bool { return budget.Stats().Held > 15<<20 })
		c.Close()
		returned(t, budget)
	})
	t.Run("canceled", func(t *testing.T) {
		// At every moment of the call.
		for i := range 60 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*300*time.Microsecond)
			_, err := f.KV.Range(ctx, list)
			cancel()
			if err != nil && status.Code(err) != codes.DeadlineExceeded {
				t.Fatal(err)
			}
		}
		// Memory that the transport dropped without notice is returned when the connection ends.
		f.conn.Close()
		returned(t, budget)
	})
}

func TestTooLarge(t *testing.T) {
	err := apierror.Status(fmt.Errorf("reading: %w", &kv.TooLargeError{Size: 5, Limit: 4}))
	wantStatus(t, err, status.Error(codes.ResourceExhausted,
		"grpc: trying to send message larger than max (5 vs. 4)"))
}

// TestLargeLeases: the keys of a lease, and the list of leases, are counted like a range until they
// are sent.
func TestLargeLeases(t *testing.T) {
	budget, err := ration.New(64 << 20)
	if err != nil {
		t.Fatal(err)
	}
	leases := &largeLeases{fakeLeases: &fakeLeases{}}
	for i := range 100 {
		leases.keys = append(leases.keys, strings.Repeat(string(rune('a'+i%26)), 100<<10))
	}
	f := start(t, func(c *Config) { c.Leases, c.Ranges = leases, budget })
	lease := etcdserverpb.NewLeaseClient(f.conn)
	ask := func(c *rawClient, stream uint32) {
		c.ask(t, stream, "/etcdserverpb.Lease/LeaseTimeToLive",
			&etcdserverpb.LeaseTimeToLiveRequest{ID: 1, Keys: true})
	}
	c := dialRaw(t, f.addr)
	ask(c, 1)
	eventually(t, "it is held", func() bool { return budget.Stats().Held > 15<<20 })
	// Another call on this connection waits for its share.
	ask(c, 3)
	eventually(t, "it waits", func() bool { return budget.Stats().Waiting == 1 })
	c.Close()
	returned(t, budget)
	res, err := lease.LeaseTimeToLive(t.Context(),
		&etcdserverpb.LeaseTimeToLiveRequest{ID: 1, Keys: true}, grpc.MaxCallRecvMsgSize(1<<30))
	if err != nil || len(res.Keys) != 100 || string(res.Keys[99]) != leases.keys[99] {
		t.Fatalf("%d keys, %v", len(res.GetKeys()), err)
	}
	all, err := lease.LeaseLeases(t.Context(), &etcdserverpb.LeaseLeasesRequest{},
		grpc.MaxCallRecvMsgSize(1<<30))
	if err != nil || len(all.Leases) != 1<<17 {
		t.Fatalf("%d leases, %v", len(all.GetLeases()), err)
	}
	returned(t, budget)
}

// largeLeases has one lease with keys, and many others.
type largeLeases struct {
	*fakeLeases
	keys []string
}

func (l *largeLeases) TimeToLive(context.Context, int64, bool) (kv.LeaseStatus, error) {
	return kv.LeaseStatus{TTL: 1, Granted: 2, Keys: l.keys}, nil
}

func (l *largeLeases) LeaseIDs(context.Context) ([]int64, error) {
	return make([]int64, 1<<17), nil
}
