package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// member starts a member on a free port and waits until it serves.
func member(t *testing.T, c Config) (*Member, string) {
	t.Helper()
	if c.DataDir == "" {
		c.DataDir = filepath.Join(t.TempDir(), "m.etcd")
	}
	if len(c.ListenClientURLs) == 0 {
		c.ListenClientURLs = []string{"http://127.0.0.1:0"}
		c.AdvertiseClientURLs = []string{DefaultClientURL}
	}
	if len(c.ListenPeerURLs) == 0 {
		c.ListenPeerURLs = []string{"http://127.0.0.1:0"}
	}
	c.Logger = slog.New(slog.DiscardHandler)
	m, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, m) })
	<-m.replica.Ready()
	return m, m.ClientAddrs()[0].String()
}

func stop(t *testing.T, m *Member) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := m.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

func dial(t *testing.T, target string) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return cc
}

// vacantURL returns a URL with a port that is free when a member listens on it later, also again
// after a stop. Other processes take ports of 127.0.0.1 at any time, so the address is one that
// only this call uses.
func vacantURL(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp",
		fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254)))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	res, err := http.Get(url)
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

// timeout returns a context that only ends a call that hangs.
func timeout(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestOnePort puts, watches and looks at the member over HTTP, all on one port.
func TestOnePort(t *testing.T) {
	_, addr := member(t, Config{EnablePprof: true})
	cc := dial(t, addr)
	w, err := etcdserverpb.NewWatchClient(cc).Watch(timeout(t))
	if err != nil {
		t.Fatal(err)
	}
	create := &etcdserverpb.WatchCreateRequest{Key: []byte("a"),
		RangeEnd: []byte("c"), PrevKv: true}
	if err := w.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
		t.Fatal(err)
	}
	if res, err := w.Recv(); err != nil || !res.Created {
		t.Fatalf("created: %v, %v", res, err)
	}
	if _, err := etcdserverpb.NewKVClient(cc).Put(timeout(t),
		&etcdserverpb.PutRequest{Key: []byte("b"), Value: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	if res, err := w.Recv(); err != nil || len(res.Events) != 1 ||
		res.Events[0].Kv.ModRevision != 2 {
		t.Fatalf("event: %v, %v", res, err)
	}

	if code, body := get(t, "http://"+addr+"/health"); code != 200 ||
		body != `{"health":"true","reason":""}` {
		t.Errorf("/health: %d %s", code, body)
	}
	for _, want := range []string{
		"etcd_server_has_leader 1", `etcd_server_version{server_version="3.7.3"} 1`,
		"etcd_debugging_mvcc_watcher_total 1", "etcd_debugging_mvcc_current_revision 2",
	} {
		if _, body := get(t, "http://"+addr+"/metrics"); !strings.Contains(body, "\n"+want+"\n") {
			t.Errorf("/metrics lacks %q", want)
		}
	}
	_, body := get(t, "http://"+addr+"/debug/watch?format=json")
	var view struct {
		Watchers []struct {
			Key, State     string
			NextRevision   int64 `json:"next_revision"`
			DeliveredCount int64 `json:"delivered_events"`
		}
	}
	if err := json.Unmarshal([]byte(body), &view); err != nil {
		t.Fatal(err)
	}
	if len(view.Watchers) != 1 || view.Watchers[0].Key != `"a"` ||
		view.Watchers[0].State != "live" ||
		view.Watchers[0].DeliveredCount != 1 || view.Watchers[0].NextRevision != 3 {
		t.Errorf("/debug/watch: %s", body)
	}
	if _, body := get(t, "http://"+addr+"/debug/watch"); !strings.Contains(body, "prev_kv") {
		t.Errorf("/debug/watch as text: %s", body)
	}
	if code, body := get(t, "http://"+addr+"/debug/vars"); code != 200 ||
		!strings.Contains(body, `"memstats": {`) || !strings.Contains(body, `"pre-vote":"true"`) {
		t.Errorf("/debug/vars: %d %s", code, body)
	}
	// The command line can hold a password.
	for _, path := range []string{"/debug/vars", "/debug/pprof/cmdline"} {
		code, body := get(t, "http://"+addr+path)
		if code != 200 {
			t.Errorf("%s: %d", path, code)
		}
		for _, arg := range os.Args[1:] {
			if strings.Contains(body, arg) {
				t.Errorf("%s shows %s", path, arg)
			}
		}
	}
}

// TestRestart stops and starts on one data directory, over a unix socket.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	sock := filepath.Join(dir, "s")
	c := Config{DataDir: filepath.Join(dir, "m.etcd"), ListenClientURLs: []string{"unix://" + sock}}
	for i := range 3 {
		m, _ := member(t, c)
		res, err := etcdserverpb.NewKVClient(dial(t, "unix://"+sock)).Put(timeout(t),
			&etcdserverpb.PutRequest{Key: []byte("k")})
		if err != nil || res.Header.Revision != int64(i+2) {
			t.Fatalf("put %d: %v, %v", i, res, err)
		}
		stop(t, m)
	}
}

// TestRefusedStart: what cannot start says why and writes nothing.
func TestRefusedStart(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	free := []string{"http://127.0.0.1:0"}
	advertise := []string{DefaultClientURL}
	etcdDir := t.TempDir()
	if err := os.Mkdir(filepath.Join(etcdDir, "member"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		want string
		c    Config
	}{
		{"in use by another program",
			Config{ListenClientURLs: []string{"http://" + l.Addr().String()}}},
		{"in use by another program",
			Config{ListenClientURLs: free, AdvertiseClientURLs: advertise,
				ListenMetricsURLs: []string{"http://" + l.Addr().String()}}},
		{"of an etcd member",
			Config{ListenClientURLs: free, AdvertiseClientURLs: advertise, DataDir: etcdDir}},
		{"needs --cert-file and --key-file",
			Config{ListenClientURLs: []string{"https://127.0.0.1:0"}}},
		{"must name an IP address", Config{ListenClientURLs: []string{"http://example.com:2379"}}},
		{"at least 5 times",
			Config{HeartbeatInterval: time.Second, ElectionTimeout: 2 * time.Second}},
		{"names no other member to join",
			Config{ListenClientURLs: free, AdvertiseClientURLs: advertise,
				InitialClusterState: "existing"}},
		{"listed twice", Config{InitialCluster: "default=http://localhost:2380,b=http://localhost:2380"}},
	} {
		fresh := tc.c.DataDir == ""
		if fresh {
			tc.c.DataDir = filepath.Join(t.TempDir(), "m.etcd")
		}
		if len(tc.c.ListenPeerURLs) == 0 {
			tc.c.ListenPeerURLs = free
		}
		tc.c.Logger = slog.New(slog.DiscardHandler)
		m, err := Start(tc.c)
		if err == nil {
			stop(t, m)
			t.Errorf("%+v started, want %q", tc.c, tc.want)
			continue
		}
		if !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %q, want %q", err, tc.want)
		}
		if _, err := os.Stat(tc.c.DataDir); fresh && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%q: the data directory was made", tc.want)
		}
	}
}

// TestLock: one data directory, one member; the lock goes with it.
func TestLock(t *testing.T) {
	m, _ := member(t, Config{})
	_, err := Start(Config{DataDir: m.cfg.DataDir, ListenClientURLs: []string{"http://127.0.0.1:0"},
		ListenPeerURLs:      []string{"http://127.0.0.1:0"},
		AdvertiseClientURLs: []string{DefaultClientURL}, Logger: m.log})
	if err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Fatalf("second start: %v", err)
	}
	dir := m.cfg.DataDir
	stop(t, m)
	member(t, Config{DataDir: dir})
}

// A member that says that it is ready to serve says so over gRPC too, at the first question.
func TestReadyMeansServing(t *testing.T) {
	m, addr := member(t, Config{UnsafeNoSync: true})
	<-m.Serving()
	cc := dial(t, addr)
	for _, service := range []string{"", "liveness", "readiness"} {
		r, err := healthpb.NewHealthClient(cc).Check(timeout(t),
			&healthpb.HealthCheckRequest{Service: service})
		if err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("service %q: %v, %v", service, r, err)
		}
	}
}
