package diff

import (
	"fmt"
	"math"
	"math/rand/v2"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// generator makes random requests over few keys, so that they meet. It knows roughly where the
// store stands, to aim at the edges.
type generator struct {
	rng *rand.Rand
	// keys and ends are what ranges are made of, and limit is the largest limit of one.
	keys, ends []string
	limit      int64
	// rev and compacted are the newest and the compact revision.
	rev, compacted int64
}

// narrow is a generator over few keys, so that most requests meet the same ones.
func narrow(seed, stream uint64, rev int64) *generator {
	return &generator{
		rng:   rand.New(rand.NewPCG(seed, stream)),
		keys:  []string{"a", "b", "c", "d", "e", "f", "aa", "ab", "b\x00", "\x00", "\xff"},
		ends:  []string{"", "", "\x00", "b", "c", "e", "g", "a\xff", "b\x00", "\xff\xff"},
		limit: 5,
		rev:   rev,
	}
}

// wide is a generator over n keys, so that ranges are long and the index is deep.
func wide(seed, stream uint64, rev int64, n int) *generator {
	g := &generator{rng: rand.New(rand.NewPCG(seed, stream)), limit: int64(n), rev: rev}
	for i := range n {
		g.keys = append(g.keys, fmt.Sprintf("k%05d", i))
	}
	g.ends = append([]string{"\x00", "k", "l"}, g.keys...)
	return g
}

var genValues = []string{"", "1", "2", "x", "longer value", "\x00\xff"}

func pick[T any](g *generator, from []T) T { return from[g.rng.IntN(len(from))] }

// one reports true once in n times.
func (g *generator) one(n int) bool { return g.rng.IntN(n) == 0 }

func (g *generator) key() []byte {
	if g.one(200) {
		return nil
	}
	return []byte(pick(g, g.keys))
}

func (g *generator) end() []byte {
	if g.one(2) {
		return nil
	}
	return []byte(pick(g, g.ends))
}

// revision is mostly one that can be read.
func (g *generator) revision() int64 {
	switch g.rng.IntN(12) {
	case 0:
		return g.compacted + g.rng.Int64N(3) - 1
	case 1:
		return g.rev + g.rng.Int64N(3)
	case 2:
		return pick(g, []int64{-1, 1, math.MaxInt64, math.MinInt64})
	case 3, 4, 5:
		return 0
	}
	return g.compacted + g.rng.Int64N(g.rev-g.compacted+1)
}

func (g *generator) get() *pb.RangeRequest {
	r := &pb.RangeRequest{Key: g.key(), RangeEnd: g.end(), Serializable: g.one(3),
		KeysOnly: g.one(5), CountOnly: g.one(5)}
	if g.one(2) {
		r.Revision = g.revision()
	}
	if g.one(3) {
		r.Limit = g.rng.Int64N(g.limit+1) - 1
	}
	if g.one(3) {
		r.SortOrder = pb.RangeRequest_SortOrder(g.rng.IntN(3))
		r.SortTarget = pb.RangeRequest_SortTarget(g.rng.IntN(5))
	}
	if g.one(6) {
		for _, f := range []*int64{&r.MinModRevision, &r.MaxModRevision, &r.MinCreateRevision,
			&r.MaxCreateRevision} {
			if g.one(2) {
				*f = g.revision()
			}
		}
	}
	return r
}

func (g *generator) put() *pb.PutRequest {
	r := &pb.PutRequest{Key: g.key(), PrevKv: g.one(3)}
	if g.one(8) {
		r.IgnoreValue = true
	}
	if !r.IgnoreValue || g.one(20) {
		r.Value = []byte(pick(g, genValues))
	}
	r.IgnoreLease = g.one(10)
	if g.one(60) {
		r.Lease = g.rng.Int64N(5) - 1
	}
	return r
}

func (g *generator) del() *pb.DeleteRangeRequest {
	r := &pb.DeleteRangeRequest{Key: g.key(), RangeEnd: g.end(), PrevKv: g.one(2)}
	if g.limit > 100 && len(r.RangeEnd) > 0 && !g.one(50) {
		// Over many keys most deletes take only some, or there are never many.
		i := g.rng.IntN(len(g.keys))
		r.Key, r.RangeEnd = []byte(g.keys[i]), []byte(g.keys[min(i+g.rng.IntN(30), len(g.keys)-1)])
	}
	return r
}

func (g *generator) compare() *pb.Compare {
	c := &pb.Compare{Key: g.key(), Result: pb.Compare_CompareResult(g.rng.IntN(4)),
		Target: pb.Compare_CompareTarget(g.rng.IntN(5))}
	if g.one(3) {
		c.RangeEnd = g.end()
	}
	if g.one(20) {
		return c
	}
	switch c.Target {
	case pb.Compare_VERSION:
		c.TargetUnion = &pb.Compare_Version{Version: g.rng.Int64N(4)}
	case pb.Compare_CREATE:
		c.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: g.revision()}
	case pb.Compare_MOD:
		c.TargetUnion = &pb.Compare_ModRevision{ModRevision: g.revision()}
	case pb.Compare_VALUE:
		c.TargetUnion = &pb.Compare_Value{Value: []byte(pick(g, genValues))}
	case pb.Compare_LEASE:
		c.TargetUnion = &pb.Compare_Lease{Lease: g.rng.Int64N(2)}
	}
	return c
}

