package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/websocket"
)

func postJSON(t *testing.T, url string, body io.Reader) (int, string) {
	t.Helper()
	res, err := http.Post(url, "application/json", body)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// endless is a body without an end.
type endless struct{ first string }

func (e *endless) Read(b []byte) (int, error) {
	n := copy(b, e.first)
	e.first = e.first[n:]
	for i := n; i < len(b); i++ {
		b[i] = ' '
	}
	return len(b), nil
}

// TestGatewayBounds: bodies that are too large, or never end, cost little and are answered.
func TestGatewayBounds(t *testing.T) {
	_, addr := member(t, Config{UnsafeNoSync: true, MaxRequestBytes: 1 << 10})
	url := "http://" + addr
	limit := bodyFactor * (1<<10 + 512<<10)
	for _, c := range []struct {
		body io.Reader
		code int
		want string
	}{
		{strings.NewReader(`{"key":"` + strings.Repeat("a", limit) + `"}`), 429, `"code":8`},
		{&endless{`{"key":"` + strings.Repeat("a", 100)}, 400,
			fmt.Sprintf("more than %d bytes", limit)},
		{&endless{`[`}, 400, fmt.Sprintf("more than %d bytes", limit)},
		// The message is whole; later bytes are read for a while.
		{&endless{`{"key":"aaaa"}`}, 200, `"header"`},
	} {
		code, body := postJSON(t, url+"/v3/kv/range", c.body)
		if code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%d %s, want %d %s", code, body, c.code, c.want)
		}
	}
	// The bound is on each message of a stream.
	var many bytes.Buffer
	for range 3 * limit / (16 << 10) {
		fmt.Fprintf(&many, `{"ID":"1","unknown":"%s"}`, strings.Repeat("x", 16<<10))
	}
	code, body := postJSON(t, url+"/v3/lease/keepalive", &many)
	if n := strings.Count(body, "result"); code != 200 || n != 3*limit/(16<<10) {
		t.Errorf("%d, %d answers", code, n)
	}
}

// TestGatewayConversation: a client sends a message when it has the answer to the one before, over
// HTTP/1.1 and over a WebSocket.
func TestGatewayConversation(t *testing.T) {
	_, addr := member(t, Config{UnsafeNoSync: true})
	cc := dial(t, addr)
	if _, err := pb.NewLeaseClient(cc).LeaseGrant(timeout(t),
		&pb.LeaseGrantRequest{ID: 7, TTL: 100}); err != nil {
		t.Fatal(err)
	}
	check := func(line string) {
		t.Helper()
		var m struct{ Result struct{ ID, TTL string } }
		if err := json.Unmarshal([]byte(line), &m); err != nil || m.Result.ID != "7" ||
			m.Result.TTL != "100" {
			t.Errorf("%q: %v", line, err)
		}
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(c, "POST /v3/lease/keepalive HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n", addr)
	const message = `{"ID":"7"}`
	send := func() { fmt.Fprintf(c, "%x\r\n%s\r\n", len(message), message) }
	send()
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(res.Body)
	for i := range 3 {
		if i > 0 {
			send()
		}
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		check(line)
	}
	fmt.Fprint(c, "0\r\n\r\n")
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v after the last answer", rest, err)
	}

	ws, err := websocket.Dial("ws://"+addr+"/v3/lease/keepalive", "", "http://elsewhere.example")
	if err != nil {
		t.Fatal(err)
	}
	ws.SetDeadline(time.Now().Add(time.Minute))
	for range 3 {
		if err := websocket.Message.Send(ws, message); err != nil {
			t.Fatal(err)
		}
		var line string
		if err := websocket.Message.Receive(ws, &line); err != nil {
			t.Fatal(err)
		}
		check(line)
	}
	ws.Close()

	// A watch over a WebSocket ends with it.
	m, addr := member(t, Config{UnsafeNoSync: true})
	ws, err = websocket.Dial("ws://"+addr+"/v3/watch", "Bearer", "http://elsewhere.example")
	if err != nil {
		t.Fatal(err)
	}
	ws.SetDeadline(time.Now().Add(time.Minute))
	if err := websocket.Message.Send(ws, `{"create_request":{"key":"aw=="}}`); err != nil {
		t.Fatal(err)
	}
	var line string
	if err := websocket.Message.Receive(ws, &line); err != nil ||
		!strings.Contains(line, `"created":true`) {
		t.Fatal(line, err)
	}
	if n := m.replica.Hub().Metrics().Watchers; n != 1 {
		t.Errorf("%d watchers", n)
	}
	ws.Close()
	for end := time.Now().Add(time.Minute); m.replica.Hub().Metrics().Watchers != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the watcher outlives its WebSocket")
		}
	}
}

