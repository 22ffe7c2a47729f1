package disk

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/test/proc"
)

// TestFilesGone takes the files of a running member away in many ways: it notices, accepts no
// writes, and says so everywhere. It still reads, and what it has acknowledged can be saved while
// it runs. If the same files come back, it goes on.
func TestFilesGone(t *testing.T) {
	vigilOnly(t)
	for _, c := range []struct {
		name string
		// take takes the files of a data directory away. What it returns brings them back, if that
		// is possible.
		take func(t *testing.T, dir string) (undo func())
		says string // of the place, in the log
	}{
		{"directory removed", func(t *testing.T, dir string) func() {
			must(t, os.RemoveAll(dir))
			return nil
		}, "deleted"},
		{"directory removed and made again", func(t *testing.T, dir string) func() {
			must(t, os.RemoveAll(dir))
			must(t, os.MkdirAll(filepath.Join(dir, "history"), 0o700))
			must(t, os.MkdirAll(filepath.Join(dir, "wal"), 0o700))
			return nil
		}, "deleted"},
		{"directory moved", func(t *testing.T, dir string) func() {
			must(t, os.Rename(dir, dir+".away"))
			return func() { must(t, os.Rename(dir+".away", dir)) }
		}, ".away now"},
		{"parent moved", func(t *testing.T, dir string) func() {
			parent := filepath.Dir(dir)
			must(t, os.Rename(parent, parent+".away"))
			return func() { must(t, os.Rename(parent+".away", parent)) }
		}, "volume.away now"},
		{"volume detached", func(t *testing.T, dir string) func() {
			must(t, unix.Unmount(filepath.Dir(dir), unix.MNT_DETACH))
			return nil
		}, "is gone"},
		{"covered by another volume", func(t *testing.T, dir string) func() {
			if err := unix.Mount("vigil-test", dir, "tmpfs", 0, "size=1m"); err != nil {
				t.Skip(err)
			}
			return func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) }
		}, "is gone"},
		{"raft log removed",
			func(t *testing.T, dir string) func() { return takeFiles(t, dir, "wal/*.wal") }, "now"},
		{"open history segment removed",
			func(t *testing.T, dir string) func() { return takeFiles(t, dir, "history/*.log") },
			"now"},
		{"sealed history segment removed",
			func(t *testing.T, dir string) func() { return takeFiles(t, dir, "history/*.seg") },
			"is gone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "volume", "data")
			if c.name == "volume detached" {
				dir = filepath.Join(mountVolume(t), "data")
			}
			s := proc.Start(t, proc.Config{DataDir: dir,
				Args: []string{"--scrub-bytes-per-second=0"}})
			w := &witness{t: t, c: dial(t, s)}
			await(t, "a sealed segment", func() bool {
				w.put()
				sealed, _ := filepath.Glob(filepath.Join(dir, "history", "*.seg"))
				return len(sealed) > 0
			})
			undo := c.take(t, dir)
			before, began := len(w.acked), time.Now()
			await(t, "a write is rejected",
				func() bool { return status.Code(w.put()) == codes.Unavailable })
			t.Logf("%d writes were acknowledged in the %v until the first one was rejected",
				len(w.acked)-before, time.Since(began).Round(time.Millisecond))
			whileGone(t, s, w, c.says)
			if undo == nil {
				w.save(s)
				return
			}

			undo()
			await(t, "writes are accepted", func() bool { return w.put() == nil })
			await(t, "everything is as before", func() bool {
				code, _ := get(t, s, "/readyz")
				_, body := get(t, s, "/metrics")
				return code == http.StatusOK &&
					strings.Contains(body, "\nvigil_data_files_gone 0\n")
			})
			for range 100 { // segments begin
				if err := w.put(); err != nil {
					t.Fatal(err)
				}
			}
			s.Kill()
			s.Restart()
			w.check(w.c)
		})
	}
}

