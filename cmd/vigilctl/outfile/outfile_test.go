package outfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
)

// onlyNames fails if a directory has other names than these.
func onlyNames(t *testing.T, dir string, names ...string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, e := range list {
		have = append(have, e.Name())
	}
	if strings.Join(have, " ") != strings.Join(names, " ") {
		t.Errorf("the directory has %q, want %q", have, names)
	}
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "b.db")
	// The old name for unfinished files: readable for all, and a link to something else.
	other := filepath.Join(t.TempDir(), "other")
	if err := errors.Join(os.WriteFile(other, []byte("other"), 0o644),
		os.Symlink(other, path+".part")); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, strings.NewReader("secret"), func(int) {}); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if b, _ := os.ReadFile(other); string(b) != "other" {
		t.Errorf("the target of a link was overwritten: %q", b)
	}
	// A failure leaves what was there, and nothing else.
	broken := errors.New("broken")
	if err := Write(path, iotest.ErrReader(broken), func(int) {}); !errors.Is(err, broken) {
		t.Error(err)
	}
	if b, _ := os.ReadFile(path); string(b) != "secret" {
		t.Errorf("%q", b)
	}
	onlyNames(t, dir, "b.db", "b.db.part")
}

func TestTargetKinds(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.Symlink("/dev/full", at("link")), os.Mkdir(at("dir"), 0o700),
		syscall.Mkfifo(at("pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{at("link"): "a symbolic link",
		at("dir"): "a directory", at("pipe"): "a named pipe", "/dev/full": "a device"} {
		if err := Write(path, strings.NewReader("x"), func(int) {}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("write %s: %v", path, err)
		}
		if strings.HasPrefix(path, dir) {
			if _, err := OpenPart(path); err == nil {
				t.Errorf("%s is used as a file to go on with", path)
			}
		}
	}
	onlyNames(t, dir, "dir", "link", "pipe")
}

func TestOpenPart(t *testing.T) {
	dir := t.TempDir()
	part := filepath.Join(dir, "d.part")
	if err := os.WriteFile(part, []byte("begun"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := OpenPart(part)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := f.Stat(); err != nil || st.Mode() != 0o600 || st.Size() != 5 {
		t.Errorf("%v, %v", st, err)
	}
	if _, err := OpenPart(part); err == nil || !strings.Contains(err.Error(), "another dump") {
		t.Errorf("opened by two dumps: %v", err)
	}
	if err := errors.Join(os.Link(part, part+"2"), f.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenPart(part); err == nil || !strings.Contains(err.Error(), "2 names") {
		t.Errorf("a file with two names: %v", err)
	}
}

// TestDumpsTakeTurns has many dumps write the same file: each is refused, or publishes what it has
// written itself.
func TestDumpsTakeTurns(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "d")
	var all sync.WaitGroup
	for n := range 8 {
		text := bytes.Repeat([]byte{byte('a' + n)}, 100)
		all.Go(func() {
			for range 50 {
				f, err := OpenPart(path + ".part")
				if err != nil {
					continue
				}
				_, err = f.WriteAt(text, 0)
				if err = errors.Join(err, Publish(path+".part", path)); err != nil {
					t.Error(err)
				}
				if b, err := os.ReadFile(f.Name()); err == nil && bytes.Equal(b, text) {
					t.Error("the file is there under its old name, too")
				}
				if err := f.Close(); err != nil {
					t.Error(err)
				}
				if b, err := os.ReadFile(path); err != nil || len(b) != 100 ||
					bytes.Count(b, b[:1]) != 100 {
					t.Errorf("%q, %v", b, err)
				}
			}
		})
	}
	all.Wait()
}