// TestGatewayEndsWithItsClient: who goes away while it waits for a lock takes its key along.
func TestGatewayEndsWithItsClient(t *testing.T) {
	_, addr := member(t, Config{UnsafeNoSync: true})
	cc := dial(t, addr)
	if code, body := postJSON(t, "http://"+addr+"/v3/lock/lock",
		strings.NewReader(`{"name":"bA=="}`)); code != 200 {
		t.Fatal(code, body)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v3/lock/lock",
		strings.NewReader(`{"name":"bA=="}`))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := http.DefaultClient.Do(req)
		ended <- err
	}()
	waiters := func(want int64) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			res, err := pb.NewKVClient(cc).Range(t.Context(),
				&pb.RangeRequest{Key: []byte("l/"), RangeEnd: []byte("l0"), CountOnly: true})
			if err == nil && res.Count == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%v, %v, want %d", res, err, want)
			}
		}
	}
	waiters(2)
	cancel()
	if err := <-ended; err == nil {
		t.Error("answered")
	}
	waiters(1)
}

// TestSplitHTTP: HTTP on ports of its own, and what the ports for metrics do not serve.
func TestSplitHTTP(t *testing.T) {
	// URLs with the same address share a listener.
	m, addr := member(t,
		Config{UnsafeNoSync: true, ListenClientHTTPURLs: []string{"http://127.0.0.2:0"},
			ListenMetricsURLs: []string{"http://127.0.0.3:0"}})
	<-m.Serving()
	var web, metrics string
	for _, l := range m.listeners {
		url := "http://" + l.listener.Addr().String()
		switch {
		case l.metrics:
			metrics = url
		case l.http:
			web = url
		}
	}
	for _, c := range []struct {
		url  string
		code int
	}{
		{web + "/health", 200}, {web + "/version", 200}, {web + "/metrics", 200},
		{web + "/debug/vars", 200}, {web + "/debug/pprof/", 404}, {web + "/debug/requests", 404},
		{metrics + "/health", 200}, {metrics + "/readyz", 200}, {metrics + "/metrics", 200},
		{metrics + "/version", 404}, {metrics + "/v3/kv/range", 404},
		{metrics + "/debug/vars", 404},
	} {
		if code, body := get(t, c.url); code != c.code {
			t.Errorf("%s: %d %s, want %d", c.url, code, body, c.code)
		}
	}
	if code, body := postJSON(t, web+"/v3/kv/range",
		strings.NewReader(`{"key":"aw=="}`)); code != 200 {
		t.Error(code, body)
	}
	if _, err := http.Get("http://" + addr + "/health"); err == nil {
		t.Error("HTTP is served at the port of gRPC")
	}
	if _, err := pb.NewKVClient(dial(t, addr)).Range(timeout(t),
		&pb.RangeRequest{Key: []byte("k")}); err != nil {
		t.Error(err)
	}
}