// TestPathChanges changes paths that still lead to the files: nothing happens. That the checks ran
// is seen when they are gone after that.
func TestPathChanges(t *testing.T) {
	vigilOnly(t)
	root := t.TempDir()
	must(t, os.Mkdir(filepath.Join(root, "a"), 0o700))
	must(t, os.Symlink("a", filepath.Join(root, "link")))
	s := proc.Start(t, proc.Config{DataDir: filepath.Join(root, "link", "data")})
	w := &witness{t: t, c: dial(t, s)}
	for i := range 30 {
		if err := w.put(); err != nil {
			t.Fatal(err)
		}
		// The directory moves, and a link is put in the place of the other one.
		from, to := string(rune('a'+i)), string(rune('a'+i+1))
		must(t, os.Rename(filepath.Join(root, from), filepath.Join(root, to)))
		must(t, os.Symlink(to, filepath.Join(root, "next")))
		must(t, os.Rename(filepath.Join(root, "next"), filepath.Join(root, "link")))
	}
	if err := unix.Mount(filepath.Join(root, "link"), filepath.Join(root, "link"), "", unix.MS_BIND,
		""); err == nil {
		t.Cleanup(func() { _ = unix.Unmount(filepath.Join(root, "link"), unix.MNT_DETACH) })
	}
	for range 30 {
		if err := w.put(); err != nil {
			t.Fatal(err)
		}
	}
	if log := s.Log().String(); strings.Contains(log, "not in their places") {
		t.Error("the member takes its files for gone")
	}
	must(t, os.RemoveAll(filepath.Join(root, "link", "data")))
	await(t, "a write is rejected", func() bool { return w.put() != nil })
	w.save(s)
}

// TestFilesGoneAmongThree takes the files of one of three members away, a follower's and the
// leader's: the others go on and lose nothing.
func TestFilesGoneAmongThree(t *testing.T) {
	vigilOnly(t)
	for _, leads := range []bool{false, true} {
		t.Run(map[bool]string{false: "follower", true: "leader"}[leads], func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			list := startThree(t, proc.Config{DataDir: dir})
			sick, healthy := list[0], list[1]
			lead(t, list, leads)
			w, at := &witness{t: t, c: dial(t, healthy)}, &witness{t: t, c: dial(t, sick)}
			for range 10 {
				_ = w.put()
			}
			must(t, os.Rename(dir, dir+".away"))
			await(t, "a write there is rejected",
				func() bool { return status.Code(at.put()) == codes.Unavailable })
			for done := 0; done < 20; {
				if w.put() == nil {
					done++
				}
			}
			await(t, "another member leads", func() bool {
				st, err := w.c.Status(t.Context(), healthy.Addr())
				return err == nil && st.Leader != 0 && st.Leader != id(t, sick)
			})
			await(t, "doctor says what helps", func() bool {
				said := doctor(t, sick)
				return matches("CRITICAL m1: files of its data directory are gone, and it accepts no writes: data is not at its path; it was moved next: put back what is gone, .* add it again with an empty directory", said)
			})
			if _, err := os.Stat(dir); err == nil {
				t.Error("something was made in the place of the directory")
			}
			must(t, os.Rename(dir+".away", dir))
			await(t, "it accepts writes", func() bool { return at.put() == nil })
			for _, s := range list {
				s.Kill()
			}
			for _, s := range list {
				s.Launch()
			}
			for _, s := range list {
				s.Ready()
			}
			w.acked = append(w.acked, at.acked...)
			w.check(at.c)
		})
	}
}

