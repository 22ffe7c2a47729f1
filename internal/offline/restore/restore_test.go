package restore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
	"vigil/internal/offline/datadir"
	"vigil/internal/offline/snapshot"
	"vigil/internal/state/auth"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
	"vigil/internal/state/lease"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
	"vigil/internal/vfs"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

type record struct {
	rev       kv.Rev
	tombstone bool
	data      []byte
}

type records struct {
	all []record
	at  int
}

func (l *records) Next() bool      { l.at++; return l.at <= len(l.all) }
func (l *records) Rev() kv.Rev     { return l.all[l.at-1].rev }
func (l *records) Tombstone() bool { return l.all[l.at-1].tombstone }
func (l *records) Data() []byte    { return l.all[l.at-1].data }
func (l *records) Err() error      { return nil }

func pair(t testing.TB, m *mvccpb.KeyValue) record {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return record{rev: kv.Rev{Main: m.ModRevision}, tombstone: m.Version == 0, data: b}
}

// backup is a file of a store at revision 12, compacted at 4: a and b exist, b with a lease, c was
// deleted.
func backup(t testing.TB) []byte {
	t.Helper()
	list := []record{
		pair(t, &mvccpb.KeyValue{Key: []byte("a"), Value: []byte("1"), CreateRevision: 2,
			ModRevision: 3, Version: 2}),
		pair(t, &mvccpb.KeyValue{Key: []byte("c"), Value: []byte("1"), CreateRevision: 4,
			ModRevision: 4, Version: 1}),
	}
	for rev := int64(5); rev <= 10; rev++ {
		list = append(list, pair(t,
			&mvccpb.KeyValue{Key: []byte("a"), Value: bytes.Repeat([]byte("x"), 5000),
				CreateRevision: 2, ModRevision: rev, Version: rev - 2}))
	}
	list = append(list,
		pair(t, &mvccpb.KeyValue{Key: []byte("b"), Value: []byte("1"), CreateRevision: 11,
			ModRevision: 11, Version: 1, Lease: 77}),
		pair(t, &mvccpb.KeyValue{Key: []byte("c"), ModRevision: 12}))
	users, err := auth.Restore(true, 9,
		[]auth.User{{Name: "root", Hash: []byte("h"), Roles: []string{"root"}}},
		[]auth.Role{{Name: "root"}})
	if err != nil {
		t.Fatal(err)
	}
	l := snapshot.NewLayout()
	for _, r := range list {
		if err := l.Add(r.rev, r.tombstone, r.data); err != nil {
			t.Fatal(err)
		}
	}
	p, err := l.Finish(t.Context(),
		&snapshot.Contents{Index: 40, Term: 3, Compact: 4, StorageVersion: "3.7.0", Auth: users,
			Leases: []lease.Lease{{LeaseRef: kv.LeaseRef{ID: 77}, TTL: 100}},
			Alarms: []kv.Alarm{{Type: kv.AlarmNoSpace, MemberID: 5}}})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := snapshot.Write(&out, p, &records{all: list}); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(out.Bytes())
	return append(out.Bytes(), sum[:]...)
}