// TestRunbooksAreServed follows the link of each alert, after the change that observe.md asks
// for.
func TestRunbooksAreServed(t *testing.T) {
	m, addr := member(t,
		Config{UnsafeNoSync: true, ListenMetricsURLs: []string{"http://127.0.0.3:0"}})
	<-m.Serving()
	rules, err := os.ReadFile("../packaging/monitoring/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	links := regexp.MustCompile(`(?m)runbook_url: https://vigil.example/(\S+)#(\S+)$`).FindAllStringSubmatch(string(rules), -1)
	if len(links) < 40 {
		t.Fatalf("%d links", len(links))
	}
	bases := []string{"http://" + addr}
	for _, l := range m.listeners {
		if l.metrics {
			bases = append(bases, "http://"+l.listener.Addr().String())
		}
	}
	if len(bases) != 2 {
		t.Fatal(bases)
	}
	for _, base := range bases {
		pages := map[string]string{}
		for _, l := range links {
			if pages[l[1]] == "" {
				code, body := get(t, base+"/console/"+l[1])
				if code != http.StatusOK {
					t.Fatalf("%s: %d %s", l[0], code, body)
				}
				pages[l[1]] = body
			}
			if !strings.Contains(pages[l[1]], ` id="`+l[2]+`"`) {
				t.Errorf("%s: no such section", l[0])
			}
		}
	}
	_, off := member(t, Config{UnsafeNoSync: true, Console: "off"})
	if code, _ := get(t, "http://"+off+"/console/docs/"); code != http.StatusNotFound {
		t.Errorf("the pages without the console: %d", code)
	}
}

// TestDebugRequests: a member with a verbose log records calls.
func TestDebugRequests(t *testing.T) {
	log := slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelDebug}))
	m, err := Start(Config{DataDir: t.TempDir() + "/m.etcd", UnsafeNoSync: true, Logger: log,
		ListenClientURLs:    []string{"http://127.0.0.1:0"},
		AdvertiseClientURLs: []string{DefaultClientURL},
		ListenPeerURLs:      []string{"http://127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, m)
	<-m.replica.Ready()
	addr := m.ClientAddrs()[0].String()
	if _, err := pb.NewKVClient(dial(t, addr)).Range(timeout(t), &pb.RangeRequest{}); err == nil {
		t.Error("a range without a key")
	}
	code, body := get(t, "http://"+addr+"/debug/requests?fam=grpc.Recv.KV&b=0&exp=1")
	if code != 200 || !strings.Contains(body, "/etcdserverpb.KV/Range") ||
		!strings.Contains(body, "key is not provided") {
		t.Errorf("%d %s", code, body)
	}
	if code, _ := get(t, "http://"+addr+"/debug/pprof/"); code != 200 {
		t.Errorf("/debug/pprof/: %d", code)
	}
}

// A page of another origin reads nothing with the cookie of the browser's user, and opens no
// WebSocket unless its origin is listed.
func TestWebSocketOfAnotherOrigin(t *testing.T) {
	v := newVault(t, Config{CORS: []string{"http://good.example"}})
	token := v.token("root", "root")
	watch := func(origin, protocol, cookie string) (string, error) {
		c, err := websocket.NewConfig("ws://"+v.addr+"/v3/watch", origin)
		if err != nil {
			t.Fatal(err)
		}
		if protocol != "" {
			c.Protocol = []string{protocol}
		}
		if cookie != "" {
			c.Header.Set("Cookie", "token="+cookie)
		}
		ws, err := c.DialContext(timeout(t))
		if err != nil {
			return "", err
		}
		defer ws.Close()
		ws.SetDeadline(time.Now().Add(time.Minute))
		if err := websocket.Message.Send(ws, `{"create_request":{"key":"aw=="}}`); err != nil {
			t.Fatal(err)
		}
		var line string
		err = websocket.Message.Receive(ws, &line)
		return line, err
	}
	for _, c := range []struct{ origin, cookie, want string }{
		{"http://" + v.addr, token, `"created":true`},
		{"http://good.example", token, noUser},
	} {
		if line, err := watch(c.origin, "", c.cookie); err != nil ||
			!strings.Contains(line, c.want) ||
			c.want == noUser && !strings.Contains(line, `"canceled":true`) {
			t.Errorf("from %s: %s, %v, want %s", c.origin, line, err, c.want)
		}
	}
	if line, err := watch("http://elsewhere.example", "", token); err == nil {
		t.Errorf("from an origin that is not listed: %s", line)
	}
}

// TestGatewayStreams: requests that stay open, which anybody may make, leave room for others,
// whatever the limit of calls on one connection is.
func TestGatewayStreams(t *testing.T) {
	m, addr := member(t, Config{UnsafeNoSync: true, MaxConcurrentStreams: 20})
	url := "http://" + addr
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range 50 {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v3/watch",
			strings.NewReader(`{"create_request":{"key":"aw=="}}`))
		if err != nil {
			t.Fatal(err)
		}
		// Each on a connection of its own.
		res, err := (&http.Transport{}).RoundTrip(r)
		if err != nil {
			t.Fatalf("watch %d: %v", i, err)
		}
		defer res.Body.Close()
		if line, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil ||
			!strings.Contains(line, `"created":true`) {
			t.Fatalf("watch %d: %s %v", i, line, err)
		}
	}
	client := &http.Client{Timeout: time.Minute}
	res, err := client.Post(url+"/v3/kv/range", "application/json",
		strings.NewReader(`{"key":"aw=="}`))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	// And they end with their clients.
	cancel()
	for deadline := time.Now().Add(time.Minute); len(m.replica.Hub().Stats().Streams) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("streams are left")
		}
	}
}

