package mvcc

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// While a batch waits for room on a full disk, a compaction that was committed before it is carried out and
// cuts are made. Neither shows anything of the batch.
func TestFullDiskHoldsNobodyUp(t *testing.T) {
	disk := faultfs.New(memfs.New(), nil)
	log, err := history.Create(history.Options{FS: disk, Dir: "history", SegmentBytes: 16 << 10}, history.Applied{Term: 1, Index: 1},
		[]history.Meta{{Bucket: 1, Key: []byte("a"), Value: []byte("old")}, {Bucket: 1, Key: []byte("gone"), Value: []byte("x")}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(log, Options{})
	if err != nil {
		t.Fatal(err)
	}
	w, index := s.Writer(), uint64(1)
	commit := func() error {
		_, err := w.Commit(history.Applied{Term: 1, Index: index + 1})
		if err == nil {
			index++
		}
		return err
	}
	put := func(key string) error {
		if _, err := w.Put(&kv.PutRequest{Key: []byte(key), Value: make([]byte, 300)}, nil); err != nil {
			t.Fatal(err)
		}
		return commit()
	}
	for i := range 100 {
		if err := put(fmt.Sprintf("k%d", i%10)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.DeleteRange(&kv.DeleteRangeRequest{Key: []byte("k0")}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(commit(), put("last")); err != nil {
		t.Fatal(err)
	}
	disk.SetFree(0)
	// The trimmer must not come before the batch waits.
	s.hashes.slot <- struct{}{}
	s.hashes.hold(s)
	compact := w.Revision()
	if _, err := w.Compact(compact); err != nil || commit() != nil {
		t.Fatal(err)
	}
	before := s.Revision()
	if err := w.SetMeta(history.Meta{Bucket: 1, Key: []byte("a"), Value: []byte("new")}); err != nil {
		t.Fatal(err)
	}
	if err := w.SetMeta(history.Meta{Bucket: 1, Key: []byte("gone"), Deleted: true}); err != nil {
		t.Fatal(err)
	}
	for i := range 400 {
		if _, err := w.Put(&kv.PutRequest{Key: fmt.Appendf(nil, "new%d", i), Value: make([]byte, 300)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := commit(); !errors.Is(err, kv.ErrNoSpace) {
		t.Fatalf("with a full disk: %v", err)
	}
	s.hashes.release()
	<-s.hashes.slot

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.WaitTrimmed(ctx, compact); err != nil {
		t.Errorf("the compaction: %v", err)
	}
	cut, err := s.Cut(ctx)
	if err != nil {
		t.Fatalf("a cut: %v", err)
	}
	meta := map[string]string{}
	for _, m := range cut.Meta {
		if m.Bucket == 1 {
			meta[string(m.Key)] = string(m.Value)
		}
	}
	if meta["a"] != "old" || meta["gone"] != "x" || cut.Applied.Index != index || cut.Revision != before {
		t.Errorf("the cut has %q, position %d, revision %d; want those before the batch, %d and %d", meta, cut.Applied.Index, cut.Revision, index, before)
	}
	count := func() int64 {
		t.Helper()
		res, err := s.Range(ctx, &kv.RangeRequest{Key: []byte{0}, End: []byte{0}, CountOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		return res.Count
	}
	if n := count(); n != 10 || s.Revision() != before {
		t.Errorf("readers see %d keys at revision %d before the batch is committed", n, s.Revision())
	}
	disk.SetFree(1 << 30)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if err := commit(); err == nil {
			break
		} else if !errors.Is(err, kv.ErrNoSpace) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if n, known := count(), s.Stats().Known; n != 410 || known != 410 {
		t.Errorf("%d keys, %d in the index", n, known)
	}
	s.Close()
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

// What a request needs of a file that cannot be read for want of memory is read when it can be.
func TestApplyWaitsForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lacking atomic.Int64
		disk := faultfs.New(memfs.New(), func(op faultfs.Op, name string) faultfs.Fault {
			if op == faultfs.OpMap || op == faultfs.OpRead && lacking.Add(-1) >= 0 {
				return faultfs.Errno(syscall.ENOMEM)
			}
			return faultfs.None
		})
		log, err := history.Create(history.Options{FS: disk, Dir: "history", SegmentBytes: 16 << 10}, history.Applied{Term: 1, Index: 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Open(log, Options{})
		if err != nil {
			t.Fatal(err)
		}
		w := s.Writer()
		for i := range 100 {
			if _, err := w.Put(&kv.PutRequest{Key: fmt.Appendf(nil, "k%02d", i), Value: make([]byte, 300)}, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Commit(history.Applied{Term: 1, Index: uint64(i) + 2}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := log.Sync(); err != nil {
			t.Fatal(err)
		}
		lacking.Store(10)
		res, err := w.Put(&kv.PutRequest{Key: []byte("k00"), IgnoreValue: true, PrevKV: true}, nil)
		if err != nil || len(res.PrevKV) < 300 {
			t.Errorf("a put that keeps the value: %d bytes, %v", len(res.PrevKV), err)
		}
		lacking.Store(10)
		txn, err := w.Txn(&kv.TxnRequest{Success: []kv.Op{{Range: &kv.RangeRequest{Key: []byte("k"), End: []byte("k50")}}}}, nil)
		if err != nil || txn.Responses[0].Range.Count != 50 {
			t.Errorf("a transaction that reads: %v", err)
		}
		if left := lacking.Load(); left >= 0 {
			t.Errorf("nothing was read %d times", left)
		}
		lacking.Store(0)
		s.Close()
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
