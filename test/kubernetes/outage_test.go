package kubernetes

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	retry "k8s.io/client-go/tools/watch"

	"vigil/test/proc"
)

// TestStoreKilled kills the only member of the store again and again under an API server, while
// objects are created and watched.
func TestStoreKilled(t *testing.T) {
	store := proc.Start(t, proc.Config{})
	s := startAPIServer(t, []string{"http://" + store.Addr()})
	load := startLoad(t, s)
	const kills = 5
	var downs []string
	for range kills {
		load.wait(t, 100)
		began := time.Now()
		store.Kill()
		store.Restart()
		up := time.Since(began)
		load.wait(t, 1)
		downs = append(downs,
			fmt.Sprintf("%dms/%dms", up.Milliseconds(), time.Since(began).Milliseconds()))
		s.ready()
	}
	load.finish(t)
	t.Logf("killed %d times; until the store served/an object was created: %s", kills,
		strings.Join(downs, " "))
}

// TestLeaderKilled kills the leader of three members under an API server, and lets it come back.
// Everybody shows certificates and asks for them.
func TestLeaderKilled(t *testing.T) {
	authority := newAuthority(t)
	members, urls := startCluster(t, 3, authority)
	cert, key := authority.issue(t, "apiserver-etcd-client")
	s := startAPIServer(t, urls, "--etcd-cafile="+authority.file, "--etcd-certfile="+cert,
		"--etcd-keyfile="+key)
	load := startLoad(t, s)
	const kills = 4
	var downs []string
	for range kills {
		load.wait(t, 100)
		leader := leaderOf(t, members, authority)
		began := time.Now()
		leader.Kill()
		load.wait(t, 1)
		downs = append(downs, fmt.Sprintf("%dms", time.Since(began).Milliseconds()))
		leader.Restart()
		s.ready()
	}
	load.finish(t)
	t.Logf("the leader was killed %d times; until the next object was created: %s", kills,
		strings.Join(downs, " "))
}

// startCluster runs a store of n members and returns their addresses too. Each has a certificate of
// the authority, and wants one from clients and other members.
func startCluster(t *testing.T, n int, authority *authority) (members []*proc.Server,
	urls []string) {
	t.Helper()
	var initial []string
	configs := make([]proc.Config, n)
	for i := range configs {
		c := proc.Config{Name: fmt.Sprint("m", i+1), ClientPort: proc.FreePort(t),
			PeerPort: proc.FreePort(t)}
		client, peer := fmt.Sprintf("https://127.0.0.1:%d", c.ClientPort),
			fmt.Sprintf("https://127.0.0.1:%d", c.PeerPort)
		cert, key := authority.issue(t, c.Name)
		c.Args = []string{
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
			"--trusted-ca-file=" + authority.file, "--cert-file=" + cert, "--key-file=" + key,
			"--client-cert-auth",
			"--peer-trusted-ca-file=" + authority.file, "--peer-cert-file=" + cert,
			"--peer-key-file=" + key, "--peer-client-cert-auth",
		}
		initial = append(initial, c.Name+"="+peer)
		urls = append(urls, client)
		configs[i] = c
	}
	for _, c := range configs {
		c.InitialCluster = strings.Join(initial, ",")
		m := proc.New(t, c)
		m.Launch()
		members = append(members, m)
	}
	for _, m := range members {
		m.Ready()
	}
	return members, urls
}

