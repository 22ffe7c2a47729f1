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

// TestLoadShortLeases: a load that takes longer than the leases of its keys live still puts every key, and the leases
// expire after it, with all their keys. The reader of the dump is slow, so that the leases would have expired.
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
		if _, err := c.Put(ctx, "k/"+strconv.Itoa(1000+n), "v", clientv3.WithLease(granted.ID)); err != nil {
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
	if got := ctl("get", "--prefix", "k/", "--count-only", "-w", "fields"); !strings.Contains(got, `"Count" : 150`) {
		t.Errorf("after the load:\n%s%s", got, &out)
	}
	for end := time.Now().Add(untilTimeout); ; time.Sleep(50 * time.Millisecond) {
		if got := ctl("get", "--prefix", "k/", "--count-only", "-w", "fields"); strings.Contains(got, `"Count" : 0`) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the lease of the loaded keys lives on")
		}
	}
}
