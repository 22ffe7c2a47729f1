package abuse

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"vigil/test/proc"
)

// side is a way to reach a server: the address, with TLS or without, and what requests say of
// themselves.
type side struct {
	name   string
	addr   string
	secure bool
	path   string // of a request that exists
	kind   string // content type
	many   bool   // HTTP/2
}

// open opens a connection to a side.
func (d side) open(t *testing.T) (net.Conn, error) {
	nc, err := net.Dial("tcp", d.addr)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return nil, err
	}
	if !d.secure {
		return nc, nil
	}
	protocol := "http/1.1"
	if d.many {
		protocol = "h2"
	}
	secure := tls.Client(nc, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
	return secure, secure.Handshake()
}

// sides returns how a server runs that can be reached in all ways, and the ways.
func sides(t *testing.T) (config proc.Config, list []side) {
	var addrs [3]string
	for i := range addrs {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addrs[i] = l.Addr().String()
		if i == 0 {
			config.ClientPort = l.Addr().(*net.TCPAddr).Port
		}
		l.Close()
	}
	config.Args = []string{"--auto-tls", fmt.Sprint("--max-range-bytes-in-flight=", 64*mib),
		"--listen-client-urls=http://" + addrs[0] + ",https://" + addrs[1],
		"--advertise-client-urls=http://" + addrs[0],
		"--listen-metrics-urls=http://" + addrs[2]}
	const grpc, json = "application/grpc", "application/json"
	return config, []side{
		{"gRPC", addrs[0], false, watchMethod, grpc, true},
		{"gRPC with TLS", addrs[1], true, watchMethod, grpc, true},
		{"HTTP/2", addrs[0], false, "/v3/watch", json, true},
		{"HTTP/2 with TLS", addrs[1], true, "/v3/watch", json, true},
		{"HTTP/2 of the metrics", addrs[2], false, "/metrics", json, true},
		{"HTTP/1", addrs[0], false, "/v3/watch", json, false},
		{"HTTP/1 with TLS", addrs[1], true, "/v3/watch", json, false},
	}
}

