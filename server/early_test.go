package server

import (
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vigil/internal/vfs"
	"vigil/internal/vfs/faultfs"
)

// TestEarlyRequests: requests that come before the member serves are answered as soon as it does,
// whatever their protocol and size. Metrics listeners check no hosts and have no variables, before
// and after.
func TestEarlyRequests(t *testing.T) {
	address, url := vacant(t)
	metrics, metricsURL := vacant(t)
	gate := make(chan struct{})
	release := sync.OnceFunc(func() { close(gate) })
	defer release()
	var hung atomic.Bool
	type started struct {
		m   *Member
		err error
	}
	done := make(chan started, 1)
	fs := faultfs.New(vfs.OS(), func(op faultfs.Op, _ string) faultfs.Fault {
		if op == faultfs.OpLock {
			hung.Store(true)
			<-gate
		}
		return faultfs.None
	})
	config := Config{Name: "m1", DataDir: filepath.Join(t.TempDir(), "m1.etcd"), FS: fs,
		HostWhitelist:    []string{"127.0.0.1"},
		ListenClientURLs: []string{url}, AdvertiseClientURLs: []string{url},
		ListenMetricsURLs: []string{metricsURL},
		ListenPeerURLs:    []string{"http://127.0.0.1:0"}, UnsafeNoSync: true,
		Logger: slog.New(slog.DiscardHandler)}
	go func() {
		m, err := Start(config)
		done <- started{m, err}
	}()
	until(t, "the hanging lock", hung.Load)

	ask := func(address, path string) int {
		t.Helper()
		r, err := http.NewRequest(http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "etcd.example"
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		return res.StatusCode
	}
	listeners := func(when string, ready int) {
		t.Helper()
		for _, c := range []struct {
			address, path string
			want          int
		}{
			{address, "/livez", http.StatusMisdirectedRequest}, {metrics, "/livez", http.StatusOK},
			{metrics, "/readyz", ready},
			{address, "/debug/vars", http.StatusMisdirectedRequest},
		} {
			if got := ask(c.address, c.path); got != c.want {
				t.Errorf("%s, %s of %s: %d, want %d", when, c.path, c.address, got, c.want)
			}
		}
		if got := ask(metrics, "/debug/vars"); got == http.StatusOK {
			t.Errorf("%s: variables on a metrics listener", when)
		}
	}
	listeners("before", http.StatusServiceUnavailable)

	var early sync.WaitGroup
	// HTTP/1.1; HTTP/2, whose client sends a request at once
	for i, prior := range []bool{false, true} {
		for _, size := range []int{10, 60 << 10} {
			var p http.Protocols
			p.SetHTTP1(!prior)
			p.SetUnencryptedHTTP2(prior)
			client := &http.Client{Transport: &http.Transport{Protocols: &p,
				DisableKeepAlives: true}, Timeout: time.Minute}
			body := fmt.Sprintf(`{"key": %q, "value": %q}`,
				base64.StdEncoding.EncodeToString([]byte{byte('a' + i)}),
				base64.StdEncoding.EncodeToString(make([]byte, size)))
			early.Go(func() {
				r, _ := http.NewRequest(http.MethodPost, url+"/v3/kv/put", strings.NewReader(body))
				r.Host = "127.0.0.1"
				r.Header.Set("Origin", "http://elsewhere.example")
				res, err := client.Do(r)
				if err != nil {
					t.Errorf("HTTP/2 %v, %d bytes: %v", prior, size, err)
					return
				}
				defer res.Body.Close()
				b, err := io.ReadAll(res.Body)
				if err != nil || res.StatusCode != http.StatusOK ||
					len(res.Header.Values("Access-Control-Allow-Origin")) != 1 {
					t.Errorf("HTTP/2 %v, %d bytes: %s %v %s %v", prior, size, res.Status,
						res.Header, b, err)
				}
			})
		}
	}
	// the requests are on their way; a shorter wait only makes the test weaker
	time.Sleep(300 * time.Millisecond)
	release()
	s := <-done
	if s.err != nil {
		t.Fatal(s.err)
	}
	early.Wait()
	<-s.m.Serving()
	listeners("after", http.StatusOK)
	stop(t, s.m)
}
