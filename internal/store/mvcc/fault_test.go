package mvcc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// TestFaults fails operations on the disk, each in a life of its own: one of five that follow each
// other, or with VIGIL_ROUNDS set every one. The error must come
// as a *FatalError and stay, readers go on with what was committed, and a new store over the same
// files has every committed batch, and of the last one all or nothing.
//
//vigil:norace
func TestFaults(t *testing.T) {
	rng, step := seed(t), int64(5)
	if os.Getenv("VIGIL_ROUNDS") != "" {
		step = 1
	}
	for _, fault := range []faultfs.Fault{faultfs.Fail, faultfs.FailPersisted, faultfs.ShortWrite, faultfs.NoSpace} {
		t.Run(fault.String(), func(t *testing.T) {
			for n := 1 + rng.Int64N(step); ; n += step {
				if met := lifeWithFault(t, n, fault); !met {
					if n < 20 {
						t.Fatalf("only %d operations", n)
					}
					return
				}
			}
		})
	}
}

// lifeWithFault reports whether there was an n-th operation to fail.
func lifeWithFault(t *testing.T, n int64, fault faultfs.Fault) (met bool) {
	inner := memfs.New()
	o := history.Options{FS: inner, Dir: "history", SegmentBytes: 4096}
	log, err := history.Create(o, history.Applied{Term: 1, Index: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	var ops atomic.Int64
	o.FS = faultfs.New(inner, faultfs.Nth(n, fault, func(op faultfs.Op, _ string) bool {
		if op.Changes() {
			ops.Add(1)
		}
		return op.Changes()
	}))
	if log, err = history.Open(o); err != nil {
		return true
	}
	s, err := Open(log, Options{})
	if err != nil {
		return true
	}
	w := s.Writer()
	committed, err := life(w)
	var fatal *FatalError
	switch {
	case err == nil:
	case errors.Is(err, kv.ErrNoSpace):
		// The batch waits for room; the member would try again.
	case !errors.As(err, &fatal):
		t.Fatalf("operation %d: %v is not fatal", n, err)
	default:
		_, perr := w.Put(&kv.PutRequest{Key: []byte("k")}, nil)
		_, terr := w.Txn(&kv.TxnRequest{}, nil)
		_, cerr := w.Commit(history.Applied{Term: 9, Index: 999})
		if perr != err || terr != err || cerr != err {
			t.Fatalf("operation %d: after %v come %v, %v and %v", n, err, perr, terr, cerr)
		}
	}
	check := func(s *Store, least, most int64) {
		t.Helper()
		rev := s.Revision()
		if rev < least || rev > most {
			t.Fatalf("operation %d: revision %d, want %d..%d", n, rev, least, most)
		}
		res, err := s.Range(context.Background(), &kv.RangeRequest{Key: []byte{0}, End: []byte{0}})
		if err != nil {
			t.Fatal(err)
		}
		if rev%2 == 0 || res.Count != rev-1 || int64(res.KVs.Len()) != rev-1 {
			t.Fatalf("operation %d: %d keys at revision %d", n, res.Count, rev)
		}
	}
	check(s, committed, committed)
	s.Close()
	_ = log.Close() // may return the fault
	o.FS = inner
	if log, err = history.Open(o); err != nil {
		t.Fatalf("operation %d: %v", n, err)
	}
	if s, err = Open(log, Options{}); err != nil {
		t.Fatal(err)
	}
	check(s, committed, committed+2)
	s.Close()
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return ops.Load() >= n
}

// life makes batches of two revisions that put a key each, large enough to fill some segments. It
// returns the last revision that was committed.
func life(w *Writer) (committed int64, err error) {
	committed = 1
	for i := range 12 {
		for j := range 2 {
			p := &kv.PutRequest{Key: fmt.Appendf(nil, "%03d/%d", i, j), Value: make([]byte, 700)}
			if _, err := w.Put(p, nil); err != nil {
				return committed, err
			}
		}
		p, err := w.Commit(history.Applied{Term: 1, Index: uint64(i + 2)})
		if err != nil {
			return committed, err
		}
		committed = p.Revision
	}
	return committed, nil
}
