package archived

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/bucket"
	"vigil/internal/kv"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
	"vigil/internal/store/archive"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
	"vigil/internal/vfs/memfs"
)

// node is a member's store with the state machine, and a sender to a bucket.
type node struct {
	t     testing.TB
	rng   *rand.Rand
	log   *history.Log
	store *mvcc.Store
	m     *fsm.Machine
	id    archive.Identity
	seal  *archive.Sealer
	b     bucket.Bucket

	index, term uint64
	now         time.Time
	queue       []*raftpb.Entry // not sent
	sent        int64           // the revision before them
	sentTime    time.Time
	last        archive.Base // the last base
	bases       []archive.Base
	// hashes are the HashKV of revisions, marks the times of entries and the revisions after them.
	hashes map[int64]uint32
	// compacts are the compact revisions that the hashes are of, which the same entry may have
	// raised after the revision.
	compacts map[int64]int64
	marks    []mark
	// forgets, if set, reports the meta records that a base leaves out.
	forgets func(*history.Meta) bool
	// loses is a record that bases leave out.
	loses kv.Rev
}

// newNode returns a store of a cluster of one member, whose archive is in a directory of a file
// system in memory.
func newNode(t testing.TB, seed uint64, recipients ...string) (*node, *memfs.FS) {
	t.Helper()
	fsys := memfs.New()
	b, err := bucket.NewDirectory(fsys, "/bucket", true)
	if err != nil {
		t.Fatal(err)
	}
	return newNodeIn(t, seed, b, 4<<10, recipients...), fsys
}

// newNodeIn returns a store with segments of a size, whose archive is in a bucket.
func newNodeIn(t testing.TB, seed uint64, b bucket.Bucket, segmentBytes int64,
	recipients ...string) *node {
	t.Helper()
	n := &node{t: t, rng: rand.New(rand.NewPCG(seed, 1)), b: b, index: 1, term: 2, sent: 1,
		now: time.UnixMilli(1_800_000_000_000), hashes: map[int64]uint32{},
		compacts: map[int64]int64{}}
	members, err := cluster.Initial("t",
		[]cluster.Member{{Name: "m1", PeerURLs: []string{"http://a:1"}, Level: fsm.Level}})
	n.must(err)
	n.log, err = history.Create(history.Options{FS: memfs.New(), Dir: "history", ClusterID: 7,
		MemberID: 8, SegmentBytes: segmentBytes}, history.Applied{Term: 1, Index: 1},
		fsm.InitialRecords(members, &raftpb.ConfState{Voters: members.IDs()}))
	n.must(err)
	n.store, err = mvcc.Open(n.log, mvcc.Options{})
	n.must(err)
	n.m, err = fsm.New(n.log, n.store)
	n.must(err)
	t.Cleanup(func() {
		n.store.Close()
		_ = n.log.Close()
	})
	n.id = archive.NewIdentity(7, archive.ID{1}, n.now, recipients)
	data, err := n.id.Encode()
	n.must(err)
	n.put(archive.IdentityName, data)
	n.seal, err = archive.NewSealer(n.id, recipients)
	n.must(err)
	return n
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) put(name string, data []byte) {
	n.t.Helper()
	n.must(n.b.Put(context.Background(), name, data))
}

// claim is what objects have of the node's term.
func (n *node) claim() archive.Claim {
	return archive.Claim{Term: archive.Hex64(n.term), ID: archive.ID{byte(n.term)}}
}

// entry returns an entry with requests at the present index.
func entry(n *node, list ...*fsm.Request) *raftpb.Entry {
	n.t.Helper()
	group := fsm.AppendHeader(nil)
	for _, r := range list {
		var err error
		group, err = fsm.AppendRequest(group, r)
		n.must(err)
	}
	fsm.PutHeader(group,
		fsm.GroupHeader{Proposer: 1, Sequence: n.index, Time: n.now.UnixMilli(), Count: len(list)})
	if len(list) == 0 {
		group = nil
	}
	return &raftpb.Entry{Index: new(n.index), Term: new(n.term),
		Type: raftpb.EntryNormal.Enum(), Data: group}
}

