package abuse

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/test/proc"
)

// small puts so many small keys from prefix on, 100 in a transaction.
func small(t *testing.T, s *proc.Server, prefix string, n int) {
	kv := pb.NewKVClient(s.Dial())
	for i := 0; i < n; i += 100 {
		r := &pb.TxnRequest{}
		for k := range 100 {
			r.Success = append(r.Success,
				opPut(&pb.PutRequest{Key: fmt.Appendf(nil, "%s%06d", prefix, i+k),
					Value: fmt.Appendf(nil, "%060d", i+k)}))
		}
		if _, err := kv.Txn(proc.Context(t), r); err != nil {
			t.Fatal(err)
		}
	}
}

func opPut(r *pb.PutRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}}
}

func opRange(r *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

// nested is a transaction that puts a key and does op so many times, in transactions within it.
func nested(op *pb.RequestOp, times int) *pb.TxnRequest {
	r := &pb.TxnRequest{Success: []*pb.RequestOp{opPut(&pb.PutRequest{Key: []byte("written")})}}
	for times > 0 {
		n := min(times, 100)
		inner := &pb.TxnRequest{}
		for range n {
			inner.Success = append(inner.Success, op)
		}
		r.Success = append(r.Success,
			&pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: inner}})
		times -= n
	}
	return r
}

// call makes this many concurrent calls, ignores their answers, and waits for all.
func call(s *proc.Server, times int, r *pb.TxnRequest) {
	var wg sync.WaitGroup
	for range times {
		// a larger one is an error
		kv := pb.NewKVClient(s.Dial(grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1 << 20))))
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_, _ = kv.Txn(ctx, r)
		})
	}
	wg.Wait()
}

// TestLargeFirstRecord reads many small keys after a large one, in transactions that write.
func TestLargeFirstRecord(t *testing.T) {
	attack{
		prepare: func(t *testing.T, s *proc.Server) {
			put := &pb.PutRequest{Key: []byte("k"), Value: bytes.Repeat([]byte("v"), 220<<10)}
			if _, err := pb.NewKVClient(s.Dial()).Put(proc.Context(t), put); err != nil {
				t.Fatal(err)
			}
			small(t, s, "k", 5000)
		},
		do: func(t *testing.T, s *proc.Server) error {
			call(s, 4, nested(opRange(&pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l")}),
				1))
			return nil
		},
		most: figures{memory: 100 * mib, log: 64 << 10, files: 20, worst: 2e9},
	}.run(t)
}

// raw is a codec of bytes.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

func (raw) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(b)
	return nil
}

// TestEmptyCompares sends transactions of a million compares that say nothing.
func TestEmptyCompares(t *testing.T) {
	request := bytes.Repeat([]byte{1<<3 | 2, 0}, mib-1000)
	attack{
		do: func(t *testing.T, s *proc.Server) error {
			conn := s.Dial()
			for range 10 {
				var answer []byte
				err := conn.Invoke(proc.Context(t), pb.KV_Txn_FullMethodName, request, &answer,
					grpc.ForceCodec(raw{}))
				if status.Code(err) != codes.InvalidArgument {
					return fmt.Errorf("a million compares: %w", err)
				}
			}
			return nil
		},
		most: figures{memory: 100 * mib, log: 64 << 10, files: 20, worst: 2e9},
	}.run(t)
}

// TestNestedSortedRanges sorts all keys very often in a transaction that writes.
func TestNestedSortedRanges(t *testing.T) {
	attack{
		// The collector stops the server, so that the garbage does not depend on the processors
		// that the collector gets.
		config:  proc.Config{Env: []string{"GODEBUG=gcstoptheworld=1"}},
		prepare: func(t *testing.T, s *proc.Server) { small(t, s, "k", 20_000) },
		do: func(t *testing.T, s *proc.Server) error {
			call(s, 2, nested(opRange(&pb.RangeRequest{Key: []byte("k"),
				RangeEnd: []byte("l"), Limit: 1,
				SortTarget: pb.RangeRequest_VALUE, SortOrder: pb.RangeRequest_DESCEND}), 400))
			return nil
		},
		most: figures{memory: 100 * mib, log: 64 << 10, files: 20, worst: 5e9},
	}.run(t)
}

// TestNestedLargeReads reads a large key very often in a transaction that writes.
func TestNestedLargeReads(t *testing.T) {
	attack{
		prepare: fill(1),
		do: func(t *testing.T, s *proc.Server) error {
			call(s, 2, nested(opRange(&pb.RangeRequest{Key: []byte("k000")}), 900))
			return nil
		},
		most: figures{memory: 450 * mib, log: 64 << 10, files: 20, worst: 5e9},
	}.run(t)
}

// TestPutAndCompact compacts a store of many keys after each put, with one processor. It is the
// other client's calls that must not wait.
func TestPutAndCompact(t *testing.T) {
	attack{
		config:  proc.Config{Env: []string{"GOMAXPROCS=1"}},
		prepare: func(t *testing.T, s *proc.Server) { small(t, s, "k", 50_000) },
		do: func(t *testing.T, s *proc.Server) error {
			kv := pb.NewKVClient(s.Dial())
			rounds, before := 0, processor(t, s.Pid())
			for end := time.Now().Add(time.Second); time.Now().Before(end); rounds++ {
				res, err := kv.Put(proc.Context(t),
					&pb.PutRequest{Key: []byte("k"), Value: []byte("v")})
				if err != nil {
					return err
				}
				if _, err := kv.Compact(proc.Context(t),
					&pb.CompactionRequest{Revision: res.Header.Revision}); err != nil {
					return err
				}
			}
			// Of processor time, which other processes do not change.
			took := processor(t, s.Pid()) - before
			t.Logf("%d rounds in %v of processor time", rounds, took)
			if took > time.Duration(rounds)*20*time.Millisecond {
				return fmt.Errorf("%d rounds of put and compact took %v of processor time", rounds,
					took)
			}
			return nil
		},
		most: figures{memory: 100 * mib, log: mib, files: 20, worst: 2e9},
	}.run(t)
}