// TestGatewaySlowReaders: answers to clients that do not read stay within the limit, and their
// memory is free when others need it.
//
//vigil:norace
func TestGatewaySlowReaders(t *testing.T) {
	const limit = 32 << 20
	m, addr := member(t, Config{UnsafeNoSync: true, MaxRangeBytesInFlight: limit})
	kvs := pb.NewKVClient(dial(t, addr))
	for i := range 24 {
		put := &pb.PutRequest{Key: fmt.Appendf(nil, "k%02d", i),
			Value: bytes.Repeat([]byte{byte(i)}, 1<<20)}
		if _, err := kvs.Put(timeout(t), put); err != nil {
			t.Fatal(err)
		}
	}
	const body = `{"key":"aw==","range_end":"bA=="}`
	for range 2 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST /v3/kv/range HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s",
			len(body), body)
	}
	for deadline := time.Now().Add(time.Minute); m.ranges.Stats().Held == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no client reads")
		}
	}
	// Who waits is served in the end: the others are cut off.
	began := time.Now()
	code, answer := postJSON(t, "http://"+addr+"/v3/kv/range", strings.NewReader(body))
	if code != 200 || !strings.HasSuffix(answer, `"count":"24"}`) || !json.Valid([]byte(answer)) {
		t.Errorf("%d, %d bytes, ends as %q", code, len(answer), answer[max(0, len(answer)-40):])
	}
	t.Logf("served after %v", time.Since(began))
	if held := m.ranges.Stats().Held; held > limit {
		t.Errorf("%d bytes are held, the limit is %d", held, limit)
	}
}

// TestGatewayVanishedClients: watches end with their clients, and what still reads from a client
// when its request is over does the server no harm.
func TestGatewayVanishedClients(t *testing.T) {
	m, addr := member(t, Config{UnsafeNoSync: true})
	const create = `{"create_request":{"key":"aw=="}}`
	streams := func(n int, what string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); len(m.replica.Hub().Stats().Streams) != n; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d streams, want %d", what, len(m.replica.Hub().Stats().Streams), n)
			}
		}
	}
	for _, linger := range []int{-1, 0} { // closed, and reset
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST /v3/watch HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(create), create)
		streams(1, "in the middle of a body")
		c.(*net.TCPConn).SetLinger(linger)
		c.Close()
		streams(0, "its client has gone")
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	h2 := &http.Transport{Protocols: &protocols}
	defer h2.CloseIdleConnections()
	open := func(timeout string) (*http.Response, io.Closer) {
		in, out := io.Pipe()
		r, err := http.NewRequest(http.MethodPost, "http://"+addr+"/v3/watch", in)
		if err != nil {
			t.Fatal(err)
		}
		if timeout != "" {
			r.Header.Set("Grpc-Timeout", timeout)
		}
		go out.Write([]byte(create))
		res, err := h2.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		return res, out
	}
	res, out := open("")
	streams(1, "over HTTP/2")
	res.Body.Close()
	streams(0, "it was reset")
	out.Close()
	// The call ends, and the body does not.
	for range 10 {
		res, out := open("20m")
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		out.Close()
	}
	streams(0, "after their time")
	if code, _ := get(t, "http://"+addr+"/health"); code != http.StatusOK {
		t.Errorf("/health: %d", code)
	}
}

// wsRange asks for a range over a WebSocket, and returns the connection below it too.
func wsRange(t *testing.T, addr, body string) (*websocket.Conn, net.Conn) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	config, err := websocket.NewConfig("ws://"+addr+"/v3/kv/range", "http://elsewhere.example")
	if err != nil {
		t.Fatal(err)
	}
	ws, err := websocket.NewClient(config, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := websocket.Message.Send(ws, body); err != nil {
		t.Fatal(err)
	}
	return ws, c
}

