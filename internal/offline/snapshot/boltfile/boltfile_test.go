package boltfile

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// content is a database as a test sees it: buckets, keys, values.
type content map[string]map[string]string

func (c content) buckets() []string {
	var names []string
	for n := range c {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

func keys(m map[string]string) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

// feed passes a content to a Builder, the buckets in any order.
func (c content) feed(t testing.TB, b *Builder) Plan {
	t.Helper()
	names := c.buckets()
	for i := range names {
		name := names[len(names)-1-i]
		if err := b.Bucket(name); err != nil {
			t.Fatal(err)
		}
		for _, k := range keys(c[name]) {
			if err := b.Put([]byte(k), []byte(c[name][k])); err != nil {
				t.Fatal(err)
			}
		}
	}
	p, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (c content) build(t testing.TB) []byte {
	t.Helper()
	p := c.feed(t, NewCounter())
	var out bytes.Buffer
	c.feed(t, NewWriter(&out, p))
	if int64(out.Len()) != p.Size() {
		t.Fatalf("%d bytes were written and %d announced", out.Len(), p.Size())
	}
	return out.Bytes()
}

// read reads a file with the code under test.
func read(b []byte) (content, error) {
	f, err := Open(bytes.NewReader(b), int64(len(b)), nil)
	if err != nil {
		return nil, err
	}
	list, err := f.Buckets()
	if err != nil {
		return nil, err
	}
	out := content{}
	for _, bk := range list {
		m := map[string]string{}
		out[bk.Name] = m
		if err := f.ForEach(bk,
			func(k, v []byte) error { m[string(k)] = string(v); return nil }); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func same(t testing.TB, what string, got, want content) {
	t.Helper()
	if fmt.Sprint(got.buckets()) != fmt.Sprint(want.buckets()) {
		t.Fatalf("%s: buckets %q, want %q", what, got.buckets(), want.buckets())
	}
	for name, m := range want {
		if len(got[name]) != len(m) {
			t.Fatalf("%s: bucket %q has %d keys, want %d", what, name, len(got[name]), len(m))
		}
		for k, v := range m {
			if got[name][k] != v {
				t.Fatalf("%s: bucket %q key %q differs", what, name, k)
			}
		}
	}
}

// random makes a content that has small and large values, long keys, and buckets that are empty.
func random(r *rand.Rand) content {
	c := content{}
	for range r.IntN(6) {
		m := map[string]string{}
		c[fmt.Sprintf("bucket%d", r.IntN(100))] = m
		for range []int{0, 1, 3, 40, 3000}[r.IntN(5)] {
			size := []int{0, 10, 300, 5000, 70000}[min(r.IntN(8), 4)]
			if size == 70000 && r.IntN(20) > 0 {
				size = 50
			}
			v := make([]byte, size)
			for i := range v {
				v[i] = byte(r.Uint32())
			}
			m[fmt.Sprintf("%0*x", 1+r.IntN(60), r.Uint64())] = string(v)
		}
	}
	return c
}

// TestBuilt: the library opens what was built, finds nothing wrong with it, reads it and goes on
// writing.
func TestBuilt(t *testing.T) {
	for seed := range uint64(12) {
		c := random(rand.New(rand.NewPCG(seed, 1)))
		b := c.build(t)
		got, err := read(b)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		same(t, fmt.Sprintf("seed %d, read back", seed), got, c)

		name := filepath.Join(t.TempDir(), "db")
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := bolt.Open(name, 0o600, &bolt.Options{NoSync: true})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		check := func() {
			err := db.View(func(tx *bolt.Tx) error {
				for err := range tx.Check() {
					t.Errorf("seed %d: %v", seed, err)
				}
				got := content{}
				err := tx.ForEach(func(name []byte, b *bolt.Bucket) error {
					m := map[string]string{}
					got[string(name)] = m
					return b.ForEach(func(k,
						v []byte) error {
						m[string(k)] = string(v)
						return nil
					})
				})
				same(t, fmt.Sprintf("seed %d, the library", seed), got, c)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		check()
		err = db.Update(func(tx *bolt.Tx) error {
			for _, n := range c.buckets() {
				for i, k := range keys(c[n]) {
					if i%3 == 0 {
						if err := tx.Bucket([]byte(n)).Delete([]byte(k)); err != nil {
							return err
						}
						delete(c[n], k)
					}
				}
			}
			c["new"] = map[string]string{"a": "b"}
			b, err := tx.CreateBucketIfNotExists([]byte("new"))
			if err != nil {
				return err
			}
			return b.Put([]byte("a"), []byte("b"))
		})
		if err != nil {
			t.Fatal(err)
		}
		check()
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		// What the library has changed, with free pages and buckets that lie in the root, is read
		// too.
		if b, err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
		if got, err = read(b); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		same(t, fmt.Sprintf("seed %d, changed by the library", seed), got, c)
	}
}

// longKeys makes n keys of a length that differ in their last bytes only.
func longKeys(n, length int) map[string]string {
	m := map[string]string{}
	for i := range n {
		tail := fmt.Sprintf("%03x", i)
		tail = tail[max(len(tail)-length, 0):]
		m[strings.Repeat("k", length-len(tail))+tail] = fmt.Sprint(i)
	}
	return m
}

// TestKeysOfEveryLength: trees of keys of any length that the library takes end, have two children
// in every branch, and the library reads and empties them.
func TestKeysOfEveryLength(t *testing.T) {
	lengths := []int{1, 2, 3, 100, 500, 1000, 1355, 1360, 2000, 4000, 4080, 4096, 5000, 8192,
		12000, 32767, MaxKey}
	for l := 2015; l <= 2045; l++ {
		lengths = append(lengths, l)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 8 {
		lengths = append(lengths, 1+r.IntN(MaxKey))
	}
	for _, length := range lengths {
		for _, n := range []int{2, 3, 5, 9} {
			checkWithLibrary(t, fmt.Sprintf("%d keys of %d bytes", n, length),
				content{"b": longKeys(n, length)})
		}
	}
	mixed := content{"b": {}}
	for range 300 {
		for k, v := range longKeys(1+r.IntN(4), lengths[r.IntN(len(lengths))]) {
			mixed["b"][k] = v
		}
	}
	checkWithLibrary(t, "keys of many lengths", mixed)
	checkWithLibrary(t, "long names of buckets",
		content{string(make([]byte, 3000)) + "a": {"a": "1"},
			string(make([]byte, 3000)) + "b": {}, "c": {}})

	b := NewCounter()
	_ = b.Bucket("b")
	if err := b.Put(make([]byte, MaxKey+1), nil); err == nil {
		t.Error("a key is taken that the library does not take")
	}
}

// checkWithLibrary builds a file, reads it, checks it with the library, and lets the library delete
// every key one by one: it merges pages on the way and stops at trees that it would not have built.
func checkWithLibrary(t *testing.T, what string, c content) {
	t.Helper()
	b := c.build(t)
	got, err := read(b)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	same(t, what, got, c)
	name := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(name, 0o600, &bolt.Options{NoSync: true})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer func() { _ = db.Close() }()
	err = db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			t.Errorf("%s: %v", what, err)
		}
		got := content{}
		err := tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			m := map[string]string{}
			got[string(name)] = m
			return b.ForEach(func(k, v []byte) error { m[string(k)] = string(v); return nil })
		})
		same(t, what+", the library", got, c)
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	for _, n := range c.buckets() {
		for _, k := range keys(c[n]) {
			if err := db.Update(func(tx *bolt.Tx) error { return tx.Bucket([]byte(n)).Delete([]byte(k)) }); err != nil {
				t.Fatalf("%s: delete: %v", what, err)
			}
		}
	}
	_ = db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			t.Errorf("%s, emptied: %v", what, err)
		}
		return nil
	})
}

// TestMisused: a Builder rejects content out of order, and content that differs from the counted
// one.
func TestMisused(t *testing.T) {
	b := NewCounter()
	if b.Put([]byte("a"), nil) == nil {
		t.Error("a pair without a bucket")
	}
	for _, list := range [][]string{{"b", "a"}, {"a", "a"}, {""}} {
		b := NewCounter()
		_ = b.Bucket("x")
		var err error
		for _, k := range list {
			err = b.Put([]byte(k), nil)
		}
		if _, ferr := b.Finish(); err == nil || ferr == nil {
			t.Errorf("%q: %v, %v", list, err, ferr)
		}
	}
	c := content{"x": {"a": "1"}}
	p := c.feed(t, NewCounter())
	c["x"]["b"] = string(make([]byte, 5000))
	w := NewWriter(&bytes.Buffer{}, p)
	_ = w.Bucket("x")
	_ = w.Put([]byte("a"), make([]byte, 9000))
	if _, err := w.Finish(); err == nil {
		t.Error("more than was counted")
	}
}

// TestDamaged: of a flipped bit or a missing end the reader either says what is wrong, or reads
// keys that still ascend; it never fails in another way.
func TestDamaged(t *testing.T) {
	c := random(rand.New(rand.NewPCG(3, 1)))
	c["key"] = map[string]string{}
	for i := range 500 {
		c["key"][fmt.Sprintf("%08d", i)] = string(make([]byte, i))
	}
	b := c.build(t)
	for cut := 0; cut < len(b); cut += 7777 {
		if _, err := read(b[:cut]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
	found := 0
	for at := 0; at < len(b); at += 1 + len(b)/1500 {
		b[at] ^= 1 << (at % 8)
		if _, err := read(b); errors.Is(err, ErrCorrupt) {
			found++
		} else if err != nil {
			t.Fatalf("byte %d: %v", at, err)
		}
		b[at] ^= 1 << (at % 8)
	}
	if found == 0 {
		t.Error("no damage was found")
	}
}

func FuzzRead(f *testing.F) {
	for seed := range uint64(4) {
		c := random(rand.New(rand.NewPCG(seed, 7)))
		if b := c.build(f); len(b) < 1<<16 {
			f.Add(b)
		}
	}
	f.Add(content{"key": {"a": "b"}, "meta": {}}.build(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := read(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again, err := read(c.build(t))
		if err != nil {
			t.Fatal(err)
		}
		same(t, "written again", again, c)
	})
}
