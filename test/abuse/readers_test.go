package abuse

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"vigil/test/proc"
)

// fill puts so many keys of 1 MiB.
func fill(n int) func(t *testing.T, s *proc.Server) {
	return func(t *testing.T, s *proc.Server) {
		kv := pb.NewKVClient(s.Dial())
		for i := range n {
			put := &pb.PutRequest{Key: fmt.Appendf(nil, "k%03d", i),
				Value: bytes.Repeat([]byte{byte(i)}, mib)}
			if _, err := kv.Put(proc.Context(t), put); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// ask asks for everything by gRPC, on a connection that is not read.
func ask(t *testing.T, s *proc.Server, streams int) error {
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		return err
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		return err
	}
	fr := http2.NewFramer(c, io.MultiReader())
	if err := fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize,
		Val: 1<<31 - 1}); err != nil {
		return err
	}
	if err := fr.WriteWindowUpdate(0, 1<<30); err != nil {
		return err
	}
	req, err := proto.Marshal(&pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l")})
	if err != nil {
		return err
	}
	var head bytes.Buffer
	enc := hpack.NewEncoder(&head)
	for i := range streams {
		head.Reset()
		for _, f := range []string{":method POST", ":scheme http", ":path /etcdserverpb.KV/Range",
			":authority x", "content-type application/grpc", "te trailers"} {
			name, value, _ := strings.Cut(f, " ")
			if err := enc.WriteField(hpack.HeaderField{Name: name, Value: value}); err != nil {
				return err
			}
		}
		id := uint32(2*i + 1)
		if err := fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: head.Bytes(),
			EndHeaders: true}); err != nil {
			return err
		}
		if err := fr.WriteData(id, true,
			append([]byte{0, 0, 0, 0, byte(len(req))}, req...)); err != nil {
			return err
		}
	}
	return nil
}

// TestStalledReaders: clients ask for everything, as often as they may, and read nothing.
func TestStalledReaders(t *testing.T) {
	attack{
		config:  proc.Config{Args: []string{fmt.Sprint("--max-range-bytes-in-flight=", 128*mib)}},
		prepare: fill(48),
		do: func(t *testing.T, s *proc.Server) error {
			for range 4 {
				if err := ask(t, s, 4); err != nil {
					return err
				}
			}
			time.Sleep(time.Second) // until they are all there
			// Another client reads some, and then all.
			kv := pb.NewKVClient(s.Dial(grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1 << 30))))
			for _, read := range []struct {
				limit int64
				most  time.Duration
			}{{1, 20 * time.Second}, {0, time.Minute}} {
				w := measure(s.Pid())
				_, err := kv.Range(proc.Context(t),
					&pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l"), Limit: read.limit})
				if took, _ := w.read(); err != nil || took > read.most {
					return fmt.Errorf("another client's read with limit %d: %v after %v, more than %v", read.limit, err, took, read.most)
				}
			}
			return nil
		},
		most: figures{memory: 128*mib + 200*mib, log: 64 << 10, files: 30, worst: 2e9},
	}.run(t)
}

// TestSlowGatewayReaders is the same through the JSON gateway.
func TestSlowGatewayReaders(t *testing.T) {
	attack{
		config:  proc.Config{Args: []string{fmt.Sprint("--max-range-bytes-in-flight=", 64*mib)}},
		prepare: fill(48),
		do: func(t *testing.T, s *proc.Server) error {
			const body = `{"key":"aw==","range_end":"bA=="}`
			for range 10 {
				c, err := net.Dial("tcp", s.Addr())
				if err != nil {
					return err
				}
				t.Cleanup(func() { c.Close() })
				fmt.Fprintf(c, "POST /v3/kv/range HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			}
			time.Sleep(5 * time.Second)
			return nil
		},
		most: figures{memory: 64*mib + 150*mib, log: 64 << 10, files: 40, worst: 2e9},
	}.run(t)
}

// TestGatewayWatches opens more watches through the gateway than there may be calls on a
// connection.
func TestGatewayWatches(t *testing.T) {
	attack{
		config: proc.Config{Args: []string{"--max-concurrent-streams=20"}},
		do: func(t *testing.T, s *proc.Server) error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for range 60 {
				r, err := http.NewRequestWithContext(ctx, http.MethodPost,
					"http://"+s.Addr()+"/v3/watch",
					strings.NewReader(`{"create_request":{"key":"aw=="}}`))
				if err != nil {
					return err
				}
				go func() {
					if res, err := (&http.Transport{}).RoundTrip(r); err == nil {
						_, _ = io.Copy(io.Discard, res.Body)
						res.Body.Close()
					}
				}()
			}
			time.Sleep(time.Second)
			client := &http.Client{Timeout: time.Minute}
			res, err := client.Post("http://"+s.Addr()+"/v3/kv/range", "application/json",
				strings.NewReader(`{"key":"aw=="}`))
			if err != nil {
				return fmt.Errorf("another client's range through the gateway: %w", err)
			}
			return res.Body.Close()
		},
		most: figures{memory: 100 * mib, log: 64 << 10, files: 80, worst: 2e9},
	}.run(t)
}

// TestStreamTarget asks for a stream in an order that has no meaning.
func TestStreamTarget(t *testing.T) {
	attack{
		prepare: fill(48),
		do: func(t *testing.T, s *proc.Server) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			stream, err := pb.NewKVClient(s.Dial()).RangeStream(ctx,
				&pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l"),
					SortTarget: pb.RangeRequest_VALUE})
			if err != nil {
				return err
			}
			sent := 0
			for {
				r, err := stream.Recv()
				if err == io.EOF {
					break
				}
				if err != nil {
					return err
				}
				sent += proto.Size(r)
			}
			if sent > 50*mib {
				return fmt.Errorf("%d MiB were sent of a store of 48", sent/mib)
			}
			return nil
		},
		most: figures{memory: 200 * mib, log: 64 << 10, files: 20, worst: 2e9},
	}.run(t)
}