func place(t testing.TB, fsys vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fsys.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func options(fsys vfs.FS) Options {
	return Options{FS: fsys, Source: "backup.db", DataDir: "m1.etcd", Name: "m1", Token: "t",
		Members: []cluster.Member{{Name: "m1", PeerURLs: []string{"http://a:1"}},
			{Name: "m2", PeerURLs: []string{"http://b:1"}}}}
}

// restored opens what was restored.
type restored struct {
	log   *history.Log
	store *mvcc.Store
	m     *fsm.Machine
}

func openRestored(t *testing.T, fsys vfs.FS, dir string) *restored {
	t.Helper()
	log, err := history.Open(history.Options{FS: fsys, Dir: dir + "/history"})
	if err != nil {
		t.Fatal(err)
	}
	store, err := mvcc.Open(log, mvcc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := fsm.New(log, store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close(); log.Close() })
	return &restored{log, store, m}
}

func TestRestore(t *testing.T) {
	fsys := memfs.New()
	place(t, fsys, "backup.db", backup(t))
	o := options(fsys)
	res, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if res.Revision != 12 || res.Compact != 4 || res.Records != 10 || res.Leases != 1 ||
		res.Users != 1 || res.Roles != 1 || !res.AuthEnabled || len(res.Alarms) != 1 ||
		res.Index != 40 {
		t.Errorf("%+v", res)
	}
	r := openRestored(t, fsys, "m1.etcd")
	cid, mid := r.log.Identity()
	if cid != res.ClusterID || mid != res.MemberID || r.log.Applied() != datadir.First {
		t.Errorf("identity %x %x, position %v", cid, mid, r.log.Applied())
	}
	if r.store.Revision() != 12 || r.store.CompactRevision() != 4 {
		t.Errorf("revision %d, compacted at %d", r.store.Revision(), r.store.CompactRevision())
	}
	for rev, want := range map[int64]string{4: "a c", 11: "a b c", 12: "a b"} {
		var got []string
		for _, k := range []string{"a", "b", "c"} {
			if b, err := r.store.Get([]byte(k), rev); err != nil {
				t.Fatal(err)
			} else if b != nil {
				got = append(got, k)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("at revision %d: %q, want %s", rev, got, want)
		}
	}
	if _, err := r.store.Get([]byte("a"), 3); !errors.Is(err, kv.ErrCompacted) {
		t.Error(err)
	}
	if l, ok := r.m.Leases().Lookup(77); !ok || l.TTL != 100 ||
		fmt.Sprint(r.m.Leases().Keys(77)) != "[b]" {
		t.Errorf("lease %+v with %q", l, r.m.Leases().Keys(77))
	}
	if len(r.m.Alarms()) != 0 || !r.m.Auth().Enabled() || r.m.Auth().Revision() != 9 ||
		len(r.m.Members().Members()) != 2 || len(r.m.ConfState().Voters) != 2 {
		t.Errorf("alarms %v, members %v", r.m.Alarms(), r.m.Members().Members())
	}

	// Another member of the same cluster, and the same position and data but for the member's own
	// id.
	o2 := options(fsys)
	o2.Name, o2.DataDir = "m2", "m2.etcd"
	res2, err := Run(t.Context(), o2)
	if err != nil || res2.ClusterID != res.ClusterID || res2.MemberID == res.MemberID {
		t.Errorf("%+v, %v", res2, err)
	}
	h1, err1 := r.store.Hash(t.Context())
	h2, err2 := openRestored(t, fsys, "m2.etcd").store.Hash(t.Context())
	if err1 != nil || err2 != nil || h1 != h2 {
		t.Errorf("hashes %v and %v, %v %v", h1, h2, err1, err2)
	}
	// Once more into the same directory.
	if _, err := Run(t.Context(), o); err == nil ||
		!strings.Contains(err.Error(), `data-dir "m1.etcd" not empty`) {
		t.Error(err)
	}
}

// With a raised revision everything that a client may have seen is compacted, and what is written
// comes above it.
func TestBumpRevision(t *testing.T) {
	fsys := memfs.New()
	place(t, fsys, "backup.db", backup(t))
	o := options(fsys)
	o.BumpRevision, o.MarkCompacted = 1000, true
	res, err := Run(t.Context(), o)
	if err != nil || res.Revision != 1012 || res.Compact != 1012 {
		t.Fatalf("%+v, %v", res, err)
	}
	for range 2 { // what is dead may be reclaimed in between
		r := openRestored(t, fsys, o.DataDir)
		if r.store.Revision() < 1012 || r.store.CompactRevision() != 1012 {
			t.Fatalf("revision %d, compacted at %d", r.store.Revision(), r.store.CompactRevision())
		}
		for _, rev := range []int64{4, 12, 500, 1011} {
			if _, err := r.store.Get([]byte("a"), rev); !errors.Is(err, kv.ErrCompacted) {
				t.Errorf("revision %d: %v", rev, err)
			}
		}
		if b, err := r.store.Get([]byte("b"), 1012); err != nil || b == nil {
			t.Errorf("%q, %v", b, err)
		}
		put, err := r.store.Writer().Put(&kv.PutRequest{Key: []byte("new")}, r.m.Leases())
		if err != nil || put.Revision <= 1012 {
			t.Errorf("%+v, %v", put, err)
		}
		if _, err := r.store.Writer().Commit(history.Applied{Term: 2,
			Index: uint64(put.Revision)}); err != nil {
			t.Fatal(err)
		}
		r.store.Close()
		if err := r.log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	o.DataDir = "other"
	for _, c := range []Options{{BumpRevision: 5}, {MarkCompacted: true},
		{BumpRevision: 1 << 63, MarkCompacted: true},
		{BumpRevision: maxRevision - 5, MarkCompacted: true}} {
		o.BumpRevision, o.MarkCompacted = c.BumpRevision, c.MarkCompacted
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("bump by %d, compacted %v: no error", c.BumpRevision, c.MarkCompacted)
		}
	}
	if _, err := fsys.Stat("other"); !errors.Is(err, fs.ErrNotExist) {
		t.Error("something is left of what was refused")
	}
}

// Whatever fails, the error says so, nothing is left, and the next attempt succeeds.
func TestFailures(t *testing.T) {
	inner := memfs.New()
	place(t, inner, "backup.db", backup(t))
	run := func(fsys vfs.FS, dir string) error {
		o := options(fsys)
		o.DataDir = dir
		_, err := Run(t.Context(), o)
		return err
	}
	counted := faultfs.New(inner, nil)
	if err := run(counted, "counted"); err != nil {
		t.Fatal(err)
	}
	total := counted.Count()
	for n := int64(1); n <= total; n++ {
		dir := fmt.Sprintf("d%d", n)
		err := run(faultfs.New(inner, faultfs.Nth(n, faultfs.Fail, nil)), dir)
		if err == nil {
			// One that does not matter, such as asking for the free space.
			openRestored(t, inner, dir)
			continue
		}
		names, lerr := inner.List(dir)
		if lerr == nil && len(names) == 1 && names[0] == datadir.HistoryName {
			continue // the last sync failed: the data are complete, and whether they are durable is not known
		}
		if !errors.Is(lerr, fs.ErrNotExist) && len(names) > 0 &&
			!strings.Contains(err.Error(), "remove") && names[0] != buildName {
			t.Errorf("operation %d: %v; left are %v", n, err, names)
		}
		if err := run(inner, dir); err != nil {
			t.Errorf("operation %d: the next attempt: %v", n, err)
		}
	}
	// An interrupted one.
	ctx, cancel := context.WithCancel(t.Context())
	o := options(inner)
	o.DataDir = "interrupted"
	o.Progress = func(string, int64, int64) { cancel() }
	if _, err := Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	if _, err := inner.Stat("interrupted"); !errors.Is(err, fs.ErrNotExist) {
		t.Error("something is left of what was interrupted")
	}
}

// What cannot be restored is refused by name, and nothing is made.
func TestRefused(t *testing.T) {
	fsys := memfs.New()
	good := backup(t)
	place(t, fsys, "backup.db", good)
	place(t, fsys, "bare.db", good[:len(good)-sha256.Size])
	bad := bytes.Clone(good)
	bad[len(bad)/2] ^= 1
	place(t, fsys, "bad.db", bad)
	place(t, fsys, "cut.db", good[:len(good)/2])
	place(t, fsys, "text.db", []byte(strings.Repeat("no database ", 1000)))
	place(t, fsys, "empty.db", nil)
	for _, dir := range []string{"full", "wal", "vigil/history", "nothing"} {
		if err := fsys.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	place(t, fsys, "full/file", nil)
	place(t, fsys, "wal/file", nil)
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"no such file": {func(o *Options) { o.Source = "none.db" }, "none.db"},
		"without hash": {func(o *Options) { o.Source = "bare.db" },
			"snapshot missing hash but --skip-hash-check=false"},
		"damaged": {func(o *Options) { o.Source = "bad.db" }, "expected sha256"},
		"cut": {func(o *Options) { o.Source, o.SkipHash = "cut.db", true },
			"it is cut short"},
		"text": {func(o *Options) { o.Source, o.SkipHash = "text.db", true },
			"this is not a database file"},
		"empty": {func(o *Options) { o.Source, o.SkipHash = "empty.db", true },
			"this is not a database file"},
		"data dir": {func(o *Options) { o.DataDir = "full" }, `data-dir "full" not empty`},
		"wal dir":  {func(o *Options) { o.WALDir = "wal" }, `wal-dir "wal" not empty`},
		"name":     {func(o *Options) { o.Name = "m3" }, `couldn't find local name "m3"`},
		"a member twice": {func(o *Options) { o.Members[1].PeerURLs = o.Members[0].PeerURLs },
			"--initial-cluster"},
		"Vigil's own": {func(o *Options) { o.Source = "vigil" },
			"data directory of a Vigil member"},
		"a directory": {func(o *Options) { o.Source = "nothing" },
			"not the data directory of an etcd member"},
	} {
		o := options(fsys)
		o.DataDir = "new"
		c.change(&o)
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := fsys.Stat("new"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%s: something was made", name)
		}
	}
	// The wrong hash can be passed over; the pages are checked all the same.
	o := options(fsys)
	o.Source, o.SkipHash = "bare.db", true
	if _, err := Run(t.Context(), o); err != nil {
		t.Error(err)
	}
}

func TestParseMembers(t *testing.T) {
	got, err := ParseMembers("a=http://h:1, b=https://i:2,a=http://g:1")
	if err != nil || fmt.Sprint(got) != fmt.Sprint([]cluster.Member{{Name: "a",
		PeerURLs: []string{"http://g:1", "http://h:1"}},
		{Name: "b", PeerURLs: []string{"https://i:2"}}}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "a", "=http://h:1", "a=h:1", "a=http://h", "a=http://h:1/x",
		"a=ftp://h:1", "a=http://h:%"} {
		if got, err := ParseMembers(bad); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}
