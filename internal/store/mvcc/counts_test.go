package mvcc

import (
	"testing"

	"vigil/internal/kv"
)

// TestCounts: ranges of a transaction that writes count where their results are needed, and so does a transaction of one write.
func TestCounts(t *testing.T) {
	b := newBed(t, Options{}, 0)
	defer b.close(t)
	w := b.Writer()
	get := kv.Op{Range: &kv.RangeRequest{Key: []byte("k")}}
	put := kv.Op{Put: &kv.PutRequest{Key: []byte("k")}}
	for _, discard := range []bool{true, false} {
		before := b.Counts()
		w.Discard(discard)
		if _, err := w.Txn(&kv.TxnRequest{Success: []kv.Op{get, put, get}}, nil); err != nil {
			t.Fatal(err)
		}
		b.commit(t)
		after, ranges, txns := b.Counts(), uint64(2), uint64(1)
		if discard {
			ranges, txns = 0, 0
		}
		if after.Ranges-before.Ranges != ranges || after.Puts-before.Puts != 1 || after.Txns-before.Txns != txns {
			t.Errorf("discard %v: %+v, before %+v", discard, after, before)
		}
	}
}
