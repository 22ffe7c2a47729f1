package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
	"vigil/internal/offline/datadir"
	"vigil/internal/state/cluster"
	"vigil/internal/store/history"
	"vigil/internal/store/wal"
	"vigil/internal/vfs"
	"vigil/internal/vfs/memfs"
)

// tree is the content of the files below a directory, by their paths.
type tree map[string][]byte

// clone copies the map and not the contents.
func (t tree) clone() tree { return maps.Clone(t) }

func (t tree) names() []string { return slices.Sorted(maps.Keys(t)) }

func readTree(t testing.TB, fsys vfs.FS, root string) tree {
	t.Helper()
	out := tree{}
	var walk func(name string)
	walk = func(name string) {
		st, err := fsys.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if st.IsDir() {
			names, err := fsys.List(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range names {
				walk(filepath.Join(name, n))
			}
			return
		}
		f, err := fsys.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(io.NewSectionReader(f, 0, st.Size()))
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		out[name] = b
	}
	walk(root)
	return out
}

// write puts the tree on a new file system where nothing is unsynced.
func (t tree) write(tb testing.TB) *memfs.FS {
	tb.Helper()
	mem := memfs.New()
	for name, b := range t {
		err := mem.MkdirAll(filepath.Dir(name))
		var f vfs.File
		if err == nil {
			f, err = mem.Create(name)
		}
		if err == nil {
			_, err = f.WriteAt(b, 0)
		}
		if err == nil {
			err = errors.Join(f.Sync(), f.Close(), mem.SyncDir(filepath.Dir(name)))
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	return mem
}

// tinyConfig makes the segments as small as they can be.
func tinyConfig(fs vfs.FS) Config {
	c := config(fs)
	c.WALSegmentBytes, c.HistorySegmentBytes = 8<<10, 4<<10
	c.SnapshotCount, c.SnapshotCatchUpEntries = 20, 20
	return c
}

// holding is everything that a member has on disk.
type holding struct {
	records []string
	metas   []string
	applied history.Applied
	entries []*raftpb.Entry
	hard    *raftpb.HardState
}

// holdingOf reads what an open member holds.
func holdingOf(r *Replica) (*holding, error) {
	h := &holding{applied: r.current.Load().Log.Applied(), hard: r.raftLog.HardState()}
	s := r.current.Load().Log.View().Scan(kv.Rev{})
	defer s.Close()
	for s.Next() {
		h.records = append(h.records, fmt.Sprint(s.Rev(), s.Tombstone(), string(s.Data())))
	}
	if s.Err() != nil {
		return nil, s.Err()
	}
	for bucket := range 256 {
		for k, v := range r.current.Load().Log.Meta(byte(bucket)) {
			h.metas = append(h.metas, fmt.Sprintf("%d %x=%x", bucket, k, v))
		}
	}
	lo, err := r.raftLog.FirstIndex()
	if err != nil {
		return nil, err
	}
	hi, err := r.raftLog.LastIndex()
	if err == nil && hi >= lo {
		h.entries, err = r.raftLog.Entries(lo, hi+1, 1<<30)
	}
	return h, err
}

// differs says in what another holding is not the same.
func (h *holding) differs(o *holding) error {
	switch {
	case !slices.Equal(h.records, o.records):
		return fmt.Errorf("%d records, want %d", len(o.records), len(h.records))
	case !slices.Equal(h.metas, o.metas):
		return fmt.Errorf("metas %q, want %q", o.metas, h.metas)
	case h.applied != o.applied:
		return fmt.Errorf("applied %v, want %v", o.applied, h.applied)
	case !slices.EqualFunc(h.entries, o.entries,
		func(a, b *raftpb.Entry) bool { return proto.Equal(a, b) }):
		return fmt.Errorf("%d entries, want %d", len(o.entries), len(h.entries))
	case !proto.Equal(h.hard, o.hard):
		return fmt.Errorf("hard state %v, want %v", o.hard, h.hard)
	}
	return nil
}

// complete returns the files of a small member that was stopped in good order: sealed segments,
// rewritten ones, and a raft log of several segments that was shortened. peer makes it another
// member's.
func complete(t testing.TB, peer string) (tree, *holding) {
	t.Helper()
	mem := memfs.New()
	c := tinyConfig(mem)
	if peer != "" {
		c.InitialMembers = []cluster.Member{{Name: "default", PeerURLs: []string{peer}}}
	}
	r := start(t, c)
	ctx := context.Background()
	for i := range 70 {
		mustPut(t, r, fmt.Sprint("key", i%12), fmt.Sprint("value ", i, strings.Repeat("x", 3*i)))
		switch {
		case i%9 == 4:
			if _, err := r.DeleteRange(ctx,
				&kv.DeleteRangeRequest{Key: fmt.Appendf(nil, "key%d", i%12)}); err != nil {
				t.Fatal(err)
			}
		case i == 40:
			if _, err := r.Compact(ctx,
				&kv.CompactRequest{Revision: 38, Physical: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := r.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	files := readTree(t, mem, "data")
	r, err := Open(tinyConfig(files.write(t)))
	if err != nil {
		t.Fatal(err)
	}
	h, err := holdingOf(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	return files, h
}

// checked runs the offline check, which must leave the file system as it is.
func checked(mem vfs.FS) (*datadir.Report, error) {
	ch, err := datadir.Open(datadir.Options{FS: mem, Dir: "data", WALDir: "data/wal"})
	if err != nil {
		return nil, err
	}
	for range ch.Files(context.Background()) {
	}
	return ch.Report(), nil
}

// opened opens a member and compares its state. It returns the error by which it was refused,
// or by which a read was.
func opened(mem vfs.FS, want *holding) (refused, wrong error) {
	r, err := Open(tinyConfig(mem))
	if err != nil {
		return err, nil
	}
	defer r.Stop(context.Background())
	got, err := holdingOf(r)
	if err != nil {
		return err, nil
	}
	return nil, want.differs(got)
}

// TestEveryFlippedBit flips the bits of a complete data directory one at a time. Each is either
// found, by the check and when the member opens or reads, in the file where it is; or does no harm,
// and then the check finds nothing.
//
// VIGIL_EVERY_BIT=1 takes all of them instead of a sample.
//
//vigil:norace
func TestEveryFlippedBit(t *testing.T) {
	files, want := complete(t, "")
	step := 1009
	if os.Getenv("VIGIL_EVERY_BIT") != "" {
		step = 1
	}
	base := files.write(t)
	if rep, err := checked(base); err != nil || !rep.OK() || rep.Torn != 0 {
		t.Fatalf("%+v, %v", rep, err)
	}
	type job struct {
		name string
		bit  int
	}
	jobs := make(chan job, 100)
	var found, late, torn, harmless, spare atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for j := range jobs {
				// Nothing is unsynced, so a crash is a cheap copy.
				mem := base.Crash(rand.New(rand.NewPCG(0, 0)))
				off := int64(j.bit / 8)
				fail := func(format string, args ...any) {
					t.Errorf("%s, bit %d of byte %d: %s", j.name, j.bit%8, off,
						fmt.Sprintf(format, args...))
				}
				f, err := mem.OpenWrite(j.name)
				if err == nil {
					_, err = f.WriteAt([]byte{files[j.name][off] ^ 1<<(j.bit%8)}, off)
				}
				if err == nil {
					err = errors.Join(f.Sync(), f.Close())
				}
				if err != nil {
					fail("%v", err)
					continue
				}
				rep, err := checked(mem)
				if err != nil {
					fail("check: %v", err)
					continue
				}
				named := slices.ContainsFunc(rep.Damages,
					func(d datadir.Damage) bool { return d.Path == j.name && d.Offset <= off })
				if !rep.OK() && !named {
					fail("the check names something else: %+v", rep.Damages)
				}
				refused, wrong := opened(mem, want)
				switch {
				case wrong != nil:
					fail("the member opened: %v", wrong)
				case refused != nil && rep.OK():
					fail("the check found nothing, and the member says %v", refused)
				case refused != nil && !errors.Is(refused, kv.ErrCorrupt):
					fail("%v", refused)
				case refused != nil && !strings.Contains(refused.Error(), filepath.Base(j.name)):
					fail("the error names another file: %v", refused)
				case refused != nil:
					found.Add(1)
				case !rep.OK():
					late.Add(1) // in a part that only the check reads
				case rep.Torn > 0:
					torn.Add(1)
				case files[j.name][off] == 0:
					spare.Add(1)
				default:
					harmless.Add(1)
				}
			}
		})
	}
	bit, total := rand.IntN(step), 0
	for _, name := range files.names() {
		bits := 8 * len(files[name])
		if step == 1 {
			t.Logf("%s: %d bits", name, bits)
		}
		for ; bit < bits && !t.Failed(); bit += step {
			jobs <- job{name, bit}
			total++
		}
		bit -= bits
	}
	close(jobs)
	wg.Wait()
	t.Logf("%d files, %d bits flipped: %d refused with file and offset, %d found by the check alone, %d cut as a torn tail, %d in unused zeros, %d harmless elsewhere",
		len(files), total, found.Load(), late.Load(), torn.Load(), spare.Load(), harmless.Load())
}

// replayed starts a member that has opened with less than it had, which its raft log must bring
// back.
func replayed(t *testing.T, mem vfs.FS, want *holding) error {
	r, err := Open(tinyConfig(mem))
	if err != nil {
		return err
	}
	defer r.Stop(context.Background())
	r.Start()
	select {
	case <-r.Ready():
	case err := <-r.Failed():
		return err
	case <-t.Context().Done():
		return t.Context().Err()
	}
	if err := r.Stop(context.Background()); err != nil {
		return err
	}
	if r, err = Open(tinyConfig(mem)); err != nil {
		return err
	}
	defer r.Stop(context.Background())
	got, err := holdingOf(r)
	if err != nil {
		return err
	}
	if !slices.Equal(want.records, got.records) || !slices.Equal(want.metas, got.metas) ||
		got.applied.Index < want.applied.Index {
		return fmt.Errorf("%d records up to %v, want %d up to %v", len(got.records), got.applied,
			len(want.records), want.applied)
	}
	return nil
}

// TestWrongFiles cuts, swaps, doubles, removes and exchanges the files of a complete data
// directory. A member refuses and changes nothing, or has everything; and the check agrees.
//
//vigil:norace
func TestWrongFiles(t *testing.T) {
	files, want := complete(t, "")
	foreign, _ := complete(t, "http://elsewhere:2380")
	stride := 997
	if s := os.Getenv("VIGIL_CUT_STRIDE"); s != "" {
		var err error
		if stride, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	counts := map[string]int{}
	try := func(kind, what string, c tree) {
		t.Helper()
		mem := c.write(t)
		rep, err := checked(mem)
		if err != nil {
			t.Errorf("%s: check: %v", what, err)
			return
		}
		refused, wrong := opened(mem, want)
		switch {
		case refused != nil:
			counts[kind+" refused"]++
			if !errors.Is(refused, kv.ErrCorrupt) && !errors.Is(refused, history.ErrIdentity) &&
				!errors.Is(refused, wal.ErrIdentity) {
				t.Errorf("%s: %v", what, refused)
			}
			if rep.OK() {
				t.Errorf("%s: the check found nothing, and the member says %v", what, refused)
			}
			after := readTree(t, mem, "data")
			if !slices.Equal(after.names(), c.names()) {
				t.Errorf("%s: refused with %v, and left\n%q, were\n%q", what, refused,
					after.names(), c.names())
				break
			}
			for n, b := range c {
				if string(after[n]) != string(b) {
					t.Errorf("%s: refused with %v, and changed %s", what, refused, n)
				}
			}
		case wrong != nil:
			// The raft log may still have the entries that the store lost.
			counts[kind+" replayed"]++
			if err := replayed(t, c.write(t), want); err != nil {
				t.Errorf("%s: opened: %v; started: %v", what, wrong, err)
			}
			if !rep.OK() {
				t.Errorf("%s: the raft log brought everything back, and the check says %+v",
					what, rep.Damages)
			}
		case rep.OK():
			counts[kind+" harmless"]++
		default:
			t.Errorf("%s: the member has everything, and the check says %+v", what, rep.Damages)
		}
	}
	names := files.names()
	for _, n := range names {
		size := len(files[n])
		for _, at := range append(seq(0, size, stride), 1, 63, 64, 4095, 4096, size-1) {
			if at >= 0 && at < size {
				c := files.clone()
				c[n] = c[n][:at]
				try("cut", fmt.Sprintf("%s cut to %d of %d bytes", n, at, size), c)
				// Here nothing proves that the end was not torn.
				c = files.clone()
				c[n] = append(bytes.Clone(files[n][:at]), make([]byte, size-at)...)
				try("zeroed", fmt.Sprintf("%s zeroed from %d of %d bytes", n, at, size), c)
			}
		}
		c := files.clone()
		delete(c, n)
		try("removed", n+" removed", c)
		for _, o := range names {
			if filepath.Dir(o) != filepath.Dir(n) || o <= n {
				continue
			}
			c := files.clone()
			c[n], c[o] = c[o], c[n]
			try("swapped", n+" swapped with "+o, c)
			c = files.clone()
			c[o] = c[n]
			try("copied", n+" copied over "+o, c)
		}
		for _, id := range []uint64{1, 2, 90} {
			dir, ext := filepath.Dir(n), filepath.Ext(n)
			double := filepath.Join(dir, fmt.Sprintf("%016x%s", id, ext))
			if ext == ".seg" {
				double = filepath.Join(dir, fmt.Sprintf("%016x-%016x-%08x%s", id, id, 0, ext))
			}
			if _, ok := files[double]; ok {
				continue
			}
			c := files.clone()
			c[double] = c[n]
			try("doubled", n+" doubled as "+double, c)
		}
		if b, ok := foreign[n]; ok {
			c := files.clone()
			c[n] = b
			try("foreign", n+" of another member", c)
		}
	}
	for _, dir := range []string{"data/wal", "data/history"} {
		c := tree{}
		for n, b := range files {
			if filepath.Dir(n) != dir {
				c[n] = b
			}
		}
		for n, b := range foreign {
			if filepath.Dir(n) == dir {
				c[n] = b
			}
		}
		try("foreign", dir+" of another member", c)
	}
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%s: %d", k, counts[k])
	}
}

func seq(from, to, step int) (out []int) {
	for i := from; i < to; i += step {
		out = append(out, i)
	}
	return out
}
