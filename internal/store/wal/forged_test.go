package wal

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/vfs/memfs"
)

// Files are used again, and what clients have written there stays. A client knows the identity of
// the log, may guess the segment and the offset, and so may write what looks like groups of the
// later use. They do not count: the log opens, and has what was appended.
func TestForgedGroupsInUsedFile(t *testing.T) {
	o := testOptions(memfs.New())
	o.SegmentBytes = 16 << 10
	w := create(t, o, Start{})
	next := uint64(1)
	for range 100 {
		id, off := w.wr.active.id, w.wr.off+groupHeaderSize+entryHeadSize
		data := make([]byte, 50*groupHeaderSize)
		for i := 0; i < len(data); i += groupHeaderSize {
			at := off + int64(i)
			sealGroup(data[i:i+groupHeaderSize],
				groupSeed(testID, id+1+uint64(i/groupHeaderSize%4), 0), at, 0, at)
		}
		must(t, w.Append(Batch{Entries: []*raftpb.Entry{entry(next, 1, data)}, Sync: true}))
		next++
		if next > 20 {
			must(t, w.TruncateBefore(next-10))
		}
		if w.Metrics().Recycled > 0 {
			must(t, w.Close())
			w = reopen(t, o)
			if last, err := w.LastIndex(); last != next-1 || err != nil {
				t.Fatalf("the log ends at %d, %v, want %d", last, err, next-1)
			}
		}
	}
}
