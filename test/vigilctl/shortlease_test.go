package vigilctl

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

// TestLoadShortLeases: a load that takes longer than the leases of its keys live still puts every
// key, and the leases expire after it, with all their keys. The reader of the dump is slow, so that
// the leases would have expired.
func TestLoadShortLeases(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	ctl := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(proc.Path(t, proc.Vigilctl), args...)
		cmd.Env = append(os.Environ(), "ETCDCTL_ENDPOINTS="+s.Addr())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	// A lease of 2 seconds, the shortest that a member grants, kept alive until the dump is made.
	const keys = 150
	file := filepath.Join(t.TempDir(), "d.jsonl")
	c := s.Client()
	granted, err := c.Grant(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprintf("%x", int64(granted.ID))
	ctx, stop := context.WithCancel(t.Context())
	alive, err := c.KeepAlive(ctx, granted.ID)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for range alive {
		}
	}()
	for n := range keys {
		if _, err := c.Put(ctx, "k/"+strconv.Itoa(1000+n), "v",
			clientv3.WithLease(granted.ID)); err != nil {
			t.Fatal(err)
		}
	}
	ctl("dump", "k/", file)
	stop()
	ctl("lease", "revoke", id)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(b), "\n")
	revoked, err := c.Get(t.Context(), "k/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || revoked.Count != 0 {
		t.Fatal(revoked, err)
	}
	watch := c.Watch(proc.Context(t), "k/", clientv3.WithPrefix(),
		clientv3.WithRev(revoked.Header.Revision+1))
	load := exec.Command(proc.Path(t, proc.Vigilctl), "load", "-")
	load.Env = append(os.Environ(), "ETCDCTL_ENDPOINTS="+s.Addr())
	in, err := load.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	load.Stdout, load.Stderr = &out, &out
	if err := load.Start(); err != nil {
		t.Fatal(err)
	}
	write := func(list []string) {
		t.Helper()
		if _, err := in.Write([]byte(strings.Join(list, ""))); err != nil {
			t.Fatalf("%v\n%s", err, &out)
		}
	}
	// The lease and the first batch, and the rest when the lease would have expired twice.
	write(lines[:130])
	time.Sleep(5 * time.Second) // it is time that has to pass, not a condition
	write(lines[130:])
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := load.Wait(); err != nil {
		t.Fatalf("load: %v\n%s", err, &out)
	}
	puts, deletes := 0, 0
	for deletes < keys {
		r, open := <-watch
		if !open || r.Err() != nil {
			t.Fatalf("%d keys were put and %d have expired: %v", puts, deletes, r.Err())
		}
		for _, ev := range r.Events {
			switch {
			case ev.Type == clientv3.EventTypeDelete:
				deletes++
			case deletes > 0:
				t.Fatalf("%s was put after %d others had expired\n%s", ev.Kv.Key, deletes, &out)
			default:
				puts++
			}
		}
	}
	if puts != keys {
		t.Errorf("%d keys were put\n%s", puts, &out)
	}
}
