package archiver

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/bucket"
	"vigil/internal/debugpage"
	"vigil/internal/kv"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
	"vigil/internal/state/lineage"
	"vigil/internal/store/archive"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
	"vigil/internal/vfs/memfs"
)

const clusterID = 0xc1

// world is a cluster without raft: entries that are committed at once, and members that apply them.
type world struct {
	t *testing.T
	// proposing is held while an entry is made and applied.
	proposing sync.Mutex
	mu        sync.Mutex
	entries   []*raftpb.Entry // of index 2 on
	at        []time.Time     // when they were committed
	term      uint64
	leader    uint64
	members   []*member
	away      map[uint64]bool // members that calls do not reach
	id        uint64
}

// member is a Source: a store on a disk in memory, and a part of the log.
type member struct {
	w     *world
	id    uint64
	log   *history.Log
	store *mvcc.Store
	m     *fsm.Machine
	mu    sync.Mutex // the state machine's
	first uint64     // guarded by w.mu
	a     *Archiver
	stop  func()
}

func newWorld(t *testing.T, n int) *world {
	w := &world{t: t, term: 2, leader: 1, away: map[uint64]bool{}}
	members := &cluster.State{}
	for i := range n {
		next, _, err := members.Change(cluster.Change{Op: cluster.Add,
			Member: cluster.Member{ID: uint64(i + 1), Name: fmt.Sprint("m", i+1),
				PeerURLs: []string{fmt.Sprintf("http://m%d:1", i+1)}}})
		if err != nil {
			t.Fatal(err)
		}
		members = next
	}
	conf := &raftpb.ConfState{Voters: members.IDs()}
	for i := range n {
		m := &member{w: w, id: uint64(i + 1), first: 2}
		var err error
		m.log, err = history.Create(history.Options{FS: memfs.New(), Dir: "h", ClusterID: clusterID,
			MemberID: m.id, SegmentBytes: 1 << 20},
			history.Applied{Term: 1, Index: 1}, fsm.InitialRecords(members, conf))
		if err != nil {
			t.Fatal(err)
		}
		m.open(t)
		w.members = append(w.members, m)
	}
	return w
}

func (m *member) open(t *testing.T) {
	var err error
	if m.store, err = mvcc.Open(m.log, mvcc.Options{}); err != nil {
		t.Fatal(err)
	}
	if m.m, err = fsm.New(m.log, m.store); err != nil {
		t.Fatal(err)
	}
}

func (w *world) close() {
	for _, m := range w.members {
		m.end()
		m.store.Close()
		if err := m.log.Close(); err != nil {
			w.t.Error(err)
		}
	}
}

// do commits a request as an entry, and all members apply it.
func (w *world) do(r fsm.Request) {
	w.t.Helper()
	group, err := fsm.AppendRequest(fsm.AppendHeader(nil), &r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	w.id++
	fsm.PutHeader(group, fsm.GroupHeader{Proposer: 1, Sequence: w.id, Count: 1})
	w.mu.Unlock()
	w.commit(group)
}

func (w *world) commit(data []byte) {
	w.proposing.Lock()
	defer w.proposing.Unlock()
	w.mu.Lock()
	e := &raftpb.Entry{Index: new(uint64(len(w.entries)) + 2), Term: new(w.term),
		Type: raftpb.EntryNormal.Enum(), Data: data}
	w.entries, w.at = append(w.entries, e), append(w.at, time.Now())
	w.mu.Unlock()
	for _, m := range w.members {
		m.apply(w.t, e)
	}
}

func (m *member) apply(t *testing.T, e *raftpb.Entry) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	applyEntry(t, m.m, e)
}

func applyEntry(t *testing.T, m *fsm.Machine, e *raftpb.Entry) {
	t.Helper()
	entry, err := m.Open(e)
	if err != nil {
		t.Fatal(err)
	}
	for {
		out, err := entry.Next()
		if err != nil {
			t.Fatal(err)
		}
		if out == nil {
			break
		}
		if out.BatchFull {
			t.Fatal("an entry in parts")
		}
	}
	if _, err := m.Commit(history.Applied{Term: e.GetTerm(), Index: e.GetIndex()}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) put(key, value string) {
	w.do(fsm.Request{Put: &kv.PutRequest{Key: []byte(key), Value: []byte(value)}})
}

func (w *world) last() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return uint64(len(w.entries)) + 1
}

