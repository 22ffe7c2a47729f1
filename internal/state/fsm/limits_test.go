package fsm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
	"vigil/internal/state/auth"
	"vigil/internal/state/cluster"
	"vigil/internal/store/mvcc"
)

// TestLimits goes over every limit that a request can meet, from below it to above it, alone and among other
// requests. What is above is refused, by the encoder or by every member that applies it; no request stops the
// machine, others of its entry are carried out, and a restart finds what was there.
func TestLimits(t *testing.T) {
	limits := mvcc.Limits{RecordBytes: 200, ChangeBytes: 700, ResultBytes: 500, VisitedKeys: 20}
	keys := func(n int, lease int64) (out []*Request) {
		for i := range n {
			out = append(out, &Request{Put: &kv.PutRequest{Key: fmt.Appendf(nil, "many/%02d", i), Value: []byte("v"), Lease: lease}})
		}
		return out
	}
	all := func() (key, end []byte) { return []byte("many/"), []byte("many0") }
	txn := func(ops ...kv.Op) *Request { return &Request{Txn: &kv.TxnRequest{Success: ops}} }
	write := kv.Op{Put: &kv.PutRequest{Key: []byte("w")}}
	for name, c := range map[string]struct {
		from, to int
		setup    func(n int) []*Request
		make     func(n int) *Request
		// never is set for what no number refuses, once for what can be done once.
		never, once bool
	}{
		"value": {from: 150, to: 200, make: func(n int) *Request { return put("k", strings.Repeat("v", n)) }},
		"key":   {from: 150, to: 200, make: func(n int) *Request { return put(strings.Repeat("k", n), "") }},
		"value in a txn": {from: 150, to: 200, make: func(n int) *Request {
			return txn(write, kv.Op{Put: put("k", strings.Repeat("v", n)).Put})
		}},
		"copies of a value": {from: 1, to: 8,
			setup: func(n int) (out []*Request) {
				for i := range n {
					out = append(out, put(fmt.Sprint("copy", i), strings.Repeat("v", 100)))
				}
				return out
			},
			make: func(n int) *Request {
				var ops []kv.Op
				for i := range n {
					ops = append(ops, kv.Op{Put: &kv.PutRequest{Key: fmt.Append(nil, "copy", i), IgnoreValue: true}})
				}
				return txn(ops...)
			}},
		"deletions": {from: 10, to: 25, setup: func(n int) []*Request { return keys(n, 0) }, make: func(int) *Request {
			key, end := all()
			return &Request{DeleteRange: &kv.DeleteRangeRequest{Key: key, End: end}}
		}},
		"deletions in a txn": {from: 5, to: 25, setup: func(n int) []*Request { return keys(n, 0) }, make: func(int) *Request {
			key, end := all()
			return txn(write, kv.Op{Delete: &kv.DeleteRangeRequest{Key: key, End: end}})
		}},
		"previous pairs": {from: 5, to: 17, setup: func(n int) []*Request { return keys(n, 0) }, make: func(int) *Request {
			key, end := all()
			return &Request{DeleteRange: &kv.DeleteRangeRequest{Key: key, End: end, PrevKV: true}}
		}, never: true}, // these are small
		"results": {from: 1, to: 30, setup: func(int) []*Request { return []*Request{put("r", strings.Repeat("v", 50))} }, make: func(n int) *Request {
			ops := []kv.Op{write}
			for range n {
				ops = append(ops, kv.Op{Range: &kv.RangeRequest{Key: []byte("r")}})
			}
			return txn(ops...)
		}},
		"visited keys": {from: 10, to: 25, setup: func(n int) []*Request { return keys(n, 0) }, make: func(int) *Request {
			key, end := all()
			return txn(write, kv.Op{Range: &kv.RangeRequest{Key: key, End: end, Order: kv.SortDescend, Sort: kv.SortByMod, Limit: 1, KeysOnly: true}})
		}},
		"compared keys": {from: 10, to: 25, setup: func(n int) []*Request { return keys(n, 0) }, make: func(int) *Request {
			key, end := all()
			return &Request{Txn: &kv.TxnRequest{Compare: []kv.Compare{{Key: key, End: end, Target: kv.CompareVersion, Result: kv.Greater}}, Success: []kv.Op{write}}}
		}},
		"keys of a lease": {from: 10, to: 40, never: true,
			setup: func(n int) []*Request {
				return append([]*Request{{LeaseGrant: &kv.LeaseGrantRequest{ID: 9, TTL: 9}}}, keys(n, 9)...)
			},
			make: func(int) *Request { return &Request{LeaseRevoke: &kv.LeaseRevokeRequest{ID: 9}} }},
		"client urls": {from: cluster.MaxClientURLs - 1, to: cluster.MaxClientURLs + 2, make: func(n int) *Request {
			return &Request{Attributes: &cluster.Member{ClientURLs: slices.Repeat([]string{""}, n)}}
		}},
		"name of a member": {from: 100, to: 200, make: func(n int) *Request {
			return &Request{Attributes: &cluster.Member{Name: strings.Repeat("n", n)}}
		}},
		"name of a user": {from: 100, to: 300, once: true, make: func(n int) *Request {
			return &Request{Auth: &kv.AuthRequest{Op: kv.UserAdd, User: strings.Repeat("u", n), NoPassword: true}}
		}},
		"ttl": {from: 0, to: 3, once: true, make: func(n int) *Request {
			return &Request{LeaseGrant: &kv.LeaseGrantRequest{ID: int64(n + 100), TTL: kv.MaxLeaseTTL - 1 + int64(n)}}
		}},
		"depth": {from: maxDepth - 3, to: maxDepth + 2, make: func(n int) *Request {
			r := &kv.TxnRequest{}
			for range n {
				r = &kv.TxnRequest{Success: []kv.Op{{Txn: r}}}
			}
			return &Request{Txn: r}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			own := limits
			if name == "client urls" {
				// Their record is larger.
				own.RecordBytes, own.ChangeBytes = 0, 0
			}
			b := newLimitedBox(t, own)
			b.m.SetBatchBytes(1000)
			member := b.m.Members().IDs()[0]
			first := -1
			for n := c.from; n <= c.to; n++ {
				for _, among := range []bool{false, true} {
					if c.once && among != (n%2 == 0) {
						continue
					}
					if c.setup != nil {
						for _, r := range c.setup(n) {
							b.whole(r)
						}
					}
					r := c.make(n)
					if r.Attributes != nil {
						r.Attributes.ID = member
					}
					reqs := []*Request{r}
					if among {
						reqs = []*Request{put("before", "1"), r, put("after", "1")}
					}
					var err error
					if _, err = AppendRequest(nil, r); err == nil {
						results := b.whole(reqs...)
						err = results[len(reqs)/2].Err
						if among && (results[0].Err != nil || results[2].Err != nil) {
							t.Fatalf("%d: the others: %+v", n, results)
						}
					}
					if err != nil && first < 0 {
						first = n
					}
					if err == nil && first >= 0 {
						t.Errorf("%d is refused and %d is not", first, n)
					}
				}
			}
			switch {
			case c.never && first >= 0:
				t.Errorf("%d was refused", first)
			case !c.never && (first <= c.from || first > c.to):
				t.Errorf("%d to %d: the first that was refused is %d", c.from, c.to, first)
			}
			want := b.dump()
			b.reopen()
			if got := b.dump(); got != want {
				t.Errorf("after a restart\n%s\nwas\n%s", got, want)
			}
		})
	}
}

