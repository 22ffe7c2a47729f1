package archived

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/bucket"
	"vigil/internal/kv"
	"vigil/internal/offline/restore"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
	"vigil/internal/state/lease"
	"vigil/internal/store/archive"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
	"vigil/internal/vfs"
	"vigil/internal/vfs/memfs"
)

func readers(keys []string) (out []io.Reader) {
	for _, k := range keys {
		out = append(out, strings.NewReader(k))
	}
	return out
}

func restoreOptions(fsys vfs.FS, dir string) restore.Options {
	return restore.Options{FS: fsys, DataDir: dir, Name: "n1", Token: "t", NoSync: true,
		Members: []cluster.Member{{Name: "n1", PeerURLs: []string{"http://x:1"}},
			{Name: "n2", PeerURLs: []string{"http://y:1"}}}}
}

// restored is a restored store.
type restored struct {
	sum   restore.Summary
	res   Result
	log   *history.Log
	store *mvcc.Store
	m     *fsm.Machine
}

func restoreTo(t testing.TB, a *Archive, target Target) *restored {
	t.Helper()
	return restoreWith(t, a, target, restoreOptions(memfs.New(), "d"))
}

func restoreWith(t testing.TB, a *Archive, target Target, o restore.Options) *restored {
	t.Helper()
	fsys := o.FS
	r := &restored{}
	var err error
	r.sum, r.res, err = a.Restore(context.Background(), target, o)
	if err != nil {
		t.Fatal(target, err)
	}
	r.log, err = history.Open(history.Options{FS: fsys, Dir: "d/history"})
	if err != nil {
		t.Fatal(err)
	}
	if r.store, err = mvcc.Open(r.log, mvcc.Options{}); err != nil {
		t.Fatal(err)
	}
	if r.m, err = fsm.New(r.log, r.store); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.store.Close()
		_ = r.log.Close()
	})
	return r
}

// hash returns the hash of a restored store at its revision, as node.note has it.
func (r *restored) hash(t testing.TB) uint32 {
	t.Helper()
	return hashAt(t, r.store, compactRevision(r.store))
}

