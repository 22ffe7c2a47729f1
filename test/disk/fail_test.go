package disk

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

// TestFailedSync lets one fdatasync fail, as a disk that dies does: the server stops at once, says
// so in one line and with its exit code, and does not try again; every write that it acknowledged
// is there at the next start.
func TestFailedSync(t *testing.T) {
	if proc.Subject() != proc.Vigil {
		t.Skip("this is about how Vigil stops")
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatal("strace is not installed (Debian: apt-get install strace)")
	}
	// It counts calls by thread.
	s := proc.Start(t, proc.Config{Wrap: []string{strace, "-f", "--seccomp-bpf", "-o", "/dev/null",
		"-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=40"}})
	c := dial(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	acked := map[string]int64{}
	for i := 0; ; i++ {
		key := fmt.Sprintf("k%05d", i)
		r, err := c.Put(ctx, key, key)
		if err != nil {
			if !gone(err) && !errors.Is(err, rpctypes.ErrStopped) &&
				!strings.Contains(err.Error(), "server stopped") {
				t.Errorf("the write that was not synced says %v", err)
			}
			break
		}
		acked[key] = r.Header.Revision
	}
	if code := s.Wait(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	log := s.Log().String()
	if n := strings.Count(log, "stopping: the member cannot go on"); n != 1 ||
		!strings.Contains(log, "input/output error") {
		t.Errorf("the log says why %d times", n)
	}
	again := proc.Start(t, proc.Config{DataDir: s.DataDir()})
	c = dial(t, again)
	for key, rev := range acked {
		r, err := c.Get(ctx, key)
		if err != nil || len(r.Kvs) != 1 || r.Kvs[0].ModRevision != rev {
			t.Fatalf("%s was acknowledged at revision %d: %v, %v", key, rev, r, err)
		}
	}
	t.Logf("%d writes acknowledged and found", len(acked))
}

// TestDamage damages a sealed file under a running server, in one byte and by cutting it off, which
// makes reads of the mapping fault. The damage is found without anybody reading it, named in the
// log, counted and alarmed; reads of it fail by name, all other reads go on.
func TestDamage(t *testing.T) {
	if proc.Subject() != proc.Vigil {
		t.Skip("this is about Vigil's files")
	}
	for name, damage := range map[string]func(t *testing.T, file string){
		"a flipped byte": func(t *testing.T, file string) {
			f, err := os.OpenFile(file, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var b [1]byte
			if _, err := f.ReadAt(b[:], mib); err != nil {
				t.Fatal(err)
			}
			b[0] ^= 4
			if _, err := f.WriteAt(b[:], mib); err != nil {
				t.Fatal(err)
			}
		},
		"a file cut off": func(t *testing.T, file string) {
			if err := os.Truncate(file, mib); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { damaged(t, name, damage) })
	}
}

func damaged(t *testing.T, name string, damage func(*testing.T, string)) {
	s := proc.Start(t, proc.Config{Memory: true,
		Args: []string{"--scrub-pause=10ms", "--scrub-bytes-per-second=1000000000"}})
	c := dial(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	const keys = 200
	value := strings.Repeat("v", 64<<10)
	for i := range keys {
		if _, err := c.Put(ctx, fmt.Sprintf("k%03d", i), value); err != nil {
			t.Fatal(err)
		}
	}
	var sealed []string
	await(t, "a sealed segment", func() bool {
		sealed, _ = filepath.Glob(filepath.Join(s.DataDir(), "history", "*.seg"))
		return len(sealed) > 0
	})
	slices.Sort(sealed)
	await(t, "a round of the scrubber", func() bool {
		_, body := get(t, s, "/metrics")
		return !strings.Contains(body, "\nvigil_scrub_rounds_total 0\n")
	})
	if code, body := get(t, s, "/health"); code != http.StatusOK {
		t.Fatalf("/health says %d %s", code, body)
	}

	damage(t, sealed[0])
	took := await(t, "the alarm", func() bool {
		a, err := c.AlarmList(ctx)
		return err == nil && len(a.Alarms) == 1 && a.Alarms[0].Alarm.String() == "CORRUPT"
	})
	if code, body := get(t, s, "/health"); code != http.StatusServiceUnavailable ||
		!strings.Contains(body, `"reason":"ALARM CORRUPT"`) {
		t.Errorf("/health says %d %s", code, body)
	}
	if code, body := get(t, s, "/readyz?verbose"); code != http.StatusServiceUnavailable ||
		!strings.Contains(body, "[-]data_corruption") {
		t.Errorf("/readyz says %d %s", code, body)
	}
	if st, err := c.Status(ctx, s.Addr()); err != nil || len(st.Errors) != 1 ||
		!strings.Contains(st.Errors[0], "CORRUPT") {
		t.Errorf("status %v, %v", st, err)
	}
	if _, body := get(t, s, "/metrics"); strings.Contains(body, "\nvigil_damage_found_total 0\n") ||
		!strings.Contains(body, `alarm_type="CORRUPT"`) {
		t.Error("the metrics do not show it")
	}
	if log := s.Log().String(); !strings.Contains(log, sealed[0]) ||
		!strings.Contains(log, "offset") {
		t.Error("the log does not name file and offset")
	}

	bad := 0
	for i := range keys {
		r, err := c.Get(ctx, fmt.Sprintf("k%03d", i))
		switch {
		case err == nil && len(r.Kvs) == 1 && string(r.Kvs[0].Value) == value:
		case errors.Is(err, rpctypes.ErrCorrupt) && !strings.Contains(err.Error(), "/"):
			bad++
		default:
			t.Fatalf("key %d: %v", i, err)
		}
	}
	if _, body := get(t, s, "/metrics"); name == "a flipped byte" &&
		!strings.Contains(body, "\nvigil_damage_found_total 1\n") {
		t.Error("one damaged record does not count once")
	}
	if bad == 0 || bad == keys {
		t.Errorf("%d of %d keys cannot be read", bad, keys)
	}
	if _, err := c.Get(ctx, "k", clientv3.WithPrefix()); !errors.Is(err, rpctypes.ErrCorrupt) {
		t.Errorf("a range over all: %v", err)
	}
	for range 10 { // the same damage again and again
		_, _ = c.Get(ctx, "k", clientv3.WithPrefix())
	}
	if _, err := c.Put(ctx, "k", "v"); !errors.Is(err, rpctypes.ErrCorrupt) {
		t.Errorf("a put: %v", err)
	}
	if !s.Running() {
		t.Error("the server is gone")
	}
	t.Logf("alarm after %v; %d of %d keys cannot be read", took, bad, keys)
}
