package disk

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/test/proc"
)

// TestLockRemoved removes the lock of a running member: no second process can start on the data,
// and the lock is made again.
func TestLockRemoved(t *testing.T) {
	vigilOnly(t)
	dir := filepath.Join(t.TempDir(), "data")
	s := proc.Start(t, proc.Config{DataDir: dir})
	w := &witness{t: t, c: dial(t, s)}
	for range 5 {
		if err := w.put(); err != nil {
			t.Fatal(err)
		}
	}
	lock := filepath.Join(dir, "LOCK")
	var second proc.Result
	for range 3 {
		must(t, os.Remove(lock))
		second = proc.Run(t, within,
			proc.Spec{Name: proc.Path(t, proc.Vigil),
				Args: []string{"--data-dir=" + dir, "--name=m1",
					"--listen-client-urls=http://127.0.0.1:0",
					"--advertise-client-urls=http://127.0.0.1:0",
					"--listen-peer-urls=http://127.0.0.1:0"}})
		if second.Code != 1 ||
			!strings.Contains(second.Stderr, "is in use by another process (vigil, process ") {
			t.Fatalf("a second process: %d %s", second.Code, second.Stderr)
		}
		await(t, "the lock is held again", func() bool {
			f, err := os.Open(lock)
			if err != nil {
				return false
			}
			defer f.Close()
			return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == unix.EWOULDBLOCK
		})
		if err := w.put(); err != nil {
			t.Fatal(err)
		}
	}
	if log := s.Log().String(); strings.Contains(log, "not in their places") ||
		!strings.Contains(log, "the lock of the data directory was removed or replaced") {
		t.Error("the log does not say it, or says more")
	}

	// A process that holds the lock, and nothing else, is found as well.
	other, err := os.Create(lock + ".other")
	must(t, err)
	defer other.Close()
	must(t, unix.Flock(int(other.Fd()), unix.LOCK_EX))
	must(t, os.Rename(lock+".other", lock))
	await(t, "a write is rejected",
		func() bool { return status.Code(w.put()) == codes.Unavailable })
	whileGone(t, s, w, "another process has locked it")
	must(t, other.Close())
	await(t, "writes are accepted", func() bool { return w.put() == nil })
	s.Kill()
	s.Restart()
	w.check(w.c)
}

// TestGoneWaits has writes wait for the raft log when the directory goes: they end when the member
// is sure, not when their time is up.
func TestGoneWaits(t *testing.T) {
	vigilOnly(t)
	dir := filepath.Join(t.TempDir(), "data")
	s := proc.Start(t, proc.Config{DataDir: dir})
	w := &witness{t: t, c: dial(t, s)}
	for range 3 {
		must(t, w.put())
	}
	must(t, os.Rename(dir, dir+".away"))
	for {
		began := time.Now()
		if err := w.put(); err != nil {
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("the first write that failed took %v: %v", took, err)
			}
			break
		}
	}
	// A clean stop leaves whole data behind, and nothing in the old place.
	s.Stop()
	if _, err := os.Stat(dir); err == nil {
		t.Error("something was made in the place of the directory")
	}
	must(t, os.Rename(dir+".away", dir))
	s.Restart()
	w.check(w.c)
}

