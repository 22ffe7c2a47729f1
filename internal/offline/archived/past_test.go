package archived

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
	"vigil/internal/store/archive"
	"vigil/internal/vfs/memfs"
)

// dumpOf returns all keys of a Past as text, and closes it.
func dumpOf(t testing.TB, a *Archive, target Target) (string, Result) {
	t.Helper()
	fsys := memfs.New()
	if err := fsys.MkdirAll("past"); err != nil {
		t.Fatal(err)
	}
	p, err := a.OpenPast(context.Background(), target, fsys, "past", nil)
	if err != nil {
		t.Fatal(target, err)
	}
	var b strings.Builder
	n := int64(0)
	for k, err := range p.Keys(context.Background(), "", "\x00") {
		if err != nil {
			t.Fatal(err)
		}
		n++
		fmt.Fprintf(&b, "%q %q %d %d %d %d\n", k.Key, k.Value, k.Create, k.Mod, k.Version, k.Lease)
		if k.Lease != 0 {
			if l, ok := p.Lease(k.Lease); !ok || l.TTL != 60 || l.Left < 1 || l.Left > l.TTL {
				t.Errorf("%v: lease %d of %q is %+v, %v", target, k.Lease, k.Key, l, ok)
			}
		}
	}
	if count, err := p.Count(context.Background(), "", "\x00"); err != nil || count != n {
		t.Errorf("%v: %d keys, and %d are counted (%v)", target, n, count, err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if names, _ := fsys.List("past"); len(names) > 0 {
		t.Errorf("left over: %v", names)
	}
	return b.String(), p.Result
}

// stateOf returns the keys of a node as dumpOf does.
func stateOf(n *node) string {
	n.t.Helper()
	res, err := n.store.Range(context.Background(),
		&kv.RangeRequest{Key: []byte{0}, End: []byte{0}})
	n.must(err)
	var b strings.Builder
	for i := range res.KVs.Len() {
		var k Key
		n.must(k.Decode(res.KVs.At(i)))
		fmt.Fprintf(&b, "%q %q %d %d %d %d\n", k.Key, k.Value, k.Create, k.Mod, k.Version, k.Lease)
	}
	return b.String()
}

// The keys of a Past are those that the cluster had, with more keys than a page has and with any
// bytes.
//
//vigil:norace
func TestPast(t *testing.T) {
	for seed := range uint64(3) {
		n, _ := newNode(t, 40+seed)
		n.base(false)
		for i := range 3*keysPage + 7 {
			n.apply(&fsm.Request{Put: &kv.PutRequest{Key: fmt.Appendf(nil, "p\x00\xff%04d",
				i*7%1000), Value: []byte{0, 0xff, byte(i)}}})
		}
		want := map[int64]string{}
		for i := range 12 {
			n.work(8)
			want[n.store.Revision()] = stateOf(n)
			if i%3 == 2 {
				n.base(i%2 == 0)
			}
			n.send()
		}
		a := n.open()
		for rev, state := range want {
			got, res := dumpOf(t, a, Target{Revision: rev})
			if got != state || res.Revision != rev {
				t.Errorf("seed %d: revision %d has other keys at %d", seed, rev, res.Revision)
			}
		}
		if got, res := dumpOf(t, a, Target{}); got != stateOf(n) || res.Index != n.index ||
			len(res.Missing) > 0 {
			t.Errorf("seed %d: the newest state: %+v", seed, res)
		}
	}
}

// Damage that is found while a Past is built leads to another way, or to an error that names it;
// nothing is left in the directory.
func TestPastOfDamagedArchive(t *testing.T) {
	n, fsys := newNode(t, 44)
	busy(n, 3)
	want := stateOf(n)
	for _, name := range n.objects() {
		n.must(fsys.Flip("/bucket/"+name, 100, 3))
		out := memfs.New()
		n.must(out.MkdirAll("past"))
		a := n.open()
		p, err := a.OpenPast(context.Background(), Target{}, out, "past", nil)
		if !slices.ContainsFunc(p.Damages, func(d Damage) bool { return d.Name == name }) &&
			(err != nil || len(p.Missing) > 0) {
			t.Errorf("%s is not named: %v, %v", name, p.Damages, err)
		}
		switch {
		case err != nil && !n.shared(name):
			t.Errorf("%s: %v", name, err)
		case err == nil && p.Revision == n.store.Revision():
			if got, _ := dumpOf(t, a, Target{}); got != want {
				t.Errorf("%s: other keys", name)
			}
		case err == nil && len(p.Missing) == 0:
			t.Errorf("%s: revision %d without a word", name, p.Revision)
		}
		n.must(p.Close())
		if names, _ := out.List("past"); len(names) > 0 {
			t.Errorf("%s: left over: %v", name, names)
		}
		n.must(fsys.Flip("/bucket/"+name, 100, 3))
	}
	// Parts that are missing are known only when they are read.
	for _, p := range n.last.PartsOf(archive.MetaPart) {
		n.must(fsys.Remove("/bucket/" + p.Name))
	}
	if got, res := dumpOf(t, n.open(), Target{}); got != want || res.Base == n.last.Name() {
		t.Errorf("another base is not used: %+v", res)
	}
}
