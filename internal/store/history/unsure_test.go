package history

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/vfs"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// lose cuts a file that is mapped, so that its pages cannot be read, and returns what brings them
// back.
func lose(t *testing.T, path string) (restore func()) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.Truncate(path, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// wantDamage fails the test if a log has not reported damage of a file.
func wantDamage(t *testing.T, l *Log, file string) {
	t.Helper()
	select {
	case err := <-l.Damage():
		if vfs.CauseOf(err) != vfs.Damage || !strings.Contains(err.Error(), file) {
			t.Errorf("reported %v, want damage of %s", err, file)
		}
	default:
		t.Errorf("damage of %s was not reported", file)
	}
}

// afterwards reclaims all that can be, and checks a log before and after a restart.
func afterwards(t *testing.T, l *Log, m *model) {
	t.Helper()
	l.Reclaim()
	waitReclaimed(t, l)
	if l.ReclaimStats().Rewrites == 0 {
		t.Error("nothing was rewritten")
	}
	if err := verifyLeft(l, m); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := Open(l.o)
	if err != nil {
		t.Fatal(err)
	}
	if err := verifyLeft(l, m); err != nil {
		t.Error("opened again:", err)
	}
	// Now everything can be marked, and goes.
	if err := l.Dead(m.dead()); err != nil {
		t.Fatal(err)
	}
	l.Reclaim()
	waitReclaimed(t, l)
	if err := verifyLeft(l, m); err != nil {
		t.Error("marked again:", err)
	}
	gone := map[kv.Rev]bool{}
	for _, d := range m.dead() {
		gone[d.Rev] = true
	}
	v := l.View()
	sc := v.Scan(kv.Rev{})
	defer sc.Close()
	for sc.Next() {
		if gone[sc.Rev()] && v.segmentOf(sc.Rev()) != nil {
			t.Errorf("the record at %v is still there", sc.Rev())
			break
		}
	}
	if err := errors.Join(sc.Err(), l.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestUnmarked: records that cannot be marked, since the table of their segment cannot be read,
// stay, and what deletes them stays too.
func TestUnmarked(t *testing.T) {
	o := testOptions(vfs.OS())
	o.Dir = filepath.Join(t.TempDir(), "history")
	o.SegmentBytes = minSegmentBytes
	l, m := create(t, o)
	dead := churn(t, l, m)
	segs := l.cat.segments()
	failed := 0
	for i, d := range dead {
		restore := func() {}
		if s := l.View().segmentOf(d.Rev); s == segs[2] && s.source().file != nil &&
			s.into.Load() == nil {
			restore = lose(t, s.source().file.Path())
		}
		err := l.Dead(dead[i : i+1])
		restore()
		if err != nil {
			failed++
		}
	}
	if failed == 0 {
		t.Fatal("everything was marked")
	}
	wantDamage(t, l, filepath.Base(segs[2].source().file.Path()))
	afterwards(t, l, m)
}

// TestUnmarkedInRewrite: a record dies while its segment is rewritten, and the old file cannot be
// read any more when that is to be noted.
func TestUnmarkedInRewrite(t *testing.T) {
	var renamed atomic.Pointer[func()]
	o := testOptions(faultfs.New(vfs.OS(), func(op faultfs.Op, name string) faultfs.Fault {
		if op == faultfs.OpRename && strings.Contains(name, format.SealedName(1, 1, 1)) {
			if fn := renamed.Swap(nil); fn != nil {
				(*fn)()
			}
		}
		return faultfs.None
	}))
	o.Dir = filepath.Join(t.TempDir(), "history")
	o.SegmentBytes = minSegmentBytes
	l, m := create(t, o)
	dead := churn(t, l, m)
	first := l.cat.segments()[0]
	n := 0
	for n < len(dead) && l.View().segmentOf(dead[n].Rev) == first {
		n++
	}
	fn := func() {
		if err := l.Dead(dead[1:n]); err != nil {
			t.Error(err)
		}
		lose(t, l.dir.join(format.SealedName(1, 1, 0)))
	}
	renamed.Store(&fn)
	if err := l.Dead(dead[:1]); err != nil {
		t.Fatal(err)
	}
	l.Reclaim()
	waitReclaimed(t, l)
	if renamed.Load() != nil {
		t.Fatal("the first segment was not rewritten alone")
	}
	wantDamage(t, l, format.SealedName(1, 1, 0))
	if err := l.Dead(dead[n:]); err != nil {
		t.Fatal(err)
	}
	afterwards(t, l, m)
}

// TestDeadDuringRewrite: records that die while their segment is rewritten are dead in the merged
// segment too. Later deletions stay until they are gone, and they go with the next rewrite.
func TestDeadDuringRewrite(t *testing.T) {
	var renamed atomic.Pointer[func()]
	o := testOptions(faultfs.New(memfs.New(), func(op faultfs.Op, name string) faultfs.Fault {
		if op == faultfs.OpRename && strings.Contains(name, format.SealedName(1, 1, 1)) {
			if fn := renamed.Swap(nil); fn != nil {
				(*fn)()
			}
		}
		return faultfs.None
	}))
	o.SegmentBytes = minSegmentBytes
	l, m := create(t, o)
	dead := churn(t, l, m)
	first := l.cat.segments()[0]
	n := 0
	for n < len(dead) && l.View().segmentOf(dead[n].Rev) == first {
		n++
	}
	fn := func() {
		if err := l.Dead(dead[1:n]); err != nil {
			t.Error(err)
		}
	}
	renamed.Store(&fn)
	if err := l.Dead(dead[:1]); err != nil {
		t.Fatal(err)
	}
	l.Reclaim()
	waitReclaimed(t, l)
	if renamed.Load() != nil {
		t.Fatal("the first segment was not rewritten alone")
	}
	if err := l.Dead(dead[n:]); err != nil {
		t.Fatal(err)
	}
	l.Reclaim()
	waitReclaimed(t, l)
	v := l.View()
	for _, d := range dead {
		if _, err := v.Get(d.Rev, nil); v.segmentOf(d.Rev) != nil && !errors.Is(err, ErrNotFound) {
			t.Fatalf("the record at %v is still there: %v", d.Rev, err)
		}
	}
	if err := errors.Join(verifyLeft(l, m), l.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedSegmentIsLeft: a segment that cannot be rewritten does not keep the others from it,
// and its damage is the error of one wait.
func TestDamagedSegmentIsLeft(t *testing.T) {
	disk := mapped(memfs.New())
	o := testOptions(disk)
	o.SegmentBytes = minSegmentBytes
	l, m := create(t, o)
	dead := churn(t, l, m)
	f := l.cat.segments()[3].source().file
	data := disk.of(t, f.Path())
	for n, off := range f.Offsets() {
		if n >= 0 {
			data[off+format.RecordHeaderSize] ^= 1 // all are damaged, the live ones too
		}
	}
	// Not all of the damaged segment is dead.
	var marked []DeadRecord
	kept := false
	for _, d := range dead {
		if l.View().segmentOf(d.Rev) == l.cat.segments()[3] && !kept {
			kept = true
			continue
		}
		marked = append(marked, d)
	}
	if err := l.Dead(marked); err != nil {
		t.Fatal(err)
	}
	l.Reclaim()
	if err := l.WaitReclaimed(t.Context()); !errors.Is(err, kv.ErrCorrupt) ||
		!strings.Contains(fmt.Sprint(err), f.Path()) {
		t.Fatalf("waiting: %v", err)
	}
	wantDamage(t, l, f.Path())
	l.tryAgain()
	waitReclaimed(t, l)
	if st := l.ReclaimStats(); st.Failures != 1 || st.Rewrites == 0 {
		t.Errorf("%+v", st)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// tryAgain ends the pause after a rewrite that failed.
func (l *Log) tryAgain() {
	l.work.endPause()
}

// TestMetaDeletionStays: while an older segment cannot be searched for the value of a meta record,
// its deletion stays, and what comes after that segment is rewritten all the same.
func TestMetaDeletionStays(t *testing.T) {
	disk := mapped(memfs.New())
	o := testOptions(disk)
	o.SegmentBytes = minSegmentBytes
	l, m := create(t, o)
	write := func(b batch) {
		b.applied = Applied{Term: 1, Index: m.batches[len(m.batches)-1].applied.Index + 1}
		m.batches = append(m.batches, b)
		if err := errors.Join(appendBatch(l, b), l.Commit(b.applied)); err != nil {
			t.Fatal(err)
		}
	}
	pad := func(n int) {
		for range n {
			write(batch{recs: []rec{{rev: kv.Rev{Main: m.last().Main + 1},
				data: make([]byte, 200)}}})
		}
	}
	name := Meta{Bucket: 2, Key: []byte("k"), Value: []byte("v")}
	write(batch{metas: []Meta{name}})
	pad(30)
	name.Value, name.Deleted = nil, true
	write(batch{metas: []Meta{name}})
	last := m.last()
	pad(30)
	if _, err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	first := l.cat.segments()[0].source().file
	flip := func() {
		data := disk.of(t, first.Path())
		for n, off := range first.Offsets() {
			if n < 0 {
				data[off+format.RecordHeaderSize] ^= 1
			}
		}
	}
	flip()
	at := l.View().segmentOf(last)
	if at == l.cat.segments()[0] || l.View().segmentOf(kv.Rev{Main: last.Main + 1}) != at {
		t.Fatal("the deletion is not in a later segment")
	}
	// All is dead next to the deletion, as far as it may be.
	var dead []DeadRecord
	for _, r := range m.recs() {
		if l.View().segmentOf(r.rev) == at {
			dead = append(dead, DeadRecord{Rev: r.rev})
		}
	}
	if err := l.Dead(dead); err != nil {
		t.Fatal(err)
	}
	l.Reclaim()
	err := l.WaitReclaimed(t.Context())
	for errors.Is(err, kv.ErrCorrupt) && l.ReclaimStats().Failures < 3 {
		l.tryAgain()
		err = l.WaitReclaimed(t.Context())
	}
	if err != nil || at.into.Load() == nil {
		t.Fatalf("the segment of the deletion was not rewritten: %v, %+v", err, l.ReclaimStats())
	}
	wantDamage(t, l, first.Path())
	flip()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = Open(o); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(verifyMeta(l, m.meta()), l.Close()); err != nil {
		t.Fatal(err)
	}
}
