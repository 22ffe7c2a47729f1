package bucket_test

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"vigil/internal/bucket"
	"vigil/internal/bucket/buckettest"
	"vigil/internal/vfs"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

func TestDirectory(t *testing.T) {
	for name, fsys := range map[string]vfs.FS{"memory": memfs.New(), "disk": vfs.OS()} {
		t.Run(name, func(t *testing.T) {
			b, err := bucket.NewDirectory(fsys, filepath.Join(t.TempDir(), "a", "b"), true)
			if err != nil {
				t.Fatal(err)
			}
			buckettest.Run(t, b)
		})
	}
}

// A directory that vanishes, as one that is not mounted any more, is not made again.
func TestDirectoryVanishes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	b, err := bucket.NewDirectory(vfs.OS(), dir, true)
	if err == nil {
		err = b.Put(t.Context(), "a/b", nil)
	}
	if err == nil {
		err = os.Rename(dir, dir+".away")
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a/c", "d/e"} {
		if err := b.Put(t.Context(), key, nil); !errors.Is(err, bucket.ErrNotFound) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// A bucket that does not exist is not created by a reader, and a file is none.
func TestDirectoryAbsent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	if _, err := bucket.NewDirectory(vfs.OS(), dir, false); !errors.Is(err, bucket.ErrNotFound) {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := bucket.NewDirectory(vfs.OS(), dir, true); err == nil {
		t.Error("a file is a bucket")
	}
}

func TestOpen(t *testing.T) {
	for address, want := range map[string]string{
		"":                           "has no scheme",
		"/srv/archive":               "has no scheme",
		"file://host/archive":        "three slashes",
		"file:///":                   "the directory is missing",
		"file:///srv/archive?a=b":    "no parameters",
		"file:///does/not/exist/1":   "no such directory",
		"s3://key:secret@bucket/%zz": "not a URL",
	} {
		_, err := bucket.Open(context.Background(), address, bucket.Options{})
		if err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want %q", address, err, want)
		}
	}
	got := bucket.Show("s3://user:secret@bucket/path?prefix=a/&region=eu&accesskey=secret&endpoint=http://x:secret@host")
	if want := "s3://bucket/path?prefix=a%2F&region=eu"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// An object whose Put returned nil is whole after a crash; one whose Put did not return is whole or
// absent; temporary files count as nothing.
func TestDirectoryCrash(t *testing.T) {
	ctx := context.Background()
	content := []byte(strings.Repeat("x", 5000))
	for _, fault := range []faultfs.Fault{faultfs.Fail, faultfs.FailPersisted, faultfs.ShortWrite,
		faultfs.FailLost} {
		crashAtEach(t, ctx, fault, content)
	}
}

func crashAtEach(t *testing.T, ctx context.Context, fault faultfs.Fault, content []byte) {
	for at := int64(1); ; at++ {
		mem := memfs.New()
		fsys := faultfs.New(mem, faultfs.Nth(at, fault, nil))
		var acknowledged []string
		b, err := bucket.NewDirectory(fsys, "/archive", true)
		for _, key := range []string{"log/1", "log/2", "base/1"} {
			if err != nil {
				break
			}
			if err = b.Put(ctx, key, content); err == nil {
				acknowledged = append(acknowledged, key)
			}
		}
		after := mem.Crash(rand.New(rand.NewPCG(1, uint64(at))))
		if b, openErr := bucket.NewDirectory(after, "/archive", true); openErr != nil {
			t.Fatal(openErr)
		} else {
			for _, key := range acknowledged {
				if got, err := bucket.ReadAll(ctx, b, key, bucket.MaxObject); err != nil ||
					string(got) != string(content) {
					t.Fatalf("%v of operation %d: %s: %d bytes, %v", fault, at, key, len(got), err)
				}
			}
			for o, err := range bucket.All(ctx, b, "", "") {
				if err != nil || o.Size != int64(len(content)) {
					t.Fatalf("%v of operation %d: %+v, %v", fault, at, o, err)
				}
			}
			// What did not succeed is repeated.
			for _, key := range []string{"log/1", "log/2", "base/1"} {
				if err := b.Put(ctx, key, content); err != nil &&
					!errors.Is(err, bucket.ErrExists) {
					t.Fatal(err)
				}
			}
		}
		if fsys.Count() < at {
			if at < 10 {
				t.Fatalf("only %d operations", at)
			}
			return
		}
	}
}

// What a killed writer has not synced survives a crash once the next process has found it.
func TestDirectoryFindsUnsynced(t *testing.T) {
	ctx := context.Background()
	content := strings.Repeat("x", 5000)
	keys := []string{"identity", "log/1", "log/2", "part/a/1"}
	finds := map[string]func(b bucket.Bucket) (found []string){
		"get": func(b bucket.Bucket) (found []string) {
			for _, key := range keys {
				if got, err := bucket.ReadAll(ctx, b, key, bucket.MaxObject); err == nil &&
					string(got) == content {
					found = append(found, key)
				} else if !errors.Is(err, bucket.ErrNotFound) {
					t.Fatal(key, len(got), err)
				}
			}
			return found
		},
		"list": func(b bucket.Bucket) (found []string) {
			for o, err := range bucket.All(ctx, b, "", "") {
				if err != nil {
					t.Fatal(err)
				}
				found = append(found, o.Key)
			}
			return found
		},
		"list of a prefix": func(b bucket.Bucket) (found []string) {
			for _, prefix := range []string{"log/", "part/a/"} {
				for o, err := range bucket.All(ctx, b, prefix, "") {
					if err != nil {
						t.Fatal(err)
					}
					found = append(found, o.Key)
				}
			}
			return found
		},
	}
	for name, find := range finds {
		t.Run(name, func(t *testing.T) {
			for at, more := int64(1), true; more; at++ {
				for seed := range uint64(8) {
					mem := memfs.New()
					death := faultfs.NewWindow(at, 1<<40, syscall.EIO, nil)
					if b, err := bucket.NewDirectory(faultfs.New(mem, death.Decide), "/archive",
						true); err == nil {
						for _, key := range keys {
							_ = b.Put(ctx, key, []byte(content)) // the process may have died
						}
					}
					more = death.Hit() != ""
					mem = mem.Kill()
					b, err := bucket.NewDirectory(mem, "/archive", false)
					if errors.Is(err, bucket.ErrNotFound) {
						continue
					} else if err != nil {
						t.Fatal(err)
					}
					found := find(b)
					if b, err = bucket.NewDirectory(mem.Crash(rand.New(rand.NewPCG(seed,
						uint64(at)))), "/archive", false); err != nil {
						t.Fatal(err)
					}
					for _, key := range found {
						if got, err := bucket.ReadAll(ctx, b, key, bucket.MaxObject); err != nil ||
							string(got) != content {
							t.Fatalf("died at operation %d, seed %d: %s was found, and is %d bytes: %v", at, seed, key, len(got), err)
						}
					}
				}
			}
		})
	}
}

// An archive can be read on a file system that cannot be written to.
func TestDirectoryReadOnly(t *testing.T) {
	mem := memfs.New()
	b, err := bucket.NewDirectory(mem, "/archive", true)
	if err == nil {
		err = b.Put(t.Context(), "log/1", []byte("content"))
	}
	if err == nil {
		b, err = bucket.NewDirectory(vfs.ReadOnly(mem), "/archive", false)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, err := bucket.ReadAll(t.Context(), b, "log/1", 10); err != nil ||
		string(got) != "content" {
		t.Errorf("%q, %v", got, err)
	}
	if list, err := b.List(t.Context(), "log/", "", 10); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if err := b.Put(t.Context(), "log/2", nil); err == nil {
		t.Error("an object was written")
	}
}

// Files that a crash has left are removed when the next object is written into their folder, but
// none that may be in progress.
func TestDirectoryLeftovers(t *testing.T) {
	dir := t.TempDir()
	b, err := bucket.NewDirectory(vfs.OS(), dir, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "part"), 0o700); err != nil {
		t.Fatal(err)
	}
	old, young, object := filepath.Join(dir, "part", ".put-OLD"),
		filepath.Join(dir, "part", ".put-YOUNG"), filepath.Join(dir, "part", "object")
	foreign := filepath.Join(dir, "part", ".other")
	now := time.Now()
	for name, age := range map[string]time.Duration{old: 25 * time.Hour, foreign: 25 * time.Hour,
		young: 23 * time.Hour, object: 25 * time.Hour} {
		if err := errors.Join(os.WriteFile(name, []byte("x"), 0o600),
			os.Chtimes(name, now, now.Add(-age))); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Put(context.Background(), "part/a", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{old: false, foreign: true, young: true, object: true} {
		if _, err := os.Stat(name); err == nil != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A folder is listed once a day.
	if err := errors.Join(os.WriteFile(old, nil, 0o600),
		os.Chtimes(old, now, now.Add(-25*time.Hour)),
		b.Put(context.Background(), "part/b", nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); err != nil {
		t.Error(err)
	}
}
