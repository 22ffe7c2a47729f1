package bucket_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"vigil/internal/bucket"
	"vigil/internal/bucket/buckettest"
	"vigil/internal/bucket/serve"
	"vigil/internal/vfs"
)

// asProgram makes the test's own program the program vigil-bucket, which serves the directory in
// the path of the URL.
const asProgram = "BUCKET_TEST_PROGRAM"

// asUser makes it a program that uses the bucket of a directory, until it is killed.
const asUser = "BUCKET_TEST_USER"

func use(dir string) {
	own, err := os.Executable()
	if err == nil {
		_ = os.Unsetenv(asUser)
		var b bucket.Bucket
		if b, err = bucket.Open(context.Background(), "test://"+dir,
			bucket.Options{Program: own}); err == nil {
			err = b.Put(context.Background(), "a", nil)
		}
	}
	fmt.Println(err)
	select {}
}

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	if dir := os.Getenv(asUser); dir != "" {
		use(dir)
	}
	if os.Getenv(asProgram) == "broken" {
		fmt.Fprintln(os.Stderr, "cannot start")
		os.Exit(3)
	}
	err := serve.Main(context.Background(), os.Args[2], os.Stdin, os.Stdout,
		func(_ context.Context, address string) (bucket.Bucket, error) {
			path, query, _ := strings.Cut(strings.TrimPrefix(address, "test://"), "?")
			if err := os.WriteFile(filepath.Join(path, ".pid"), []byte(strconv.Itoa(os.Getpid())),
				0o600); err != nil {
				return nil, err
			}
			if query == "fail" {
				return nil, fmt.Errorf("no access with %s to https://x/?sig=%s",
					os.Getenv("TEST_SECRET_KEY"), "abc")
			}
			b, err := bucket.NewDirectory(vfs.OS(), path, false)
			if query == "cut" {
				b = cut{b}
			}
			return b, err
		})
	if err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// cut is a bucket whose objects cannot be read to their end.
type cut struct{ bucket.Bucket }

func (c cut) Get(ctx context.Context, key string, offset int64) (io.ReadCloser, error) {
	r, err := c.Bucket.Get(ctx, key, offset)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(r, iotest.ErrReader(errors.New("the rest is lost"))), r}, nil
}

func program(t *testing.T, dir, query string, log io.Writer) bucket.Bucket {
	t.Helper()
	t.Setenv(asProgram, "1")
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	b, err := bucket.Open(context.Background(), "test://"+dir+query,
		bucket.Options{Program: own, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		// Nothing is left of the private directories.
		if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil ||
			slices.ContainsFunc(left,
				func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), "vigil-bucket") }) {
			t.Errorf("%v, %v", left, err)
		}
	})
	return b
}

