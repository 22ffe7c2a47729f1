package mvcc

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"
	"weak"

	"vigil/internal/kv"
	"vigil/internal/store/ration"
)

// indexSize returns the number of words of the index, and how many are in use.
func (b *bed) indexSize() (total, used int) {
	b.lock <- struct{}{}
	defer func() { <-b.lock }()
	return b.writer.index.Pool.Size()
}

// waitCleaned waits until a commit or compaction has made the trimmer bring the index to a compact revision and clean it.
func (b *bed) waitCleaned(t testing.TB, compact int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := b.WaitTrimmed(ctx, compact); err != nil {
		t.Fatal(err)
	}
	for ctx.Err() == nil {
		b.lock <- struct{}{}
		wanted := b.writer.index.Pool.Wanted()
		<-b.lock
		if !wanted {
			return
		}
		runtime.Gosched()
	}
	t.Fatal("the index is not cleaned")
}

func (b *bed) compact(t testing.TB) {
	t.Helper()
	if _, err := b.Writer().Compact(b.Writer().Revision()); err != nil {
		t.Fatal(err)
	}
	b.commit(t)
}

func (b *bed) put(t testing.TB, key string) {
	t.Helper()
	if _, err := b.Writer().Put(&kv.PutRequest{Key: []byte(key), Value: []byte("v")}, nil); err != nil {
		t.Fatal(err)
	}
}

func (b *bed) delete(t testing.TB, from, to string) {
	t.Helper()
	if _, err := b.Writer().DeleteRange(&kv.DeleteRangeRequest{Key: []byte(from), End: []byte(to)}); err != nil {
		t.Fatal(err)
	}
}

