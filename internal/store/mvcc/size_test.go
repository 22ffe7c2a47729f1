package mvcc

import (
	"strings"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// How much of the log is in use is known as soon as the store is open, and not only when the background has
// come round to it: a quota is compared with it.
func TestLiveSizeAfterOpen(t *testing.T) {
	// Nothing is rewritten: what is dead stays on disk.
	o := history.Options{Dir: "history", SegmentBytes: 1 << 20, FS: faultfs.New(memfs.New(), func(op faultfs.Op, name string) faultfs.Fault {
		if op == faultfs.OpCreate && strings.HasSuffix(name, ".seg.tmp") {
			return faultfs.Fail
		}
		return faultfs.None
	})}
	log, err := history.Create(o, history.Applied{Term: 1, Index: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{log: log, applied: log.Applied()}
	b.open(t, log)
	value := make([]byte, 200)
	for range 300 {
		for i := range 100 {
			if _, err := b.Writer().Put(&kv.PutRequest{Key: []byte{'k', byte(i)}, Value: value}, nil); err != nil {
				t.Fatal(err)
			}
		}
		b.commit(t)
	}
	total, live := b.log.Size()
	if live != total {
		t.Errorf("%d of %d bytes are live before the compaction", live, total)
	}
	compactAt(t, b, b.Revision())
	if err := b.WaitTrimmed(t.Context(), b.CompactRevision()); err != nil {
		t.Fatal(err)
	}
	_, before := b.log.Size()
	if before > total/50 {
		t.Errorf("%d of %d bytes are live after the compaction", before, total)
	}
	for range 3 {
		b.close(t)
		if log, err = history.Open(o); err != nil {
			t.Fatal(err)
		}
		b.open(t, log)
		if _, live := b.log.Size(); live > before+4096 {
			t.Errorf("%d of %d bytes are live after a start, %d before it", live, total, before)
		}
	}
	b.close(t)
}
