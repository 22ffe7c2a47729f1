package cloudtest

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"vigil/internal/bucket"
	"vigil/internal/bucket/buckettest"
)

// open opens a bucket through the program.
func open(t *testing.T, url string) bucket.Bucket {
	t.Helper()
	b, err := bucket.Open(t.Context(), url,
		bucket.Options{Program: program, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestContract(t *testing.T) {
	each(t, func(t *testing.T, s *storage) {
		buckettest.Run(t, open(t, s.url("archive", "")))
		// The same below a prefix, next to the objects of the first run.
		buckettest.Run(t, open(t, s.url("archive", "prod/")))
	})
}

// Objects are where the prefix says, and a bucket sees no others.
func TestPrefix(t *testing.T) {
	each(t, func(t *testing.T, s *storage) {
		all := open(t, s.url("archive", ""))
		for _, prefix := range []string{"prod/", "test/"} {
			b := open(t, s.url("archive", prefix))
			if err := b.Put(t.Context(), "log/1", []byte(prefix)); err != nil {
				t.Fatal(err)
			}
			list, err := b.List(t.Context(), "", "", 10)
			if err != nil || len(list) != 1 || list[0].Key != "log/1" || list[0].Modified.IsZero() {
				t.Errorf("%v, %v", list, err)
			}
			if data, err := bucket.ReadAll(t.Context(), all, prefix+"log/1", 100); err != nil ||
				string(data) != prefix {
				t.Errorf("%q, %v", data, err)
			}
		}
	})
}

// A list has more objects than a request to the storage returns, and begins after any of them.
func TestManyObjects(t *testing.T) {
	each(t, func(t *testing.T, s *storage) {
		const n, writers = 2100, 20
		b := open(t, s.url("archive", "prod/"))
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for i := w; i < n; i += writers {
					if err := b.Put(t.Context(), fmt.Sprintf("log/%04d", i),
						[]byte("x")); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		for _, after := range []int{-1, 0, 998, 999, 1000, 2098, 2099} {
			from, i := "", after+1
			if after >= 0 {
				from = fmt.Sprintf("log/%04d", after)
			}
			for o, err := range bucket.All(t.Context(), b, "log/", from) {
				if err != nil {
					t.Fatal(err)
				}
				if o.Key != fmt.Sprintf("log/%04d", i) {
					t.Fatalf("after %q: %q instead of %04d", from, o.Key, i)
				}
				i++
			}
			if i != n {
				t.Errorf("after %q: the list ends before %04d", from, i)
			}
		}
	})
}

// An object that is large enough for an upload in parts is written once as well, and whole.
func TestLargeObject(t *testing.T) {
	each(t, func(t *testing.T, s *storage) {
		b := open(t, s.url("archive", ""))
		data := [2][]byte{bytes.Repeat([]byte("0123456789abcde\n"), 40<<16),
			bytes.Repeat([]byte("another writer.\n"), 40<<16)}
		var errs [2]error
		var wg sync.WaitGroup
		for i := range data {
			wg.Go(func() { errs[i] = b.Put(t.Context(), "part/1", data[i]) })
		}
		wg.Wait()
		won := slices.Index(errs[:], nil)
		if won < 0 || !errors.Is(errs[1-won], bucket.ErrExists) {
			t.Fatal(errs)
		}
		if err := b.Put(t.Context(), "part/1", data[1-won]); !errors.Is(err, bucket.ErrExists) {
			t.Error(err)
		}
		got, err := bucket.ReadAll(t.Context(), b, "part/1", bucket.MaxObject)
		if err != nil || !bytes.Equal(got, data[won]) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	})
}

func TestMissingBucket(t *testing.T) {
	each(t, func(t *testing.T, s *storage) {
		b := open(t, s.url("no-such-bucket", ""))
		_, get := b.Get(t.Context(), "a", 0)
		_, list := b.List(t.Context(), "", "", 1)
		for op, err := range map[string]error{"put": b.Put(t.Context(), "a", []byte("x")),
			"get": get, "list": list} {
			t.Logf("%s: %v", op, err)
			if !errors.Is(err, bucket.ErrNotFound) {
				t.Errorf("%s: %v", op, err)
			}
		}
	})
}

// Wrong credentials are one error in one line, without any part of them that is secret.
func TestWrongSecret(t *testing.T) {
	each(t, func(t *testing.T, s *storage) {
		if len(s.wrong) == 0 {
			t.Skip("this server accepts all credentials; bucket/cloud tests what the program makes of the errors of the service")
		}
		if err := open(t, s.url("archive", "")).Put(t.Context(), "a", []byte("x")); err != nil {
			t.Fatal(err)
		}
		wrong := []map[string]string{s.wrong}
		if s.scheme == "s3" {
			wrong = append(wrong, map[string]string{"AWS_ACCESS_KEY_ID": "somebody-else"})
		}
		for _, env := range wrong {
			for name, value := range env {
				t.Setenv(name, value)
			}
			b := open(t, s.url("archive", ""))
			_, get := b.Get(t.Context(), "a", 0)
			_, list := b.List(t.Context(), "", "", 1)
			for op, err := range map[string]error{"put": b.Put(t.Context(), "b", []byte("x")),
				"get": get, "list": list} {
				t.Logf("%s: %v", op, err)
				if !errors.Is(err, bucket.ErrDenied) || strings.Contains(err.Error(), s.secret) ||
					strings.Contains(err.Error(), "\n") || len(err.Error()) > 600 {
					t.Errorf("%s: %v", op, err)
				}
			}
			if err := b.Delete(t.Context(), "a"); err == nil {
				t.Error("deleted")
			}
		}
	})
}

// While the storage is away, calls fail with ErrUnavailable; when it is back, the same bucket
// works, and has what was acknowledged.
func TestStorageRestarts(t *testing.T) {
	each(t, func(t *testing.T, s *storage) {
		b := open(t, s.url("archive", ""))
		want := bytes.Repeat([]byte("0123456789abcdef"), 1<<12)
		if err := b.Put(t.Context(), "before", want); err != nil {
			t.Fatal(err)
		}
		s.kill()
		_, get := b.Get(t.Context(), "before", 0)
		_, list := b.List(t.Context(), "", "", 1)
		for op, err := range map[string]error{"put": b.Put(t.Context(), "while", want), "get": get,
			"list": list} {
			t.Logf("%s: %v", op, err)
			if !errors.Is(err, bucket.ErrUnavailable) || strings.Contains(err.Error(), secretKey) {
				t.Errorf("%s: %v", op, err)
			}
		}
		s.launch()
		if data, err := bucket.ReadAll(t.Context(), b, "before", bucket.MaxObject); err != nil ||
			!bytes.Equal(data, want) {
			t.Errorf("%d bytes, %v", len(data), err)
		}
		if err := b.Put(t.Context(), "before", nil); !errors.Is(err, bucket.ErrExists) {
			t.Error(err)
		}
		if err := b.Put(t.Context(), "while", want); err != nil {
			t.Error(err)
		}
	})
}
