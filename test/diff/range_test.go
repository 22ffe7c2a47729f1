package diff

import (
	"math"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestByHand is the list of calls with the edges that somebody thought of. The groups share one
// pair of servers and see what the earlier ones left.
func TestByHand(t *testing.T) {
	t.Parallel()
	p := NewPair(t)
	for _, g := range []struct {
		name string
		list func(*testing.T, *Pair)
	}{
		{"empty store", emptyStore},
		{"put", puts},
		{"range", ranges},
		{"sorts", sorts},
		{"delete", deletes},
		{"txn", txns},
		{"txn checks", txnChecks},
		{"txn reads its writes", txnReads},
		{"compares", compares},
		{"compact", compactions},
		{"sizes", sizes},
		{"binary keys", binaryKeys},
		{"status", statuses},
		{"wire", wire},
		{"transport", transport},
	} {
		t.Run(g.name, func(t *testing.T) {
			p.t = t
			g.list(t, p)
			p.Sweep()
			p.Finish(t, &tally)
		})
	}
}

func emptyStore(_ *testing.T, p *Pair) {
	p.Do(get("a"))
	p.Do(scan("\x00", "\x00"))
	p.Do(scan("a", "b"))
	p.Do(with(get("a"), func(r *pb.RangeRequest) { r.Revision = 1 }))
	p.Do(with(get("a"), func(r *pb.RangeRequest) { r.Revision = 2 }))
	p.Do(with(get("a"), func(r *pb.RangeRequest) { r.CountOnly = true }))
	p.Do(del("a", ""))
	p.Do(del("\x00", "\x00"))
	p.Do(&pb.TxnRequest{})
	p.Do(then(get("a")))
	p.Do(then(del("a", "")))
	for _, rev := range []int64{-1, 0, 1, 2, 3, math.MaxInt64, math.MinInt64} {
		p.Do(&pb.CompactionRequest{Revision: rev})
	}
}

func puts(_ *testing.T, p *Pair) {
	p.Do(put("", "v"))
	p.Do(put("", ""))
	p.Do(put("p/a", ""))
	p.Do(put("p/a", "1"))
	p.Do(put("p/a", "1"))
	p.Do(with(put("p/a", "2"), func(r *pb.PutRequest) { r.PrevKv = true }))
	p.Do(with(put("p/new", "2"), func(r *pb.PutRequest) { r.PrevKv = true }))
	p.Do(with(put("p/a", "2"), func(r *pb.PutRequest) { r.Lease = 12345 }))
	p.Do(with(put("p/a", "2"), func(r *pb.PutRequest) { r.Lease = -1 }))
	p.Do(with(put("p/a", "2"), func(r *pb.PutRequest) { r.Lease = math.MinInt64 }))
	p.Do(with(put("p/a", "2"), func(r *pb.PutRequest) { r.Lease = math.MaxInt64; r.PrevKv = true }))
	for _, key := range []string{"p/a", "p/none", ""} {
		for _, value := range []string{"", "x"} {
			for _, lease := range []int64{0, 7} {
				for bits := range 8 {
					p.Do(&pb.PutRequest{Key: []byte(key), Value: []byte(value), Lease: lease,
						PrevKv: bits&1 != 0, IgnoreValue: bits&2 != 0, IgnoreLease: bits&4 != 0})
				}
			}
		}
	}
	p.Do(del("p/a", ""))
	p.Do(&pb.PutRequest{Key: []byte("p/a"), IgnoreValue: true})
	p.Do(&pb.PutRequest{Key: []byte("p/a"), Value: []byte("v"), IgnoreLease: true})
	p.Do(&pb.PutRequest{Key: []byte("p/a"), Value: []byte("v"), PrevKv: true})
	p.Do(&pb.PutRequest{Key: []byte("p/a"), IgnoreValue: true, IgnoreLease: true, PrevKv: true})
	p.Do(get("p/a"))
}

func ranges(_ *testing.T, p *Pair) {
	var revs []int64
	note := func() { revs = append(revs, p.Rev) }
	for _, k := range []string{"r/a", "r/b", "r/c", "r/b", "r/d", "r/a"} {
		p.Do(put(k, "v"+k))
		note()
	}
	p.Do(del("r/b", ""))
	note()
	p.Do(put("r/b", "again"))
	note()

	ends := []string{"", "\x00", "r", "r/", "r/a", "r/b", "r/c", "r/c\x00", "r/zzz", "r0", "s",
		"\xff", "\x00\x00"}
	for _, key := range []string{"r/a", "r/b", "r/c", "r/none", "r/", "r", "\x00", "\xff", ""} {
		for _, end := range ends {
			p.Do(scan(key, end))
		}
	}
	for _, rev := range append(revs, -1, 0, 1, p.Rev, p.Rev+1, p.Rev+100, math.MaxInt64,
		math.MinInt64) {
		for _, key := range []string{"r/a", "r/b", "r/none"} {
			p.Do(with(get(key), func(r *pb.RangeRequest) { r.Revision = rev }))
		}
		p.Do(with(scan("r/", "r0"), func(r *pb.RangeRequest) { r.Revision = rev }))
		p.Do(with(scan("r/", "r0"),
			func(r *pb.RangeRequest) { r.Revision = rev; r.Serializable = true }))
		p.Do(with(scan("r/", "r0"),
			func(r *pb.RangeRequest) { r.Revision = rev; r.CountOnly = true }))
		p.Do(with(scan("r/", "r0"), func(r *pb.RangeRequest) { r.Revision = rev; r.Limit = 2 }))
		// An inverted range at a revision that does not exist: which of the two is noticed?
		p.Do(with(scan("r0", "r/"), func(r *pb.RangeRequest) { r.Revision = rev }))
	}
	for _, limit := range []int64{math.MinInt64, -1, 0, 1, 2, 3, 4, 5, 6, math.MaxInt64} {
		for bits := range 8 {
			p.Do(with(scan("r/", "r0"), func(r *pb.RangeRequest) {
				r.Limit = limit
				r.KeysOnly, r.CountOnly, r.Serializable = bits&1 != 0, bits&2 != 0, bits&4 != 0
			}))
			p.Do(with(get("r/a"), func(r *pb.RangeRequest) {
				r.Limit = limit
				r.KeysOnly, r.CountOnly, r.Serializable = bits&1 != 0, bits&2 != 0, bits&4 != 0
			}))
		}
	}
	// The revision filters, each alone and in pairs, with bounds around what exists.
	bounds := []int64{math.MinInt64, -1, 1, revs[0], revs[1], revs[3], revs[4], revs[7],
		p.Rev + 1, math.MaxInt64}
	for _, b := range bounds {
		for i, set := range []func(*pb.RangeRequest){
			func(r *pb.RangeRequest) { r.MinModRevision = b },
			func(r *pb.RangeRequest) { r.MaxModRevision = b },
			func(r *pb.RangeRequest) { r.MinCreateRevision = b },
			func(r *pb.RangeRequest) { r.MaxCreateRevision = b },
			func(r *pb.RangeRequest) { r.MinModRevision, r.MaxModRevision = b, b },
			func(r *pb.RangeRequest) { r.MinCreateRevision, r.MaxCreateRevision = b, b },
			func(r *pb.RangeRequest) { r.MinModRevision, r.MaxCreateRevision = b, b },
			func(r *pb.RangeRequest) { r.MaxModRevision, r.MinCreateRevision = b, b },
		} {
			p.Do(with(scan("r/", "r0"), set))
			p.Do(with(with(scan("r/", "r0"), set),
				func(r *pb.RangeRequest) { r.Limit = int64(1 + i%3) }))
			p.Do(with(with(scan("r/", "r0"), set), func(r *pb.RangeRequest) { r.CountOnly = true }))
			p.Do(with(with(scan("r/", "r0"), set),
				func(r *pb.RangeRequest) { r.Revision = revs[4]; r.KeysOnly = true }))
		}
	}
}

func sorts(_ *testing.T, p *Pair) {
	// Values, versions and revisions come in different orders, and some are equal.
	for _, kv := range []string{"d 5", "a 3", "c 3", "b 9", "a 3", "e", "c 1", "b 9",
		"b 0", "f 5"} {
		k, v, _ := strings.Cut(kv, " ")
		p.Do(put("s/"+k, v))
	}
	rev := p.Rev
	p.Do(put("s/a", "7"))
	p.Do(del("s/d", ""))
	all := func(change func(*pb.RangeRequest)) {
		for _, order := range []pb.RangeRequest_SortOrder{0, 1, 2} {
			for _, target := range []pb.RangeRequest_SortTarget{0, 1, 2, 3, 4} {
				for _, limit := range []int64{0, 1, 3, 5, 6, 7, -2} {
					p.Do(with(with(scan("s/", "s0"), change), func(r *pb.RangeRequest) {
						r.SortOrder, r.SortTarget, r.Limit = order, target, limit
					}))
				}
			}
		}
	}
	all(func(*pb.RangeRequest) {})
	all(func(r *pb.RangeRequest) { r.Revision = rev })
	all(func(r *pb.RangeRequest) { r.KeysOnly = true })
	all(func(r *pb.RangeRequest) { r.CountOnly = true })
	all(func(r *pb.RangeRequest) { r.MinModRevision = rev - 4; r.MaxModRevision = rev })
	all(func(r *pb.RangeRequest) { r.MaxCreateRevision = rev - 4; r.KeysOnly = true; r.Serializable = true })
	for _, n := range []int32{-1, 3, 5, 99, math.MaxInt32, math.MinInt32} {
		p.Do(with(scan("s/", "s0"),
			func(r *pb.RangeRequest) { r.SortOrder = pb.RangeRequest_SortOrder(n) }))
		p.Do(with(scan("s/", "s0"),
			func(r *pb.RangeRequest) { r.SortTarget = pb.RangeRequest_SortTarget(n) }))
		p.Do(with(scan("", "s0"),
			func(r *pb.RangeRequest) { r.SortTarget = pb.RangeRequest_SortTarget(n) }))
	}
}

func deletes(_ *testing.T, p *Pair) {
	fill := func() {
		for _, k := range []string{"d/a", "d/b", "d/c", "d/d"} {
			p.Do(put(k, "v"+k))
		}
	}
	prev := func(r *pb.DeleteRangeRequest) { r.PrevKv = true }
	fill()
	p.Do(del("", ""))
	p.Do(del("", "z"))
	p.Do(del("d/none", ""))
	p.Do(with(del("d/none", ""), prev))
	p.Do(del("d/c", "d/a"))
	p.Do(del("d/c", "d/c"))
	p.Do(del("d/b", "d/c"))
	p.Do(with(del("d/b", "d/c"), prev))
	p.Do(with(del("d/a", ""), prev))
	p.Do(with(del("d/a", ""), prev))
	fill()
	p.Do(with(del("d/b", "d/d"), prev))
	p.Do(with(del("d/", "d0"), prev))
	p.Do(with(del("d/", "d0"), prev))
	fill()
	p.Do(with(del("d/", "\x00"), prev)) // from a key on: all later keys of the earlier groups
	p.Do(scan("\x00", "\x00"))
	fill()
	p.Do(del("\x00", "\x00"))
	p.Do(scan("\x00", "\x00"))
	p.Do(put("d/a", "born again"))
	p.Do(get("d/a"))
}
