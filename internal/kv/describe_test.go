package kv

import (
	"strings"
	"testing"
)

func TestDescribe(t *testing.T) {
	secret := []byte("hunter2")
	put := &PutRequest{Key: []byte("a\x00"), Value: secret, Lease: 7, IgnoreLease: true}
	txn := &TxnRequest{
		Compare: []Compare{{Key: []byte("c"), Target: CompareValue, Value: secret}, {Key: []byte("d"), End: []byte("e"), Result: Less, Number: 3}},
		Success: []Op{{Put: put}, {Txn: &TxnRequest{Failure: []Op{{Delete: &DeleteRangeRequest{Key: []byte("x"), PrevKV: true}}}}}},
		Failure: []Op{{}, {Range: &RangeRequest{Key: []byte("r"), CountOnly: true}}},
	}
	for _, c := range []struct {
		request interface{ Describe() string }
		want    string
	}{
		{&RangeRequest{Key: []byte("a"), End: []byte("b"), Limit: 5, Revision: 9, Sort: SortByMod, Order: SortDescend, Serializable: true},
			`key:"a" range_end:"b" limit:5 revision:9 sort_order:2 sort_target:3 serializable:true`},
		{put, `key:"a\x00" value_size:7 lease:7 ignore_lease:true`},
		{&CompactRequest{Revision: 3, Physical: true}, `revision:3 physical:true`},
		{txn, `compare:<target:3 result:0 key:"c" value_size:7> compare:<target:0 result:2 key:"d" range_end:"e" number:3> ` +
			`success:<request_put:<key:"a\x00" value_size:7 lease:7 ignore_lease:true> ` +
			`request_txn:<success:<> failure:<request_delete_range:<key:"x" prev_kv:true>>>> ` +
			`failure:< request_range:<key:"r" count_only:true>>`},
	} {
		if got := c.request.Describe(); got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}

// However large a request is, its description is not.
func TestDescribeBounded(t *testing.T) {
	long := []byte(strings.Repeat("k", 1<<20))
	txn := &TxnRequest{}
	for range 10_000 {
		txn.Compare = append(txn.Compare, Compare{Key: long})
		txn.Success = append(txn.Success, Op{Put: &PutRequest{Key: long}})
	}
	for _, r := range []interface{ Describe() string }{txn, &TxnRequest{Failure: txn.Success}, txn.Success[0].Put, &RangeRequest{Key: long, End: long}} {
		if d := r.Describe(); len(d) > maxDescription+3 || !strings.HasSuffix(d, "...") && !strings.Contains(d, `"...`) {
			t.Errorf("%d bytes: %s", len(d), d)
		}
	}
}
