// Package buckettest is the contract of a bucket, as a test of every implementation.
package buckettest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"vigil/internal/bucket"
)

var ctx = context.Background()

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Run tests an empty bucket.
func Run(t *testing.T, b bucket.Bucket) {
	data := map[string][]byte{}
	for _, key := range []string{"a", "a-b/c", "a.json", "a/b", "a/b-c", "a/b.c/d", "ab",
		"log/0001", "log/0002", "log/0010", "m"} {
		data[key] = []byte("content of " + key)
		must(t, b.Put(ctx, key, data[key]))
		if key == "a" {
			must(t, b.Delete(ctx, key)) // in a directory it cannot exist next to a/b
			delete(data, key)
		}
	}
	data["empty"] = nil
	must(t, b.Put(ctx, "empty", nil))
	data["large"] = bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	must(t, b.Put(ctx, "large", data["large"]))

	t.Run("get", func(t *testing.T) { testGet(t, b, data) })
	t.Run("put again", func(t *testing.T) { testPutAgain(t, b, data) })
	t.Run("list", func(t *testing.T) { testList(t, b, data) })
	t.Run("race", func(t *testing.T) { testRace(t, b) })
	t.Run("delete", func(t *testing.T) { testRemove(t, b) })
	t.Run("keys", func(t *testing.T) { testKeys(t, b) })
	t.Run("canceled", func(t *testing.T) { testCanceled(t, b) })
}

func testGet(t *testing.T, b bucket.Bucket, data map[string][]byte) {
	for key, want := range data {
		for _, offset := range []int64{0, 1, int64(len(want)) / 2, int64(len(want)),
			int64(len(want)) + 5} {
			r, err := b.Get(ctx, key, offset)
			if err != nil {
				t.Fatal(key, offset, err)
			}
			got, err := io.ReadAll(r)
			if err := errors.Join(err, r.Close()); err != nil ||
				!bytes.Equal(got, want[min(offset, int64(len(want))):]) {
				t.Errorf("%s from %d: %d bytes, %v", key, offset, len(got), err)
			}
		}
	}
	if _, err := b.Get(ctx, "absent", 0); !errors.Is(err, bucket.ErrNotFound) {
		t.Error(err)
	}
	if _, err := bucket.ReadAll(ctx, b, "large", int64(len(data["large"]))-1); err == nil {
		t.Error("an object above the limit was read")
	}
	// An answer that is not read to its end holds nothing up.
	r, err := b.Get(ctx, "large", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func testPutAgain(t *testing.T, b bucket.Bucket, data map[string][]byte) {
	for key, want := range data {
		if err := b.Put(ctx, key, []byte("other")); !errors.Is(err, bucket.ErrExists) {
			t.Errorf("%s: %v", key, err)
		}
		if got, err := bucket.ReadAll(ctx, b, key, bucket.MaxObject); err != nil ||
			!bytes.Equal(got, want) {
			t.Errorf("%s has changed: %q, %v", key, got[:min(len(got), 20)], err)
		}
	}
}

func testList(t *testing.T, b bucket.Bucket, data map[string][]byte) {
	var keys []string
	for key := range data {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, prefix := range []string{"", "a", "a/", "a/b", "log/", "log/00", "x"} {
		for _, after := range []string{"", "a", "a-b", "a/b", "a/b-c", "log/0001",
			"log/0002~", "z"} {
			var want []string
			for _, k := range keys {
				if strings.HasPrefix(k, prefix) && k > after {
					want = append(want, k)
				}
			}
			var all []string
			for o, err := range bucket.All(ctx, b, prefix, after) {
				if err != nil {
					t.Fatal(prefix, after, err)
				}
				if o.Size != int64(len(data[o.Key])) {
					t.Errorf("%+v", o)
				}
				all = append(all, o.Key)
			}
			if !slices.Equal(all, want) {
				t.Errorf("list of %q after %q: %q, want %q", prefix, after, all, want)
			}
			at := after
			for limit := 1; ; limit++ {
				page, err := b.List(ctx, prefix, at, limit)
				if err != nil || len(page) != min(limit, len(want)) {
					t.Fatalf("page of %q after %q: %d of the %d objects, limit %d, %v", prefix, at,
						len(page), len(want), limit, err)
				}
				if len(page) == 0 {
					break
				}
				for _, o := range page {
					if len(want) == 0 || o.Key != want[0] {
						t.Fatalf("page of %q after %q: %q, want %q", prefix, at, o.Key, want)
					}
					want = want[1:]
				}
				at = page[len(page)-1].Key
			}
			if len(want) > 0 {
				t.Errorf("pages of %q after %q: %q are missing", prefix, after, want)
			}
		}
	}
}

func testRace(t *testing.T, b bucket.Bucket) {
	for i := range 5 {
		var wg sync.WaitGroup
		var mu sync.Mutex
		won := 0
		key := fmt.Sprintf("race/%d", i)
		for j := range 4 {
			wg.Go(func() {
				err := b.Put(ctx, key, fmt.Appendf(nil, "%d", j))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					won++
				case !errors.Is(err, bucket.ErrExists):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won != 1 {
			t.Errorf("%d of 4 writers have written %s", won, key)
		}
		must(t, b.Delete(ctx, key))
	}
}

func testRemove(t *testing.T, b bucket.Bucket) {
	must(t, b.Delete(ctx, "m"))
	if _, err := b.Get(ctx, "m", 0); !errors.Is(err, bucket.ErrNotFound) {
		t.Error(err)
	}
	must(t, b.Put(ctx, "m", []byte("again")))
	if err := b.Delete(ctx, "absent"); err != nil && !errors.Is(err, bucket.ErrNotFound) {
		t.Error(err)
	}
}

func testKeys(t *testing.T, b bucket.Bucket) {
	for _, key := range []string{"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/.b",
		"a b", "a\x00", "ä", strings.Repeat("a", 513)} {
		_, get := b.Get(ctx, key, 0)
		for op, err := range map[string]error{"put": b.Put(ctx, key, nil), "get": get,
			"delete": b.Delete(ctx, key)} {
			if !errors.Is(err, bucket.ErrKey) {
				t.Errorf("%s %q: %v", op, key, err)
			}
		}
	}
}

func testCanceled(t *testing.T, b bucket.Bucket) {
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, get := b.Get(ended, "large", 0)
	_, list := b.List(ended, "", "", 1)
	for op, err := range map[string]error{"put": b.Put(ended, "new", nil), "get": get, "list": list,
		"delete": b.Delete(ended, "large")} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", op, err)
		}
	}
}
