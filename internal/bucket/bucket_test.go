package bucket_test

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want %q", address, err, want)
		}
	}
	got := bucket.Show("s3://user:secret@bucket/path?prefix=a/&region=eu&accesskey=secret&endpoint=http://x:secret@host")
	if want := "s3://bucket/path?prefix=a%2F&region=eu"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// An object whose Put returned nil is whole after a crash; one whose Put did not return is whole or absent; temporary files count
// as nothing.
func TestDirectoryCrash(t *testing.T) {
	ctx := context.Background()
	content := []byte(strings.Repeat("x", 5000))
	for _, fault := range []faultfs.Fault{faultfs.Fail, faultfs.FailPersisted, faultfs.ShortWrite, faultfs.FailLost} {
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
				if got, err := bucket.ReadAll(ctx, b, key, bucket.MaxObject); err != nil || string(got) != string(content) {
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
				if err := b.Put(ctx, key, content); err != nil && !errors.Is(err, bucket.ErrExists) {
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
