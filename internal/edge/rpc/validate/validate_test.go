package validate

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"vigil/internal/kv"
)

func b(s string) []byte { return []byte(s) }

func opPut(key string) kv.Op { return kv.Op{Put: &kv.PutRequest{Key: b(key)}} }
func opGet(key string) kv.Op { return kv.Op{Range: &kv.RangeRequest{Key: b(key)}} }
func opDel(key, end string) kv.Op {
	return kv.Op{Delete: &kv.DeleteRangeRequest{Key: b(key), End: b(end)}}
}
func opTxn(success, failure []kv.Op) kv.Op {
	return kv.Op{Txn: &kv.TxnRequest{Success: success, Failure: failure}}
}

func TestCheck(t *testing.T) {
	for i, c := range []struct {
		err, want error
	}{
		{Range(&kv.RangeRequest{}), rpctypes.ErrGRPCEmptyKey},
		{Range(&kv.RangeRequest{End: b("z"), Sort: 9}), rpctypes.ErrGRPCEmptyKey},
		{Range(&kv.RangeRequest{Key: b("k"), Sort: 5}), rpctypes.ErrGRPCInvalidSortOption},
		{Range(&kv.RangeRequest{Key: b("k"), Sort: -1}), rpctypes.ErrGRPCInvalidSortOption},
		{Range(&kv.RangeRequest{Key: b("k"), Order: 3}), rpctypes.ErrGRPCInvalidSortOption},
		{Range(&kv.RangeRequest{Key: b("k"), Order: -1}), rpctypes.ErrGRPCInvalidSortOption},
		{Range(&kv.RangeRequest{Key: b("k"), End: b("a"), Limit: -5, Revision: -7,
			Sort: kv.SortByValue, Order: kv.SortDescend}), nil},
		{Put(&kv.PutRequest{Value: b("v"), IgnoreValue: true}), rpctypes.ErrGRPCEmptyKey},
		{Put(&kv.PutRequest{Key: b("k"), Value: b("v"), IgnoreValue: true, Lease: 1,
			IgnoreLease: true}), rpctypes.ErrGRPCValueProvided},
		{Put(&kv.PutRequest{Key: b("k"), Lease: -1, IgnoreLease: true}),
			rpctypes.ErrGRPCLeaseProvided},
		{Put(&kv.PutRequest{Key: b("k"), IgnoreValue: true, IgnoreLease: true, Lease: 0}), nil},
		{Delete(&kv.DeleteRangeRequest{End: b("z")}), rpctypes.ErrGRPCEmptyKey},
		{Delete(&kv.DeleteRangeRequest{Key: b("z"), End: b("a")}), nil},
	} {
		if c.err != c.want {
			t.Errorf("case %d: %v, want %v", i, c.err, c.want)
		}
	}
}

