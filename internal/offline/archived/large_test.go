package archived

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"vigil/internal/bucket"
	"vigil/internal/kv"
	"vigil/internal/state/fsm"
	"vigil/internal/vfs"
)

// The environment of a process in which a step of TestLargeArchive runs.
const (
	largeStep   = "VIGIL_LARGE_STEP"
	largeBucket = "VIGIL_LARGE_BUCKET"
)

// TestLargeArchive makes an archive with each key written five times, and measures in processes of
// their own what a restore, a restore of keys and a verification take. VIGIL_LARGE_ARCHIVE is the
// number of keys.
//
//vigil:norace
func TestLargeArchive(t *testing.T) {
	if step := os.Getenv(largeStep); step != "" {
		runLargeStep(t, step, os.Getenv(largeBucket))
		return
	}
	keys := 2000
	if text := os.Getenv("VIGIL_LARGE_ARCHIVE"); text != "" {
		var err error
		if keys, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "bucket")
	b, err := bucket.NewDirectory(vfs.OS(), dir, true)
	if err != nil {
		t.Fatal(err)
	}
	written := largeArchive(t, b, keys)
	objects, size := 0, int64(0)
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		st, err := d.Info()
		if err == nil {
			objects++
			size += st.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d keys, %d revisions, %d MB of keys and values: %d objects, %d MB, %.2f bytes for each written", keys, 5*keys, written>>20, objects, size>>20, float64(size)/float64(written))
	for _, step := range []string{"restore", "keys", "verify"} {
		measureStep(t, step, dir)
	}
}

// largeArchive writes each key five times: a base at the start, another one after three times, and
// entries before and after it.
func largeArchive(t *testing.T, b bucket.Bucket, keys int) (written int64) {
	n := newNodeIn(t, 50, b, 64<<20)
	n.base(false)
	random := rand.New(rand.NewPCG(1, 2))
	var list []*fsm.Request
	queued := 0
	for i := range 5 * keys {
		key := fmt.Appendf(nil, "key/%02d/%07d", i%100, i%keys)
		value := fmt.Appendf(nil,
			`{"name":"item-%d","generation":%d,"owner":"user-%d","state":"running","checksum":"%016x%016x","address":"10.%d.%d.%d:8080"}`,
			i%keys, i/keys, random.IntN(1000), random.Uint64(), random.Uint64(), random.IntN(256),
			random.IntN(256), random.IntN(256))
		written += int64(len(key) + len(value))
		queued += len(key) + len(value)
		list = append(list, &fsm.Request{Put: &kv.PutRequest{Key: key, Value: value}})
		if len(list) == 50 || i == 5*keys-1 {
			n.apply(list...)
			list = nil
		}
		if queued > 6<<20 {
			n.send()
			queued = 0
		}
		if i == 3*keys {
			n.base(true)
		}
	}
	n.send()
	return written
}

// measureStep runs a step in a process of its own, and logs what it took.
func measureStep(t *testing.T, step, dir string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestLargeArchive$", "-test.v",
		"-test.timeout", "0")
	cmd.Env = append(os.Environ(), largeStep+"="+step, largeBucket+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	peak, ended := int64(0), make(chan struct{})
	var sampler sync.WaitGroup
	sampler.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(20 * time.Millisecond):
				peak = max(peak, anonymousMemory(cmd.Process.Pid))
			}
		}
	})
	err := cmd.Wait()
	close(ended)
	sampler.Wait()
	if err != nil {
		t.Fatalf("%s: %v\n%s", step, err, out.String())
	}
	s := cmd.ProcessState
	t.Logf("%s: %.1f s, %.1f s of processor time, %d MB of memory at most, %d MB of it not of files", step, time.Since(begun).Seconds(), (s.UserTime() + s.SystemTime()).Seconds(),
		s.SysUsage().(*syscall.Rusage).Maxrss>>10, peak>>20)
}

// anonymousMemory returns the resident memory of a process without the pages of files.
func anonymousMemory(pid int) int64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if text, ok := strings.CutPrefix(s.Text(), "RssAnon:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 64)
			return n << 10
		}
	}
	return 0
}

// runLargeStep is the child process.
func runLargeStep(t *testing.T, step, dir string) {
	ctx := context.Background()
	b, err := bucket.NewDirectory(vfs.OS(), dir, false)
	if err != nil {
		t.Fatal(err)
	}
	a, err := Open(ctx, b, dir)
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	switch step {
	case "restore":
		_, _, err = a.Restore(ctx, Target{}, restoreOptions(vfs.OS(), filepath.Join(work, "d")))
	case "keys":
		var p *Past
		if p, err = a.OpenPast(ctx, Target{}, vfs.OS(), work, nil); err == nil {
			n := 0
			for k, kerr := range p.Keys(ctx, "key/", "key0") {
				if kerr != nil || k.Version != 5 {
					t.Fatal(k, kerr)
				}
				n++
			}
			if count, _ := p.Count(ctx, "", "\x00"); int64(n) != count || n == 0 {
				t.Errorf("%d keys of %d", n, count)
			}
			err = p.Close()
		}
	case "verify":
		var v *Verdict
		if v, err = a.Verify(ctx, VerifyOptions{FS: vfs.OS(), Dir: work}); err == nil &&
			len(v.Damages)+len(v.Gaps) > 0 {
			t.Errorf("%+v", v)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}
