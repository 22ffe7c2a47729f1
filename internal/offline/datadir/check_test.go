package datadir_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"vigil/internal/offline/datadir"
	"vigil/internal/store/history"
	"vigil/internal/store/wal"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

var id = wal.Identity{ClusterID: 0xc1, MemberID: 0x11}

// makeStore makes a store at an index, with one batch.
func makeStore(t *testing.T, mem *memfs.FS, dir string, index uint64, id wal.Identity) {
	t.Helper()
	makeStoreAt(t, mem, dir, history.Applied{Term: 1, Index: index}, id)
}

func makeStoreAt(t *testing.T, mem *memfs.FS, dir string, at history.Applied, id wal.Identity) {
	t.Helper()
	l, err := history.Create(history.Options{FS: mem, Dir: dir, SegmentBytes: 4 << 10,
		ClusterID: id.ClusterID, MemberID: id.MemberID}, at, nil)
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// makeLog makes a raft log without entries that begins after an index.
func makeLog(t *testing.T, mem *memfs.FS, dir string, start uint64, id wal.Identity) {
	t.Helper()
	w, err := wal.Create(wal.Options{FS: mem, Dir: dir, SegmentBytes: 8 << 10, ID: id},
		wal.Start{Index: start, Term: 1})
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func check(t *testing.T, o datadir.Options) *datadir.Report {
	t.Helper()
	ch, err := datadir.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	for range ch.Files(t.Context()) {
	}
	return ch.Report()
}

// TestHalves checks directories whose halves do or do not belong together.
func TestHalves(t *testing.T) {
	other := wal.Identity{ClusterID: 0xc1, MemberID: 0x12}
	for _, c := range []struct {
		what string
		make func(mem *memfs.FS)
		dir  string
		kind string
		want string // of the damage; "" for none
	}{
		{"both", func(m *memfs.FS) {
			makeStore(t, m, "d/history", 9, id)
			makeLog(t, m, "d/wal", 9,
				id)
		}, "d", datadir.KindDataDir, ""},
		{"the log ahead", func(m *memfs.FS) {
			makeStore(t, m, "d/history", 9, id)
			makeLog(t, m,
				"d/wal", 12, id)
		}, "d", datadir.KindDataDir, "begins at 13"},
		{"the log ahead, by a snapshot that the next start installs", func(m *memfs.FS) {
			makeStore(t, m, "d/history", 9, id)
			makeStore(t, m, datadir.SnapshotName("d/history", 1, 12), 12, id)
			makeLog(t, m, "d/wal", 12, id)
		}, "d", datadir.KindDataDir, ""},
		{"the log ahead, and another snapshot", func(m *memfs.FS) {
			makeStore(t, m, "d/history", 9, id)
			makeStore(t, m, datadir.SnapshotName("d/history", 1, 11), 11, id)
			makeLog(t, m, "d/wal", 12, id)
		}, "d", datadir.KindDataDir, "begins at 13"},
		{"the log ends before the store",
			func(m *memfs.FS) {
				makeStore(t, m, "d/history", 9, id)
				makeLog(t, m, "d/wal", 5,
					id)
			}, "d", datadir.KindDataDir, "ends at 5"},
		{"of two members", func(m *memfs.FS) {
			makeStore(t, m, "d/history", 9, id)
			makeLog(t, m,
				"d/wal", 9, other)
		}, "d", datadir.KindDataDir, "member 12"},
		{"the log alone", func(m *memfs.FS) { makeLog(t, m, "d/wal", 9, id) }, "d",
			datadir.KindDataDir, "does not exist"},
		{"the store alone", func(m *memfs.FS) { makeStore(t, m, "d/history", 9, id) }, "d",
			datadir.KindCheckpoint, ""},
		{"the store alone, once open",
			func(m *memfs.FS) { makeStore(t, m, "d/history", 9, id); lock(t, m, "d") }, "d",
			datadir.KindDataDir, "no raft log"},
		{"a first start that was cut short",
			func(m *memfs.FS) { makeStore(t, m, "d/history", 1, id); lock(t, m, "d") }, "d",
			datadir.KindDataDir, ""},
		{"a new store whose raft log is elsewhere",
			func(m *memfs.FS) { makeStore(t, m, "d/history", 1, id); started(t, m, "d") }, "d",
			datadir.KindDataDir, "no raft log"},
		{"a new store to join whose raft log is elsewhere", func(m *memfs.FS) {
			makeStoreAt(t, m, "d/history", history.Applied{}, id)
			started(t, m, "d")
		}, "d", datadir.KindDataDir, "no raft log"},
		{"a first start to join that was cut short",
			func(m *memfs.FS) {
				makeStoreAt(t, m, "d/history", history.Applied{}, id)
				lock(t, m,
					"d")
			}, "d", datadir.KindDataDir, ""},
		{"just the store", func(m *memfs.FS) { makeStore(t, m, "d/history", 9, id) }, "d/history",
			datadir.KindHistory, ""},
		{"just the log", func(m *memfs.FS) { makeLog(t, m, "d/wal", 9, id) }, "d/wal",
			datadir.KindWAL, ""},
		{"a stray name", func(m *memfs.FS) {
			makeStore(t, m, "d/history", 9, id)
			f, err := m.Create("d/history/1.seg")
			if err != nil || f.Close() != nil {
				t.Fatal(err)
			}
		}, "d", datadir.KindCheckpoint, "not a name that a segment has"},
	} {
		mem := memfs.New()
		c.make(mem)
		r := check(t, datadir.Options{FS: mem, Dir: c.dir})
		if r.Kind != c.kind || r.OK() != (c.want == "") ||
			c.want != "" && !strings.Contains(r.Damages[0].Reason, c.want) {
			t.Errorf("%s: %s, %+v", c.what, r.Kind, r.Damages)
		}
		if c.want == "" && r.Member != "11" {
			t.Errorf("%s: %+v", c.what, r)
		}
	}
	mem := memfs.New()
	if _, err := datadir.Open(datadir.Options{FS: mem, Dir: "none"}); !errors.Is(err,
		fs.ErrNotExist) {
		t.Error(err)
	}
	if err := mem.MkdirAll("other"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"apt.log", ".seg", "x.wal", "cafe.log"} {
		f, err := mem.Create("other/" + name)
		if err != nil || f.Close() != nil {
			t.Fatal(err)
		}
	}
	if _, err := datadir.Open(datadir.Options{FS: mem, Dir: "other"}); !errors.Is(err,
		datadir.ErrNotDataDir) {
		t.Errorf("files of other programs: %v", err)
	}
	if err := mem.MkdirAll("interrupted/" +
		datadir.RestoringName(datadir.HistoryName)); err != nil {
		t.Fatal(err)
	}
	if _, err := datadir.Open(datadir.Options{FS: mem, Dir: "interrupted"}); !errors.Is(err,
		datadir.ErrNotDataDir) || !strings.Contains(err.Error(), "restore was interrupted") {
		t.Error(err)
	}
	if err := mem.MkdirAll("empty"); err != nil {
		t.Fatal(err)
	}
	if _, err := datadir.Open(datadir.Options{FS: mem, Dir: "empty"}); !errors.Is(err,
		datadir.ErrNotDataDir) {
		t.Error(err)
	}
}

// started marks the store as one whose member has had a raft log.
func started(t *testing.T, mem *memfs.FS, dir string) {
	t.Helper()
	f, err := mem.Create(datadir.StartedName(filepath.Join(dir, datadir.HistoryName)))
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func lock(t *testing.T, mem *memfs.FS, dir string) {
	t.Helper()
	l, err := mem.Lock(filepath.Join(dir, datadir.LockName))
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A file that cannot be read for a reason that is not its own is not called damaged, and neither is
// anything that follows from it; and as long as it cannot be read the check is not made.
func TestUnreadIsNotDamage(t *testing.T) {
	mem := memfs.New()
	makeStore(t, mem, "data/history", 1, id)
	makeLog(t, mem, "data/wal", 1, id)
	unread := 0
	for _, errno := range []syscall.Errno{syscall.EACCES, syscall.EMFILE, syscall.ENFILE,
		syscall.ENOMEM, syscall.EINTR} {
		for n := int64(1); ; n++ {
			w := faultfs.NewWindow(n, 1, errno, func(op faultfs.Op, _ string) bool {
				return op == faultfs.OpOpen || op == faultfs.OpRead || op == faultfs.OpSize ||
					op == faultfs.OpList
			})
			ch, err := datadir.Open(datadir.Options{FS: faultfs.New(mem, w.Decide), Dir: "data"})
			if err != nil {
				if !errors.Is(err, errno) {
					t.Errorf("%s: %v", w.Hit(), err)
				}
				continue
			}
			for range ch.Files(t.Context()) {
			}
			r := ch.Report()
			if len(r.Damages) > 0 {
				t.Errorf("%s: damages %v", w.Hit(), r.Damages)
			}
			unread += len(r.Unread)
			if w.Hit() == "" {
				break
			}
		}
		for _, op := range []faultfs.Op{faultfs.OpOpen, faultfs.OpRead} {
			for _, suffix := range []string{".log", ".wal"} {
				disk := faultfs.New(mem, func(o faultfs.Op, name string) faultfs.Fault {
					if o == op && strings.HasSuffix(name, suffix) {
						return faultfs.Errno(errno)
					}
					return faultfs.None
				})
				if r := check(t, datadir.Options{FS: disk, Dir: "data"}); r.OK() ||
					len(r.Damages) > 0 {
					t.Errorf("%v of all %v of %s: damages %v, unread %v", errno, op, suffix,
						r.Damages, r.Unread)
				}
			}
		}
	}
	if unread == 0 {
		t.Error("everything could be read")
	}
}
