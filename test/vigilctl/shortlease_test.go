package vigilctl

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

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
	// Leases of 2 seconds, the shortest that a member grants.
	const keys = 150
	file := filepath.Join(t.TempDir(), "d.jsonl")
	id := strings.Fields(ctl("lease", "grant", "2"))[1]
	for n := range keys {
		ctl("put", "k/"+strconv.Itoa(1000+n), "v", "--lease="+id)
		if n%10 == 9 {
			ctl("lease", "keep-alive", "--once", id)
		}
	}
	ctl("dump", "k/", file)
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