// TestGoneAdvice does what the log says, by a shell, for directories and files with odd names, and
// with another directory in the place.
func TestGoneAdvice(t *testing.T) {
	vigilOnly(t)
	for _, c := range []struct {
		name string
		take func(t *testing.T, dir string)
	}{
		{"moved to odd name", func(t *testing.T, dir string) {
			must(t, os.Rename(dir, filepath.Join(filepath.Dir(dir), "it's $(touch x) away")))
		}},
		{"parent removed", func(t *testing.T, dir string) {
			must(t, os.Mkdir(filepath.Join(filepath.Dir(dir), "..", "backup"), 0o700))
			must(t, os.Rename(dir,
				filepath.Join(filepath.Dir(dir), "..", "backup", filepath.Base(dir))))
			must(t, os.Remove(filepath.Dir(dir)))
		}},
		{"another directory there", func(t *testing.T, dir string) {
			must(t, os.Rename(dir, dir+".away"))
			must(t, os.MkdirAll(filepath.Join(dir, "wal"), 0o700))
		}},
		{"one file", func(t *testing.T, dir string) {
			list, _ := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
			must(t, os.Rename(list[0], filepath.Join(dir, "moved")))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "vol ume", "da ta")
			s := proc.Start(t, proc.Config{DataDir: dir})
			w := &witness{t: t, c: dial(t, s)}
			must(t, w.put())
			c.take(t, dir)
			await(t, "a write is rejected",
				func() bool { return status.Code(w.put()) == codes.Unavailable })
			var next string
			await(t, "the log says what to do", func() bool {
				for line := range strings.Lines(s.Log().String()) {
					var l struct{ Msg, Next string }
					if json.Unmarshal([]byte(line), &l) == nil &&
						strings.HasPrefix(l.Msg,
							"the files of this member are not in their places") {
						next = l.Next
					}
				}
				return next != ""
			})
			t.Log(next)
			if _, after, ok := strings.Cut(next, ", then: "); ok {
				must(t, os.RemoveAll(dir))
				next = after
			}
			command := next
			if i := strings.Index(next, ": the member goes on"); i >= 0 {
				command = next[:i]
			} else if i := strings.Index(next, ". The member goes on"); i >= 0 {
				command = next[:i]
			}
			if _, err := os.Stat(filepath.Dir(dir)); err != nil && c.name == "parent removed" {
				must(t, os.Mkdir(filepath.Dir(dir), 0o700))
			}
			cmd := exec.Command("sh", "-c", command)
			cmd.Dir = t.TempDir()
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v %s", command, err, out)
			}
			await(t, "writes are accepted", func() bool { return w.put() == nil })
			w.check(w.c)
		})
	}
}

// TestOverlay runs a member on an overlay whose lower layer has its data: a copy that the overlay
// makes of a file is no difference.
func TestOverlay(t *testing.T) {
	vigilOnly(t)
	root := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "lower"), 0o700))
	dir := filepath.Join(root, "lower", "data")
	s := proc.Start(t, proc.Config{DataDir: dir, Args: []string{"--scrub-bytes-per-second=0"}})
	w := &witness{t: t, c: dial(t, s)}
	var sealed []string
	await(t, "a sealed segment", func() bool {
		must(t, w.put())
		sealed, _ = filepath.Glob(filepath.Join(dir, "history", "*.seg"))
		return len(sealed) > 0
	})
	s.Stop()
	// A checkpoint, for example, shares the segments.
	for _, name := range sealed {
		must(t, os.Link(name, filepath.Join(root, "lower", filepath.Base(name))))
	}
	for _, name := range []string{"upper", "work"} {
		must(t, os.Mkdir(filepath.Join(root, name), 0o700))
	}
	merged := filepath.Join(root, "lower")
	if err := unix.Mount("overlay", merged, "overlay", 0, "lowerdir="+root+"/lower,upperdir="+root+
		"/upper,workdir="+root+"/work"); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		s.Kill()
		must(t, unix.Unmount(merged, unix.MNT_DETACH))
	})
	s.Restart()
	for _, name := range sealed { // the overlay copies it
		must(t, os.Chmod(filepath.Join(merged, "data", "history", filepath.Base(name)), 0o640))
	}
	await(t, "the copy is accepted", func() bool {
		must(t, w.put())
		return strings.Contains(s.Log().String(), "was replaced by a copy of it")
	})
	// So is one that was restored, and a damaged one is not.
	name := filepath.Join(merged, "data", "history", filepath.Base(sealed[0]))
	whole, err := os.ReadFile(name)
	must(t, err)
	damaged := append([]byte(nil), whole...)
	damaged[len(damaged)/2] ^= 1
	must(t, os.WriteFile(name+".copy", damaged, 0o600))
	must(t, os.Rename(name+".copy", name))
	await(t, "a write is rejected",
		func() bool { return status.Code(w.put()) == codes.Unavailable })
	must(t, os.WriteFile(name+".copy", whole, 0o600))
	must(t, os.Rename(name+".copy", name))
	await(t, "writes are accepted", func() bool { return w.put() == nil })
	s.Kill()
	s.Restart()
	w.check(w.c)
}
