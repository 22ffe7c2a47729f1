package diff

import (
	"fmt"
	"math"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

func txns(_ *testing.T, p *Pair) {
	p.Do(&pb.TxnRequest{})
	p.Do(then(put("t/a", "1")))
	p.Do(then(put("t/a", "2"), put("t/b", "2"), put("t/c", "2")))
	p.Do(then(get("t/a"), scan("t/", "t0")))
	p.Do(then(del("t/none", "")))
	p.Do(then(del("t/none", ""), get("t/a")))
	p.Do(then(nil))
	p.Do(then(nil, put("t/x", "1")))
	p.Do(otherwise(nil))
	p.Do(otherwise(put("t/a", "else")))
	p.Do(otherwise())
	p.Do(&pb.TxnRequest{Compare: []*pb.Compare{cmpMod("t/a", pb.Compare_GREATER, 0)},
		Success: ops(put("t/a", "then")), Failure: ops(put("t/a", "else"))})
	p.Do(&pb.TxnRequest{Compare: []*pb.Compare{cmpMod("t/a", pb.Compare_EQUAL, 0)},
		Success: ops(put("t/a", "then")), Failure: ops(put("t/a", "else"), get("t/a"))})
	p.Do(&pb.TxnRequest{Compare: []*pb.Compare{cmpMod("", pb.Compare_EQUAL, 0)}})
	p.Do(&pb.TxnRequest{Compare: []*pb.Compare{{}}})

	// Nested transactions, each branch taken and not.
	inner := func(hit bool, reqs ...any) *pb.TxnRequest {
		if hit {
			return then(reqs...)
		}
		return otherwise(reqs...)
	}
	for bits := range 8 {
		p.Do(inner(bits&1 != 0,
			put("t/a", fmt.Sprint(bits)),
			inner(bits&2 != 0, put("t/b", fmt.Sprint(bits)), get("t/a"),
				inner(bits&4 != 0, put("t/c", fmt.Sprint(bits)), scan("t/", "t0"))),
			scan("t/", "t0")))
	}
	p.Do(then(then(then(then(then())))))
	p.Do(then(then(), otherwise(), then(get("t/a"))))
	p.Do(then(then(get("t/a")), otherwise(del("t/none", ""))))
	p.Do(then(then(nil)))
	// The compares of a nested transaction see the state before the outer one.
	p.Do(then(put("t/n", "1"), &pb.TxnRequest{
		Compare: []*pb.Compare{cmpMod("t/n", pb.Compare_EQUAL, 0)},
		Success: ops(put("t/m", "the key was not there")),
		Failure: ops(put("t/m", "the key was there")),
	}))
	p.Do(scan("t/", "t0"))
	p.Do(then(del("t/", "t0"), &pb.TxnRequest{
		Compare: []*pb.Compare{cmpMod("t/n", pb.Compare_GREATER, 0)},
		Success: ops(scan("t/", "t0")),
	}, scan("t/", "t0")))
	p.Do(scan("t/", "t0"))
}

// txnChecks is about transactions that are refused, or just not.
func txnChecks(_ *testing.T, p *Pair) {
	p.Do(put("u/a", "1"))
	p.Do(put("u/b", "1"))
	early := p.Rev
	p.Do(put("u/a", "2"))
	invalid := []any{
		put("", "v"), get(""), del("", ""),
		with(get("u/a"), func(r *pb.RangeRequest) { r.SortOrder = 9 }),
		with(get("u/a"), func(r *pb.RangeRequest) { r.SortTarget = -1 }),
		&pb.PutRequest{Key: []byte("u/a"), Value: []byte("v"), IgnoreValue: true},
		&pb.PutRequest{Key: []byte("u/a"), Lease: 1, IgnoreLease: true},
		&pb.PutRequest{Key: []byte("u/none"), IgnoreValue: true},
		&pb.PutRequest{Key: []byte("u/none"), IgnoreLease: true},
		&pb.PutRequest{Key: []byte("u/a"), IgnoreValue: true},
		&pb.PutRequest{Key: []byte("u/a"), Value: []byte("w"), IgnoreLease: true, PrevKv: true},
		&pb.PutRequest{Key: []byte("u/a"), Lease: 99},
		&pb.PutRequest{Key: []byte("u/none"), Lease: 99, IgnoreValue: true},
		with(get("u/a"), func(r *pb.RangeRequest) { r.Revision = math.MaxInt64 }),
		with(get("u/a"), func(r *pb.RangeRequest) { r.Revision = p.Rev + 2 }),
		with(get("u/a"), func(r *pb.RangeRequest) { r.Revision = -5 }),
		with(get("u/a"), func(r *pb.RangeRequest) { r.Revision = early }),
		&pb.TxnRequest{Compare: []*pb.Compare{{}}},
		nil,
	}
	for _, bad := range invalid {
		p.Do(then(bad))
		p.Do(then(put("u/x", "before"), bad))
		p.Do(then(bad, put("u/x", "after")))
		p.Do(otherwise(bad))
		// In a branch that is not taken.
		p.Do(with(then(put("u/x", "taken")), func(r *pb.TxnRequest) { r.Failure = ops(bad) }))
		p.Do(with(otherwise(put("u/x", "taken")), func(r *pb.TxnRequest) { r.Success = ops(bad) }))
		// Nested, in branches taken and not.
		p.Do(then(put("u/x", "outer"), then(bad)))
		p.Do(then(put("u/x", "outer"), otherwise(bad)))
		p.Do(then(put("u/x", "outer"),
			with(then(), func(r *pb.TxnRequest) { r.Failure = ops(bad) })))
		p.Do(then(then(put("u/x", "inner")), otherwise(otherwise(bad))))
	}
	// The next revision is not there yet for a range of the same transaction.
	for _, d := range []int64{-1, 0, 1, 2} {
		at := func(r *pb.RangeRequest) { r.Revision = p.Rev + d }
		p.Do(then(put("u/y", "1"), with(get("u/y"), at)))
		p.Do(then(with(get("u/y"), at)))
		p.Do(then(put("u/y", "1"), then(with(scan("u/", "u0"), at))))
	}

	// The same key twice.
	for _, txn := range []*pb.TxnRequest{
		then(put("u/k", "1"), put("u/k", "2")),
		then(put("u/k", "1"), del("u/k", "")),
		then(del("u/k", ""), put("u/k", "1")),
		then(del("u/", "u0"), put("u/k", "1")),
		then(del("u/k", "u/k"), put("u/k", "1")),
		then(del("u/l", "u/k"), put("u/k", "1")),
		then(del("u/k", "u/l"), put("u/l", "1")),
		then(del("u/k", "\x00"), put("u/z", "1")),
		then(del("\x00", "\x00"), put("u/z", "1")),
		then(del("u/l", "\x00"), put("u/k", "1")),
		then(del("u/k", ""), del("u/k", "")),
		then(del("u/", "u0"), del("u/k", "")),
		then(del("u/", "u0"), del("u/", "u0"), del("u/a", "u/c")),
		then(put("u/k", "1"), get("u/k"), get("u/k")),
		then(put("u/k", "1"), then(put("u/k", "2"))),
		then(then(put("u/k", "2")), put("u/k", "1")),
		then(then(put("u/k", "1")), then(put("u/k", "2"))),
		then(then(put("u/k", "1")), otherwise(put("u/k", "2"))),
		then(put("u/k", "1"), otherwise(put("u/k", "2"))),
		then(with(then(put("u/k", "1")),
			func(r *pb.TxnRequest) { r.Failure = ops(put("u/k", "2")) })),
		then(with(then(put("u/k", "1")),
			func(r *pb.TxnRequest) { r.Failure = ops(put("u/k", "2")) }), put("u/k", "3")),
		then(with(then(put("u/k", "1")),
			func(r *pb.TxnRequest) { r.Failure = ops(put("u/k", "2"), put("u/k", "3")) })),
		with(then(put("u/k", "1")), func(r *pb.TxnRequest) { r.Failure = ops(put("u/k", "2")) }),
		with(then(put("u/k", "1")),
			func(r *pb.TxnRequest) { r.Failure = ops(put("u/j", "2"), put("u/j", "2")) }),
		with(otherwise(put("u/k", "1")),
			func(r *pb.TxnRequest) { r.Success = ops(put("u/j", "2"), del("u/j", "")) }),
		then(put("u/k", "1"), then(del("u/k", ""))),
		then(then(del("u/k", "")), put("u/k", "1")),
		then(then(del("u/", "u0")), put("u/k", "1")),
		then(otherwise(del("u/", "u0")), put("u/k", "1")),
		then(del("u/", "u0"), then(put("u/k", "1"))),
		then(del("u/", "u0"), otherwise(put("u/k", "1"))),
		then(then(del("u/k", "")), then(put("u/k", "1"))),
		then(then(put("u/k", "1")), then(del("u/k", ""))),
		then(then(del("u/k", "")), otherwise(put("u/k", "1"))),
		then(with(then(put("u/k", "1")),
			func(r *pb.TxnRequest) { r.Failure = ops(del("u/k", "")) })),
		then(with(then(del("u/k", "")),
			func(r *pb.TxnRequest) { r.Failure = ops(put("u/k", "1")) })),
		then(then(then(put("u/k", "1"))), then(then(put("u/k", "1")))),
		then(then(then(put("u/k", "1")), del("u/k", ""))),
		then(then(then(del("u/k", ""))), put("u/k", "1")),
	} {
		p.Do(txn)
		p.Do(scan("u/", "u0"))
	}

	// The number of operations per level.
	many := func(n int, prefix string) []any {
		var out []any
		for i := range n {
			out = append(out, put(fmt.Sprintf("%s%03d", prefix, i), "v"))
		}
		return out
	}
	gets := func(n int) []any {
		var out []any
		for range n {
			out = append(out, get("u/a"))
		}
		return out
	}
	compares := func(n int) []*pb.Compare {
		var out []*pb.Compare
		for range n {
			out = append(out, cmpMod("u/a", pb.Compare_GREATER, 0))
		}
		return out
	}
	for _, n := range []int{127, 128, 129, 500} {
		p.Do(then(many(n, "u/many")...))
		p.Do(then(gets(n)...))
		p.Do(otherwise(gets(n)...))
		p.Do(&pb.TxnRequest{Compare: compares(n)})
		p.Do(with(then(gets(1)...), func(r *pb.TxnRequest) { r.Failure = ops(gets(n)...) }))
	}
	for _, n := range []int{1, 64, 126, 127, 128} {
		p.Do(then(then(gets(n)...)))
		p.Do(then(append(gets(n-1), then(get("u/a")))...))
		p.Do(then(append(gets(n-1), then(gets(128-n)...))...))
		p.Do(then(append(gets(n-1), then(gets(129-n)...))...))
		p.Do(&pb.TxnRequest{Compare: compares(n), Success: ops(then(gets(128 - n)...))})
		p.Do(&pb.TxnRequest{Compare: compares(n), Success: ops(then(gets(129 - n)...))})
		p.Do(&pb.TxnRequest{Compare: compares(n),
			Success: ops(&pb.TxnRequest{Compare: compares(128 - n)})})
		p.Do(&pb.TxnRequest{Compare: compares(n),
			Success: ops(&pb.TxnRequest{Compare: compares(129 - n)})})
	}
	// Siblings do not count together; depth does.
	p.Do(then(then(gets(126)...), then(gets(126)...)))
	p.Do(then(then(gets(127)...), then(gets(127)...)))
	deep := func(n int, leaf any) *pb.TxnRequest {
		txn := then(leaf)
		for range n - 1 {
			txn = then(txn)
		}
		return txn
	}
	for _, n := range []int{2, 20, 100, 127, 128, 129, 140} {
		p.Do(deep(n, get("u/a")))
		p.Do(deep(n, put("u/deep", fmt.Sprint(n))))
	}
	// Which of two faults is named.
	p.Do(then(append(many(128, "u/many"), put("", ""))...))
	p.Do(then(put("u/k", "1"), put("u/k", "1"), put("", "")))
	p.Do(then(put("u/k", "1"), put("u/k", "1"), &pb.PutRequest{Key: []byte("u/l"), Lease: 5}))
	p.Do(then(&pb.PutRequest{Key: []byte("u/l"), Lease: 5},
		&pb.PutRequest{Key: []byte("u/none"), IgnoreValue: true}))
	p.Do(then(&pb.PutRequest{Key: []byte("u/none"), IgnoreValue: true},
		&pb.PutRequest{Key: []byte("u/l"), Lease: 5}))
	p.Do(then(&pb.PutRequest{Key: []byte("u/l"), Lease: 5},
		with(get("u/a"), func(r *pb.RangeRequest) { r.Revision = math.MaxInt64 })))
	p.Do(then(&pb.PutRequest{Key: []byte("u/none"), Lease: 5, IgnoreValue: true}))
	p.Do(del("u/", "u0"))
}

// txnReads is about what the operations of one transaction see of each other.
func txnReads(_ *testing.T, p *Pair) {
	prevPut := func(k, v string) *pb.PutRequest {
		return with(put(k, v), func(r *pb.PutRequest) { r.PrevKv = true })
	}
	prevDel := func(k, end string) *pb.DeleteRangeRequest {
		return with(del(k, end), func(r *pb.DeleteRangeRequest) { r.PrevKv = true })
	}
	for range 2 {
		p.Do(then(get("w/a"), prevPut("w/a", "1"), get("w/a"), scan("w/", "w0"),
			prevPut("w/b", "1"), scan("w/", "w0")))
		p.Do(then(prevPut("w/a", "2"),
			with(get("w/a"), func(r *pb.RangeRequest) { r.Revision = p.Rev })))
		p.Do(then(prevDel("w/a", ""), get("w/a"), prevDel("w/a", ""), scan("w/", "w0")))
		p.Do(then(put("w/c", "1"), put("w/d", "2"), prevDel("w/a", "w/c"), scan("w/", "w0"),
			with(scan("w/", "w0"), func(r *pb.RangeRequest) { r.CountOnly = true }),
			with(scan("w/", "w0"),
				func(r *pb.RangeRequest) { r.Limit = 1; r.SortOrder = pb.RangeRequest_DESCEND }),
			with(scan("w/", "w0"),
				func(r *pb.RangeRequest) { r.SortTarget = pb.RangeRequest_MOD; r.SortOrder = pb.RangeRequest_DESCEND }),
			with(scan("w/", "w0"), func(r *pb.RangeRequest) { r.MinModRevision = p.Rev + 1 })))
		p.Do(then(prevDel("w/", "w0"), prevDel("w/", "w0"), scan("w/", "w0")))
		p.Do(then(put("w/a", "1"),
			then(get("w/a"), put("w/b", "1"), then(scan("w/", "w0"), prevDel("w/z", "w0"))),
			scan("w/", "w0")))
		p.Do(then(&pb.PutRequest{Key: []byte("w/a"), IgnoreValue: true, PrevKv: true}, get("w/a")))
		p.Do(then(put("w/e", "1"), del("w/b", ""), del("w/b", "")))
		p.Do(scan("w/", "w0"))
	}
	// ignore_value of a key that only this transaction deletes or makes.
	p.Do(then(del("w/a", ""), then(&pb.PutRequest{Key: []byte("w/q"), IgnoreValue: true})))
	p.Do(then(put("w/q", "1"), then(&pb.PutRequest{Key: []byte("w/r"), IgnoreValue: true})))
	p.Do(del("w/", "w0"))
}

func compares(_ *testing.T, p *Pair) {
	p.Do(put("c/a", "1"))
	rev := p.Rev
	p.Do(put("c/b", "2"))
	p.Do(put("c/a", "1"))
	p.Do(put("c/e", ""))
	test := func(c ...*pb.Compare) {
		p.Do(&pb.TxnRequest{Compare: c, Success: ops(get("c/a")), Failure: ops(get("c/b"))})
	}
	targets := []pb.Compare_CompareTarget{pb.Compare_VERSION, pb.Compare_CREATE, pb.Compare_MOD,
		pb.Compare_LEASE}
	results := []pb.Compare_CompareResult{pb.Compare_EQUAL, pb.Compare_GREATER, pb.Compare_LESS,
		pb.Compare_NOT_EQUAL}
	for _, r := range results {
		for _, key := range []string{"c/a", "c/none"} {
			for _, target := range targets {
				for _, n := range []int64{math.MinInt64, -1, 0, 1, 2, rev, rev + 2, math.MaxInt64} {
					test(cmpNumber(key, target, r, n))
				}
			}
			for _, v := range []string{"", "0", "1", "1\x00", "2"} {
				test(cmpValue(key, r, v))
			}
			// The union holds another kind than the target names, or nothing.
			for _, target := range append(targets, pb.Compare_VALUE) {
				c := cmpNumber(key, pb.Compare_LEASE, r, 1)
				c.Target = target
				test(c)
				c = cmpValue(key, r, "1")
				c.Target = target
				test(c)
				test(&pb.Compare{Key: []byte(key), Target: target, Result: r})
			}
		}
		// Ranges: some, all and none of the keys hold; and none at all.
		for _, end := range []string{"c0", "c/b", "\x00", "c/", "b"} {
			for _, start := range []string{"c/", "c/a", "c/b", "c/x", "d"} {
				for _, n := range []int64{0, 1, 2, rev} {
					c := cmpNumber(start, pb.Compare_MOD, r, n)
					c.RangeEnd = []byte(end)
					test(c)
				}
				c := cmpValue(start, r, "1")
				c.RangeEnd = []byte(end)
				test(c)
				c = cmpNumber(start, pb.Compare_VERSION, r, 1)
				c.RangeEnd = []byte(end)
				test(c)
			}
		}
		test(cmpValue("c/e", r, ""))
	}
	// Several compares, and numbers outside of the enumerations.
	test(cmpMod("c/a", pb.Compare_GREATER, 0), cmpMod("c/b", pb.Compare_GREATER, 0))
	test(cmpMod("c/a", pb.Compare_GREATER, 0), cmpMod("c/none", pb.Compare_GREATER, 0))
	test(cmpMod("c/a", pb.Compare_GREATER, 0), cmpMod("", pb.Compare_GREATER, 0))
	for _, n := range []int32{-1, 4, 5, 99, math.MaxInt32} {
		for _, key := range []string{"c/a", "c/none"} {
			test(&pb.Compare{Key: []byte(key), Target: pb.Compare_CompareTarget(n),
				TargetUnion: &pb.Compare_Version{Version: 1}})
			test(&pb.Compare{Key: []byte(key), Result: pb.Compare_CompareResult(n),
				TargetUnion: &pb.Compare_Version{Version: 1}})
			test(&pb.Compare{Key: []byte(key), Target: pb.Compare_VALUE,
				Result: pb.Compare_CompareResult(n)})
			for _, r := range results {
				test(&pb.Compare{Key: []byte(key), Target: pb.Compare_CompareTarget(n), Result: r,
					TargetUnion: &pb.Compare_Version{Version: 0}})
			}
		}
	}
}

func compactions(_ *testing.T, p *Pair) {
	var revs []int64
	for i := range 10 {
		p.Do(put("k/"+string(rune('a'+i%3)), fmt.Sprint(i)))
		revs = append(revs, p.Rev)
	}
	p.Do(del("k/b", ""))
	revs = append(revs, p.Rev)
	p.Do(put("k/d", "new"))
	p.Do(del("k/c", ""))
	p.Do(put("k/c", "again"))
	top := p.Rev

	look := func() {
		for rev := revs[0] - 1; rev <= top+1; rev++ {
			at := func(r *pb.RangeRequest) { r.Revision = rev }
			p.Do(with(scan("k/", "k0"), at))
			p.Do(with(get("k/b"), at))
			p.Do(with(scan("k/", "k0"), func(r *pb.RangeRequest) { at(r); r.CountOnly = true }))
			p.Do(then(with(get("k/b"), at)))
			p.Do(then(put("k/t", "1"), with(get("k/b"), at)))
			p.Do(then(put("k/t", "1"), then(with(get("k/b"), at))))
			p.Do(then(put("k/t", "1"), otherwise(with(get("k/b"), at))))
			p.Do(otherwise(with(get("k/b"), at)))
			p.Do(with(then(), func(r *pb.TxnRequest) { r.Failure = ops(with(get("k/b"), at)) }))
		}
		p.Do(with(scan("k0", "k/"), func(r *pb.RangeRequest) { r.Revision = revs[0] }))
		p.Do(with(scan("k/", "k0"), func(r *pb.RangeRequest) { r.Revision = 1 }))
		p.Do(with(get(""), func(r *pb.RangeRequest) { r.Revision = 1 }))
	}
	for _, rev := range []int64{math.MinInt64, -1, 0, top + 1000, math.MaxInt64} {
		p.Do(&pb.CompactionRequest{Revision: rev})
		p.Do(&pb.CompactionRequest{Revision: rev, Physical: true})
	}
	p.Do(&pb.CompactionRequest{Revision: revs[3]})
	p.Do(&pb.CompactionRequest{Revision: revs[3]})
	p.Do(&pb.CompactionRequest{Revision: revs[3], Physical: true})
	p.Do(&pb.CompactionRequest{Revision: revs[2]})
	p.Do(&pb.CompactionRequest{Revision: -1})
	look()
	p.Do(&pb.CompactionRequest{Revision: revs[10], Physical: true}) // the revision of a deletion
	look()
	p.Do(&pb.CompactionRequest{Revision: p.Rev + 1})
	p.Do(&pb.CompactionRequest{Revision: p.Rev, Physical: true})
	p.Do(&pb.CompactionRequest{Revision: p.Rev})
	p.Do(scan("k/", "k0"))
	p.Do(with(scan("k/", "k0"), func(r *pb.RangeRequest) { r.Revision = p.Rev }))
	p.Do(with(scan("k/", "k0"), func(r *pb.RangeRequest) { r.Revision = p.Rev - 1 }))
	p.Do(del("k/", "k0"))
	p.Do(&pb.CompactionRequest{Revision: p.Rev, Physical: true})
	p.Do(with(scan("k/", "k0"), func(r *pb.RangeRequest) { r.Revision = p.Rev }))
	p.Do(put("k/b", "a new life"))
	p.Do(get("k/b"))
	p.Do(&pb.CompactionRequest{Revision: p.Rev})
	// What a put and a delete find below the compaction.
	p.Do(with(put("k/b", "2"), func(r *pb.PutRequest) { r.PrevKv = true }))
	p.Do(with(del("k/b", ""), func(r *pb.DeleteRangeRequest) { r.PrevKv = true }))
}

// TestCrashOfEtcd: a stock etcd accepts a transaction that deletes a key by a range without end and
// then puts it with ignore_value, and panics when it applies it. The subject rejects it, and the
// suite does not take the crash for a difference, which random requests may cause too.
func TestCrashOfEtcd(t *testing.T) {
	t.Parallel()
	p := NewPair(t)
	p.Do(put("a", "1"))
	keep := &pb.PutRequest{Key: []byte("a"), IgnoreValue: true}
	o, found := p.call(NewCall(then(del("a", "\x00"), keep)))
	if len(found) == 0 || !p.etcdDied(o) {
		t.Fatalf("etcd survives: %v, %v", o.Status, found)
	}
	p.Finish(t, &tally)
	if o := invoke(t.Context(), p.Subject.Conn,
		NewCall(&pb.RangeRequest{Key: []byte("a")})); o.Resp == nil ||
		o.Resp.(*pb.RangeResponse).Count != 1 {
		t.Errorf("%v", o)
	}
}