// Leading, Position and so on implement Source.
func (m *member) Leading() (term uint64) {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	if m.w.leader != m.id {
		return 0
	}
	return m.w.term
}

func (m *member) Lineage() (*lineage.State, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.m.Lineage(), m.log.View().Applied().Index
}

func (m *member) Claim(_ context.Context, term uint64) error {
	c := lineage.Claim{Term: term}
	_, _ = rand.Read(c.ID[:])
	m.w.do(fsm.Request{Claim: &c})
	return nil
}

func (m *member) NoteArchive(_ context.Context, address string, id lineage.ID) error {
	m.w.do(fsm.Request{Archive: &lineage.Archive{Place: lineage.PlaceOf(address), ID: id}})
	return nil
}

func (m *member) Position() (history.Applied, int64) {
	v := m.log.View()
	return v.Applied(), max(v.Last(), m.store.CompactRevision(), 1)
}

func (m *member) FirstIndex() uint64 {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	return m.first
}

func (m *member) truncate(first uint64) {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	m.first = first
}

func (m *member) Entries(first, last, maxBytes uint64) ([]*raftpb.Entry, error) {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	if first < m.first {
		return nil, raft.ErrCompacted
	}
	var out []*raftpb.Entry
	size := uint64(0)
	for i := first; i <= last; i++ {
		e := m.w.entries[i-2]
		if size += uint64(len(e.GetData())) + 10; size > maxBytes && len(out) > 0 {
			break
		}
		out = append(out, e)
	}
	return out, nil
}

func (m *member) Store() *mvcc.Store      { return m.store }
func (m *member) Members() *cluster.State { m.mu.Lock(); defer m.mu.Unlock(); return m.m.Members() }

// Call implements calls.Caller: it reaches the other members of the world.
func (m *member) Call(ctx context.Context, to uint64, kind uint8, payload []byte) ([]byte, error) {
	m.w.mu.Lock()
	away := m.w.away[to] || m.w.away[m.id]
	a := m.w.members[to-1].a
	m.w.mu.Unlock()
	if away || a == nil {
		return nil, errors.New("away")
	}
	return a.Handle(payload)
}

// begin runs the archiver of a member.
func (m *member) begin(b bucket.Bucket, change ...func(*Options)) {
	m.w.t.Helper()
	o := Options{ClusterID: clusterID, MemberID: m.id, Source: m, Calls: m, Hold: NewHold(1 << 30),
		Open:    func(context.Context) (bucket.Bucket, error) { return keepOpen{b}, nil },
		Address: "test", BaseInterval: time.Minute}
	for _, f := range change {
		f(&o)
	}
	a, err := New(o)
	if err != nil {
		m.w.t.Fatal(err)
	}
	m.w.mu.Lock()
	m.a = a
	m.w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Run(ctx)
	}()
	m.stop = func() {
		cancel()
		<-done
	}
}

// end ends the archiver of a member.
func (m *member) end() {
	if m.stop != nil {
		m.stop()
	}
	m.stop = nil
	m.w.mu.Lock()
	m.a = nil
	m.w.mu.Unlock()
}

// keepOpen is a bucket that others use after Close.
type keepOpen struct{ bucket.Bucket }

func (keepOpen) Close() error { return nil }

