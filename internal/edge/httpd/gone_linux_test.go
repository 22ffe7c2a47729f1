package httpd

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestGoneClients: a request that lasts ends with its client, also if that has sent more than its
// request.
func TestGoneClients(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		for name, more := range map[string]string{"nothing more": "", "a byte": "\n",
			"much": strings.Repeat("x", 100<<10)} {
			t.Run(network+" "+name, func(t *testing.T) {
				begun, over := make(chan struct{}), make(chan struct{})
				lasting := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer close(over)
					_, _ = io.Copy(io.Discard, r.Body)
					close(begun)
					<-r.Context().Done()
				})
				addr := "127.0.0.1:0"
				if network == "unix" {
					addr = filepath.Join(t.TempDir(), "s")
				}
				l, err := net.Listen(network, addr)
				if err != nil {
					t.Fatal(err)
				}
				s := Server(endWithClient(lasting, time.Millisecond), func(net.Conn) {},
					slog.New(slog.DiscardHandler))
				defer s.Close()
				go s.Serve(l)
				c, err := net.Dial(network, l.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprint(c, "POST /v3/watch HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
				<-begun
				io.WriteString(c, more)
				select {
				case <-over:
					t.Error("the request has ended before its client")
				case <-time.After(20 * time.Millisecond): // net/http reads a byte meanwhile
				}
				c.Close()
				select {
				case <-over:
				case <-time.After(time.Minute):
					t.Fatal("the request lasts after its client")
				}
			})
		}
	}
}