func leaderOf(t *testing.T, members []*proc.Server, authority *authority) (leader *proc.Server) {
	t.Helper()
	certFile, keyFile := authority.issue(t, "tests")
	tls, err := transport.TLSInfo{TrustedCAFile: authority.file, CertFile: certFile,
		KeyFile: keyFile}.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	var endpoints []string
	for _, m := range members {
		endpoints = append(endpoints, "https://"+m.Addr())
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: tls,
		Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	until(t, "there is a leader", func() bool {
		for i, m := range members {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			status, err := client.Status(ctx, endpoints[i])
			cancel()
			if err == nil && status.Leader == status.Header.MemberId {
				leader = m
				return true
			}
		}
		return false
	}, nil)
	return leader
}

// load creates objects one after the other, whatever happens to the store, and watches them in two
// ways: by a watcher that begins again where it was if it is cut off, and by a single watch.
type load struct {
	maps    corev1.ConfigMapInterface
	stop    context.CancelFunc
	writer  chan struct{} // closed when the writer has ended
	watcher *retry.RetryWatcher
	watched chan struct{} // closed when the reader of the watch has ended
	single  watch.Interface

	mu struct {
		sync.Mutex
		created int // objects that are acknowledged, n0 and on
		failed  int // attempts that were not
		events  []string
		grown   chan struct{} // closed, and replaced, when created grows
	}
}

func startLoad(t *testing.T, s *apiServer) *load {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &load{maps: s.CoreV1().ConfigMaps(newNamespace(t, s)), stop: stop,
		writer: make(chan struct{}), watched: make(chan struct{})}
	l.mu.grown = make(chan struct{})
	list, err := l.maps.List(ctx, meta.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l.watcher, err = retry.NewRetryWatcherWithContext(t.Context(), list.ResourceVersion,
		&cache.ListWatch{
			WatchFuncWithContext: func(ctx context.Context, o meta.ListOptions) (watch.Interface,
				error) {
				return l.maps.Watch(ctx, o)
			},
		})
	if err != nil {
		t.Fatal(err)
	}
	if l.single, err = l.maps.Watch(t.Context(),
		meta.ListOptions{ResourceVersion: list.ResourceVersion}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.single.Stop)
	go l.read()
	go l.write(ctx)
	return l
}

func (l *load) write(ctx context.Context) {
	defer close(l.writer)
	for n := 0; ctx.Err() == nil; {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := l.maps.Create(attempt, configMap(fmt.Sprint("n", n)), meta.CreateOptions{})
		cancel()
		l.mu.Lock()
		// It already exists if an attempt was carried out and its answer lost.
		if err == nil || apierrors.IsAlreadyExists(err) {
			n++
			l.mu.created = n
			close(l.mu.grown)
			l.mu.grown = make(chan struct{})
		} else {
			l.mu.failed++
		}
		l.mu.Unlock()
	}
}

func (l *load) read() {
	defer close(l.watched)
	for e := range l.watcher.ResultChan() {
		text := string(e.Type)
		if m, ok := e.Object.(*core.ConfigMap); ok {
			text += " " + m.Name
		} else {
			text += " " + apierrors.FromObject(e.Object).Error()
		}
		l.mu.Lock()
		l.mu.events = append(l.mu.events, text)
		l.mu.Unlock()
	}
}

// wait waits until n more objects have been created.
func (l *load) wait(t *testing.T, n int) {
	t.Helper()
	end := time.After(patience)
	l.mu.Lock()
	want := l.mu.created + n
	for l.mu.created < want {
		grown, created := l.mu.grown, l.mu.created
		l.mu.Unlock()
		select {
		case <-grown:
		case <-end:
			t.Fatalf("%d objects after %s, want %d", created, patience, want)
		}
		l.mu.Lock()
	}
	l.mu.Unlock()
}

// finish ends the load and expects every object to be there, and to have been seen by the watch
// once and in order.
func (l *load) finish(t *testing.T) {
	t.Helper()
	l.stop()
	<-l.writer
	l.mu.Lock()
	created, failed := l.mu.created, l.mu.failed
	l.mu.Unlock()

	list, err := l.maps.List(within(t), meta.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The end of the load may have left one more write without an answer.
	if n := len(list.Items); n < created || n > created+1 {
		t.Errorf("%d objects were acknowledged, %d are there", created, n)
	}
	seen := func() []string {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.mu.events
	}
	until(t, "the watch has seen all", func() bool { return len(seen()) >= len(list.Items) }, nil)
	l.watcher.Stop()
	<-l.watched
	for i, e := range seen() {
		if e != fmt.Sprint("ADDED n", i) {
			t.Fatalf("event %d of the watch is %q", i, e)
		}
	}
	for i, e := range events(t, l.single, len(list.Items)) {
		if e != fmt.Sprint("ADDED n", i) {
			t.Fatalf("event %d of the single watch is %q", i, e)
		}
	}
	t.Logf("%d objects were acknowledged and are there, watches saw each once and in order without an end; %d attempts failed meanwhile", created, failed)
}
