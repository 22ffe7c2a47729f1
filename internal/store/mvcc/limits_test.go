package mvcc

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"vigil/internal/kv"
)

// TestAnswerMemory: the first records of an answer say nothing about the others, so an answer takes no more
// than a few times its bytes.
func TestAnswerMemory(t *testing.T) {
	b := newBed(t, Options{}, 0)
	defer b.close(t)
	w := b.Writer()
	for i := range 5000 {
		p := &kv.PutRequest{Key: fmt.Appendf(nil, "k%04d", i)}
		if i < 4 {
			p.Value = make([]byte, 60<<10)
		}
		if _, err := w.Put(p, nil); err != nil {
			t.Fatal(err)
		}
	}
	b.commit(t)
	check := func(what string, r *kv.Records) {
		t.Helper()
		if r.Len() != 5000 || cap(r.Buf) > 4*len(r.Buf) {
			t.Errorf("%s: %d records of %d bytes take %d", what, r.Len(), len(r.Buf), cap(r.Buf))
		}
	}
	all := &kv.RangeRequest{Key: []byte{0}, End: []byte{0}}
	res, err := b.Range(context.Background(), all)
	if err != nil {
		t.Fatal(err)
	}
	check("range", &res.KVs)
	txn, err := w.Txn(&kv.TxnRequest{Success: []kv.Op{{Range: all}, {Delete: &kv.DeleteRangeRequest{Key: []byte{0}, End: []byte{0}, PrevKV: true}}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	check("range in a txn", &txn.Responses[0].Range.KVs)
	check("previous pairs", &txn.Responses[1].Delete.PrevKVs)
	b.commit(t)
}

// TestNestedRanges: many ranges that are sorted, in many levels, end at the limit of visited keys.
func TestNestedRanges(t *testing.T) {
	b := newBed(t, Options{Limits: Limits{VisitedKeys: 1 << 14}}, 0)
	defer b.close(t)
	w := b.Writer()
	for i := range 1000 {
		if _, err := w.Put(&kv.PutRequest{Key: fmt.Appendf(nil, "k%04d", i)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	b.commit(t)
	sorted := kv.Op{Range: &kv.RangeRequest{Key: []byte{0}, End: []byte{0}, Sort: kv.SortByValue, Order: kv.SortDescend, Limit: 1, KeysOnly: true}}
	r := &kv.TxnRequest{Success: []kv.Op{{Put: &kv.PutRequest{Key: []byte("new")}}}}
	for range 60 {
		r = &kv.TxnRequest{Success: []kv.Op{{Put: &kv.PutRequest{Key: []byte("other")}}, sorted, {Txn: r}}}
	}
	for _, discard := range []bool{false, true} {
		w.Discard(discard)
		before := b.Counts()
		var limit *kv.LimitError
		if _, err := w.Txn(r, nil); !errors.As(err, &limit) || limit.Limit != 1<<14 {
			t.Errorf("discard %v: %v", discard, err)
		}
		b.commit(t)
		if b.Revision() != 1001 || b.Stats().Known != 1000 || b.Counts().Puts != before.Puts {
			t.Errorf("discard %v: revision %d, %+v", discard, b.Revision(), b.Stats())
		}
	}
	// One that only reads ends with its client.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := b.ReadTxn(ctx, &kv.TxnRequest{Success: []kv.Op{{Range: &kv.RangeRequest{Key: []byte("k")}}}}); !errors.Is(err, context.Canceled) {
		t.Errorf("a read whose client has left: %v", err)
	}
}