// whole applies an entry in as many parts as it takes.
func (b *box) whole(reqs ...*Request) (out []Result) {
	b.t.Helper()
	data := group(b.t, GroupHeader{Proposer: 7, Sequence: b.index}, reqs...)
	b.index++
	for {
		o, err := b.apply(&raftpb.Entry{Term: new(uint64(1)), Index: new(b.index), Data: data}, b.index%2 == 0)
		if err != nil {
			b.t.Fatal(err)
		}
		out = append(out, o.Results...)
		if !o.More {
			b.commit()
			return out
		}
		b.index--
		b.commit()
		b.index++
	}
}

// TestMemberURLLimits: a change of the membership with URLs above the limits is refused where it is applied.
func TestMemberURLLimits(t *testing.T) {
	b := newBox(t)
	urls := func(n, length int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("http://%0*d:1", length-len("http://:1"), i))
		}
		return out
	}
	for i, c := range []struct {
		urls    []string
		refused bool
	}{
		{urls(cluster.MaxPeerURLs, 20), false}, {urls(cluster.MaxPeerURLs+1, 20), true}, {urls(2000, 20), true},
		{urls(1, cluster.MaxPeerURLBytes), false}, {urls(1, cluster.MaxPeerURLBytes+1), true},
	} {
		m := cluster.Member{ID: uint64(100 + i), PeerURLs: c.urls, Learner: true}
		cc, err := ConfChange(GroupHeader{Proposer: 7, Sequence: uint64(i)}, cluster.Change{Op: cluster.Add, Member: m}, auth.Identity{})
		if err != nil {
			t.Fatal(err)
		}
		data, err := proto.Marshal(cc)
		if err != nil {
			t.Fatal(err)
		}
		out := b.entry(raftpb.EntryConfChangeV2, data, true)
		if err := out.Results[0].Err; (err != nil) != c.refused {
			t.Errorf("%d urls of %d bytes: %v", len(c.urls), len(c.urls[0]), err)
		}
		b.commit()
		if !c.refused {
			cc, err := ConfChange(GroupHeader{Proposer: 7}, cluster.Change{Op: cluster.Remove, Member: m}, auth.Identity{})
			if err != nil {
				t.Fatal(err)
			}
			if data, err = proto.Marshal(cc); err != nil {
				t.Fatal(err)
			}
			b.entry(raftpb.EntryConfChangeV2, data, true)
			b.commit()
		}
	}
	b.reopen()
}
