package transport

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
)

// TestConnEnded: the reason is reported when the server ends the connection of a client, and not when the client leaves.
func TestConnEnded(t *testing.T) {
	type end struct{ client, reason string }
	ends := make(chan end, 10)
	_, addr := startServer(t, true, func(o *Options) {
		o.ConnEnded = func(client net.Addr, reason error) { ends <- end{client.String(), reason.Error()} }
	})
	for _, bad := range []bool{false, true} {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if _, err := io.WriteString(nc, http2.ClientPreface); err != nil {
			t.Fatal(err)
		}
		fr := http2.NewFramer(nc, nc)
		fr.AllowIllegalWrites = true
		if err := fr.WriteSettings(); err != nil {
			t.Fatal(err)
		}
		if !bad {
			nc.Close()
			continue
		}
		if err := fr.WriteData(0, false, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if got, want := <-ends, (end{nc.LocalAddr().String(), "ended with PROTOCOL_ERROR: data on stream 0"}); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// TestBrowser: a client that does not speak gRPC gets a text.
func TestBrowser(t *testing.T) {
	_, addr := startServer(t, true, nil)
	r := request{fields: []string{":method", "GET", "content-type", ""}}
	if got := r.exchange(t, addr); !strings.HasPrefix(got, ":status: 415\ncontent-type: text/plain") || !strings.Contains(got, "data 74686973") {
		t.Errorf("answered with\n%s", got)
	}
}

// TestStopAtOnce: Stop closes all connections at once if its time is over at the beginning.
func TestStopAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, own bool) {
		entered := make(chan struct{})
		s, addr := startServer(t, own, func(o *Options) {
			o.Services[0].Methods = append(o.Services[0].Methods, unaryMethod("Wait", func(ctx context.Context, _ string) (string, error) {
				close(entered)
				<-ctx.Done()
				return "", ctx.Err()
			}))
		})
		conn := dial(t, addr)
		result := make(chan error, 1)
		go func() {
			_, err := invoke(context.Background(), conn, "Wait", "", grpc.WaitForReady(false))
			result <- err
		}()
		<-entered
		silent, err := net.Dial("tcp", addr) // no handshake
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.Stop(ctx)
		if err := <-result; err == nil {
			t.Error("the call has succeeded")
		}
		if err := silent.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, silent); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("a connection without a handshake: %v", err)
		}
	})
}

// TestBrokenWhileSending: a stream that ends because of what the client sends, while its handler sends, is one answer: headers,
// messages and a trailer, or all of it in one block.
func TestBrokenWhileSending(t *testing.T) {
	_, addr := startServer(t, true, func(o *Options) {
		o.Services[0].Methods = append(o.Services[0].Methods, Method{Name: "Both", ClientStreams: true, ServerStreams: true, Stream: func(s Stream) error {
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				for s.SendMsg(text("x")) == nil {
				}
			}()
			err := s.RecvMsg(text(""))
			<-sent
			return err
		}})
	})
	for range 50 {
		r := request{path: "Both", body: [][]byte{frame(0, []byte{0xff})}, open: true}
		got := r.exchange(t, addr)
		if strings.Count(got, ":status: 200\n") != 1 || strings.Count(got, "grpc-status: 13\n") != 1 {
			t.Fatalf("answered with\n%s", got[:min(len(got), 300)]+" ... "+got[max(0, len(got)-500):])
		}
	}
}