func TestCheckTxn(t *testing.T) {
	many := func(n int) (list []kv.Op) {
		for i := range n {
			list = append(list, opPut(fmt.Sprint("m", i)))
		}
		return list
	}
	nested := func(depth int) kv.Op {
		op := opTxn(nil, nil)
		for range depth - 1 {
			op = opTxn([]kv.Op{op}, nil)
		}
		return op
	}
	dup, ops, key := rpctypes.ErrGRPCDuplicateKey, rpctypes.ErrGRPCTooManyOps,
		rpctypes.ErrGRPCEmptyKey
	for i, c := range []struct {
		r    kv.TxnRequest
		want error
	}{
		{kv.TxnRequest{}, nil},
		{kv.TxnRequest{Compare: []kv.Compare{{}}}, key},
		{kv.TxnRequest{Compare: []kv.Compare{{Key: b("k"), Target: 9, Result: 9}}}, nil},
		{kv.TxnRequest{Success: []kv.Op{{}}}, rpctypes.ErrGRPCKeyNotFound},
		{kv.TxnRequest{Failure: []kv.Op{{}}}, rpctypes.ErrGRPCKeyNotFound},
		{kv.TxnRequest{Success: []kv.Op{opPut("")}}, key},
		{kv.TxnRequest{Success: []kv.Op{opGet("")}}, key},
		{kv.TxnRequest{Success: []kv.Op{opDel("", "b")}}, key},
		{kv.TxnRequest{Success: []kv.Op{opTxn(nil, []kv.Op{opPut("")})}}, key},
		// The first wrong thing in order counts; all overlaps come after all else.
		{kv.TxnRequest{Compare: []kv.Compare{{}}, Success: many(129)}, ops},
		{kv.TxnRequest{Success: []kv.Op{opPut("a"), opPut("a"), {}}}, rpctypes.ErrGRPCKeyNotFound},
		// The number of operations on a level is that of its longest list; those nested in it get
		// what is left.
		{kv.TxnRequest{Success: many(128), Failure: many(128)}, nil},
		{kv.TxnRequest{Success: many(129)}, ops},
		{kv.TxnRequest{Failure: many(129)}, ops},
		{kv.TxnRequest{Compare: make([]kv.Compare, 129)}, ops},
		{kv.TxnRequest{Success: []kv.Op{opTxn(many(127), nil)}}, nil},
		{kv.TxnRequest{Success: []kv.Op{opTxn(many(128), nil)}}, ops},
		{kv.TxnRequest{Success: []kv.Op{nested(128)}}, nil},
		{kv.TxnRequest{Success: []kv.Op{nested(129)}}, ops},
		// Overlaps.
		{kv.TxnRequest{Success: []kv.Op{opPut("a"), opPut("b")},
			Failure: []kv.Op{opPut("a")}}, nil},
		{kv.TxnRequest{Success: []kv.Op{opPut("a"), opPut("a")}}, dup},
		{kv.TxnRequest{Failure: []kv.Op{opPut("a"), opPut("a")}}, dup},
		{kv.TxnRequest{Success: []kv.Op{opPut("a"), opDel("a", "")}}, dup},
		{kv.TxnRequest{Success: []kv.Op{opDel("a", ""), opPut("a")}}, dup},
		{kv.TxnRequest{Success: []kv.Op{opDel("a", ""), opDel("a", "c"), opGet("a")}}, nil},
		{kv.TxnRequest{Success: []kv.Op{opDel("a", "c"), opPut("b")}}, dup},
		{kv.TxnRequest{Success: []kv.Op{opDel("a", "c"), opPut("c")}}, nil},
		{kv.TxnRequest{Success: []kv.Op{opDel("c", "a"), opPut("b")}}, nil},
		{kv.TxnRequest{Success: []kv.Op{opDel("a", "\x00"), opPut("b")}}, nil},
		{kv.TxnRequest{Success: []kv.Op{opPut("a"), opTxn([]kv.Op{opPut("a")}, nil)}}, dup},
		{kv.TxnRequest{Success: []kv.Op{opTxn([]kv.Op{opPut("a")}, []kv.Op{opPut("a")})}}, nil},
		{kv.TxnRequest{Success: []kv.Op{opTxn([]kv.Op{opPut("a")}, nil),
			opTxn(nil, []kv.Op{opPut("a")})}}, dup},
		{kv.TxnRequest{Success: []kv.Op{opTxn([]kv.Op{opPut("a")}, []kv.Op{opDel("a", "")})}}, nil},
		{kv.TxnRequest{Success: []kv.Op{opTxn([]kv.Op{opDel("a", "")}, nil),
			opTxn([]kv.Op{opPut("a")}, nil)}}, dup},
		{kv.TxnRequest{Success: []kv.Op{opTxn([]kv.Op{opPut("a")}, nil),
			opTxn([]kv.Op{opDel("a", "")}, nil)}}, nil},
		{kv.TxnRequest{Success: []kv.Op{opDel("a", "b"),
			opTxn([]kv.Op{opTxn([]kv.Op{opPut("a")}, nil)}, nil)}}, dup},
	} {
		if err := Txn(&c.r, 128); err != c.want {
			t.Errorf("case %d: %v, want %v", i, err, c.want)
		}
	}
}

// dumbOverlap says the same as overlap by comparing everything with everything.
func dumbOverlap(ops []kv.Op) (puts []string, dels []kv.DeleteRangeRequest, ok bool) {
	hit := func(key string) bool {
		for _, d := range dels {
			if len(d.End) == 0 && key == string(d.Key) || len(d.End) > 0 && key >= string(d.Key) &&
				key < string(d.End) {
				return true
			}
		}
		return false
	}
	has := func(list []string, key string) bool {
		for _, k := range list {
			if k == key {
				return true
			}
		}
		return false
	}
	for _, op := range ops {
		if op.Delete != nil {
			dels = append(dels, *op.Delete)
		}
	}
	for _, op := range ops {
		if op.Txn == nil {
			continue
		}
		p1, d1, ok1 := dumbOverlap(op.Txn.Success)
		p2, d2, ok2 := dumbOverlap(op.Txn.Failure)
		if !ok1 || !ok2 {
			return nil, nil, false
		}
		for _, k := range p1 {
			if has(puts, k) || hit(k) {
				return nil, nil, false
			}
			puts = append(puts, k)
		}
		for _, k := range p2 {
			if has(puts, k) && !has(p1, k) || hit(k) {
				return nil, nil, false
			}
			if !has(puts, k) {
				puts = append(puts, k)
			}
		}
		dels = append(append(dels, d1...), d2...)
	}
	for _, op := range ops {
		if op.Put != nil {
			if has(puts, string(op.Put.Key)) || hit(string(op.Put.Key)) {
				return nil, nil, false
			}
			puts = append(puts, string(op.Put.Key))
		}
	}
	return puts, dels, true
}