// newBucket returns an empty bucket.
func newBucket(t *testing.T) bucket.Bucket {
	b, err := bucket.NewDirectory(memfs.New(), "/archive", true)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// restored is a state that was made of the objects of an archive.
type restored struct {
	log   *history.Log
	store *mvcc.Store
	m     *fsm.Machine
}

func (r *restored) close(t *testing.T) {
	r.store.Close()
	if err := r.log.Close(); err != nil {
		t.Error(err)
	}
}

// objects are those of a bucket.
type objects struct {
	id    archive.Identity
	read  *archive.Reader
	bases []archive.Base
	logs  []bucket.Object
}

func readAll(t *testing.T, b bucket.Bucket) objects {
	t.Helper()
	ctx := context.Background()
	data, err := bucket.ReadAll(ctx, b, archive.IdentityName, archive.MaxJSON)
	if err != nil {
		t.Fatal(err)
	}
	var o objects
	if o.id, err = archive.DecodeIdentity(data); err != nil {
		t.Fatal(err)
	}
	o.read = archive.NewReader(o.id)
	for x, err := range bucket.All(ctx, b, "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if _, _, ok := archive.ParseLogName(x.Key); ok {
			o.logs = append(o.logs, x)
		}
		if _, _, ok := archive.ParseBaseName(x.Key); ok {
			data, err := bucket.ReadAll(ctx, b, x.Key, archive.MaxJSON)
			if err != nil {
				t.Fatal(err)
			}
			base, err := archive.DecodeBase(&o.id, x.Key, data)
			if err != nil {
				t.Fatal(err)
			}
			o.bases = append(o.bases, base)
		}
	}
	return o
}

