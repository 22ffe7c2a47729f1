package history

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/vfs"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

const checkpointDir = "/data/checkpoint"

// upTo returns the model as it was at a position.
func (m *model) upTo(a Applied) *model {
	i := slices.IndexFunc(m.batches, func(b batch) bool { return b.applied == a })
	return &model{batches: m.batches[:i+1]}
}

// opened verifies that a directory holds m, takes more, and that its sealed segments are not
// changed by that.
func opened(t testing.TB, o Options, m *model) {
	t.Helper()
	before := readDir(t, o.FS, o.Dir)
	touched := ""
	o.FS = faultfs.New(o.FS, func(op faultfs.Op, name string) faultfs.Fault {
		sealed := strings.HasSuffix(name, format.SealedSuffix)
		if sealed && before[filepath.Base(name)] != nil &&
			(op == faultfs.OpOpenWrite || op.Changes() && op != faultfs.OpSyncDir) {
			touched = fmt.Sprint(op, " ", name)
		}
		return faultfs.None
	})
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := verifyLog(l, m); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	more := &model{batches: slices.Clone(m.batches)}
	for range 40 {
		b := more.randomBatch(rng, more.last(), more.batches[len(more.batches)-1].applied.Index+1)
		b.applied.Term += 1000
		if err := errors.Join(appendBatch(l, b), l.Commit(b.applied)); err != nil {
			t.Fatal(err)
		}
		more.batches = append(more.batches, b)
	}
	if err := errors.Join(verifyLog(l, more), l.Close()); err != nil {
		t.Fatal(err)
	}
	after := readDir(t, o.FS, o.Dir)
	for name, b := range before {
		if strings.HasSuffix(name, format.SealedSuffix) && !slices.Equal(after[name], b) {
			t.Errorf("%s was changed", name)
		}
	}
	if touched != "" {
		t.Errorf("a linked file was touched: %s", touched)
	}
}