// apply applies an entry with requests, and queues it.
func (n *node) apply(list ...*fsm.Request) {
	n.t.Helper()
	n.index++
	e := entry(n, list...)
	open, err := n.m.Open(e)
	n.must(err)
	for {
		out, err := open.Next()
		n.must(err)
		if out == nil {
			break
		}
		if out.BatchFull {
			_, err = n.m.Commit(history.Applied{Term: n.term, Index: n.index - 1})
			n.must(err)
		}
	}
	_, err = n.m.Commit(history.Applied{Term: n.term, Index: n.index})
	n.must(err)
	n.queue = append(n.queue, e)
	n.marks = append(n.marks, mark{n.now.UnixMilli(), n.store.Revision()})
}

// mark is the time of an entry, and the newest revision after it.
type mark struct{ Time, Revision int64 }

// work applies random requests.
func (n *node) work(entries int) {
	n.t.Helper()
	for range entries {
		n.now = n.now.Add(time.Duration(n.rng.IntN(1500)) * time.Millisecond)
		var list []*fsm.Request
		for range n.rng.IntN(4) {
			key := fmt.Appendf(nil, "k%02d", n.rng.IntN(40))
			switch n.rng.IntN(12) {
			case 0:
				list = append(list, &fsm.Request{DeleteRange: &kv.DeleteRangeRequest{Key: key,
					End: fmt.Appendf(nil, "k%02d", n.rng.IntN(40))}})
			case 1:
				list = append(list, &fsm.Request{LeaseGrant: &kv.LeaseGrantRequest{ID: int64(1 +
					n.rng.IntN(9)), TTL: 60}})
			case 2:
				list = append(list, &fsm.Request{LeaseRevoke: &kv.LeaseRevokeRequest{ID: int64(1 +
					n.rng.IntN(9))}})
			case 3:
				list = append(list, &fsm.Request{Put: &kv.PutRequest{Key: key,
					Value: []byte("leased"), Lease: int64(1 + n.rng.IntN(9))}})
			case 4:
				list = append(list, &fsm.Request{Auth: &kv.AuthRequest{Op: kv.UserAdd,
					User: fmt.Sprint("u", n.rng.IntN(30)), NoPassword: true}})
			case 5:
				if rev := n.store.Revision(); rev > 30 && n.rng.IntN(3) == 0 {
					list = append(list, &fsm.Request{Compact: &kv.CompactRequest{Revision: rev - int64(n.rng.IntN(25))}})
				}
			default:
				list = append(list, &fsm.Request{Put: &kv.PutRequest{Key: key,
					Value: fmt.Appendf(nil, "%d", n.rng.IntN(1000))}})
			}
		}
		n.apply(list...)
		n.note()
		if n.rng.IntN(4) == 0 {
			n.mark()
		}
		if n.rng.IntN(30) == 0 {
			n.term++
		}
	}
}

// mark applies an entry that changes nothing, later than the one before.
func (n *node) mark() {
	n.now = n.now.Add(time.Millisecond)
	n.apply(&fsm.Request{LeaseRevoke: &kv.LeaseRevokeRequest{ID: 1 << 40}})
}

// note keeps the hash of the present revision.
func (n *node) note() {
	rev := n.store.Revision()
	if n.hashes[rev] != 0 {
		return
	}
	compact := compactRevision(n.store)
	h, err := n.store.HashAt(context.Background(), rev, compact)
	n.must(err)
	n.hashes[rev], n.compacts[rev] = h, compact
}