// TestWebSocketSlowReaders: large answers over WebSockets are within the limit too, and those that
// are not read make room.
//
//vigil:norace
func TestWebSocketSlowReaders(t *testing.T) {
	const limit = 32 << 20
	m, addr := member(t, Config{UnsafeNoSync: true, MaxRangeBytesInFlight: limit})
	kvs := pb.NewKVClient(dial(t, addr))
	for i := range 24 {
		put := &pb.PutRequest{Key: fmt.Appendf(nil, "k%02d", i),
			Value: bytes.Repeat([]byte{byte(i)}, 1<<20)}
		if _, err := kvs.Put(timeout(t), put); err != nil {
			t.Fatal(err)
		}
	}
	const body = `{"key":"aw==","range_end":"bA=="}`
	for range 3 {
		wsRange(t, addr, body)
	}
	for deadline := time.Now().Add(time.Minute); m.ranges.Stats().Held == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing is held for answers")
		}
	}
	// A client that reads gets the answer whole.
	ws, _ := wsRange(t, addr, body)
	ws.SetDeadline(time.Now().Add(time.Minute))
	var answer []byte
	for !bytes.HasSuffix(answer, []byte(`"count":"24"}`)) {
		b := make([]byte, 1<<20)
		n, err := ws.Read(b) // of any frame
		if err != nil {
			t.Fatalf("%v after %d bytes", err, len(answer))
		}
		answer = append(answer, b[:n]...)
	}
	if !json.Valid(answer) {
		t.Errorf("%d bytes that are no JSON", len(answer))
	}
	if held := m.ranges.Stats().Held; held > limit {
		t.Errorf("%d bytes are held, the limit is %d", held, limit)
	}
	// A small one is one frame.
	ws, _ = wsRange(t, addr, `{"key":"ew=="}`)
	var line string
	if err := websocket.Message.Receive(ws, &line); err != nil ||
		!strings.HasPrefix(line, `{"header":{`) {
		t.Errorf("%s, %v", line, err)
	}
}

// TestGatewayCounts: calls through the gateway are counted and logged as others are.
func TestGatewayCounts(t *testing.T) {
	var log lockedBuffer
	m, err := Start(Config{DataDir: t.TempDir() + "/m.etcd", UnsafeNoSync: true,
		Logger:            slog.New(slog.NewTextHandler(&log, nil)),
		WarnUnaryDuration: time.Nanosecond, ListenClientURLs: []string{"http://127.0.0.1:0"},
		AdvertiseClientURLs: []string{DefaultClientURL},
		ListenPeerURLs:      []string{"http://127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, m) })
	<-m.replica.Ready()
	url := "http://" + m.ClientAddrs()[0].String()
	r, err := http.NewRequestWithContext(timeout(t), http.MethodPost, url+"/v3/kv/put",
		strings.NewReader(`{"key":"aw==","value":"dg=="}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Grpc-Metadata-Client-Api-Version", "3.7")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if code, body := postJSON(t, url+"/v3/kv/range", strings.NewReader(`{}`)); code != 400 {
		t.Errorf("%d %s", code, body)
	}
	_, metrics := get(t, url+"/metrics")
	for _, want := range []string{
		`grpc_server_started_total{grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"} 1`,
		`grpc_server_handled_total{grpc_code="OK",grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"} 1`,
		`grpc_server_handled_total{grpc_code="InvalidArgument",grpc_method="Range",grpc_service="etcdserverpb.KV",grpc_type="unary"} 1`,
		`grpc_server_msg_received_total{grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"} 1`,
		`grpc_server_msg_sent_total{grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"} 1`,
		`etcd_server_client_requests_total{client_api_version="3.7",type="unary"} 1`,
		`etcd_server_client_requests_total{client_api_version="unknown",type="unary"} 1`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("no metric %s", want)
		}
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	if s := log.buf.String(); strings.Count(s, `msg="request stats"`) != 2 ||
		!strings.Contains(s, `remote=gateway "response type"=/etcdserverpb.KV/Put`) {
		t.Errorf("logged:\n%s", s)
	}
}

// TestGatewayWatchOfLargeValues: the memory of a large answer of a stream counts until the next
// one, not until the stream ends.
func TestGatewayWatchOfLargeValues(t *testing.T) {
	m, addr := member(t, Config{UnsafeNoSync: true, MaxRequestBytes: 4 << 20})
	kvs := pb.NewKVClient(dial(t, addr))
	c := &http.Client{Transport: &http.Transport{}}
	res, err := c.Post("http://"+addr+"/v3/watch", "application/json",
		strings.NewReader(`{"create_request":{"key":"aw=="}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	if line, err := lines.ReadString('\n'); err != nil ||
		!strings.Contains(line, `"created":true`) {
		t.Fatal(line, err)
	}
	for range 8 {
		if _, err := kvs.Put(timeout(t),
			&pb.PutRequest{Key: []byte("k"), Value: make([]byte, 3<<20)}); err != nil {
			t.Fatal(err)
		}
		if line, err := lines.ReadString('\n'); err != nil || len(line) < 4<<20 {
			t.Fatal(len(line), err)
		}
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		held := m.ranges.Stats().Held
		if held == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are held for a stream of which everything was read", held)
		}
	}
}
