package fsm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/state/cluster"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
)

// TestEntryInParts: what entries come to does not depend on how they are divided among batches, nor on
// crashes in the middle of them.
//
//vigil:norace
func TestEntryInParts(t *testing.T) {
	crashes, divided, refused, ended := 0, 0, 0, 0
	for range 15 {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 1))
		limits := mvcc.Limits{RecordBytes: 300, ChangeBytes: 600 + r.Int64N(2000), ResultBytes: 500 + r.Int64N(3000), VisitedKeys: 5 + r.Int64N(100)}
		whole, parts := newLimitedBox(t, limits), newLimitedBox(t, limits)
		whole.m.SetBatchBytes(1 << 40)
		for n := range 25 {
			reqs := randomRequests(r)
			data := group(t, GroupHeader{Proposer: 7, Sequence: uint64(n)}, reqs...)
			wanted := r.IntN(2) == 0
			out := whole.entry(raftpb.EntryNormal, data, wanted)
			if out.More {
				t.Fatal("an entry was divided though a batch has room")
			}
			want := outcomes(out.Results)
			whole.commit()

			parts.index++
			before := history.Applied{Term: 1, Index: parts.index - 1}
			e := &raftpb.Entry{Type: raftpb.EntryNormal.Enum(), Term: new(uint64(1)), Index: new(parts.index), Data: data}
			var got []string
			crashed := false
			for {
				parts.m.SetBatchBytes(r.Int64N(1500))
				out, err := parts.apply(e, r.IntN(2) == 0)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				got = append(got, outcomes(out.Results)...)
				if r.IntN(8) == 0 {
					parts.reopen() // nothing of the open batch is left
					crashes, crashed = crashes+1, true
					continue
				}
				if !out.More {
					break
				}
				divided++
				if _, err := parts.m.Commit(before); err != nil {
					t.Fatal(err)
				}
				if r.IntN(4) == 0 {
					parts.reopen()
					crashes, crashed = crashes+1, true
				}
			}
			parts.commit()
			if !crashed && fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("seed %d: outcomes\n%v, want\n%v", seed, got, want)
			}
			if got, want := parts.dump(), whole.dump(); got != want {
				t.Fatalf("seed %d, entry %d: in parts\n%s\nwhole\n%s", seed, n, got, want)
			}
			refused += strings.Count(fmt.Sprint(want), "limit")
			ended += strings.Count(fmt.Sprint(want), "lease 1") + strings.Count(fmt.Sprint(want), "lease 2")
			if r.IntN(6) == 0 {
				whole.reopen()
				whole.m.SetBatchBytes(1 << 40)
			}
		}
	}
	if min(crashes, divided, refused, ended) == 0 {
		t.Errorf("%d crashes, %d parts, %d requests refused, %d leases ended", crashes, divided, refused, ended)
	}
	t.Logf("%d crashes, %d parts, %d requests refused, %d leases ended", crashes, divided, refused, ended)
}

func newLimitedBox(t testing.TB, l mvcc.Limits) *box {
	b := newBox(t)
	b.limits = l
	b.reopen()
	return b
}

func outcomes(results []Result) (out []string) {
	for _, r := range results {
		s := fmt.Sprint(r.Err)
		if r.Err == nil {
			switch {
			case r.Put != nil:
				s = fmt.Sprint("put ", r.Put.Revision)
			case r.DeleteRange != nil:
				s = fmt.Sprint("deleted ", r.DeleteRange.Deleted, " ", r.DeleteRange.Revision)
			case r.Txn != nil:
				s = fmt.Sprint("txn ", r.Txn.Succeeded, " ", r.Txn.Revision)
			case r.Lease != nil:
				s = fmt.Sprint("lease ", r.Lease.Ended, " ", r.Lease.Revision)
			}
		}
		out = append(out, s)
	}
	return out
}

