package mvcc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc/index"
	"vigil/internal/store/mvcc/record"
)

// TestVersionOverflow goes through the whole store: versions beyond the index's numbers are read
// from the records, for ranges and for compares, and survive a rebuild.
func TestVersionOverflow(t *testing.T) {
	b := newBed(t, Options{}, 0)
	w := b.Writer()
	put := func() {
		if _, err := w.Put(&kv.PutRequest{Key: []byte("k"), Value: []byte("v")}, nil); err != nil {
			t.Fatal(err)
		}
		b.commit(t)
	}
	put()
	e, _ := b.writer.index.Get("k")
	list := e.Changes()
	list.Set(0, index.NewPut(list.At(0).Rev(), math.MaxUint32-2)) // as if it had been put that often
	for range 5 {
		put()
	}
	check := func() {
		t.Helper()
		for _, r := range []*kv.RangeRequest{
			{Key: []byte("k")}, {Key: []byte("k"), KeysOnly: true},
			{Key: []byte("a"), End: []byte{0}, Sort: kv.SortByVersion, Order: kv.SortDescend},
		} {
			res, err := b.Range(context.Background(), r)
			if err != nil {
				t.Fatal(err)
			}
			kvs, err := plainKVs(res.KVs)
			if err != nil || len(kvs) != 1 || kvs[0].Version != math.MaxUint32+3 || kvs[0].Create != 2 {
				t.Fatalf("%+v: %+v %v", r, kvs, err)
			}
		}
		txn := &kv.TxnRequest{Compare: []kv.Compare{{Key: []byte("k"), Target: kv.CompareVersion, Number: math.MaxUint32 + 3}}}
		if res, err := b.ReadTxn(context.Background(), txn); err != nil || !res.Succeeded {
			t.Fatalf("%+v %v", res, err)
		}
		if res, err := b.Writer().Txn(txn, nil); err != nil || !res.Succeeded {
			t.Fatalf("%+v %v", res, err)
		}
		b.commit(t)
	}
	check()
	b.reopen(t)
	check()
	b.close(t)
}

func TestOptionsValidate(t *testing.T) {
	err := Options{TrimKeys: -1, Parallel: -1}.Validate()
	if err == nil || len(err.(interface{ Unwrap() []error }).Unwrap()) != 2 {
		t.Fatalf("two wrong fields: %v", err)
	}
	if _, err := Open(nil, Options{TrimKeys: -1}); err == nil {
		t.Fatal("wrong options accepted")
	}
}

func TestBadCompactRecord(t *testing.T) {
	b := newBed(t, Options{}, 0)
	if err := b.Writer().SetMeta(history.Meta{Bucket: MetaBucket, Key: []byte(compactKey), Value: []byte("x\xff")}); err != nil {
		t.Fatal(err)
	}
	b.commit(t)
	b.Store.Close()
	if _, err := Open(b.log, Options{}); !errors.Is(err, kv.ErrCorrupt) {
		t.Fatalf("a compact revision that is none: %v", err)
	}
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestBadRecords(t *testing.T) {
	good := record.KeyValue{Key: []byte("k"), Create: 2, Mod: 2, Version: 1}
	noVersion := good
	noVersion.Version = 0
	for i, enc := range [][]byte{[]byte("\xff"), noVersion.Append(nil)} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			b := newBed(t, Options{}, 0)
			if _, err := b.log.AppendKV(kv.Rev{Main: 2}, false, enc); err != nil {
				t.Fatal(err)
			}
			b.commit(t)
			b.Store.Close()
			if _, err := Open(b.log, Options{}); !errors.Is(err, kv.ErrCorrupt) {
				t.Fatalf("a record that is none: %v", err)
			}
			if err := b.log.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
