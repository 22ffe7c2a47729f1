package disk

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

// TestFullDisk lets a small file system fill up under load, by a file of somebody else and by what
// is written, and be freed again. Writes are refused by name and by nothing else, what was
// acknowledged is there, reads, watches, deletions and compactions go on, and with room again so do
// writes, without a restart. The server is killed while the disk is full, and started on it.
func TestFullDisk(t *testing.T) {
	if proc.Subject() != proc.Vigil {
		t.Skip("this is about what Vigil does on a full disk")
	}
	mounted := false
	for _, kind := range []string{"tmpfs", "ext4"} {
		t.Run(kind, func(t *testing.T) {
			if testing.Short() && mounted {
				t.Skip("one file system is enough for the short form; make processes has both")
			}
			dir := mountSmall(t, kind, 512*mib)
			mounted = true
			fullDisk(t, dir)
		})
	}
}

func fullDisk(t *testing.T, dir string) {
	s := proc.Start(t, proc.Config{DataDir: dir + "/data", Args: []string{"--scrub-pause=10ms"}})
	c := dial(t, s)
	l := startLoad(t, s, 4)
	l.awaitAcks("writes", 500)

	// Somebody else takes all the space.
	file, size := foreign(t, dir)
	took := l.awaitRefusals("refused when the disk is full", 200)
	t.Logf("a foreign file took the last %d MiB; writes were refused %v later, at revision %d",
		size/mib, took.Round(time.Millisecond), l.seen.Load())
	whileFull(t, s, c, l)

	// The process dies and comes back, and the disk is full all the time.
	s.Kill()
	begin := time.Now()
	s.Restart()
	t.Logf("restarted on the full disk in %v", time.Since(begin).Round(time.Millisecond))
	l.awaitRefusals("refused after the restart", 200)
	whileFull(t, s, c, l)

	// Room again.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	took = l.awaitAcks("writes when there is room again", 500)
	t.Logf("the foreign file is gone; 500 writes later: %v", took.Round(time.Millisecond))
	full(t, s, "0")

	// The writers' own data fill the disk.
	l.keys.Store(1 << 20)
	l.value.Store(256 << 10)
	took = l.awaitRefusals("refused when the data fill the disk", 20)
	t.Logf("the data filled the disk in %v, at revision %d",
		took.Round(time.Millisecond), l.seen.Load())
	whileFull(t, s, c, l)
	s.Kill()
	s.Restart()
	l.awaitRefusals("refused after the restart", 20)
	l.value.Store(4 << 10)
	l.keys.Store(50)

	// Deletion and compaction make room, although there is none.
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	r, err := c.Delete(ctx, "k/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the watcher has the deletion",
		func() bool { return l.seen.Load() >= r.Header.Revision })
	if _, err := c.Compact(ctx, r.Header.Revision); err != nil {
		t.Fatal(err)
	}
	took = l.awaitAcks("writes after deletion and compaction", 500)
	t.Logf("%d keys deleted and compacted; 500 writes later: %v", r.Deleted,
		took.Round(time.Millisecond))
	full(t, s, "0")

	s.Kill()
	s.Restart()
	l.awaitAcks("writes in the end", 100)
	l.finish(c)
	if code := s.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// whileFull checks what works on a full disk.
func whileFull(t *testing.T, s *proc.Server, c *clientv3.Client, l *load) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	full(t, s, "1")
	// A disk that is nearly full rejects large puts, and at times small ones.
	await(t, "doctor and the status say that the disk is full", func() bool {
		d := proc.Run(t, within,
			proc.Spec{Name: proc.Path(t, proc.Vigilctl),
				Args: []string{"doctor", "--endpoints=" + s.Addr()}})
		st, err := c.Status(ctx, s.Addr())
		return d.Code == 1 &&
			strings.Contains(d.Stdout, "CRITICAL  m1: its disk is full: it rejects puts") &&
			err == nil && strings.Contains(strings.Join(st.Errors, " "), "the disk is full")
	})
	r, err := c.Get(ctx, "k/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil || len(r.Kvs) < 20 {
		t.Fatalf("%d keys, %v", len(r.Kvs), err)
	}
	var last int64
	for i := range 20 {
		key := string(r.Kvs[i].Key)
		var rev int64
		if i%2 == 0 {
			d, err := c.Delete(ctx, key)
			if err != nil {
				t.Fatalf("deletion %d on a full disk: %v", i, err)
			}
			rev = d.Header.Revision
		} else {
			d, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), ">",
				0)).Then(clientv3.OpDelete(key)).Commit()
			if err != nil {
				t.Fatalf("transaction %d on a full disk: %v", i, err)
			}
			rev = d.Header.Revision
		}
		last = rev
	}
	await(t, "the watcher hears of deletions", func() bool { return l.seen.Load() >= last })
	if _, err := c.Compact(ctx, last); err != nil {
		t.Fatalf("compaction on a full disk: %v", err)
	}
	// Nothing to disarm, and healthy: it is for the disk to be looked after, not for the cluster.
	if a, err := c.AlarmList(ctx); err != nil || len(a.Alarms) > 0 {
		t.Errorf("alarms %v, %v", a, err)
	}
	if code, body := get(t, s, "/health"); code != http.StatusOK {
		t.Errorf("/health says %d %s", code, body)
	}
}

// full waits until the metrics say whether the disk is full.
func full(t *testing.T, s *proc.Server, want string) {
	t.Helper()
	await(t, "vigil_disk_full is "+want, func() bool {
		_, body := get(t, s, "/metrics")
		return strings.Contains(body, "\nvigil_disk_full "+want+"\n")
	})
}

func get(t *testing.T, s *proc.Server, path string) (int, string) {
	t.Helper()
	r, err := http.Get(fmt.Sprintf("http://%s%s", s.Addr(), path))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}