// randomRequests are requests that write more than they hold.
func randomRequests(r *rand.Rand) (out []*Request) {
	key := func() []byte { return fmt.Appendf(nil, "key-%02d", r.IntN(40)) }
	for range 1 + r.IntN(30) {
		req := &Request{}
		id := 1 + r.Int64N(3)
		switch r.IntN(12) {
		case 0, 1, 2:
			req.Put = &kv.PutRequest{Key: key(), Value: make([]byte, r.IntN(320)), Lease: max(id-1-r.Int64N(3), 0), PrevKV: r.IntN(2) == 0}
		case 3, 4, 5:
			req.Put = &kv.PutRequest{Key: key(), IgnoreValue: true, IgnoreLease: r.IntN(2) == 0}
		case 6:
			req.DeleteRange = &kv.DeleteRangeRequest{Key: key(), End: []byte{0}, PrevKV: r.IntN(2) == 0}
		case 7:
			req.LeaseGrant = &kv.LeaseGrantRequest{ID: id, TTL: 60}
		case 8:
			req.LeaseRevoke = &kv.LeaseRevokeRequest{ID: id}
		case 9:
			req.LeaseExpire = &kv.LeaseExpireRequest{Term: 1}
			for id := range int64(4) {
				for granted := range uint64(30) {
					req.LeaseExpire.Leases = append(req.LeaseExpire.Leases, kv.LeaseRef{ID: id, Granted: granted})
				}
			}
		default:
			req.Txn = &kv.TxnRequest{}
			for range 1 + r.IntN(5) {
				op := kv.Op{Put: &kv.PutRequest{Key: key(), IgnoreValue: true}}
				switch r.IntN(4) {
				case 0:
					op = kv.Op{Range: &kv.RangeRequest{Key: key(), End: []byte{0}, Order: kv.SortOrder(r.IntN(3)), Sort: kv.SortByMod, Limit: r.Int64N(5)}}
				case 1:
					op = kv.Op{Delete: &kv.DeleteRangeRequest{Key: key(), PrevKV: true}}
				}
				req.Txn.Failure = append(req.Txn.Failure, op)
			}
			req.Txn.Compare = []kv.Compare{{Key: key(), Target: kv.CompareVersion, Result: kv.Greater, Number: 1000}}
		}
		out = append(out, req)
	}
	return out
}

// TestLargeLeaseEnds: a lease with more keys than one revision can delete ends, in several.
func TestLargeLeaseEnds(t *testing.T) {
	for _, expire := range []bool{false, true} {
		b := newLimitedBox(t, mvcc.Limits{ChangeBytes: 400})
		b.m.SetBatchBytes(300)
		run := func(reqs ...*Request) (results []Result) {
			t.Helper()
			b.index++
			e := &raftpb.Entry{Term: new(uint64(1)), Index: new(b.index), Data: group(t, GroupHeader{Proposer: 1, Sequence: b.index}, reqs...)}
			for {
				out, err := b.apply(e, true)
				if err != nil {
					t.Fatal(err)
				}
				results = append(results, out.Results...)
				if !out.More {
					b.commit()
					return results
				}
				if _, err := b.m.Commit(history.Applied{Term: 1, Index: b.index - 1}); err != nil {
					t.Fatal(err)
				}
				b.reopen()
				b.m.SetBatchBytes(300)
			}
		}
		run(&Request{LeaseGrant: &kv.LeaseGrantRequest{ID: 5, TTL: 10}})
		granted := b.index
		for i := range 50 {
			run(&Request{Put: &kv.PutRequest{Key: fmt.Appendf(nil, "key-%03d", i), Lease: 5}})
		}
		before := b.store.Revision()
		end := &Request{LeaseRevoke: &kv.LeaseRevokeRequest{ID: 5}}
		if expire {
			end = &Request{LeaseExpire: &kv.LeaseExpireRequest{Term: 1, Leases: []kv.LeaseRef{{ID: 5, Granted: granted}}}}
		}
		results := run(end, put("after", "1"))
		if len(results) != 2 || results[0].Err != nil || results[1].Err != nil {
			t.Fatalf("%+v", results)
		}
		if b.m.Leases().Len() != 0 || b.store.Stats().Keys != 1 {
			t.Errorf("%d leases, %+v", b.m.Leases().Len(), b.store.Stats())
		}
		if n := b.store.Revision() - before; n < 4 || n > 20 {
			t.Errorf("it took %d revisions", n)
		}
		for k := range b.log.Meta(raftBucket) {
			if string(k) != string(confKey) {
				t.Errorf("the record %q is left", k)
			}
		}
	}
}

// TestMetaLimits: what would make a record of the cluster too large is refused and changes nothing.
func TestMetaLimits(t *testing.T) {
	b := newLimitedBox(t, mvcc.Limits{RecordBytes: 200, ChangeBytes: 1000})
	before := b.dump()
	out := b.entry(raftpb.EntryNormal, group(t, GroupHeader{Proposer: 1},
		&Request{Auth: &kv.AuthRequest{Op: kv.UserAdd, User: strings.Repeat("u", 300), NoPassword: true}},
		&Request{Attributes: &cluster.Member{ID: b.m.Members().IDs()[0], Name: strings.Repeat("n", 300)}},
		put("k", strings.Repeat("v", 300)),
		&Request{Txn: &kv.TxnRequest{Success: []kv.Op{{Put: put("a", "1").Put}, {Put: put("k", strings.Repeat("v", 300)).Put}}}},
	), true)
	for i, r := range out.Results {
		var limit *kv.LimitError
		if !errors.As(r.Err, &limit) {
			t.Errorf("request %d: %v", i, r.Err)
		}
	}
	b.commit()
	if after := b.dump(); strings.Replace(after, "{1 2}", "{1 1}", 1) != before {
		t.Errorf("changed:\n%s\nwas\n%s", after, before)
	}
	b.reopen()
}
