package abuse

import (
	"bytes"
	"net"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"vigil/test/proc"
)

// hello is what a client of HTTP/2 sends before its first request.
const hello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// TestIdleConnections opens more connections than there are file descriptors, on both ports, and
// then writes as much as takes new segments.
func TestIdleConnections(t *testing.T) {
	const descriptors = 512
	attack{
		config: proc.Config{Wrap: []string{"prlimit", "--nofile=512:512", "--"}},
		do: func(t *testing.T, s *proc.Server) error {
			for _, addr := range []string{s.Addr(), s.PeerAddr()} {
				for range descriptors {
					c, err := net.Dial("tcp", addr)
					if err != nil {
						continue
					}
					t.Cleanup(func() { c.Close() })
					_, _ = c.Write([]byte(hello))
				}
			}
			kv := pb.NewKVClient(s.Dial())
			put := &pb.PutRequest{Key: []byte("k"), Value: bytes.Repeat([]byte("v"), mib)}
			for range 40 {
				if _, err := kv.Put(proc.Context(t), put, grpc.WaitForReady(true)); err != nil {
					return err
				}
			}
			return nil
		},
		most: figures{memory: 150 * mib, log: 256 << 10, files: descriptors - 100, worst: 5e9},
	}.run(t)
}