// TestCheckpointModel takes checkpoints concurrently with a writer. Each holds one state, whole,
// and lives on when the log is gone.
//
//vigil:norace
func TestCheckpointModel(t *testing.T) {
	for seed := range uint64(rounds(t, "VIGIL_HISTORY_CHECKPOINTS", 4)) {
		rng := seeded(t, seed)
		mem := memfs.New()
		o := testOptions(mem)
		if seed%2 == 0 {
			o.SegmentBytes = minSegmentBytes
		}
		l, m := create(t, o)
		type made struct {
			dir string
			Checkpoint
		}
		var all []made
		take := func(i int) {
			dir := fmt.Sprintf("%s/%d/deep", checkpointDir, i)
			at := l.Applied()
			c, err := l.Checkpoint(tContext, dir, "")
			if err != nil {
				t.Error(err)
				return
			}
			if c.Applied.Index < at.Index || c.Segments == 0 || c.Copied > c.Bytes {
				t.Errorf("%+v, asked at %v", c, at)
			}
			all = append(all, made{dir, c})
		}
		take(0)
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range 20 {
				take(1 + i)
			}
		})
		for i := range 400 {
			b := m.randomBatch(rng, m.last(), uint64(i)+2)
			if err := errors.Join(appendBatch(l, b), l.Commit(b.applied)); err != nil {
				t.Fatal(err)
			}
			m.batches = append(m.batches, b)
		}
		wg.Wait()
		take(100)
		if err := errors.Join(verifyLog(l, m), l.Close()); err != nil {
			t.Fatal(err)
		}
		for name := range readDir(t, mem, o.Dir) {
			if err := mem.Remove(filepath.Join(o.Dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		disk := mem.Crash(rng)
		for _, c := range all {
			o := testOptions(disk)
			o.Dir = c.dir
			want := m.upTo(c.Applied)
			if c.Revision != want.last().Main {
				t.Fatalf("revision %d, want %d", c.Revision, want.last().Main)
			}
			var size int64
			for _, b := range readDir(t, disk, c.dir) {
				size += int64(len(b))
			}
			if size != c.Bytes {
				t.Fatalf("%d bytes, said %d", size, c.Bytes)
			}
			opened(t, o, want)
		}
	}
}

// quiet returns a log with sealed segments and no work in the background.
func quiet(t testing.TB, o Options) (*Log, *model) {
	t.Helper()
	l, m := create(t, o)
	rng := rand.New(rand.NewPCG(3, 3))
	for i := range 120 {
		b := m.randomBatch(rng, m.last(), uint64(i)+2)
		if err := errors.Join(appendBatch(l, b), l.Commit(b.applied)); err != nil {
			t.Fatal(err)
		}
		m.batches = append(m.batches, b)
	}
	if _, err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	l.awaitAllocated()
	return l, m
}

// TestCheckpointFaults fails every operation of a checkpoint in every way: it is an error of the
// checkpoint and of nothing else, leaves no half of it, and the next attempt works.
//
//vigil:norace
func TestCheckpointFaults(t *testing.T) {
	type op struct {
		op   faultfs.Op
		name string
	}
	for _, sub := range []string{"", "history"} {
		done := false
		for n := 1; !done; n++ {
			for _, fault := range []faultfs.Fault{faultfs.Fail, faultfs.FailPersisted,
				faultfs.ShortWrite, faultfs.NoSpace, faultfs.FailLost} {
				var mu sync.Mutex
				armed, count := false, 0
				var hit op
				disk := memfs.New()
				o := testOptions(faultfs.New(disk, func(o faultfs.Op, name string) faultfs.Fault {
					mu.Lock()
					defer mu.Unlock()
					if !armed {
						return faultfs.None
					}
					if count++; count != n {
						return faultfs.None
					}
					hit = op{o, name}
					return fault
				}))
				l, m := quiet(t, o)
				mu.Lock()
				armed = true
				mu.Unlock()
				_, err := l.Checkpoint(tContext, checkpointDir, sub)
				mu.Lock()
				armed, done = false, hit == op{}
				mu.Unlock()
				if err != nil {
					if !errors.Is(err, faultfs.ErrInjected) && !errors.Is(err, syscall.ENOSPC) {
						t.Fatalf("%v of %v: %v", fault, hit, err)
					}
					if fault == faultfs.NoSpace && hit.op.Changes() &&
						!errors.Is(err, kv.ErrNoSpace) && hit.op != faultfs.OpSync {
						t.Fatalf("no space at %v: %v", hit, err)
					}
					if _, serr := disk.Stat(checkpointDir); serr == nil &&
						hit.op != faultfs.OpRename {
						t.Fatalf("%v of %v: %v, and there is a checkpoint", fault, hit, err)
					}
				}
				if l.Err() != nil {
					t.Fatalf("%v of %v ended the log: %v", fault, hit, l.Err())
				}
				b := batch{applied: m.batches[len(m.batches)-1].applied}
				b.applied.Index++
				if err := errors.Join(l.Commit(b.applied),
					verifyLog(l, &model{batches: append(m.batches, b)})); err != nil {
					t.Fatalf("%v of %v: the log after it: %v", fault, hit, err)
				}
				if _, serr := disk.Stat(checkpointDir); serr != nil {
					if _, err := l.Checkpoint(tContext, checkpointDir, sub); err != nil {
						t.Fatalf("%v of %v: the next attempt: %v", fault, hit, err)
					}
				}
				co := testOptions(disk)
				co.Dir = filepath.Join(checkpointDir, sub)
				c, err := Open(co)
				if err != nil {
					t.Fatalf("%v of %v: %v", fault, hit, err)
				}
				want := m
				if c.Applied() == b.applied {
					want = &model{batches: append(m.batches, b)}
				}
				if err := errors.Join(verifyLog(c, want), c.Close(), l.Close()); err != nil {
					t.Fatalf("%v of %v: %v", fault, hit, err)
				}
			}
		}
	}
}

// If the name of a checkpoint cannot be made durable and the rename not undone, the error says that
// the checkpoint is there.
func TestCheckpointThatKeepsItsName(t *testing.T) {
	disk := memfs.New()
	o := testOptions(faultfs.New(disk, func(op faultfs.Op, name string) faultfs.Fault {
		if op == faultfs.OpSyncDir && name == filepath.Dir(checkpointDir) ||
			op == faultfs.OpRename && name == checkpointDir {
			return faultfs.Fail
		}
		return faultfs.None
	}))
	l, m := quiet(t, o)
	if _, err := l.Checkpoint(tContext, checkpointDir, ""); err == nil ||
		!strings.Contains(err.Error(), "is complete and keeps its name") {
		t.Fatalf("%v", err)
	}
	co := testOptions(disk)
	co.Dir = checkpointDir
	c, err := Open(co)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(verifyLog(c, m), c.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestCheckpointCrashes takes the power away at every operation of a checkpoint: what has its name
// is whole, and the log has lost nothing.
//
//vigil:norace
func TestCheckpointCrashes(t *testing.T) {
	whole, none := 0, 0
	for n, done := 1, false; !done; n++ {
		for seed := range uint64(4) {
			disk := memfs.New()
			var mu sync.Mutex
			armed, count := false, 0
			var after *memfs.FS
			o := testOptions(faultfs.New(disk, func(op faultfs.Op, _ string) faultfs.Fault {
				mu.Lock()
				defer mu.Unlock()
				if armed && op.Changes() {
					if count++; count == n {
						after = disk.Crash(rand.New(rand.NewPCG(seed, uint64(n))))
					}
				}
				return faultfs.None
			}))
			l, m := quiet(t, o)
			mu.Lock()
			armed = true
			mu.Unlock()
			_, err := l.Checkpoint(tContext, checkpointDir, "history")
			mu.Lock()
			armed = false
			if done = after == nil; done {
				after = disk.Crash(rand.New(rand.NewPCG(seed, 0)))
			}
			mu.Unlock()
			_ = l.Close()
			switch _, serr := after.Stat(checkpointDir); {
			case serr == nil:
				whole++
				co := testOptions(after)
				co.Dir = filepath.Join(checkpointDir, "history")
				opened(t, co, m)
			case err == nil:
				t.Fatalf("a checkpoint that was made is gone: %v", serr)
			default:
				none++
				again, err := Open(testOptions(after))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := again.Checkpoint(tContext, checkpointDir, "history"); err != nil {
					t.Fatalf("crash at %d: the next attempt: %v", n, err)
				}
				if err := again.Close(); err != nil {
					t.Fatal(err)
				}
			}
			again, err := Open(testOptions(after))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(verifyLog(again, m), again.Close()); err != nil {
				t.Fatalf("crash at %d: the log: %v", n, err)
			}
		}
	}
	if whole == 0 || none == 0 {
		t.Fatalf("%d whole, %d none", whole, none)
	}
}

// TestCheckpointFullDisk has room for the links and not for the copy.
func TestCheckpointFullDisk(t *testing.T) {
	disk := memfs.New()
	limited := faultfs.New(disk, nil)
	l, m := quiet(t, testOptions(limited))
	limited.SetFree(100)
	if _, err := l.Checkpoint(tContext, checkpointDir, ""); !errors.Is(err, kv.ErrNoSpace) ||
		!errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if names, _ := disk.List("/data"); !slices.Equal(names, []string{"history"}) {
		t.Fatalf("it left %q", names)
	}
	if err := errors.Join(l.Err(), l.CheckRoom(), verifyLog(l, m)); err != nil {
		t.Fatal(err)
	}
	limited.SetFree(1 << 20)
	if _, err := l.Checkpoint(tContext, checkpointDir, ""); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCheckpointRefused asks for checkpoints that cannot be.
func TestCheckpointRefused(t *testing.T) {
	disk := memfs.New()
	o := testOptions(disk)
	l, _ := quiet(t, o)
	canceled, cancel := context.WithCancel(tContext)
	cancel()
	foreign := "/data/other" + partialSuffix
	if err := disk.MkdirAll(foreign); err != nil {
		t.Fatal(err)
	}
	if f, err := disk.Create(foreign + "/letter.txt"); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	if _, err := l.Checkpoint(tContext, checkpointDir, ""); err != nil {
		t.Fatal(err)
	}
	before := readDir(t, disk, checkpointDir)
	for _, c := range []struct {
		ctx  context.Context
		dir  string
		want error
		text string
	}{
		{tContext, checkpointDir, fs.ErrExist, checkpointDir},
		{tContext, checkpointDir + "/", fs.ErrExist, checkpointDir},
		{tContext, filepath.Join(checkpointDir, before.names()[0]), fs.ErrExist, ""},
		{tContext, o.Dir, nil, "inside"},
		{tContext, o.Dir + "/now", nil, "inside"},
		{tContext, "/data/other", nil, "letter.txt does not belong"},
		{canceled, "/data/canceled", context.Canceled, "canceled"},
	} {
		_, err := l.Checkpoint(c.ctx, c.dir, "")
		if err == nil || c.want != nil && !errors.Is(err, c.want) ||
			!strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.dir, err)
		}
	}
	if names, _ := disk.List("/data"); !slices.Equal(names,
		[]string{"checkpoint", "history", filepath.Base(foreign)}) {
		t.Errorf("left %q", names)
	}
	if !before.equal(readDir(t, disk, checkpointDir)) {
		t.Error("a refused checkpoint changed the one that is there")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Checkpoint(tContext, "/data/late", ""); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func (d dir) names() []string {
	var names []string
	for n := range d {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func (d dir) equal(o dir) bool {
	if !slices.Equal(d.names(), o.names()) {
		return false
	}
	for n, b := range d {
		if !slices.Equal(b, o[n]) {
			return false
		}
	}
	return true
}

// TestCheckpointRewritten rewrites segments just before they are linked.
func TestCheckpointRewritten(t *testing.T) {
	disk := memfs.New()
	var l *Log
	var m *model
	rewrites, done := 0, 0
	// rewrite lets the segment of this name be replaced by one without its first records.
	rewrite := func(name string) {
		m.batches = slices.Clone(m.batches)
		var dead []DeadRecord
		for i := 0; len(dead) < 15; i++ {
			for _, r := range m.batches[i].recs {
				dead = append(dead, DeadRecord{Rev: r.rev, Tombstone: r.tombstone})
			}
			m.batches[i].recs = nil
		}
		if err := l.Dead(dead); err != nil {
			t.Fatal(err)
		}
		l.Reclaim()
		if err := l.WaitReclaimed(tContext); err != nil {
			t.Fatal(err)
		}
		if _, err := disk.Stat(name); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%s was not rewritten: %v", name, err)
		}
		done++
	}
	o := testOptions(faultfs.New(disk, func(op faultfs.Op, name string) faultfs.Fault {
		if op == faultfs.OpLink && rewrites > 0 {
			rewrites--
			rewrite(name)
		}
		return faultfs.None
	}))
	l, m = quiet(t, o)
	rewrites = 3
	c, err := l.Checkpoint(tContext, checkpointDir, "")
	if err != nil {
		t.Fatal(err)
	}
	if done != 3 {
		t.Fatalf("%d rewrites", done)
	}
	co := testOptions(disk)
	co.Dir = checkpointDir
	opened(t, co, m.upTo(c.Applied))
	// A name that is gone although the segment is still in use is damage, and not waited for.
	if err := disk.Remove(l.View().segs[0].source().file.Path()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Checkpoint(tContext, checkpointDir+"2", ""); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCheckpointBesideReclaim takes checkpoints while records die and segments are rewritten. What
// a checkpoint lacks was dead at its own position.
func TestCheckpointBesideReclaim(t *testing.T) {
	mem := memfs.New()
	o := testOptions(mem)
	o.SegmentBytes = minSegmentBytes
	l, m := create(t, o)
	// The record at a revision dies with the batch at position 2*revision+40.
	died := func(rev kv.Rev, at Applied) bool {
		return uint64(2*rev.Main+40) <= at.Index &&
			rev.Main%3 != 0
	}
	type made struct {
		dir string
		Checkpoint
	}
	var all []made
	var wg sync.WaitGroup
	stop := make(chan struct{})
	again := make(chan struct{}) // receives after a checkpoint
	wg.Go(func() {
		defer close(again)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			dir := fmt.Sprintf("%s/%d", checkpointDir, i)
			c, err := l.Checkpoint(tContext, dir, "")
			if err != nil {
				t.Error(err)
				return
			}
			all = append(all, made{dir, c})
			select {
			case again <- struct{}{}:
			default:
			}
		}
	})
	for i := range 1500 {
		b := batch{applied: Applied{Term: 1, Index: uint64(i) + 2}}
		b.recs = []rec{{rev: kv.Rev{Main: int64(i) + 1}, data: fmt.Appendf(nil, "record %d", i)}}
		if err := errors.Join(appendBatch(l, b), l.Commit(b.applied)); err != nil {
			t.Fatal(err)
		}
		m.batches = append(m.batches, b)
		if n := b.applied.Index - 40; b.applied.Index > 40 && n%2 == 0 && n/2%3 != 0 {
			if err := l.Dead([]DeadRecord{{Rev: kv.Rev{Main: int64(n / 2)}}}); err != nil {
				t.Fatal(err)
			}
		}
		if i%50 == 0 {
			l.Reclaim()
		}
		if i%750 == 749 {
			// The writer is faster than the rewrites and the checkpoints. The second checkpoint
			// began after the rewrites.
			waitReclaimed(t, l)
			<-again
			<-again
		}
	}
	close(stop)
	wg.Wait()
	stats := l.ReclaimStats()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	gone := 0
	for _, c := range all {
		o := testOptions(mem)
		o.Dir = c.dir
		l, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		if l.Applied() != c.Applied {
			t.Fatalf("applied %v, want %v", l.Applied(), c.Applied)
		}
		for _, r := range m.upTo(c.Applied).recs() {
			got, err := l.View().Get(r.rev, nil)
			switch {
			case errors.Is(err, ErrNotFound) && died(r.rev, c.Applied):
				gone++
			case err != nil || string(got) != string(r.data):
				t.Fatalf("%s at %v: record %v: %q, %v", c.dir, c.Applied, r.rev, got, err)
			}
		}
		if err := errors.Join(l.Check(tContext), l.Close()); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d checkpoints, %d rewrites, %d records reclaimed in them", len(all),
		stats.Rewrites, gone)
	if stats.Rewrites == 0 || gone == 0 {
		t.Error("nothing was reclaimed")
	}
}

const secondProcess = "VIGIL_HISTORY_SECOND_PROCESS"

// TestCheckpointSecondProcess reads a checkpoint in another process while the first goes on
// writing.
func TestCheckpointSecondProcess(t *testing.T) {
	if dir := os.Getenv(secondProcess); dir != "" {
		l, err := Open(Options{FS: vfs.OS(), Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		records := 0
		s := l.View().Scan(kv.Rev{})
		for s.Next() {
			records++
		}
		if err := errors.Join(s.Err(), l.Check(tContext), l.Close()); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("read %d records up to %d at %d/%d\n", records, l.View().Last(),
			l.Applied().Term, l.Applied().Index)
		return
	}
	o := testOptions(vfs.OS())
	o.Dir = filepath.Join(t.TempDir(), "history")
	l, m := quiet(t, o)
	dir := filepath.Join(t.TempDir(), "checkpoint")
	c, err := l.Checkpoint(tContext, dir, "")
	if err != nil {
		t.Fatal(err)
	}
	want := m.upTo(c.Applied)
	cmd := exec.Command(os.Args[0], "-test.run", "^TestCheckpointSecondProcess$", "-test.v")
	cmd.Env = append(os.Environ(), secondProcess+"="+dir)
	out, err := cmd.CombinedOutput()
	line := fmt.Sprintf("read %d records up to %d at %d/%d\n", len(want.recs()), c.Revision,
		c.Applied.Term, c.Applied.Index)
	if err != nil || !strings.Contains(string(out), line) {
		t.Errorf("%v, want %q in\n%s", err, line, out)
	}
	st, err := os.Stat(filepath.Join(dir, format.SealedName(1, 1, 0)))
	if err != nil || st.Sys().(*syscall.Stat_t).Nlink != 2 {
		t.Errorf("the first segment is not shared: %v", err)
	}
	if err := errors.Join(verifyLog(l, m), l.Close()); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkCheckpoint takes checkpoints of a log of 16 sealed segments and a half-full open one.
func BenchmarkCheckpoint(b *testing.B) {
	o := Options{FS: vfs.OS(), Dir: filepath.Join(b.TempDir(), "history")}
	l, err := Create(o, Applied{Term: 1, Index: 1}, nil)
	if err != nil {
		b.Fatal(err)
	}
	value := make([]byte, 1024)
	for i := uint64(2); len(l.View().segs) < 16 || l.View().end < 32<<20; i++ {
		for s := range int64(100) {
			if _, err := l.AppendKV(kv.Rev{Main: int64(i), Sub: s}, false, value); err != nil {
				b.Fatal(err)
			}
		}
		if err := l.Commit(Applied{Term: 1, Index: i}); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := l.Sync(); err != nil {
		b.Fatal(err)
	}
	root := b.TempDir()
	for i := 0; b.Loop(); i++ {
		dir := filepath.Join(root, fmt.Sprint(i))
		if _, err := l.Checkpoint(tContext, dir, ""); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := os.RemoveAll(dir); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
}
