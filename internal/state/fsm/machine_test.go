package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
	"vigil/internal/state/auth"
	"vigil/internal/state/cluster"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
	"vigil/internal/vfs/memfs"
)

// box is a machine with its store, on a disk in memory.
type box struct {
	t     testing.TB
	fs    *memfs.FS
	log   *history.Log
	store *mvcc.Store
	m     *Machine
	index uint64
	later uint64 // the term of the next entries is 1 more than this

	limits mvcc.Limits

	open    *Entry // the entry that is not applied in full yet
	results []Result
}

// outcome is what an entry has come to, or its requests that one batch holds. The slices are valid until the next
// call of entry or apply.
type outcome struct {
	Header     GroupHeader
	Results    []Result
	ConfChange *raftpb.ConfChangeV2
	Tokens     []Token
	TokensEnd  uint64
	// More is set if the rest of the entry belongs to the next batch.
	More bool
}

func newBox(t testing.TB) *box {
	t.Helper()
	b := &box{t: t, fs: memfs.New(), index: 1}
	members, err := cluster.Initial("t", []cluster.Member{{Name: "a", PeerURLs: []string{"http://a:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	conf := &raftpb.ConfState{Voters: members.IDs()}
	b.log, err = history.Create(history.Options{FS: b.fs, Dir: "h", ClusterID: 1, MemberID: 2}, history.Applied{Term: 1, Index: 1}, InitialRecords(members, conf))
	if err != nil {
		t.Fatal(err)
	}
	b.load()
	t.Cleanup(b.close)
	return b
}

func (b *box) load() {
	b.open = nil
	var err error
	if b.store, err = mvcc.Open(b.log, mvcc.Options{Limits: b.limits}); err != nil {
		b.t.Fatal(err)
	}
	if b.m, err = New(b.log, b.store); err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) close() {
	b.store.Close()
	if err := b.log.Close(); err != nil {
		b.t.Error(err)
	}
}

// reopen lets the machine be rebuilt from disk.
func (b *box) reopen() {
	b.close()
	var err error
	if b.log, err = history.Open(history.Options{FS: b.fs, Dir: "h"}); err != nil {
		b.t.Fatal(err)
	}
	b.load()
}

// entry applies one entry without committing it.
func (b *box) entry(typ raftpb.EntryType, data []byte, wanted bool) outcome {
	b.t.Helper()
	b.index++
	out, err := b.apply(&raftpb.Entry{Type: typ.Enum(), Term: new(1 + b.later), Index: new(b.index), Data: data}, wanted)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// apply applies an entry, or the rest of the entry of which a part is applied, until the batch is full.
func (b *box) apply(e *raftpb.Entry, wanted bool) (out outcome, err error) {
	if b.open == nil {
		if b.open, err = b.m.Open(e); err != nil {
			return out, err
		}
		if !wanted {
			b.open.DiscardResults()
		}
	}
	b.results = b.results[:0]
	out.Header = b.open.Header()
	for {
		step, err := b.open.Next()
		switch {
		case err != nil || step == nil:
			b.open, out.Results = nil, b.results
			return out, err
		case step.BatchFull:
			out.Results, out.More = b.results, true
			return out, nil
		}
		b.results = append(b.results, step.Result)
		if step.ConfChange != nil {
			out.ConfChange = step.ConfChange
		}
		if step.Token != nil {
			out.Tokens = append(out.Tokens, *step.Token)
		}
		out.TokensEnd = max(out.TokensEnd, step.TokensEnd)
	}
}

func (b *box) commit() mvcc.Published {
	b.t.Helper()
	p, err := b.m.Commit(history.Applied{Term: 1 + b.later, Index: b.index})
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// dump is everything that the state holds.
func (b *box) dump() string {
	var out bytes.Buffer
	fmt.Fprintln(&out, "applied", b.log.Applied(), "revision", b.store.Revision(), "compact", b.store.CompactRevision())
	for _, bucket := range []byte{memberBucket, raftBucket, alarmBucket, versionBucket, leaseBucket, authBucket, userBucket, roleBucket, lineageBucket, mvcc.MetaBucket} {
		for k, v := range b.log.Meta(bucket) {
			fmt.Fprintf(&out, "%c %x %x\n", bucket, k, v)
		}
	}
	for _, l := range b.m.Leases().All() {
		fmt.Fprintf(&out, "%+v %q\n", l, b.m.Leases().Keys(l.ID))
	}
	evs, next, err := b.store.Events(max(b.store.CompactRevision(), 2), b.store.Revision(), 1<<30)
	if b.store.Revision() > 1 && (err != nil || next != b.store.Revision()+1) {
		b.t.Fatalf("events up to %d of %d: %v", next, b.store.Revision(), err)
	}
	for rev := max(b.store.CompactRevision(), 1); rev <= b.store.Revision(); rev++ {
		span, err := b.store.TimeSpan(rev)
		if err != nil {
			b.t.Fatal(err)
		}
		fmt.Fprintln(&out, rev, span)
	}
	for _, e := range evs {
		fmt.Fprintf(&out, "%v %v %v %x\n", e.Rev, e.Delete, e.Create, e.KV)
	}
	return out.String()
}

func put(key, value string) *Request {
	return &Request{Put: &kv.PutRequest{Key: []byte(key), Value: []byte(value)}}
}

func TestOneErrorTouchesNoOtherRequest(t *testing.T) {
	b := newBox(t)
	out := b.entry(raftpb.EntryNormal, group(t, GroupHeader{Proposer: 7, Sequence: 8},
		put("a", "1"),
		&Request{Put: &kv.PutRequest{Key: []byte("b"), Lease: 5}},
		&Request{Txn: &kv.TxnRequest{Success: []kv.Op{
			{Put: &kv.PutRequest{Key: []byte("c")}},
			{Put: &kv.PutRequest{Key: []byte("nope"), IgnoreValue: true}},
		}}},
		&Request{Compact: &kv.CompactRequest{Revision: 100}},
		&Request{Attributes: &cluster.Member{ID: 99, Name: "who"}},
		put("d", "2"),
	), true)
	if out.Header != (GroupHeader{Proposer: 7, Sequence: 8, Count: 6}) {
		t.Errorf("header %+v", out.Header)
	}
	for i, want := range []error{nil, kv.ErrLeaseNotFound, kv.ErrKeyNotFound, kv.ErrFutureRev, cluster.ErrIDNotFound, nil} {
		if !errors.Is(out.Results[i].Err, want) || want == nil && out.Results[i].Err != nil {
			t.Errorf("request %d: %v, want %v", i, out.Results[i].Err, want)
		}
	}
	if a, d := out.Results[0].Put.Revision, out.Results[5].Put.Revision; a != 2 || d != 3 {
		t.Errorf("revisions %d and %d", a, d)
	}
	if b.store.Revision() != 1 {
		t.Error("readable before Commit")
	}
	p := b.commit()
	if p.Revision != 3 || len(p.Events) != 2 {
		t.Errorf("published %+v", p)
	}
}

func TestEmptyEntriesAndAttributes(t *testing.T) {
	b := newBox(t)
	if out := b.entry(raftpb.EntryNormal, nil, false); out.Header.Count != 0 || len(out.Results) != 0 {
		t.Errorf("an empty entry: %+v", out)
	}
	id := b.m.Members().IDs()[0]
	out := b.entry(raftpb.EntryNormal, group(t, GroupHeader{}, &Request{Attributes: &cluster.Member{ID: id, Name: "new", ClientURLs: []string{"http://a:2"}}}), true)
	if out.Results[0].Err != nil {
		t.Fatal(out.Results[0].Err)
	}
	if p := b.commit(); p.Revision != 1 || len(p.Events) != 0 {
		t.Errorf("published %+v", p)
	}
	b.reopen()
	m, _ := b.m.Members().Member(id)
	if m.Name != "new" || len(m.ClientURLs) != 1 || len(m.PeerURLs) != 1 || b.log.Applied().Index != b.index {
		t.Errorf("after reopening: %+v at %v", m, b.log.Applied())
	}
}

func TestConfChanges(t *testing.T) {
	b := newBox(t)
	change := func(c cluster.Change) (outcome, *raftpb.ConfChangeV2) {
		t.Helper()
		cc, err := ConfChange(GroupHeader{Proposer: 1, Sequence: 2}, c, auth.Identity{})
		if err != nil {
			t.Fatal(err)
		}
		data, err := proto.Marshal(cc)
		if err != nil {
			t.Fatal(err)
		}
		return b.entry(raftpb.EntryConfChangeV2, data, true), cc
	}
	learner := cluster.Member{ID: 5, PeerURLs: []string{"http://b:1"}, Learner: true}
	out, cc := change(cluster.Change{Op: cluster.Add, Member: learner})
	if out.Results[0].Err != nil || !proto.Equal(out.ConfChange, cc) || out.Header.Sequence != 2 {
		t.Fatalf("outcome %+v", out)
	}
	self := b.m.ConfState().GetVoters()[0]
	if want := (&raftpb.ConfState{Voters: []uint64{self}, Learners: []uint64{5}, AutoLeave: new(false)}); !proto.Equal(b.m.ConfState(), want) {
		t.Errorf("configuration %v, want %v", b.m.ConfState(), want)
	}
	b.commit()
	if out, _ = change(cluster.Change{Op: cluster.Add, Member: learner}); out.ConfChange != nil || !errors.Is(out.Results[0].Err, cluster.ErrIDExists) {
		t.Errorf("added twice: %+v", out)
	}
	for _, limited := range []struct {
		change cluster.Change
		want   error
	}{
		{cluster.Change{Op: cluster.Add, Member: cluster.Member{ID: 6, PeerURLs: []string{"http://c:1"}, Learner: true}, MaxLearners: 1}, cluster.ErrTooManyLearners},
		{cluster.Change{Op: cluster.Remove, Member: cluster.Member{ID: self}}, cluster.ErrLastVoter},
	} {
		if out, _ = change(limited.change); out.ConfChange != nil || !errors.Is(out.Results[0].Err, limited.want) {
			t.Errorf("%+v: %+v, want %v", limited.change, out, limited.want)
		}
	}
	if out, _ = change(cluster.Change{Op: cluster.Promote, Member: cluster.Member{ID: 5}}); out.Results[0].Err != nil {
		t.Errorf("promote: %+v", out)
	}
	b.commit()
	b.reopen()
	if m, ok := b.m.Members().Member(5); !ok || m.Learner || len(b.m.ConfState().GetVoters()) != 2 {
		t.Errorf("after reopening: %+v, %v", m, b.m.ConfState())
	}
	// An entry that no member can have proposed is a fatal error.
	cc.Changes[0].NodeId = new(uint64(6))
	for name, e := range map[string]*raftpb.Entry{
		"context and change differ": {Type: raftpb.EntryConfChangeV2.Enum(), Data: must(proto.Marshal(cc))},
		"not a change":              {Type: raftpb.EntryConfChangeV2.Enum(), Data: []byte{0xff}},
		"old kind":                  {Type: raftpb.EntryConfChange.Enum()},
		"not a group":               {Data: []byte("hello")},
	} {
		if _, err := b.apply(e, true); err == nil {
			t.Errorf("%s: applied", name)
		}
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// The state after the same entries is the same, with and without waiting clients, wherever batches end, and
// however often the machine was rebuilt from disk in between.
func TestStateDependsOnEntriesOnly(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 5))
	g := generator{rng}
	a, b := newBox(t), newBox(t)
	for i := range 400 {
		var reqs []*Request
		for range 1 + rng.IntN(6) {
			r := g.request()
			switch {
			case r.Compact != nil && rng.IntN(4) > 0:
				r = put("k", "v")
			case r.Compact != nil:
				r.Compact.Revision = a.m.store.Revision() - rng.Int64N(20)
			case r.LeaseGrant != nil && rng.IntN(2) == 0:
				r.LeaseGrant.TTL = rng.Int64N(100)
			case r.LeaseCheckpoint != nil || r.LeaseExpire != nil:
				aim(rng, a.m, r)
			case r.Attributes != nil:
				r.Attributes.ID = a.m.Members().IDs()[0]
			case r.Put != nil && rng.IntN(2) == 0:
				r.Put.Lease, r.Put.IgnoreValue, r.Put.IgnoreLease = 0, false, false
			}
			reqs = append(reqs, r)
		}
		data := group(t, GroupHeader{Proposer: 1, Sequence: uint64(i)}, reqs...)
		results := a.entry(raftpb.EntryNormal, data, true).Results
		for k, other := range b.entry(raftpb.EntryNormal, data, rng.IntN(2) == 0).Results {
			if fmt.Sprint(results[k].Err) != fmt.Sprint(other.Err) {
				t.Fatalf("seed %d, entry %d, request %d: %v and %v", seed, i, k, results[k].Err, other.Err)
			}
		}
		a.commit()
		if rng.IntN(3) == 0 {
			b.commit()
			if rng.IntN(20) == 0 {
				b.reopen()
			}
			if x, y := a.dump(), b.dump(); x != y {
				t.Fatalf("seed %d, entry %d: one state is\n%s\nthe other\n%s", seed, i, x, y)
			}
		}
	}
	b.commit()
}

func BenchmarkApplyPut(b *testing.B) {
	box := newBox(b)
	var reqs []*Request
	for i := range 100 {
		reqs = append(reqs, put(fmt.Sprintf("key-%08d", i), string(make([]byte, 256))))
	}
	data := group(b, GroupHeader{}, reqs...)
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += len(reqs) {
		box.entry(raftpb.EntryNormal, data, true)
		box.commit()
	}
}

func BenchmarkDecodeTxn(b *testing.B) {
	data := group(b, GroupHeader{}, &Request{Txn: &kv.TxnRequest{
		Compare: []kv.Compare{{Key: []byte("/registry/pods/default/x"), Target: kv.CompareMod, Number: 12345}},
		Success: []kv.Op{{Put: &kv.PutRequest{Key: []byte("/registry/pods/default/x"), Value: make([]byte, 2000)}}},
		Failure: []kv.Op{{Range: &kv.RangeRequest{Key: []byte("/registry/pods/default/x")}}},
	}})
	var d Decoder
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Reset(data); err != nil {
			b.Fatal(err)
		}
		if _, err := d.Next(); err != nil {
			b.Fatal(err)
		}
	}
}
