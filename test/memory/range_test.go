package memory

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"vigil/test/proc"
)

const mib = 1 << 20

// anonymous returns the memory of a process that no file backs, in bytes.
func anonymous(t testing.TB, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Skip("this system does not report it")
	return 0
}

// sizeCodec is a client's codec that keeps of an answer only its size.
type sizeCodec struct{ encoding.CodecV2 }

func (c sizeCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if n, ok := v.(*int); ok {
		*n = data.Len()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// TestRanges: what clients read at once may be a multiple of the limit for it; the member's memory
// does not grow with it, whether the ranges are unary, of a transaction, or streamed. When it is
// idle again, it returns the memory.
func TestRanges(t *testing.T) {
	if proc.Subject() != proc.Vigil {
		t.Skip("etcd has no such limit")
	}
	const (
		limit   = 32 * mib
		value   = 64 << 10
		keys    = 28 * mib / value
		clients = 20
		// slack is for the collector, which leaves 80 MiB of garbage alone, and for everything
		// else.
		slack = 110 * mib
	)
	s := proc.Start(t, proc.Config{Memory: true,
		Args: []string{fmt.Sprintf("--max-range-bytes-in-flight=%d", limit)}})
	kvs := pb.NewKVClient(s.Dial())
	for i := range keys {
		put := &pb.PutRequest{Key: fmt.Appendf(nil, "k%04d", i),
			Value: bytes.Repeat([]byte{byte(i)}, value)}
		if _, err := kvs.Put(t.Context(), put); err != nil {
			t.Fatal(err)
		}
	}
	codec := grpc.ForceCodecV2(sizeCodec{encoding.GetCodecV2("proto")})
	all := &pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l")}
	written := anonymous(t, s.Pid())
	highest := written
	unary := func(c *grpc.ClientConn, method string, req any) (n int, err error) {
		err = c.Invoke(t.Context(), method, req, &n, codec)
		return n, err
	}
	for _, c := range []struct {
		name string
		read func(*grpc.ClientConn) (int, error)
	}{
		{"unary", func(c *grpc.ClientConn) (int,
			error) {
			return unary(c, pb.KV_Range_FullMethodName, all)
		}},
		{"txn", func(c *grpc.ClientConn) (int, error) {
			return unary(c, pb.KV_Txn_FullMethodName,
				&pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: all}}}})
		}},
		{"stream", func(c *grpc.ClientConn) (total int, err error) {
			st, err := c.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true},
				pb.KV_RangeStream_FullMethodName, codec)
			if err != nil {
				return 0, err
			}
			if err := st.SendMsg(all); err != nil {
				return 0, err
			}
			if err := st.CloseSend(); err != nil {
				return 0, err
			}
			for {
				var n int
				if st.RecvMsg(&n) != nil {
					return total, nil // the size shows whether it was complete
				}
				total += n
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, peak := anonymous(t, s.Pid()), int64(0)
			var wg sync.WaitGroup
			for range clients {
				conn := s.Dial()
				wg.Go(func() {
					if n, err := c.read(conn); err != nil || n < keys*value ||
						n > keys*(value+100) {
						t.Errorf("%d bytes, %v", n, err)
					}
				})
			}
			done := make(chan struct{})
			go func() { wg.Wait(); close(done) }()
			for tick := time.NewTicker(2 * time.Millisecond); ; {
				peak = max(peak, anonymous(t, s.Pid()))
				select {
				case <-tick.C:
					continue
				case <-done:
				}
				break
			}
			t.Logf("%d clients read %d MiB in all; %d MiB before, at most %d MiB", clients,
				clients*keys*value/mib, before/mib, peak/mib)
			highest = max(highest, peak)
			if peak > before+limit+slack {
				t.Errorf("%d MiB of memory, %d MiB before and the limit is %d MiB", peak/mib,
					before/mib, limit/mib)
			}
		})
	}
	// The member returns the memory of the answers when it is idle, although the next collection
	// may be minutes away.
	now := anonymous(t, s.Pid())
	most := written + 4*mib // what was written may have been returned in part
	for deadline := time.Now().Add(time.Minute); now > most &&
		time.Now().Before(deadline); now = anonymous(t, s.Pid()) {
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("%d MiB before the ranges, at most %d MiB, %d MiB at rest", written/mib,
		highest/mib, now/mib)
	if now > most {
		t.Error("memory is not returned")
	}
}