// TestIndexMemoryReturns fills a store, deletes most of it and compacts: the index gives the memory back, although lists were
// read that kept their trees, one has not been sent yet, and a cut is being copied.
func TestIndexMemoryReturns(t *testing.T) {
	budget, err := ration.New(ration.DefaultLimit)
	if err != nil {
		t.Fatal(err)
	}
	b := newBed(t, Options{Ranges: budget}, 0)
	const n = 20_000
	for i := range n {
		b.put(t, fmt.Sprintf("key/%05d", i))
		if i%100 == 99 {
			b.commit(t)
		}
	}
	e, _ := b.writer.index.Get("key/04321")
	gone := weak.Make(&e.Changes()[0])
	cut, err := b.Cut(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	res, err := b.Range(context.Background(), &kv.RangeRequest{Key: []byte("key/00000"), End: []byte("key/04322")})
	if err != nil || res.KVs.Long == nil || res.KVs.Long.Last != "key/04321" {
		t.Fatalf("%d keys, %v", res.Count, err)
	}
	full, _ := b.indexSize()
	for i := range n / 100 {
		b.delete(t, fmt.Sprintf("key/%03d01", i), fmt.Sprintf("key/%03d99", i))
		if i%10 == 0 {
			if _, err := b.Range(context.Background(), &kv.RangeRequest{Key: []byte{0}, End: []byte{0}, Limit: 5}); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.commit(t)
	// This one counts at the compact revision and later.
	if _, err := b.Range(context.Background(), &kv.RangeRequest{Key: []byte{0}, End: []byte{0}, Limit: 5}); err != nil {
		t.Fatal(err)
	}
	b.compact(t)
	b.waitCleaned(t, b.Revision())
	if total, used := b.indexSize(); total > full/20 || total > 2*used {
		t.Errorf("%d words of %d are left, %d of them in use", total, full, used)
	}
	// Nothing that the store keeps holds on to the slabs: not the published state, not the trees of lists.
	atMost(t, []weak.Pointer[uint64]{gone}, 0)
	runtime.KeepAlive(cut)
	runtime.KeepAlive(res)
	b.close(t)
}

// TestIndexChurn creates, changes and deletes keys and compacts, again and again, with readers of lists: the index stays as
// large as it was.
//
//vigil:norace
func TestIndexChurn(t *testing.T) {
	b := newBed(t, Options{TrimKeys: 64}, 64<<10)
	for i := range 1000 {
		b.put(t, fmt.Sprintf("old/%04d", i))
	}
	b.commit(t)
	for cycle := range 60 {
		for i := range 300 {
			b.put(t, fmt.Sprintf("new/%03d/%03d", cycle, i))
			b.put(t, fmt.Sprintf("old/%04d", (cycle*37+i)%1000))
			if i%50 == 0 {
				b.commit(t)
				if _, err := b.Range(context.Background(), &kv.RangeRequest{Key: []byte{0}, End: []byte{0}, Limit: 5}); err != nil {
					t.Fatal(err)
				}
			}
		}
		b.delete(t, "new/", fmt.Sprintf("new/%03d", cycle))
		b.compact(t)
		b.waitCleaned(t, b.Revision())
		if total, used := b.indexSize(); total > 2*used || used > 40_000 {
			t.Fatalf("%d words in cycle %d, %d in use", total, cycle, used)
		}
	}
	b.close(t)
}

// TestUndoneTransactions: transactions that exceed a limit are undone; what they leave behind in the index returns without a
// compaction.
func TestUndoneTransactions(t *testing.T) {
	b := newBed(t, Options{Limits: Limits{ChangeBytes: 2000}}, 0)
	for i := range 100 {
		b.put(t, fmt.Sprintf("key/%02d", i))
		b.commit(t)
	}
	txn := &kv.TxnRequest{}
	for i := range 60 {
		txn.Success = append(txn.Success,
			kv.Op{Put: &kv.PutRequest{Key: fmt.Appendf(nil, "key/%02d", i)}},
			kv.Op{Put: &kv.PutRequest{Key: fmt.Appendf(nil, "none/%02d", i)}})
	}
	for i := range 500 {
		if _, err := b.Writer().Txn(txn, nil); !errors.As(err, new(*kv.LimitError)) {
			t.Fatalf("a transaction above the limit: %v", err)
		}
		b.commit(t)
		if i%10 == 0 {
			b.waitCleaned(t, -1)
			// The slabs that are open, one of items and one of blocks, have 512 words each.
			if total, used := b.indexSize(); total > 3*used+2*512 {
				t.Fatalf("%d words, %d in use", total, used)
			}
		}
	}
	b.close(t)
}

// TestUndoneTransactionsOfLongBlock: each transaction that is undone replaces a block of half a megabyte. In one batch, and with
// the tree of a list that was kept, that takes the memory of a few of them.
func TestUndoneTransactionsOfLongBlock(t *testing.T) {
	b := newBed(t, Options{Limits: Limits{ChangeBytes: 2000}}, 0)
	const n = 32 << 10
	for range n {
		b.put(t, "key")
	}
	b.put(t, "other")
	b.commit(t)
	if _, err := b.Range(context.Background(), &kv.RangeRequest{Key: []byte{0}, End: []byte{0}, Limit: 1}); err != nil {
		t.Fatal(err)
	}
	txn := &kv.TxnRequest{Success: []kv.Op{{Put: &kv.PutRequest{Key: []byte("key")}}}}
	for i := range 60 {
		txn.Success = append(txn.Success, kv.Op{Put: &kv.PutRequest{Key: fmt.Appendf(nil, "none/%02d", i)}})
	}
	var blocks []weak.Pointer[uint64]
	for range 100 {
		if _, err := b.Writer().Txn(txn, nil); !errors.As(err, new(*kv.LimitError)) {
			t.Fatalf("a transaction above the limit: %v", err)
		}
		e, _ := b.writer.index.Get("key")
		blocks = append(blocks, weak.Make(&e.Changes()[0]))
	}
	atMost(t, blocks, 2*shedLeast/(2*n)+2)
	b.commit(t)
	atMost(t, blocks, 1) // the present one
	if v, err := b.Get([]byte("key"), 0); err != nil || v == nil {
		t.Fatal(v, err)
	}
	b.close(t)
}

// atMost waits until at most so many pieces of memory are still held.
func atMost(t *testing.T, memory []weak.Pointer[uint64], most int) {
	t.Helper()
	left := len(memory)
	for deadline := time.Now().Add(time.Minute); left > most && time.Now().Before(deadline); {
		runtime.GC()
		left = 0
		for i := range memory {
			if memory[i].Value() != nil {
				left++
			}
		}
	}
	if left > most {
		t.Errorf("%d pieces of memory of %d are still held", left, len(memory))
	}
}

// TestTrimmedBlockReturns: a compaction that drops no key gives the memory of blocks back without another commit.
func TestTrimmedBlockReturns(t *testing.T) {
	b := newBed(t, Options{}, 0)
	for range 5000 {
		b.put(t, "key")
	}
	b.commit(t)
	e, _ := b.writer.index.Get("key")
	block := []weak.Pointer[uint64]{weak.Make(&e.Changes()[0])}
	b.compact(t)
	b.waitCleaned(t, b.Revision())
	atMost(t, block, 0)
	b.close(t)
}

// TestOpenBatchIsCleaned: the trimmer cleans while a batch is open that waits for room. Readers see nothing of the batch, and its
// changes are not lost.
func TestOpenBatchIsCleaned(t *testing.T) {
	b := newBed(t, Options{}, 0)
	for i := range 2000 {
		b.put(t, fmt.Sprintf("key/%04d", i))
	}
	b.commit(t)
	w := b.Writer()
	b.put(t, "key/0001")
	b.put(t, "new")
	// As after a Commit that lacked room.
	pool := w.index.Pool
	for range 3 {
		for it := w.index.Tree.View().Range("", ""); it.Next(); {
			e, _ := w.index.Get(it.Key())
			w.index.Cut(e, 0)
		}
	}
	if !pool.Wanted() {
		t.Fatal("nothing to clean")
	}
	old := b.Revision()
	w.unlock()
	b.trim.wake()
	b.waitCleaned(t, -1)
	if res, err := b.Range(context.Background(), &kv.RangeRequest{Key: []byte("key/0001"), End: []byte("o")}); err != nil || b.Revision() != old || res.KVs.Len() != 1999 {
		t.Fatalf("revision %d, want %d: %+v %v", b.Revision(), old, res, err)
	}
	if res, err := b.Range(context.Background(), &kv.RangeRequest{Key: []byte{0}, End: []byte{0}, CountOnly: true}); err != nil || res.Count != 2000 {
		t.Fatalf("%d keys are counted, %v: want the 2000 that are committed", res.Count, err)
	}
	b.commit(t)
	for _, key := range []string{"key/0001", "new"} {
		if v, err := b.Get([]byte(key), 0); err != nil || v == nil {
			t.Fatalf("%q: %v %v", key, v, err)
		}
	}
	if n := w.index.Tree.Live(); n != 2001 {
		t.Errorf("%d keys", n)
	}
	b.close(t)
}