func pid(t *testing.T, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, ".pid"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestProgram(t *testing.T) {
	buckettest.Run(t, program(t, t.TempDir(), "", io.Discard))
}

// After the end of the process, calls fail with ErrUnavailable and then succeed again. The process
// ends with Close.
func TestProgramRestarts(t *testing.T) {
	dir := t.TempDir()
	b := program(t, dir, "", io.Discard)
	ctx := t.Context()
	if err := b.Put(ctx, "a", []byte("x")); err != nil {
		t.Fatal(err)
	}
	first := pid(t, dir)
	p, err := os.FindProcess(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	failed := false
	for {
		data, err := bucket.ReadAll(ctx, b, "a", 10)
		if err == nil && string(data) == "x" && pid(t, dir) != first {
			break
		}
		if err != nil {
			failed = true
			if !errors.Is(err, bucket.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !failed {
		t.Error("no call has failed")
	}
	second := pid(t, dir)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if p, err := os.FindProcess(second); err == nil && p.Signal(syscall.Signal(0)) == nil {
		t.Error("the process is left")
	}
	if err := b.Put(ctx, "b", nil); !errors.Is(err, bucket.ErrUnavailable) {
		t.Error(err)
	}
}

// A program that cannot be started is reported with its text, and started again with pauses.
func TestProgramBroken(t *testing.T) {
	b := program(t, t.TempDir(), "", io.Discard)
	t.Setenv(asProgram, "broken")
	for range 100 {
		if err := b.Put(t.Context(), "a", nil); !errors.Is(err, bucket.ErrUnavailable) ||
			!strings.Contains(err.Error(), "cannot start") &&
				!strings.Contains(err.Error(), "it has ended") {
			t.Fatal(err)
		}
	}
	none, err := bucket.Open(t.Context(), "s3://x", bucket.Options{Program: "/does/not/exist"})
	if err != nil {
		t.Fatal(err)
	}
	if err := none.Put(t.Context(), "a", nil); !errors.Is(err, bucket.ErrUnavailable) {
		t.Error(err)
	}
	t.Setenv("PATH", "")
	if _, err := bucket.Open(t.Context(), "s3://x", bucket.Options{}); !errors.Is(err,
		bucket.ErrUnavailable) || !strings.Contains(err.Error(), "vigil-bucket") {
		t.Error(err)
	}
}

// An error in the middle of an object reaches the reader, with its text, whatever the size of what
// came before it.
func TestProgramCut(t *testing.T) {
	b := program(t, t.TempDir(), "?cut", io.Discard)
	for _, n := range []int{0, 10, 1 << 20} {
		key := fmt.Sprintf("n%d", n)
		if err := b.Put(t.Context(), key, make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		data, err := bucket.ReadAll(t.Context(), b, key, bucket.MaxObject)
		if len(data) != n || !errors.Is(err, bucket.ErrUnavailable) ||
			!strings.Contains(err.Error(), "the rest is lost") {
			t.Errorf("%d bytes of %d, %v", len(data), n, err)
		}
	}
}

// Neither errors nor log lines have credentials, and the command line has no URL.
func TestProgramSecrets(t *testing.T) {
	t.Setenv("TEST_SECRET_KEY", "very-secret-value")
	dir := t.TempDir()
	var log syncBuffer
	b := program(t, dir, "?fail", &log)
	err := b.Put(t.Context(), "a", nil)
	if err == nil || !strings.Contains(err.Error(), "no access") ||
		strings.Contains(err.Error()+log.String(), "very-secret") ||
		strings.Contains(err.Error(), "sig=") {
		t.Error(err, log.String())
	}
	good := program(t, dir, "", &log)
	if err := good.Put(t.Context(), "a", nil); err != nil {
		t.Fatal(err)
	}
	if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid(t, dir))); err == nil &&
		bytes.Contains(line, []byte("test://")) {
		t.Errorf("%q", line)
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// left returns the private directories that there are.
func left(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), bucket.DirPrefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// TestKilledUser: if the process that has started the program is killed, the program ends and
// removes the directory of its socket.
func TestKilledUser(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	user := exec.Command(own)
	user.Env = append(os.Environ(), asProgram+"=1", asUser+"="+t.TempDir())
	out, err := user.StdoutPipe()
	if err == nil {
		err = user.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "<nil>\n" {
		t.Fatal(line)
	}
	if dirs := left(t); len(dirs) != 1 {
		t.Fatal(dirs)
	}
	if err := user.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = user.Wait()
	for end := time.Now().Add(time.Minute); len(left(t)) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%q are left", left(t))
		}
	}
}

// TestLeftDirectories: the start of a program removes the directories of programs that were killed,
// and no others.
func TestLeftDirectories(t *testing.T) {
	b := program(t, t.TempDir(), "", io.Discard)
	make := func(name string, age time.Duration, prepare func(dir string)) string {
		dir := filepath.Join(os.Getenv("TMPDIR"), bucket.DirPrefix+name)
		err := os.Mkdir(dir, 0o700)
		if err == nil && prepare != nil {
			prepare(dir)
		}
		at := time.Now().Add(-age)
		if err = errors.Join(err, os.Chtimes(dir, at, at)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	listen := func(dir string) *net.UnixListener {
		l, err := net.ListenUnix("unix",
			&net.UnixAddr{Name: filepath.Join(dir, "socket"), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		return l
	}
	dead := func(dir string) { _ = listen(dir).Close() }
	gone := []string{make("dead", time.Hour, dead), make("empty", time.Hour, nil)}
	kept := []string{make("young", 0, dead), make("alive", time.Hour, func(dir string) {
		l := listen(dir)
		t.Cleanup(func() { _ = l.Close() })
	}), make("other", time.Hour, func(dir string) {
		if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	})}
	if err := b.Put(context.Background(), "a", nil); err != nil {
		t.Fatal(err)
	}
	for _, dir := range gone {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	for _, dir := range kept {
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(dir)
	}
}