func TestOverlapRandom(t *testing.T) {
	refused := 0
	for seed := range uint64(20000) {
		r := rand.New(rand.NewPCG(seed, 0))
		key := func() string {
			return string(rune('a'+r.IntN(26))) +
				[]string{"", "", "x"}[r.IntN(3)]
		}
		var list func(depth int) []kv.Op
		list = func(depth int) (ops []kv.Op) {
			for range r.IntN(4) {
				switch n := r.IntN(8); {
				case n < 3:
					ops = append(ops, opPut(key()))
				case n == 3:
					ops = append(ops, opGet(key()))
				case n == 4:
					ops = append(ops, opDel(key(), []string{"", key(), key(), "\x00"}[r.IntN(4)]))
				case depth > 0:
					ops = append(ops, opTxn(list(depth-1), list(depth-1)))
				}
			}
			return ops
		}
		ops := list(3)
		_, _, want := dumbOverlap(ops)
		_, err := overlap(ops)
		if (err == nil) != want {
			t.Fatalf("seed %d: %v, the model says %v", seed, err, want)
		}
		if !mayOverlap(ops) && !want {
			t.Fatalf("seed %d: an overlap was passed over", seed)
		}
		if !want {
			refused++
		}
	}
	if refused < 1000 || refused > 19000 {
		t.Errorf("%d of 20000 were refused", refused)
	}
}

// TestOverlapIsNotQuadratic: as many operations as fit into a message are checked in well under the
// time that a pair by pair comparison takes.
func TestOverlapIsNotQuadratic(t *testing.T) {
	n := 0
	next := func() string { n++; return fmt.Sprintf("%07d", n) }
	var list func(depth int) []kv.Op
	list = func(depth int) (ops []kv.Op) {
		for range 16 {
			if depth > 0 {
				ops = append(ops, opTxn(list(depth-1), nil))
			} else {
				ops = append(ops, opPut(next()), opDel(next(), ""))
			}
		}
		return ops
	}
	ops := list(3)
	began := time.Now()
	if _, err := overlap(ops); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("%d operations took %v", n, took)
	}
}

func TestSpans(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		var s spans
		var all []span
		for range r.IntN(20) {
			var run []span
			for range r.IntN(5) {
				sp := span{[]byte{byte(r.IntN(60))}, []byte{byte(r.IntN(60)), byte(r.IntN(2))}}
				run, all = append(run, sp), append(all, sp)
			}
			s.add(joinSpans(run))
			for i := 1; i < len(s.runs); i++ {
				if len(s.runs[i-1]) <= 2*len(s.runs[i]) {
					t.Fatalf("seed %d: run of %d before one of %d", seed, len(s.runs[i-1]),
						len(s.runs[i]))
				}
			}
		}
		for k := range 60 {
			for _, key := range [][]byte{{byte(k)}, {byte(k), 0}, {byte(k), 1}} {
				want := false
				for _, sp := range all {
					want = want || bytes.Compare(key, sp.from) >= 0 && bytes.Compare(key, sp.to) < 0
				}
				if s.has(string(key)) != want {
					t.Fatalf("seed %d: has(%x) is not %v", seed, key, want)
				}
			}
		}
	}
}

func TestPeerURLs(t *testing.T) {
	got, ok := PeerURLs([]string{" http://b:1", "HTTPS://a:2\n", "unix://c"})
	if want := []string{"http://b:1", "https://a:2", "unix://c"}; !ok || !slices.Equal(got, want) {
		t.Errorf("PeerURLs: %q, %v, want %q", got, ok, want)
	}
	for _, urls := range [][]string{nil, {""}, {"http://a"}, {"http://a:1/"}, {"ftp://a:1"},
		{"unix://"}, {"http://a:1", "a:1"}, slices.Repeat([]string{"http://a:1"}, maxPeerURLs+1)} {
		if got, ok := PeerURLs(urls); ok {
			t.Errorf("PeerURLs(%q): %q, want it rejected", urls, got)
		}
	}
}
