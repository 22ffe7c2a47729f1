package transfer

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"testing"
	"time"

	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// A snapshot that is not needed loses its name before anything in it goes: what has the name of a
// whole state is one, whenever its removal is cut short. Otherwise the raft log might come to begin
// at its position one day, and half of it be installed.
func TestRemovalNeverLeavesHalfASnapshot(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 10))
	c := Place{HistoryDir: "data/history"}
	at := history.Applied{Term: 3, Index: 9}
	gone := 0
	for n := int64(1); ; n++ {
		disk := memfs.New()
		o := history.Options{FS: disk, Dir: c.ReadyDir(at), SegmentBytes: 4 << 10,
			ClusterID: 1, MemberID: 2}
		l, err := history.Create(o, at, nil)
		for rev := int64(2); err == nil && rev < 40; rev++ {
			if _, err = l.AppendKV(kv.Rev{Main: rev}, false, make([]byte, 500)); err == nil {
				err = l.Commit(at)
			}
		}
		if err == nil {
			err = errors.Join(l.Close(), disk.SyncDir("data"))
		}
		if err != nil {
			t.Fatal(err)
		}
		var count int64
		var after *memfs.FS
		c.FS = faultfs.New(disk, func(op faultfs.Op, _ string) faultfs.Fault {
			if op.Changes() {
				if count++; count == n {
					after = disk.Crash(rng)
				}
			}
			return faultfs.None
		})
		err = c.DropIncoming(c.ReadyDir(at))
		if after == nil {
			if err != nil || gone == 0 || gone == int(n-1) {
				t.Errorf("%v; gone after %d of %d crashes", err, gone, n-1)
			}
			return
		}
		o.FS = after
		switch l, err := history.Open(o); {
		case errors.Is(err, fs.ErrNotExist):
			gone++
		case err != nil || l.LastRev().Main != 39:
			t.Errorf("operation %d: %v", n, err)
		default:
			_ = l.Close()
		}
	}
}
