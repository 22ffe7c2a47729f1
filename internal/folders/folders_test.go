package folders

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// store is keys in their order, and counts what is read of it.
type store struct {
	keys        []string
	pages, read int
}

func (s *store) page(key, end []byte, limit int64) (items []string, more bool, err error) {
	s.pages++
	for _, k := range s.keys {
		if k < string(key) || !Unbounded(end) && k >= string(end) {
			continue
		}
		if int64(len(items)) == limit {
			return items, true, nil
		}
		items = append(items, k)
		s.read++
	}
	return items, false, nil
}

func keyOf(s string) []byte { return []byte(s) }

// lines returns a listing as text.
func lines(t *testing.T, walk iter.Seq2[Entry[string], error]) (list []string) {
	t.Helper()
	for e, err := range walk {
		if err != nil {
			t.Fatal(err)
		}
		if e.Folder != nil {
			list = append(list, string(e.Folder)+" from "+string(e.Key))
		} else {
			list = append(list, string(e.Key))
		}
	}
	return list
}

// model lists a level by reading all keys.
func model(keys []string, prefix, start, separator string) (list []string) {
	last := ""
	for _, k := range keys {
		rest, ok := strings.CutPrefix(k, prefix)
		if !ok || k < start {
			continue
		}
		i := strings.Index(rest, separator)
		if separator == "" || i < 0 {
			list = append(list, k)
			continue
		}
		if folder := prefix + rest[:i+len(separator)]; folder != last {
			last = folder
			list = append(list, folder+" from "+k)
		}
	}
	return list
}

//vigil:norace
func TestModel(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	for range 300 {
		alphabet := []string{"a", "b", "/", "\xff", "//", "\x00", "é"}
		word := func(n int) string {
			var b strings.Builder
			for range r.IntN(n) {
				b.WriteString(alphabet[r.IntN(len(alphabet))])
			}
			return b.String()
		}
		var keys []string
		for range r.IntN(500) {
			if k := word(8); k != "" {
				keys = append(keys, k)
			}
		}
		slices.Sort(keys)
		keys = slices.Compact(keys)
		prefix, start, separator := word(3), "", []string{"/", "//", "", "\xff"}[r.IntN(4)]
		if r.IntN(2) == 0 && len(keys) > 0 {
			start = keys[r.IntN(len(keys))]
		}
		got := lines(t, Walk([]byte(prefix), []byte(start), []byte(separator), keyOf,
			(&store{keys: keys}).page))
		if want := model(keys, prefix, start, separator); !slices.Equal(got, want) {
			t.Fatalf("seed %d: %q from %q by %q of %q:\n%q, want\n%q", seed, prefix, start,
				separator, keys, got, want)
		}
	}
}

// TestWork: a listing reads a page for each folder, not the keys in it, and large pages of keys
// without folders.
func TestWork(t *testing.T) {
	var s store
	for i := range 5 {
		for j := range 20_000 {
			s.keys = append(s.keys, fmt.Sprintf("folder%d/%05d", i, j))
		}
	}
	if got := lines(t, Walk(nil, nil, []byte("/"), keyOf, s.page)); len(got) != 5 || s.pages != 6 ||
		s.read > 6*firstPage {
		t.Errorf("%d lines, %d pages, %d keys", len(got), s.pages, s.read)
	}
	s.pages, s.read = 0, 0
	if got := lines(t, Walk([]byte("folder1/"), nil, []byte("/"), keyOf,
		s.page)); len(got) != 20_000 || s.pages > 25 {
		t.Errorf("%d lines, %d pages", len(got), s.pages)
	}
}

// TestHostilePages: pages with other keys than those that were asked for end the listing.
func TestHostilePages(t *testing.T) {
	for name, read := range map[string]Page[string]{
		"no progress": func([]byte, []byte, int64) ([]string, bool,
			error) {
			return nil, true, nil
		},
		"the same": func([]byte, []byte, int64) ([]string, bool,
			error) {
			return []string{"p/a"}, true, nil
		},
		"other keys": func([]byte, []byte, int64) ([]string, bool,
			error) {
			return []string{"z"}, false, nil
		},
		"shorter keys": func([]byte, []byte, int64) ([]string, bool,
			error) {
			return []string{"q"}, false, nil
		},
	} {
		var last error
		for _, err := range Walk([]byte("p/"), nil, []byte("/"), keyOf, read) {
			last = err
		}
		if !errors.Is(last, ErrPage) {
			t.Errorf("%s: %v", name, last)
		}
	}
	failed := errors.New("failed")
	for _, err := range Walk(nil, nil, nil, keyOf,
		func([]byte, []byte, int64) ([]string, bool, error) { return nil, false, failed }) {
		if !errors.Is(err, failed) {
			t.Error(err)
		}
	}
}

func TestEnd(t *testing.T) {
	for prefix, end := range map[string]string{"": "\x00", "a": "b", "a\xff": "b",
		"\xff\xff": "\x00", "ab": "ac"} {
		if got := End([]byte(prefix)); !bytes.Equal(got, []byte(end)) {
			t.Errorf("%q: %q, want %q", prefix, got, end)
		}
	}
}