// whileGone checks what a member without its files says and does.
func whileGone(t *testing.T, s *proc.Server, w *witness, says string) {
	t.Helper()
	for _, path := range []string{"/readyz", "/health"} {
		await(t, path+" fails with the reason", func() bool {
			code, body := get(t, s, path)
			return code == http.StatusServiceUnavailable &&
				strings.Contains(body, "files of the data directory are gone")
		})
	}
	if code, body := get(t, s, "/livez"); code != http.StatusOK {
		t.Errorf("/livez: %d %s", code, body)
	}
	if _, body := get(t, s, "/metrics"); !strings.Contains(body, "\nvigil_data_files_gone 1\n") {
		t.Error("the metrics do not show it")
	}
	var said string
	await(t, "doctor says it", func() bool {
		said = doctor(t, s)
		return matches(`CRITICAL m1: files of its data directory are gone, and it accepts no writes: \S+ is not at its path.* next: (put back what is gone, .* snapshot save FILE|do not stop it, .* snapshot save FILE|stop the other process)`, said)
	})
	t.Logf("doctor: %s", said[:strings.Index(said, " page:")])
	log := s.Log().String()
	at := strings.Index(log,
		"the files of this member are not in their places: it accepts no writes")
	if at < 0 {
		t.Fatal("the log does not say it")
	}
	line, _, _ := strings.Cut(log[at:], "\n")
	t.Logf("log: %s", line)
	if !strings.Contains(line, says) || !strings.Contains(line, `"next":`) {
		t.Errorf("the line does not say %q", says)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if _, err := w.c.Delete(ctx, "none"); status.Code(err) != codes.Unavailable {
		t.Errorf("a deletion: %v", err)
	}
	w.check(w.c)
}

// witness writes, and knows what was acknowledged.
type witness struct {
	t     *testing.T
	c     *clientv3.Client
	acked []write
	n     int
}

func (w *witness) put() error {
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
	defer cancel()
	w.n++
	a := write{key: fmt.Sprintf("k/%p/%05d", w, w.n), value: strings.Repeat("v", 64<<10)}
	r, err := w.c.Put(ctx, a.key, a.value)
	if err == nil {
		a.rev = r.Header.Revision
		w.acked = append(w.acked, a)
	}
	return err
}

// check checks that everything that was acknowledged is there.
func (w *witness) check(c *clientv3.Client) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), within)
	defer cancel()
	for _, a := range w.acked {
		r, err := c.Get(ctx, a.key)
		if err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != a.value ||
			r.Kvs[0].ModRevision != a.rev {
			w.t.Fatalf("%s was acknowledged at revision %d, and is not there: %v",
				a.key, a.rev, err)
		}
	}
}

// save saves the data of a member as its log advises, and checks that what was acknowledged is in a
// member that is restored from that.
func (w *witness) save(s *proc.Server) {
	t := w.t
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "snapshot.db")
	for _, args := range [][]string{
		{"snapshot", "save", file, "--endpoints=" + s.Addr()},
		{"snapshot", "restore", file, "--data-dir=" + filepath.Join(dir, "data")},
	} {
		if r := proc.Run(t, within,
			proc.Spec{Name: proc.Path(t, proc.Vigilctl), Args: args}); r.Code != 0 {
			t.Fatalf("%v: %d %s%s", args, r.Code, r.Stdout, r.Stderr)
		}
	}
	s.Kill()
	restored := proc.Start(t, proc.Config{Name: "default", DataDir: filepath.Join(dir, "data")})
	w.check(dial(t, restored))
	t.Logf("%d acknowledged writes are in the member that was restored", len(w.acked))
}

// takeFiles moves files to another directory.
func takeFiles(t *testing.T, dir, pattern string) (undo func()) {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, pattern))
	must(t, err)
	if len(list) == 0 {
		t.Fatalf("there is no %s", pattern)
	}
	away := t.TempDir()
	for _, name := range list {
		must(t, os.Rename(name, filepath.Join(away, filepath.Base(name))))
	}
	return func() {
		for _, name := range list {
			must(t, os.Rename(filepath.Join(away, filepath.Base(name)), name))
		}
	}
}

// mountVolume mounts a file system that the test detaches.
func mountVolume(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "mnt")
	must(t, os.Mkdir(dir, 0o755))
	if err := unix.Mount("vigil-test", dir, "tmpfs", 0, "size=256m"); err != nil {
		t.Skipf("cannot mount, which needs root: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