// txnState is what the operations of one transaction must know of each other.
type txnState struct {
	// keys are those that no operation took yet.
	keys []string
	// ignoring is set once a put has ignore_value or ignore_lease, open once a delete reaches to
	// the end of the keys. A stock etcd overlooks that such a delete overlaps a put, and crashes
	// if the put then asks for what is deleted; so a transaction has one or the other.
	ignoring, open bool
}

func (s *txnState) take(key *[]byte) {
	if len(s.keys) > 0 {
		*key, s.keys = []byte(s.keys[0]), s.keys[1:]
	}
}

// txn makes a transaction. Keys that are put twice are mostly avoided, so that most of them pass
// the checks: each put takes the next key of a shuffled list.
func (g *generator) txn(depth int, st *txnState) *pb.TxnRequest {
	if st == nil {
		st = &txnState{}
		for _, i := range g.rng.Perm(len(g.keys))[:min(len(g.keys), 11)] {
			st.keys = append(st.keys, g.keys[i])
		}
	}
	r := &pb.TxnRequest{}
	for range g.rng.IntN(3) {
		r.Compare = append(r.Compare, g.compare())
	}
	branch := func() (out []*pb.RequestOp) {
		for range g.rng.IntN(4) {
			switch n := g.rng.IntN(10); {
			case n < 4:
				out = append(out, wrap(g.get()))
			case n < 7:
				out = append(out, wrap(g.txnPut(st)))
			case n < 8:
				out = append(out, wrap(g.txnDel(st)))
			case depth > 0:
				out = append(out, wrap(g.txn(depth-1, st)))
			}
		}
		return out
	}
	r.Success, r.Failure = branch(), branch()
	return r
}

func (g *generator) txnPut(st *txnState) *pb.PutRequest {
	p := g.put()
	if !g.one(15) {
		st.take(&p.Key)
	}
	if st.open {
		p.IgnoreValue, p.IgnoreLease = false, false
	}
	st.ignoring = st.ignoring || p.IgnoreValue || p.IgnoreLease
	return p
}

func (g *generator) txnDel(st *txnState) *pb.DeleteRangeRequest {
	d := g.del()
	if !g.one(4) {
		d.RangeEnd = nil
		st.take(&d.Key)
	}
	if string(d.RangeEnd) == "\x00" {
		if st.ignoring {
			d.RangeEnd = nil
		} else {
			st.open = true
		}
	}
	return d
}

func put(k, v string) *pb.PutRequest { return &pb.PutRequest{Key: []byte(k), Value: []byte(v)} }

// wrap makes an operation of a request.
func wrap(req proto.Message) *pb.RequestOp {
	switch r := req.(type) {
	case *pb.RangeRequest:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
	case *pb.PutRequest:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}}
	case *pb.DeleteRangeRequest:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}}
	case *pb.TxnRequest:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}}
	}
	return &pb.RequestOp{}
}

// next makes a request of any kind.
func (g *generator) next() proto.Message {
	switch n := g.rng.IntN(100); {
	case n < 30:
		return g.put()
	case n < 60:
		return g.get()
	case n < 70:
		return g.del()
	case n < 99:
		return g.txn(3, nil)
	}
	return &pb.CompactionRequest{Revision: g.revision(), Physical: g.one(2)}
}

// saw passes an answer to the generator.
func (g *generator) saw(req proto.Message, o Outcome, rev int64) {
	g.rev = rev
	if c, ok := req.(*pb.CompactionRequest); ok && o.Resp != nil {
		g.compacted = c.Revision
	}
}
