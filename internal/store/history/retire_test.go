package history

import (
	"errors"
	"fmt"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/vfs/memfs"
)

// A log that is retired writes nothing, uses no name, and is read until it is closed: its directory
// can be renamed and removed.
func TestRetiredLogIsReadUntilClosed(t *testing.T) {
	disk := memfs.New()
	o := testOptions(disk)
	l, err := Create(o, Applied{Term: 1, Index: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	value := func(i int64) []byte { return fmt.Appendf(nil, "%d %0500d", i, i) }
	const n = 200
	for i := int64(2); i < n; i++ {
		if _, err := l.AppendKV(kv.Rev{Main: i}, false, value(i)); err != nil {
			t.Fatal(err)
		}
		if err := l.Commit(Applied{Term: 1, Index: uint64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	held, err := l.View().Hold(kv.Rev{Main: 5})
	if err != nil {
		t.Fatal(err)
	}
	l.Retire()
	l.Retire()
	if err := disk.Rename(o.Dir, o.Dir+".old"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Sync(); !errors.Is(err, ErrClosed) {
		t.Errorf("sync: %v", err)
	}
	if err := l.Commit(Applied{Term: 1, Index: n}); !errors.Is(err, ErrClosed) {
		t.Errorf("commit: %v", err)
	}
	if _, err := l.Checkpoint(t.Context(), o.Dir+".copy", ""); !errors.Is(err, ErrClosed) {
		t.Errorf("checkpoint: %v", err)
	}
	select {
	case <-l.Failed():
		t.Errorf("failed: %v", l.Err())
	default:
	}
	for i := int64(2); i < n; i++ {
		if b, err := l.View().Get(kv.Rev{Main: i}, nil); err != nil ||
			string(b) != string(value(i)) {
			t.Fatalf("revision %d: %v", i, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := l.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("closed again: %v", err)
	}
	// What is held is read even now.
	next := int64(5)
	for held.Next() {
		if held.Rev().Main != next || string(held.Data()) != string(value(next)) {
			t.Fatalf("revision %d in place of %d", held.Rev().Main, next)
		}
		next++
	}
	held.Close()
	if err := held.Err(); err != nil || next != n {
		t.Errorf("up to %d: %v", next, err)
	}
	// The files are as a crash would have left them.
	o.Dir += ".old"
	if l, err = Open(o); err != nil {
		t.Fatal(err)
	}
	if at := l.Applied(); at.Index != n-1 {
		t.Errorf("at %d", at.Index)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
