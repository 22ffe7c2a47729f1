package diff

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// rawStream is a watch stream that takes any bytes.
type rawStream struct {
	grpc.ClientStream
	cancel context.CancelFunc
}

func openRaw(t *testing.T, s *Side, md ...string) rawStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(),
		md...), callTimeout)
	t.Cleanup(cancel)
	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	st, err := s.Conn.NewStream(ctx, desc, "/etcdserverpb.Watch/Watch",
		grpc.ForceCodec(bytesCodec{}))
	if err != nil {
		t.Fatal(err)
	}
	return rawStream{st, cancel}
}

// receive takes n responses, as text without ids and term, and then, if the stream is to end, its
// status.
func (r rawStream) receive(n int, end bool) string {
	var out strings.Builder
	for range n {
		var b []byte
		if err := r.RecvMsg(&b); err != nil {
			return out.String() + ending(err)
		}
		var m pb.WatchResponse
		if err := proto.Unmarshal(b, &m); err != nil {
			return out.String() + err.Error()
		}
		m.Header = &pb.ResponseHeader{Revision: m.Header.GetRevision()}
		text, _ := proto.MarshalOptions{Deterministic: true}.Marshal(&m)
		fmt.Fprintf(&out, "%q\n", text)
	}
	if end {
		var b []byte
		out.WriteString(ending(r.RecvMsg(&b)))
	}
	return out.String()
}

func ending(err error) string {
	if errors.Is(err, io.EOF) {
		return "end"
	}
	return fmt.Sprintf("%v: %s", status.Code(err), message(Outcome{Status: status.Convert(err)}))
}

// TestWatchWire is about the encodings and the ends of watch streams.
func TestWatchWire(t *testing.T) {
	t.Parallel()
	p := NewPair(t)
	p.Do(put("a", "1"))
	p.Do(put("a", "2"))
	p.Do(del("a", ""))
	same := func(name string, run func(s *Side) string) {
		t.Run(name, func(t *testing.T) {
			p.Calls++
			if want, got := run(p.Etcd), run(p.Subject); want != got {
				p.note("watch stream: "+name, []Field{{"responses", want, got}})
			}
		})
	}
	key := field(1, []byte("a"))
	for i, c := range []struct {
		create []byte // the create request
		n      int    // responses to come
	}{
		{join(key, number(3, 2)), 2},
		{join(key, number(3, 2), number(5, 1)), 2},                      // filters one by one
		{join(key, number(3, 2), field(5, []byte{1})), 2},               // and packed
		{join(key, number(3, 2), field(5, []byte{0}), number(5, 1)), 1}, // and both
		{join(key, number(3, 2), field(5, nil)), 2},
		// of a kind that is not known
		{join(key, number(3, 2), number(5, 7), number(5, ^uint64(0))), 2},
		{join(key, number(3, 2), field(99, []byte("x"))), 2},
		{join(key, field(2, nil), number(3, 2), number(4, 5), number(6, 1), number(8, 1)), 2},
		{join(number(7, 5), key, number(3, 2)), 2},
		{join(number(7, 1<<63), key, number(3, 2)), 2},
		{join(field(1, []byte("no")), key, number(3, 4), number(3, 2)), 2},
		{nil, 1},
	} {
		same(fmt.Sprint("create ", i), func(s *Side) string {
			r := openRaw(t, s)
			defer r.cancel()
			msg := field(1, c.create)
			if err := r.SendMsg(&msg); err != nil {
				return err.Error()
			}
			return r.receive(c.n, false)
		})
	}
	for i, msg := range [][]byte{
		{0xff}, {0x0a, 0x05, 1}, field(1, []byte{0x0a, 0x7f}), field(2, []byte{0xff}),
		field(3, []byte{0xff}),
	} {
		same(fmt.Sprint("malformed ", i), func(s *Side) string {
			r := openRaw(t, s)
			if err := r.SendMsg(&msg); err != nil {
				return err.Error()
			}
			return r.receive(0, true)
		})
		same(fmt.Sprint("malformed later ", i), func(s *Side) string {
			r := openRaw(t, s)
			first := field(1, key)
			_ = r.SendMsg(&first)
			out := r.receive(1, false)
			_ = r.SendMsg(&msg)
			return out + r.receive(0, true)
		})
	}
	// What is no command is passed over; of two commands in one message the last one counts.
	for i, msg := range [][]byte{
		nil, field(9, []byte("x")), join(field(2, number(1, 5)), field(1, key)),
		join(field(1, field(1, []byte("b"))), field(1, number(7, 3))),
		join(field(3, nil), field(1, key)),
	} {
		same(fmt.Sprint("commands ", i), func(s *Side) string {
			r := openRaw(t, s)
			defer r.cancel()
			_ = r.SendMsg(&msg)
			last := field(1, join(key, number(7, 9)))
			_ = r.SendMsg(&last)
			n := 1
			if i >= 2 {
				n = 2
			}
			return r.receive(n, false)
		})
	}
	for _, md := range [][]string{{"hasleader", "true"}, {"token", "nonsense"},
		{"client-api-version", "9"}} {
		same(fmt.Sprint("metadata ", md), func(s *Side) string {
			r := openRaw(t, s, md...)
			defer r.cancel()
			msg := field(1, join(key, number(3, 2)))
			_ = r.SendMsg(&msg)
			return r.receive(2, false)
		})
	}
	same("canceled", func(s *Side) string {
		r := openRaw(t, s)
		msg := field(1, key)
		_ = r.SendMsg(&msg)
		out := r.receive(1, false)
		r.cancel()
		return out + r.receive(0, true)
	})
	// A client that says no more still hears what happens.
	t.Run("half closed", func(t *testing.T) {
		streams := []rawStream{openRaw(t, p.Etcd), openRaw(t, p.Subject)}
		var heard []string
		for _, r := range streams {
			msg := field(1, key)
			_ = r.SendMsg(&msg)
			heard = append(heard, r.receive(1, false))
			_ = r.CloseSend()
		}
		// The end of the sending side must have arrived, or it proves nothing: a later call on
		// the same connection follows it.
		p.Do(put("a", "3"))
		p.Do(put("a", "4"))
		for i, r := range streams {
			done := make(chan string, 1)
			go func() { done <- r.receive(2, false) }()
			select {
			case s := <-done:
				heard[i] += s
			case <-time.After(lateAfter):
				heard[i] += "nothing"
			}
			r.cancel()
		}
		p.Calls++
		if heard[0] != heard[1] {
			p.note("watch stream: half closed", []Field{{"responses", heard[0], heard[1]}})
		}
	})
	p.Finish(t, &tally)
}

// TestLimits runs both servers with limits of their own.
func TestLimits(t *testing.T) {
	t.Parallel()
	p := NewPair(t, "--max-txn-ops=4", "--max-request-bytes=10000")
	gets := func(n int) (out []any) {
		for range n {
			out = append(out, get("a"))
		}
		return out
	}
	for n := range 7 {
		p.Do(then(gets(n)...))
		p.Do(then(then(gets(n)...)))
		p.Do(then(append(gets(2), then(gets(n)...))...))
	}
	for _, n := range []int{9000, 9900, 10001, 11000, 100_000, 10_000 + mib/2 - 100,
		10_000 + mib/2 + 100} {
		p.Do(put("a", strings.Repeat("v", n)))
		p.Do(then(put("a", strings.Repeat("v", n))))
		p.Do(get(strings.Repeat("v", n)))
		p.Do(with(get("a"), func(r *pb.RangeRequest) { r.KeysOnly = true }))
	}
	p.Sweep()
	p.Finish(t, &tally)
}
