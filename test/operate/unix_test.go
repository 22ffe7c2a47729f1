package operate

import (
	"crypto/tls"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"vigil/test/proc"
)

// TestUnixSockets: clients and members may be reached by sockets in the file system; what a killed
// process leaves there does not block a start.
func TestUnixSockets(t *testing.T) {
	t.Run("plain", func(t *testing.T) { unixSockets(t, "unix", nil) })
	t.Run("TLS", func(t *testing.T) {
		unixSockets(t, "unixs", &tls.Config{InsecureSkipVerify: true}, "--auto-tls",
			"--peer-auto-tls")
	})
}

func unixSockets(t *testing.T, scheme string, config *tls.Config, args ...string) {
	dir, err := os.MkdirTemp("", "vigil") // paths of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	at := func(name string, i int) string {
		return fmt.Sprintf("%s://%s", scheme, filepath.Join(dir, fmt.Sprint(name, i)))
	}
	var list []*proc.Server
	members := fmt.Sprintf("m0=%s,m1=%s", at("peer", 0), at("peer", 1))
	for i := range 2 {
		s := proc.New(t, proc.Config{Program: proc.Vigil, Name: fmt.Sprint("m", i), Memory: true,
			InitialCluster: members, Args: append([]string{
				"--listen-client-urls=" + at("client", i),
				"--advertise-client-urls=" + at("client", i),
				"--listen-peer-urls=" + at("peer", i),
				"--initial-advertise-peer-urls=" + at("peer", i)}, args...)})
		s.Launch()
		list = append(list, s)
	}
	ctx := proc.Context(t)
	for i, s := range list {
		s.Ready()
		c := dial(t, at("client", i), config)
		if _, err := c.Put(ctx, fmt.Sprint(i), "v"); err != nil {
			t.Fatal(err)
		}
	}
	list[0].Kill()
	u, err := url.Parse(at("client", 0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(u.Path); err != nil {
		t.Fatalf("no file remains: %v", err)
	}
	list[0].Restart()
	res, err := dial(t, at("client", 0), config).Get(ctx, "", clientv3.WithPrefix())
	if err != nil || res.Count != 2 {
		t.Fatalf("%v, %v", res, err)
	}
	for _, s := range list {
		s.Stop()
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 0 {
		t.Errorf("a clean stop leaves %q, %v", left, err)
	}
}

func dial(t *testing.T, endpoint string, config *tls.Config) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, TLS: config,
		Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