// hashAt is the HashKV of the newest revision of a store with a compact revision.
func hashAt(t testing.TB, s *mvcc.Store, compact int64) uint32 {
	t.Helper()
	h, err := s.HashAt(context.Background(), s.Revision(), compact)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// compactRevision is that of a store, -1 for none.
func compactRevision(s *mvcc.Store) int64 {
	if c := s.CompactRevision(); c > 0 {
		return c
	}
	return -1
}

func newKey(t testing.TB) *age.X25519Identity {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// busy fills an archive: bases, some of them incremental, and log objects between them, also
// overlapping ones.
func busy(n *node, rounds int) {
	n.base(false)
	for i := range rounds {
		for range 3 {
			n.work(15)
			n.send()
		}
		if i < rounds-1 {
			n.base(n.rng.IntN(3) > 0)
		}
	}
}

// A restore that raises the revision and compacts keeps the newest time: later times are not below
// the times of the records, and the newest revision is found by time.
func TestBumpKeepsNewestTime(t *testing.T) {
	n, _ := newNode(t, 1)
	busy(n, 1)
	o := restoreOptions(memfs.New(), "d")
	o.BumpRevision, o.MarkCompacted = 1000, true
	r := restoreWith(t, n.open(), Target{}, o)
	newest := n.store.NewestTime()
	if got := r.store.NewestTime(); newest == 0 || got != newest {
		t.Errorf("the newest time is %d, want %d", got, newest)
	}
	want := n.store.Revision() + 1000
	if got, err := r.store.RevisionAt(newest); err != nil || got != want {
		t.Errorf("at the newest time: revision %d, %v; want %d", got, err, want)
	}
}

// All states of an archive equal the cluster's: at every revision the hash of it, and at the
// end the meta records.
//
//vigil:norace
func TestRestoreEveryRevision(t *testing.T) {
	for seed := range uint64(4) {
		var keys, recipients []string
		if seed%2 == 1 {
			key := newKey(t)
			keys, recipients = []string{key.String()}, []string{key.Recipient().String()}
		}
		n, _ := newNode(t, seed, recipients...)
		busy(n, 4)
		a := n.open(keys...)
		for _, rev := range slices.Sorted(maps.Keys(n.hashes)) {
			if rev == 1 || rev%5 > 0 && testing.Short() {
				continue
			}
			r := restoreTo(t, a, Target{Revision: rev})
			if r.store.Revision() != rev || r.res.Revision != rev {
				t.Errorf("seed %d: revision %d instead of %d", seed, r.store.Revision(), rev)
			}
			if got := hashAt(t, r.store, n.compacts[rev]); got != n.hashes[rev] {
				t.Errorf("seed %d: revision %d has hash %d, want %d (from %s)", seed, rev, got,
					n.hashes[rev], r.res.Base)
			}
		}
		r := restoreTo(t, a, Target{})
		if r.store.Revision() != n.store.Revision() || len(r.res.Missing) > 0 ||
			r.sum.Index != n.index || r.hash(t) != hashAt(t, n.store, compactRevision(n.store)) {
			t.Errorf("seed %d: the newest state: revision %d, index %d, missing %v; want %d, %d",
				seed, r.store.Revision(), r.sum.Index, r.res.Missing, n.store.Revision(), n.index)
		}
		// Users, leases and times are those of the cluster, and leases begin anew.
		want, err := fsm.ReadContents(n.log.AllMeta())
		n.must(err)
		got, err := fsm.ReadContents(r.log.AllMeta())
		n.must(err)
		if len(want.Auth.Users()) == 0 ||
			fmt.Sprint(got.Auth.Users()) != fmt.Sprint(want.Auth.Users()) ||
			len(got.Leases) != len(want.Leases) {
			t.Errorf("seed %d: contents differ", seed)
		}
		for rev := compactRevision(n.store); rev <= n.store.Revision(); rev++ {
			want, err := n.store.TimeSpan(rev)
			n.must(err)
			if got, err := r.store.TimeSpan(rev); err != nil || got != want {
				t.Errorf("seed %d: revision %d was made in %+v, want %+v (%v)", seed, rev,
					got, want, err)
			}
		}
		byID := func(a, b lease.Lease) int { return cmp.Compare(a.ID, b.ID) }
		slices.SortFunc(got.Leases, byID)
		slices.SortFunc(want.Leases, byID)
		for i, l := range got.Leases {
			if w := want.Leases[i]; l.ID != w.ID || l.TTL != w.TTL ||
				l.Granted != 1 || l.Since != 1 {
				t.Errorf("seed %d: lease %+v, want %+v", seed, l, w)
			}
		}
		if v := verify(t, a, false); len(v.Damages)+len(v.Gaps) > 0 || v.Rebuilt != 4 ||
			v.Replayed != 3 || v.Index != n.index {
			t.Errorf("seed %d: %+v", seed, v)
		}
		if v := verify(t, n.open(keys...), true); len(v.Damages)+len(v.Gaps) > 0 ||
			v.Rebuilt != 1 || v.Index != n.index {
			t.Errorf("seed %d: %+v", seed, v)
		}
	}
}

func verify(t testing.TB, a *Archive, sample bool) *Verdict {
	t.Helper()
	fsys := memfs.New()
	if err := fsys.MkdirAll("v"); err != nil {
		t.Fatal(err)
	}
	v, err := a.Verify(context.Background(), VerifyOptions{FS: fsys, Dir: "v", Sample: sample})
	if err != nil {
		t.Fatal(err)
	}
	if names, _ := fsys.List("v"); len(names) > 0 {
		t.Errorf("left over: %v", names)
	}
	return v
}

// The state at a time has what was made until then, and nothing else.
func TestRestoreTime(t *testing.T) {
	n, _ := newNode(t, 5)
	busy(n, 3)
	n.mark()
	n.send()
	a := n.open()
	for i := 0; i < len(n.marks); i += 3 {
		m := n.marks[i]
		for _, ms := range []int64{m.Time, m.Time + 1} {
			if i+1 < len(n.marks) && ms >= n.marks[i+1].Time {
				continue
			}
			if ms > n.now.UnixMilli() {
				continue
			}
			r := restoreTo(t, a, Target{Time: time.UnixMilli(ms)})
			base, _ := a.Manifest(context.Background(), a.Bases[0])
			if want := max(m.Revision, base.Revision); r.store.Revision() != want {
				t.Errorf("entry %d: revision %d, want %d", i, r.store.Revision(), want)
			}
		}
	}
	for want, at := range map[string]time.Time{"is after the end of the archive": n.now.Add(time.Minute), "the first state is of": time.UnixMilli(1)} {
		if _, _, err := a.Restore(context.Background(), Target{Time: at},
			restoreOptions(memfs.New(), "d")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", at, err, want)
		}
	}
}

// A bit that is flipped in an object, whichever it is, is found and named by verify, and a restore
// gives the right state or none.
//
//vigil:norace
func TestFlippedBitInEveryObject(t *testing.T) {
	n, fsys := newNode(t, 6)
	busy(n, 3)
	for _, name := range n.objects() {
		path := "/bucket/" + name
		f, err := fsys.Open(path)
		n.must(err)
		size, err := f.Size()
		n.must(err)
		n.must(f.Close())
		bit := n.rng.Int64N(size * 8)
		n.must(fsys.Flip(path, bit/8, uint(bit%8)))
		damagedObject(t, n, name, fmt.Sprintf("bit %d flipped", bit))
		n.must(fsys.Flip(path, bit/8, uint(bit%8)))
	}
	if v := verify(t, n.open(), false); len(v.Damages) > 0 {
		t.Errorf("%+v", v.Damages)
	}
}

// damagedObject checks verify and restore of an archive with one bad object.
func damagedObject(t *testing.T, n *node, name, what string) {
	t.Helper()
	v := verify(t, n.open(), false)
	if !slices.ContainsFunc(v.Damages, func(d Damage) bool { return d.Name == name }) {
		t.Errorf("%s: %s is not found: %v", name, what, v.Damages)
	}
	newest := n.store.Revision()
	_, res, err := n.open().Restore(context.Background(), Target{},
		restoreOptions(memfs.New(), "d"))
	switch {
	case err != nil && n.shared(name) &&
		strings.Contains(err.Error(), "all 3 base states are damaged") &&
		strings.Contains(err.Error(), name):
	case err != nil:
		t.Errorf("%s: %s: the newest state: %v", name, what, err)
	case res.Revision < newest && len(res.Missing) == 0:
		t.Errorf("%s: %s: revision %d of %d without a word", name, what, res.Revision, newest)
	case res.Revision == newest && len(res.Missing) > 0:
		t.Errorf("%s: %s: nothing is missing, but %v", name, what, res.Missing)
	case len(res.Missing) > 0 && !strings.Contains(strings.Join(res.Missing, " "), name):
		t.Errorf("%s: %s: it is not named: %v", name, what, res.Missing)
	}
	target := Target{Revision: newest - 5}
	switch r, _, err := n.open().Restore(context.Background(), target,
		restoreOptions(memfs.New(), "d")); {
	case err == nil && r.Revision != target.Revision:
		t.Errorf("%s: %s: revision %d", name, what, r.Revision)
	case err != nil && !strings.Contains(err.Error(), name):
		t.Errorf("%s: %s: it is not named: %v", name, what, err)
	}
}

// Objects that are truncated, missing, swapped or of another archive are found and named.
//
//vigil:norace
func TestBadObjects(t *testing.T) {
	n, fsys := newNode(t, 7)
	busy(n, 3)
	other, _ := newNode(t, 8)
	busy(other, 2)
	names := n.objects()
	replace := func(name string, data []byte) {
		n.must(fsys.Remove("/bucket/" + name))
		if data != nil {
			n.put(name, data)
		}
	}
	read := func(n *node, name string) []byte {
		data, err := bucket.ReadAll(context.Background(), n.b, name, archive.MaxObject)
		n.must(err)
		return data
	}
	kind := func(name string) string { k, _, _ := strings.Cut(name, "/"); return k }
	for i, name := range names {
		good := read(n, name)
		replace(name, good[:len(good)/2])
		damagedObject(t, n, name, "truncated")
		replace(name, bytes.Clone(good[:0:0]))
		damagedObject(t, n, name, "empty")
		for _, from := range names[i+1:] {
			if kind(from) == kind(name) {
				replace(name, read(n, from))
				damagedObject(t, n, name, "swapped with "+from)
				break
			}
		}
		for _, from := range other.objects() {
			if kind(from) == kind(name) && name != archive.IdentityName {
				replace(name, read(other, from))
				damagedObject(t, n, name, "of another archive")
				break
			}
		}
		if kind(name) == "part" {
			replace(name, nil)
			n.put("placeholder", nil)
			damagedObject(t, n, name, "missing")
			n.must(fsys.Remove("/bucket/placeholder"))
			n.put(name, good)
			continue
		}
		replace(name, good)
	}
	// A log object that is missing is a gap, which verify names by its entries.
	first, last := uint64(0), uint64(0)
	for _, name := range slices.Backward(names) {
		if f, l, ok := archive.ParseLogName(name); ok {
			first, last = f, l
			n.must(fsys.Remove("/bucket/" + name))
			break
		}
	}
	n.work(5)
	n.send()
	a := n.open()
	v := verify(t, a, false)
	if !slices.Contains(v.Gaps, Gap{first, n.index}) {
		t.Errorf("gaps %v, want one from %d (to %d)", v.Gaps, first, last)
	}
	_, res, err := a.Restore(context.Background(), Target{}, restoreOptions(memfs.New(), "d"))
	if want := fmt.Sprintf("entries %d to %d are in no object", first, last); err != nil ||
		!strings.Contains(strings.Join(res.Missing, " "), want) {
		t.Errorf("%v, %v; want %q", res.Missing, err, want)
	}
	// The next base bridges the gap.
	n.base(false)
	if _, res, err := n.open().Restore(context.Background(), Target{},
		restoreOptions(memfs.New(), "d")); err != nil || len(res.Missing) > 0 ||
		res.Revision != n.store.Revision() {
		t.Errorf("%+v, %v", res, err)
	}
	if _, _, err := n.open().Restore(context.Background(), Target{Index: last},
		restoreOptions(memfs.New(), "d")); err == nil ||
		!strings.Contains(err.Error(), "cannot be restored: the archive reaches") {
		t.Error(err)
	}
}

// Without the identity any object that is whole says whether the archive is encrypted, however many
// others are damaged or foreign.
func TestLostIdentity(t *testing.T) {
	key := newKey(t)
	n, fsys := newNode(t, 12, key.Recipient().String())
	busy(n, 3)
	other, _ := newNode(t, 13)
	other.base(false)
	replace := func(name string, data []byte) {
		n.must(fsys.Remove("/bucket/" + name))
		n.put(name, data)
	}
	foreign, err := bucket.ReadAll(context.Background(), other.b, other.bases[0].Parts[0].Name,
		archive.MaxObject)
	n.must(err)
	n.must(fsys.Remove("/bucket/" + archive.IdentityName))
	if v := verify(t, n.open(key.String()), false); len(v.Damages) != 1 ||
		v.Damages[0].Name != archive.IdentityName {
		t.Fatalf("%+v", v.Damages)
	}
	var names []string
	for _, name := range n.objects() {
		if archive.IsPartName(name) {
			names = append(names, name)
		}
	}
	for _, name := range n.objects() {
		if _, _, ok := archive.ParseLogName(name); ok {
			names = append(names, name)
		}
	}
	for i, name := range names[:len(names)-1] {
		switch i % 3 {
		case 0:
			replace(name, nil)
		case 1:
			replace(name, make([]byte, 1000))
		case 2:
			replace(name, foreign)
		}
		if a := n.open(key.String()); len(a.Identity.Recipients) == 0 {
			t.Fatalf("%d of %d objects are damaged: the archive counts as not encrypted",
				i+1, len(names))
		}
	}
}

// An identity of another size than one can have is damaged, too.
func TestLargeIdentity(t *testing.T) {
	n, fsys := newNode(t, 12)
	busy(n, 1)
	n.must(fsys.Remove("/bucket/" + archive.IdentityName))
	n.put(archive.IdentityName, make([]byte, archive.MaxJSON+1))
	if v := verify(t, n.open(), false); len(v.Damages) != 1 ||
		v.Damages[0].Name != archive.IdentityName {
		t.Fatalf("%+v", v.Damages)
	}
}

// A part that is missing is named by a sample too, although the state that needs it is not rebuilt.
func TestSampleNamesMissingParts(t *testing.T) {
	n, fsys := newNode(t, 14)
	busy(n, 2)
	n.base(false)
	missing := ""
	for _, p := range n.bases[0].Parts {
		if !n.shared(p.Name) {
			missing = p.Name
		}
	}
	n.must(fsys.Remove("/bucket/" + missing))
	v := verify(t, n.open(), true)
	if len(v.Damages) != 1 || v.Damages[0].Name != missing ||
		!strings.Contains(v.Damages[0].Reason, n.bases[0].Name()) || v.Index != n.index {
		t.Errorf("%s is missing: %+v", missing, v)
	}
}

// A manifest whose state is not the one of the cluster is found, although all checksums match.
func TestWrongState(t *testing.T) {
	for what, change := range map[string]func(b *archive.Base){
		"has the hash": func(b *archive.Base) { b.Hash++ },
		"compacted at": func(b *archive.Base) { b.Compact = 7 },
	} {
		n, _ := newNode(t, 9)
		n.work(20)
		n.base(false)
		b := n.last
		change(&b)
		b.Index++
		n.apply()
		n.send()
		data, err := b.Encode()
		n.must(err)
		n.put(b.Name(), data)
		v := verify(t, n.open(), false)
		if len(v.Damages) != 1 || v.Damages[0].Name != b.Name() {
			t.Errorf("%s: %v", what, v.Damages)
		}
		// A restore uses the base before.
		_, res, err := n.open().Restore(context.Background(), Target{},
			restoreOptions(memfs.New(), "d"))
		if err != nil || res.Base != n.last.Name() || len(res.Damages) != 1 ||
			res.Damages[0].Name != b.Name() {
			t.Errorf("%s: %+v, %v", what, res, err)
		}
	}
}

// An object whose checksums match and whose content cannot be applied is damaged, too: it is named,
// and others are used.
func TestBadContent(t *testing.T) {
	bad := []byte("\xffgarbage")
	for what, spoil := range map[string]func(n *node) string{
		"entry": func(n *node) string {
			w := n.seal.NewLog()
			n.must(w.Add(&raftpb.Entry{Index: new(n.index + 1), Term: &n.term, Data: bad}))
			o, err := w.Seal(archive.LogInfo{Sender: 8, Before: n.sent, After: n.sent,
				FirstTime: n.now, LastTime: n.now, Claim: n.claim()})
			n.must(err)
			n.put(o.Name, o.Data)
			return o.Name
		},
		"record": func(n *node) string {
			w := n.seal.NewRecords()
			n.must(w.Add(history.Stamp{Rev: kv.Rev{Main: n.last.Revision}}, false, bad))
			p, o, err := w.Seal(0, n.last.Revision)
			n.must(err)
			n.put(o.Name, o.Data)
			n.apply()
			n.send()
			b := n.last
			b.Index = n.index
			b.Parts = append([]archive.Part{p}, b.PartsOf(archive.MetaPart)...)
			data, err := b.Encode()
			n.must(err)
			n.put(b.Name(), data)
			return o.Name
		},
		"order of live records": func(n *node) string {
			b := n.last
			b.Parts = b.PartsOf(archive.RecordsPart)
			b.Compact = b.Revision
			name := ""
			for range 2 {
				w := n.seal.NewLive()
				n.must(w.Add(kv.Rev{Main: 2}))
				p, o, err := w.Seal(b.Compact)
				n.must(err)
				n.put(o.Name, o.Data)
				b.Parts = append(b.Parts, p)
				name = o.Name
			}
			n.apply()
			n.send()
			b.Index = n.index
			b.Parts = append(b.Parts, n.last.PartsOf(archive.MetaPart)...)
			data, err := b.Encode()
			n.must(err)
			n.put(b.Name(), data)
			return name
		},
	} {
		n, _ := newNode(t, 16)
		n.work(20)
		n.base(false)
		n.work(10)
		n.send()
		name := spoil(n)
		fsys := memfs.New()
		n.must(fsys.MkdirAll("v"))
		v, err := n.open().Verify(context.Background(), VerifyOptions{FS: fsys, Dir: "v"})
		if err != nil || len(v.Damages) != 1 || v.Damages[0].Name != name {
			t.Errorf("%s: verify: %+v, %v; want %s", what, v.Damages, err, name)
		}
		for _, target := range []Target{{}, {Revision: n.store.Revision()},
			{Time: n.now.Add(-time.Second)}} {
			_, res, err := n.open().Restore(context.Background(), target,
				restoreOptions(memfs.New(), "d"))
			if target.Time.IsZero() &&
				(err != nil || res.Base != n.last.Name() || res.Revision != n.store.Revision()) {
				t.Errorf("%s: %v: %+v, %v", what, target, res, err)
			}
			if err != nil && !strings.Contains(err.Error(), "is after the end") {
				t.Errorf("%s: %v: %v", what, target, err)
			}
		}
	}
}

// The hash is of keys only: a base without a user is found by the entries before it.
func TestWrongMeta(t *testing.T) {
	n, _ := newNode(t, 15)
	n.base(false)
	n.apply(&fsm.Request{Auth: &kv.AuthRequest{Op: kv.UserAdd, User: "alice", NoPassword: true}})
	if v := verify(t, n.open(), false); len(v.Damages) > 0 {
		t.Fatalf("%+v", v)
	}
	n.forgets = func(m *history.Meta) bool { return bytes.Contains(m.Key, []byte("alice")) }
	b := n.base(false)
	v := verify(t, n.open(), false)
	if len(v.Damages) != 1 || v.Damages[0].Name != b.Name() ||
		!strings.Contains(v.Damages[0].Reason, "other meta records") {
		t.Errorf("%+v", v.Damages)
	}
}

// Without live parts a base that names parts of an earlier one revives keys that were deleted and
// compacted.
func TestLiveParts(t *testing.T) {
	n, _ := newNode(t, 10)
	put := func(key string) { n.apply(&fsm.Request{Put: putRequest(key)}) }
	put("a")
	put("b")
	n.base(false)
	n.apply(&fsm.Request{DeleteRange: deleteRequest("a")})
	put("c")
	put("d")
	n.apply(&fsm.Request{Compact: compactRequest(n.store.Revision())})
	b := n.base(true)
	if len(b.PartsOf(archive.LivePart)) != 1 || len(b.PartsOf(archive.RecordsPart)) != 2 {
		t.Fatalf("%+v", b.Parts)
	}
	if v := verify(t, n.open(), false); len(v.Damages) > 0 || v.Rebuilt != 2 {
		t.Fatalf("%+v", v)
	}
	r := restoreTo(t, n.open(), Target{})
	if got, err := r.store.Get([]byte("a"), 0); err != nil || got != nil {
		t.Errorf("a deleted key is back: %q, %v", got, err)
	}
}

// A record that a live part lists and no part has is missed, and not left out.
func TestLostRecord(t *testing.T) {
	n, _ := newNode(t, 16)
	put := func(key string) { n.apply(&fsm.Request{Put: putRequest(key)}) }
	put("a")
	put("b")
	put("c")
	n.loses = kv.Rev{Main: 3}
	n.base(false)
	put("d")
	n.apply(&fsm.Request{Compact: compactRequest(n.store.Revision())})
	b := n.base(true)
	if len(b.PartsOf(archive.LivePart)) != 1 {
		t.Fatalf("%+v", b.Parts)
	}
	v := verify(t, n.open(), false)
	if !slices.ContainsFunc(v.Damages, func(d Damage) bool {
		return d.Name == b.Name() &&
			strings.Contains(d.Reason, "records that still count are in no part")
	}) {
		t.Errorf("%+v", v.Damages)
	}
}

// What cannot be used is refused with one error that says why, and nothing is left in the
// directory.
func TestRefused(t *testing.T) {
	ctx := context.Background()
	fsys := memfs.New()
	b, err := bucket.NewDirectory(fsys, "/bucket", true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(ctx, b, "here"); !errors.Is(err, ErrNoArchive) {
		t.Error(err)
	}
	if err := b.Put(ctx, "holiday.jpg", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(ctx, b, "here"); !errors.Is(err, ErrNoArchive) ||
		!strings.Contains(err.Error(), "1 objects of other kinds") {
		t.Error(err)
	}
	n, _ := newNode(t, 11)
	for _, target := range []Target{{}, {Revision: 1000}, {Index: 5}, {Time: n.now}} {
		if _, _, err := n.open().Restore(ctx, target,
			restoreOptions(memfs.New(), "d")); err == nil ||
			!strings.Contains(err.Error(), "no base state") {
			t.Errorf("%v: %v", target, err)
		}
	}
	n.work(10)
	n.base(false)
	n.work(10)
	n.send()
	for _, c := range []struct {
		target Target
		want   string
	}{
		{Target{Revision: 100000}, "revision 100000 cannot be restored: the archive reaches index"},
		{Target{Index: 100000}, "index 100000 cannot be restored: the archive reaches index"},
		{Target{Index: 1}, "index 1 cannot be restored: the first state is index"},
		{Target{Revision: 1}, "revision 1 cannot be restored: the first state is revision"},
	} {
		out := memfs.New()
		if _, _, err := n.open().Restore(ctx, c.target, restoreOptions(out, "d")); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.target, err, c.want)
		}
		if _, err := out.Stat("d"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v: the directory is left: %v", c.target, err)
		}
	}
	// An encrypted archive without a key.
	key := newKey(t)
	secret, _ := newNode(t, 12, key.Recipient().String())
	secret.base(false)
	if _, _, err := secret.open().Restore(ctx, Target{},
		restoreOptions(memfs.New(), "d")); !errors.Is(err, archive.ErrKey) {
		t.Error(err)
	}
	if v := verify(t, secret.open(), false); !v.Encrypted || len(v.Damages) > 0 || v.Rebuilt != 0 {
		t.Errorf("%+v", v)
	}
}

// Members that restore the same target have the same cluster, and other targets another one.
func TestClusterID(t *testing.T) {
	n, _ := newNode(t, 13)
	busy(n, 2)
	id := func(target Target) uint64 { return restoreTo(t, n.open(), target).sum.ClusterID }
	newest := id(Target{})
	if again := id(Target{}); again != newest {
		t.Errorf("%x and %x", again, newest)
	}
	rev := n.store.Revision()
	if a, b := id(Target{Revision: rev - 3}), id(Target{Revision: rev - 4}); a == b || a == newest {
		t.Errorf("%x, %x, %x", a, b, newest)
	}
	n.work(3)
	n.send()
	if later := id(Target{}); later == newest {
		t.Error("the id of another state is equal")
	}

}

// An archive whose identity or newest manifest is in the next version of the format is refused by
// name, or not pruned. Nothing is changed.
func TestNextVersion(t *testing.T) {
	n, _ := newNode(t, 14)
	busy(n, 2)
	next := fmt.Appendf(nil, `{"version": %d, "archive": [7]}`, archive.Version+1)
	want := fmt.Sprintf("%v: %d, this program reads %d", archive.ErrVersion, archive.Version+1,
		archive.Version)
	manifest := archive.BaseName(1<<40, 9)
	n.put(manifest, next)
	before := n.objects()
	if _, err := n.open().PlanPrune(t.Context(), Rules{All: time.Hour}, n.now); err == nil ||
		!strings.HasSuffix(err.Error(), want) {
		t.Errorf("prune: %v", err)
	}
	if after := n.objects(); !slices.Equal(before, after) {
		t.Errorf("the objects are %v, were %v", after, before)
	}
	n.must(n.b.Delete(t.Context(), archive.IdentityName))
	n.put(archive.IdentityName, next)
	if _, err := Open(t.Context(), n.b, "bucket"); !errors.Is(err, archive.ErrVersion) ||
		!strings.HasSuffix(err.Error(), want) {
		t.Errorf("open: %v", err)
	}
	if after := n.objects(); !slices.Equal(before, after) {
		t.Errorf("the objects are %v, were %v", after, before)
	}
}

var update = flag.Bool("update", false, "write testdata/v1 again, for a new version of the format")

// The archive in testdata can be read: the format has not changed under its version.
func TestGolden(t *testing.T) {
	const dir = "testdata/v1"
	if *update {
		n, _ := newNode(t, 30)
		busy(n, 2)
		out, err := bucket.NewDirectory(vfs.OS(), dir, true)
		n.must(err)
		for _, name := range n.objects() {
			data, err := bucket.ReadAll(t.Context(), n.b, name, archive.MaxObject)
			n.must(err)
			n.must(out.Put(t.Context(), name, data))
		}
		t.Log(n.store.Revision(), n.hashes[n.store.Revision()])
	}
	b, err := bucket.NewDirectory(vfs.OS(), dir, false)
	if err != nil {
		t.Fatal(err)
	}
	a, err := Open(t.Context(), b, dir)
	if err != nil {
		t.Fatal(err)
	}
	if v := verify(t, a, false); len(v.Damages)+len(v.Gaps) > 0 || v.Rebuilt != 2 ||
		v.Replayed != 1 {
		t.Errorf("%+v", v)
	}
	if r := restoreTo(t, a, Target{}); r.store.Revision() != goldenRevision ||
		r.hash(t) != goldenHash {
		t.Errorf("revision %d, hash %d", r.store.Revision(), r.hash(t))
	}
}

const (
	goldenRevision = 82
	goldenHash     = 1034139691
)