// restore restores from a base, and with the entries after it up to an index.
func restore(t *testing.T, b bucket.Bucket, o *objects, base *archive.Base, to uint64) *restored {
	t.Helper()
	r := &restored{}
	var err error
	if r.log, err = history.Create(history.Options{FS: memfs.New(), Dir: "r", ClusterID: clusterID,
		MemberID: 9, SegmentBytes: 1 << 20}, history.Applied{}, nil); err != nil {
		t.Fatal(err)
	}
	live := map[kv.Rev]bool{}
	parts := base.PartsOf(archive.LivePart)
	for i := range parts {
		if err := open(t, b, o,
			&parts[i]).Live(func(rev kv.Rev) error { live[rev] = true; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range base.PartsOf(archive.RecordsPart) {
		err := open(t, b, o, &p).Records(func(at history.Stamp, tombstone bool, data []byte) error {
			rev := at.Rev
			if len(parts) > 0 && rev.Main < base.Compact && !live[rev] {
				return nil
			}
			delete(live, rev)
			r.log.SetTime(at.Time)
			_, err := r.log.AppendKV(rev, tombstone, data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(live) > 0 {
		t.Fatalf("base %d: %d records that count are in no part", base.Index, len(live))
	}
	for _, p := range base.PartsOf(archive.MetaPart) {
		if err := open(t, b, o,
			&p).Meta(func(m history.Meta) error { return r.log.AppendMeta(m) }); err != nil {
			t.Fatal(err)
		}
	}
	at := history.Applied{Term: base.Term, Index: base.Index}
	if err := r.log.Commit(at); err != nil {
		t.Fatal(err)
	}
	if r.store, err = mvcc.Open(r.log, mvcc.Options{}); err != nil {
		t.Fatal(err)
	}
	if r.m, err = fsm.New(r.log, r.store); err != nil {
		t.Fatal(err)
	}
	hash, err := r.store.HashAt(context.Background(), base.Revision, base.Compact)
	if err != nil || hash != base.Hash {
		t.Fatalf("base %d: hash %d, the manifest has %d (%v)", base.Index, hash, base.Hash, err)
	}
	next := base.Index + 1
	for next <= to {
		i := slices.IndexFunc(o.logs, func(x bucket.Object) bool {
			first, last, _ := archive.ParseLogName(x.Key)
			return first <= next && next <= last
		})
		if i < 0 {
			t.Fatalf("no log object has entry %d; there are %v", next, o.logs)
		}
		data, err := bucket.ReadAll(context.Background(), b, o.logs[i].Key, archive.MaxObject)
		if err != nil {
			t.Fatal(err)
		}
		x, err := o.read.Open(o.logs[i].Key, data)
		if err != nil {
			t.Fatal(err)
		}
		err = x.Entries(func(e *raftpb.Entry) error {
			if e.GetIndex() == next && next <= to {
				applyEntry(t, r.m, e)
				next++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func open(t *testing.T, b bucket.Bucket, o *objects, p *archive.Part) *archive.Object {
	t.Helper()
	data, err := bucket.ReadAll(context.Background(), b, p.Name, archive.MaxObject)
	if err != nil {
		t.Fatal(err)
	}
	x, err := o.read.OpenPart(p, data)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// verify restores the newest state from each base that reaches it, and compares it with the
// member's.
func (w *world) verify(b bucket.Bucket, bases int) {
	w.t.Helper()
	o := readAll(w.t, b)
	if len(o.bases) < bases {
		w.t.Fatalf("%d bases, want %d", len(o.bases), bases)
	}
	if len(o.bases) > 3 { // the first two and the last
		o.bases = append(o.bases[:2], o.bases[len(o.bases)-1])
	}
	for i := range o.bases {
		r := restore(w.t, b, &o, &o.bases[i], w.last())
		w.compare(r)
		r.close(w.t)
	}
}

func (w *world) compare(r *restored) {
	w.t.Helper()
	m := w.members[0]
	at, revision := m.Position()
	if got := r.log.Applied(); got != at {
		w.t.Fatalf("restored up to %v, want %v", got, at)
	}
	compact := m.store.CompactRevision()
	want, err := m.store.HashAt(context.Background(), revision, compact)
	if err != nil {
		w.t.Fatal(err)
	}
	got, err := r.store.HashAt(context.Background(), revision, compact)
	if err != nil || got != want {
		w.t.Fatalf("hash %d at revision %d compacted at %d, want %d (%v)", got, revision,
			compact, want, err)
	}
	order := func(x, y history.Meta) int {
		return cmp.Or(cmp.Compare(x.Bucket, y.Bucket), bytes.Compare(x.Key, y.Key))
	}
	have, need := slices.SortedFunc(slices.Values(r.log.CommittedMeta()), order),
		slices.SortedFunc(slices.Values(m.log.CommittedMeta()), order)
	same := func(x, y history.Meta) bool {
		return x.Bucket == y.Bucket && bytes.Equal(x.Key, y.Key) && bytes.Equal(x.Value, y.Value)
	}
	if !slices.EqualFunc(have, need, same) {
		w.t.Fatalf("meta records %v, want %v", have, need)
	}
}

// awaitArchived waits until all that is applied is archived, in the time of the bubble.
func (w *world) awaitArchived(m *member, within time.Duration) {
	w.t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(100 * time.Millisecond) {
		st := m.a.Status()
		if st.ArchivedIndex >= w.last() {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("archived %d of %d after %v: %+v", st.ArchivedIndex, w.last(), within, st)
		}
	}
}

// awaitBase waits until the archive has a base at or after an index.
func (w *world) awaitBase(b bucket.Bucket, index uint64, within time.Duration) {
	w.t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(100 * time.Millisecond) {
		for o, err := range bucket.All(context.Background(), b, archive.BasePrefix, "") {
			if err != nil {
				w.t.Fatal(err)
			}
			if i, _, ok := archive.ParseBaseName(o.Key); ok && i >= index {
				return
			}
		}
		if time.Now().After(end) {
			w.t.Fatalf("no base at or after %d after %v", index, within)
		}
	}
}

// random commits random requests.
func (w *world) random(r *mathrand.Rand, n int) {
	for range n {
		key := fmt.Sprint("key", r.IntN(40))
		switch r.IntN(12) {
		case 0, 1:
			w.do(fsm.Request{DeleteRange: &kv.DeleteRangeRequest{Key: []byte(key)}})
		case 2:
			w.do(fsm.Request{DeleteRange: &kv.DeleteRangeRequest{Key: []byte(key),
				End: []byte(key + "5")}})
		case 3:
			w.do(fsm.Request{LeaseGrant: &kv.LeaseGrantRequest{ID: 1 + r.Int64N(20), TTL: 100}})
		case 4:
			w.do(fsm.Request{LeaseRevoke: &kv.LeaseRevokeRequest{ID: 1 + r.Int64N(20)}})
		case 5:
			w.commit(nil) // a leader's first entry
		case 6:
			_, revision := w.members[0].Position()
			if compact := w.members[0].store.CompactRevision(); r.IntN(3) == 0 &&
				revision > max(compact, 1) {
				w.do(fsm.Request{Compact: &kv.CompactRequest{Revision: max(compact, 1) + 1 +
					r.Int64N(revision-max(compact, 1))}})
			}
		default:
			w.put(key, fmt.Sprint(r.Uint64(), r.Uint64()))
		}
	}
}

// faulty is a bucket that fails.
type faulty struct {
	bucket.Bucket
	mu  sync.Mutex
	ops int
	// before and after are called with the number of each operation, its name and key. An error of
	// before leaves the operation out, one of after comes after its effect.
	before, after func(n int, op, key string) error
}

func (f *faulty) around(op, key string, run func(bucket.Bucket) error) error {
	f.mu.Lock()
	f.ops++
	n := f.ops
	b, before, after := f.Bucket, f.before, f.after
	f.mu.Unlock()
	if before != nil {
		if err := before(n, op, key); err != nil {
			return err
		}
	}
	if err := run(b); err != nil {
		return err
	}
	if after != nil {
		return after(n, op, key)
	}
	return nil
}

func (f *faulty) Put(ctx context.Context, key string, data []byte) error {
	return f.around("put", key, func(b bucket.Bucket) error { return b.Put(ctx, key, data) })
}

func (f *faulty) Get(ctx context.Context, key string, offset int64) (r io.ReadCloser, err error) {
	err = f.around("get", key,
		func(b bucket.Bucket) (err error) { r, err = b.Get(ctx, key, offset); return err })
	return r, err
}

func (f *faulty) List(ctx context.Context, prefix, after string,
	limit int) (list []bucket.Object, err error) {
	err = f.around("list", prefix,
		func(b bucket.Bucket) (err error) {
			list,
				err = b.List(ctx, prefix, after, limit)
			return err
		})
	return list, err
}

// stalling is a bucket whose operations take time, or do not return before their context ends.
type stalling struct {
	bucket.Bucket
	stall func() (takes time.Duration, dead bool)
}

func (s *stalling) wait(ctx context.Context) error {
	takes, dead := s.stall()
	if dead {
		takes = time.Hour
	}
	if !wait(ctx, takes) {
		return ctx.Err()
	}
	return nil
}

func (s *stalling) Put(ctx context.Context, key string, data []byte) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	return s.Bucket.Put(ctx, key, data)
}

func (s *stalling) Get(ctx context.Context, key string, offset int64) (io.ReadCloser, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Bucket.Get(ctx, key, offset)
}

// ages measures for how long there are entries that no object has.
type ages struct {
	w *world
	b bucket.Bucket
	// every is how often an entry is written.
	every time.Duration
	// worst is the longest time so far. The test sets it to 0 at will.
	worst time.Duration
}

func newAges(w *world, b bucket.Bucket, every time.Duration) *ages {
	return &ages{w: w, b: b, every: every}
}

// write writes for a time.
func (a *ages) write(d time.Duration) {
	a.w.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(a.every) {
		a.w.put("k", "v")
		a.worst = max(a.worst, a.oldest())
	}
}

// oldest returns for how long there has been an entry that no object has.
func (a *ages) oldest() time.Duration {
	a.w.t.Helper()
	var c coverage
	for o, err := range bucket.All(context.Background(), a.b, "", "") {
		if err != nil {
			a.w.t.Fatal(err)
		}
		if first, last, ok := archive.ParseLogName(o.Key); ok {
			c.add(first, last)
		}
		if index, _, ok := archive.ParseBaseName(o.Key); ok {
			c.add(1, index)
		}
	}
	missing, _ := c.next(1)
	if missing > a.w.last() {
		return 0
	}
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	return time.Since(a.w.at[missing-2])
}

// archiving returns the member that archives.
func (w *world) archiving() (out *member) {
	w.t.Helper()
	for _, m := range w.members {
		if m.a != nil && m.a.Status().State == debugpage.ArchiveSending {
			out = m
		}
	}
	if out == nil {
		w.t.Fatal("no member archives")
	}
	return out
}
