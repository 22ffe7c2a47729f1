package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/websocket"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"vigil/internal/edge/rpc/validate"
	"vigil/internal/kv"
)

// largestValue returns the size of the largest value that a put may have, whose size etcd measures
// in its own encoding.
func largestValue(key string, request int) int {
	n := request - 100
	for size := proto.Size(&pb.PutRequest{Key: []byte(key),
		Value: make([]byte, n)}); validate.Size(size, request) == nil; n++ {
		size++
	}
	return n - 1
}

// entrance is a way to put a value.
type entrance struct {
	name string
	put  func(ctx context.Context, key string, value []byte) error
}

func entrances(t *testing.T, name, addr string) []entrance {
	kvs := pb.NewKVClient(dial(t, addr))
	body := func(key string, value []byte) []byte {
		return fmt.Appendf(nil, `{"key":%q,"value":%q}`,
			base64.StdEncoding.EncodeToString([]byte(key)),
			base64.StdEncoding.EncodeToString(value))
	}
	answer := func(b []byte) error {
		var failed struct {
			Error *struct {
				Message string
				Code    int `json:"grpc_code"`
			} `json:"error"`
			Code    int
			Message string
		}
		if err := json.Unmarshal(b, &failed); err != nil {
			return fmt.Errorf("answer %.200q: %w", b, err)
		}
		switch {
		case failed.Error != nil:
			return status.Error(codes.Code(failed.Error.Code), failed.Error.Message)
		case failed.Code != 0:
			return status.Error(codes.Code(failed.Code), failed.Message)
		}
		return nil
	}
	post := func(client *http.Client, base string) func(context.Context, string, []byte) error {
		return func(ctx context.Context, key string, value []byte) error {
			r, err := http.NewRequestWithContext(ctx, "POST", base+"/v3/kv/put",
				bytes.NewReader(body(key, value)))
			if err != nil {
				return err
			}
			res, err := client.Do(r)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			b, err := io.ReadAll(res.Body)
			return errors.Join(err, answer(b))
		}
	}
	two, base := h2Client(t, addr, false)
	return []entrance{
		{name + " gRPC", func(ctx context.Context, key string, value []byte) error {
			_, err := kvs.Put(ctx, &pb.PutRequest{Key: []byte(key), Value: value})
			return err
		}},
		{name + " HTTP/1", post(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
			"http://"+addr)},
		{name + " HTTP/2", post(two, base)},
		{name + " WebSocket", func(ctx context.Context, key string, value []byte) error {
			ws, err := websocket.Dial("ws://"+addr+"/v3/kv/put?method=POST", "", "http://"+addr)
			if err != nil {
				return err
			}
			defer ws.Close()
			ws.MaxPayloadBytes = 1 << 30
			if err := websocket.Message.Send(ws, string(body(key, value))); err != nil {
				return err
			}
			var b []byte
			if err := websocket.Message.Receive(ws, &b); err != nil {
				return err
			}
			return answer(b)
		}},
	}
}

// TestLargestRequests: a request of exactly the largest size succeeds through every entrance, alone
// and two at a time, a larger one fails as too large, and small requests next to them are not
// rejected.
//
//vigil:norace
func TestLargestRequests(t *testing.T) {
	t.Run("default", func(t *testing.T) {
		_, addr := member(t, Config{UnsafeNoSync: true})
		tryLargest(t, kv.DefaultMaxRequestBytes, addr, entrances(t, "", addr))
	})
	t.Run("20 MiB", func(t *testing.T) {
		_, addr := member(t, Config{UnsafeNoSync: true, MaxRequestBytes: 20 << 20})
		tryLargest(t, 20<<20, addr, entrances(t, "", addr))
	})
	t.Run("150 MiB", func(t *testing.T) {
		if testing.Short() {
			t.Skip("it takes 2 GiB of memory")
		}
		_, addr := member(t, Config{UnsafeNoSync: true, MaxRequestBytes: 150 << 20})
		tryLargest(t, 150<<20, addr, entrances(t, "", addr)[:1])
	})
	t.Run("three members", func(t *testing.T) {
		const most = 40 << 20
		var urls, members []string
		for i := range 3 {
			urls = append(urls, vacantURL(t))
			members = append(members, fmt.Sprintf("m%d=%s", i, urls[i]))
		}
		var all sync.WaitGroup
		started, addrs := make([]*Member, 3), make([]string, 3)
		for i := range started {
			started[i], addrs[i] = begin(t,
				Config{Name: fmt.Sprint("m", i), UnsafeNoSync: true, MaxRequestBytes: most,
					InitialCluster: strings.Join(members, ","),
					ListenPeerURLs: urls[i : i+1], InitialAdvertisePeerURLs: urls[i : i+1]})
		}
		for _, m := range started {
			all.Go(func() { <-m.Serving() })
		}
		all.Wait()
		leader, follower := -1, -1
		for i, m := range started {
			if s := m.replica.Status(); s.Leader == s.MemberID {
				leader = i
			} else {
				follower = i
			}
		}
		if leader < 0 {
			t.Fatal("no leader")
		}
		tryLargest(t, most, addrs[leader],
			append(entrances(t, "leader", addrs[leader])[:1],
				entrances(t, "follower", addrs[follower])[:1]...))
	})
}

// begin starts a member that may have to wait for others.
func begin(t *testing.T, c Config) (*Member, string) {
	t.Helper()
	c.DataDir = t.TempDir()
	c.ListenClientURLs = []string{"http://127.0.0.1:0"}
	c.AdvertiseClientURLs = []string{DefaultClientURL}
	c.Logger = slog.New(slog.DiscardHandler)
	m, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, m) })
	return m, m.ClientAddrs()[0].String()
}

func tryLargest(t *testing.T, most int, addr string, ways []entrance) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	value := make([]byte, largestValue("large", most)+1)
	fits, small := value[:len(value)-1], pb.NewKVClient(dial(t, addr))
	for _, e := range ways {
		if err := e.put(ctx, "large", fits); err != nil {
			t.Errorf("%s: a request of %d bytes: %v", e.name, most, err)
		}
		if err := e.put(ctx, "large", value); err == nil ||
			!strings.Contains(err.Error(), "request is too large") {
			t.Errorf("%s: a request of %d bytes: %v", e.name, most+1, err)
		}
		// Two at once, with small ones next to them.
		var large, others sync.WaitGroup
		for range 2 {
			large.Go(func() {
				if err := e.put(ctx, "large", fits); err != nil {
					t.Errorf("%s: one of two requests of %d bytes: %v", e.name, most, err)
				}
			})
		}
		over := make(chan struct{})
		count := 0
		for i := range 4 {
			others.Go(func() {
				for {
					if _, err := small.Put(ctx,
						&pb.PutRequest{Key: fmt.Append(nil, "small", i),
							Value: []byte("x")}); err != nil {
						t.Errorf("%s: a small request next to two large ones: %v", e.name, err)
						return
					}
					if i == 0 {
						count++
					}
					select {
					case <-over:
						return
					default:
					}
				}
			})
		}
		large.Wait()
		close(over)
		others.Wait()
		t.Logf("%s: %d small ones meanwhile", e.name, count)
	}
}