// send sends the queued entries as one log object, and returns its name.
func (n *node) send() string {
	n.t.Helper()
	if len(n.queue) == 0 {
		return ""
	}
	w := n.seal.NewLog()
	for _, e := range n.queue {
		n.must(w.Add(e))
	}
	if n.sentTime.IsZero() {
		n.sentTime = n.now
	}
	o, err := w.Seal(archive.LogInfo{Sender: 8, Before: n.sent, After: n.store.Revision(),
		FirstTime: n.sentTime, LastTime: n.now, Claim: n.claim()})
	n.must(err)
	n.put(o.Name, o.Data)
	n.queue, n.sent, n.sentTime = nil, n.store.Revision(), n.now
	return o.Name
}

// base sends a base of the present state, which names the parts of the last one if incremental is
// set. The log is sent first.
func (n *node) base(incremental bool) archive.Base {
	n.t.Helper()
	n.send()
	ctx := context.Background()
	after := int64(0)
	b := archive.NewBase(&n.id)
	b.Claim = n.claim()
	if incremental {
		b.Parts = append(b.Parts, n.last.PartsOf(archive.RecordsPart)...)
		if len(b.Parts) > 0 {
			after = n.last.Revision
		}
	}
	records, live := n.seal.NewRecords(), n.seal.NewLive()
	lives := 0
	ex, err := n.store.Export(ctx, func(kv.Rev, bool, []byte) error { return nil })
	n.must(err)
	defer ex.Close()
	add := func(p archive.Part, o *archive.Sealed, err error) {
		n.must(err)
		if _, err := n.b.Get(ctx, o.Name, 0); err != nil {
			n.put(o.Name, o.Data)
		}
		b.Parts = append(b.Parts, p)
	}
	begun, last := after, after // of the part
	for ex.Next() {
		if main := ex.Rev().Main; main > last && records.Size() > 32<<20 {
			add(records.Seal(begun, last))
			records, begun = n.seal.NewRecords(), last
		}
		last = max(last, ex.Rev().Main)
		if ex.Rev().Main < ex.Compact {
			n.must(live.Add(ex.Rev()))
			lives++
		}
		if ex.Rev().Main > after && ex.Rev() != n.loses {
			n.must(records.Add(ex.Stamp(), ex.Tombstone(), ex.Data()))
		}
	}
	n.must(ex.Err())
	add(records.Seal(begun, ex.Revision))
	if ex.Compact > after && after > 0 {
		add(live.Seal(ex.Compact))
	}
	meta := n.seal.NewMeta()
	for _, m := range ex.Meta {
		if n.forgets == nil || !n.forgets(&m) {
			n.must(meta.Add(&m))
		}
	}
	add(meta.Seal())
	b.Index, b.Term, b.Revision, b.Compact, b.Time, b.Sender = ex.Applied.Index, ex.Applied.Term,
		ex.Revision, ex.Compact, n.now, 8
	b.RevisionTime = ex.RevisionTime
	b.Hash, err = n.store.HashAt(ctx, b.Revision, b.Compact)
	n.must(err)
	data, err := b.Encode()
	n.must(err)
	n.put(b.Name(), data)
	n.last = b
	n.bases = append(n.bases, b)
	return b
}

// shared reports whether every base lists a part.
func (n *node) shared(name string) bool {
	for _, b := range n.bases {
		if !slices.ContainsFunc(b.Parts, func(p archive.Part) bool { return p.Name == name }) {
			return false
		}
	}
	return true
}

// objects returns the names of all objects.
func (n *node) objects() []string {
	var out []string
	for o, err := range bucket.All(context.Background(), n.b, "", "") {
		n.must(err)
		out = append(out, o.Key)
	}
	return out
}

func (n *node) open(keys ...string) *Archive {
	n.t.Helper()
	a, err := Open(context.Background(), n.b, "memory", readers(keys)...)
	n.must(err)
	return a
}

func putRequest(key string) *kv.PutRequest {
	return &kv.PutRequest{Key: []byte(key), Value: []byte("v")}
}

func deleteRequest(key string) *kv.DeleteRangeRequest {
	return &kv.DeleteRangeRequest{Key: []byte(key)}
}

func compactRequest(rev int64) *kv.CompactRequest { return &kv.CompactRequest{Revision: rev} }