// TestFramesOnEverySide: the floods of TestFrames, at every server of HTTP/2 that a process has.
func TestFramesOnEverySide(t *testing.T) {
	config, list := sides(t)
	for _, d := range list {
		if !d.many || testing.Short() && d.secure { // TLS changes no frame
			continue
		}
		t.Run(d.name, func(t *testing.T) {
			attack{
				config: config,
				do: func(t *testing.T, _ *proc.Server) error {
					for _, row := range floods() {
						conns, sent := 0, 0
						for end := time.Now().Add(spell(300 * time.Millisecond)); time.Now().Before(end); conns++ {
							nc, err := d.open(t)
							if err != nil {
								return err
							}
							c, err := newFrames(nc, true,
								http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
							if err != nil {
								return err
							}
							c.side = &d
							for i := uint32(0); row.send(c, i) == nil &&
								(i%100 < 99 || time.Now().Before(end)); i++ {
								sent++
							}
							nc.Close()
						}
						t.Logf("%s: %d frames on %d connections", row.name, sent, conns)
					}
					return nil
				},
				most: figures{memory: 200 * mib, log: 512 << 10, files: 30, worst: 2e9},
			}.run(t)
		})
	}
}

// TestUnreadAnswers: clients ask for pages and streams by the thousand with a few bytes each, and
// read nothing. What that takes is bounded, whatever they ask for and wherever.
func TestUnreadAnswers(t *testing.T) {
	const requests = 3000 // on each of some connections
	config, list := sides(t)
	for _, row := range []struct {
		side         string
		method, path string
		body         string
		conns        int
		always       bool // also in the short form: one of each kind of answer, and each server
	}{
		{"HTTP/2", "GET", "/metrics", "", 4, false},
		{"HTTP/2 with TLS", "GET", "/metrics", "", 4, true},
		{"HTTP/2 of the metrics", "GET", "/metrics", "", 4, true},
		{"HTTP/2", "GET", "/debug/vars", "", 4, true},
		{"HTTP/2", "GET", "/health", "", 2, false},
		{"HTTP/2", "POST", "/v3/watch", `{"create_request":{"key":"aw=="}}`, 7, true},
		{"HTTP/2 with TLS", "POST", "/v3/watch", `{"create_request":{"key":"aw=="}}`, 7, false},
		{"HTTP/2", "POST", "/v3/lease/keepalive", `{"ID":1}`, 4, false},
		{"HTTP/2", "POST", "/v3/kv/range", `{"key":"aw==","range_end":"bA=="}`, 4, true},
		{"HTTP/2", "POST", "/v3/kv/range", `{"key":"a`, 4, false},
		{"HTTP/2", "POST", "/nothing", "", 4, false},
		{"HTTP/1", "GET", "/metrics", "", 1000, true},
		{"HTTP/1 with TLS", "GET", "/metrics", "", 500, false},
		{"HTTP/1", "POST", "/v3/watch", `{"create_request":{"key":"aw=="}}`, 1000, false},
		{"HTTP/1", "GET", "WebSocket", "", 1000, false},
	} {
		if testing.Short() && !row.always {
			continue
		}
		t.Run(row.side+" "+row.method+" "+row.path+" "+row.body, func(t *testing.T) {
			attack{
				config:  config,
				prepare: fill(2),
				do: func(t *testing.T, s *proc.Server) error {
					var d side
					for _, x := range list {
						if x.name == row.side {
							d = x
						}
					}
					sent := 0
					for range row.conns {
						nc, err := d.open(t)
						if err != nil {
							return err
						}
						count := &counting{Conn: nc}
						switch {
						case d.many:
							err = askMany(count, row.method, row.path, row.body, requests)
						case strings.Contains(row.path, "WebSocket"):
							_, err = fmt.Fprintf(count,
								"GET /v3/watch HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
									"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
						default:
							_, err = fmt.Fprintf(count,
								"%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s",
								row.method, row.path, len(row.body), row.body)
						}
						if err != nil {
							return err
						}
						sent += count.sent
					}
					t.Logf("%d KiB were sent", sent>>10)
					time.Sleep(3 * time.Second) // until the server has done what it does for them
					// Another client is served on the same side.
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					r, err := http.NewRequestWithContext(ctx, "GET",
						"http://"+list[4].addr+"/metrics", nil)
					if err != nil {
						return err
					}
					res, err := http.DefaultClient.Do(r)
					if err != nil {
						return err
					}
					defer res.Body.Close()
					if b, err := io.ReadAll(res.Body); err != nil ||
						res.StatusCode != http.StatusOK {
						return fmt.Errorf("another client's metrics: %d %s, %w",
							res.StatusCode, b, err)
					}
					return nil
				},
				// Ranges have their own memory, and here each that waits has the JSON of one record
				// too, 4/3 of it.
				most: figures{memory: 250*mib + 64*mib + 64*mib*4/3, log: 512 << 10,
					files: 1100, worst: 3e9},
			}.run(t)
		})
	}
}

// counting counts what is sent.
type counting struct {
	net.Conn
	sent int
}

func (c *counting) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent += n
	return n, err
}

// askMany sends requests on a connection of HTTP/2 whose windows are closed. What the server
// answers is not read but for frames without data. A body without an end lets its request wait.
func askMany(nc net.Conn, method, path, body string, requests int) error {
	if _, err := io.WriteString(nc, http2.ClientPreface); err != nil {
		return err
	}
	fr := http2.NewFramer(nc, nc)
	if err := fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize,
		Val: 0}); err != nil {
		return err
	}
	go func() {
		for {
			if _, err := fr.ReadFrame(); err != nil {
				return
			}
		}
	}()
	var head strings.Builder
	enc := hpack.NewEncoder(&head)
	for i := range requests {
		head.Reset()
		for _, f := range [][2]string{{":method", method}, {":scheme", "http"}, {":path", path},
			{":authority", "x"}, {"content-type", "application/json"}} {
			if err := enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
				return err
			}
		}
		id := uint32(2*i + 1)
		err := fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id,
			BlockFragment: []byte(head.String()), EndHeaders: true, EndStream: body == ""})
		if body != "" {
			err = errors.Join(err, fr.WriteData(id, strings.HasSuffix(body, "}"), []byte(body)))
		}
		if err != nil {
			return nil // the server has ended the connection
		}
	}
	return nil
}
