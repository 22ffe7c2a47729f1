package history

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"vigil/internal/kv"
	"vigil/internal/vfs"
)

// TestPlacesWhileFilesChange compares the files with their places while segments are written,
// sealed and merged and checkpoints made: what the log does itself is never a difference.
func TestPlacesWhileFilesChange(t *testing.T) {
	o := testOptions(vfs.OS())
	root := t.TempDir()
	o.Dir, o.SegmentBytes = filepath.Join(root, "history"), minSegmentBytes
	l, _ := create(t, o)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	checks := 0
	wg.Go(func() {
		for {
			if err := l.CheckPlaces(); err != nil {
				t.Error(err)
				return
			}
			checks++
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			dir := filepath.Join(root, fmt.Sprint("checkpoint", i))
			if _, err := l.Checkpoint(t.Context(), dir, ""); err != nil {
				t.Error(err)
				return
			}
			_ = os.RemoveAll(dir)
		}
	})
	wg.Go(func() {
		var dead []DeadRecord
		for main := int64(1); main <= 1500; main++ {
			rev := kv.Rev{Main: main}
			if _, err := l.AppendKV(rev, false, content(rev)); err != nil {
				t.Error(err)
				break
			}
			if err := l.Commit(Applied{Term: 1, Index: uint64(main)}); err != nil {
				t.Error(err)
				break
			}
			if dead = append(dead, DeadRecord{Rev: rev}); len(dead) == 100 {
				if err := l.Dead(dead[:90]); err != nil {
					t.Error(err)
				}
				dead = nil
				l.Reclaim()
			}
		}
		waitReclaimed(t, l)
		close(stop)
	})
	wg.Wait()
	if st := l.ReclaimStats(); st.Rewrites < 3 || checks < 100 {
		t.Errorf("%d checks, %+v", checks, st)
	}
	// That the checks find something is seen when a file is gone.
	list, err := filepath.Glob(filepath.Join(o.Dir, "*.seg"))
	if err != nil || len(list) == 0 {
		t.Fatal(list, err)
	}
	if err := os.Remove(list[0]); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); !errors.Is(l.CheckPlaces(), kv.ErrAway); {
		if time.Now().After(deadline) {
			t.Fatal("a sealed segment is gone, and no check says so")
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSealAway moves the open segment away before it is sealed. The writer then lacks a place to
// write to, for much longer than other errors are retried, and goes on when the file is back.
func TestSealAway(t *testing.T) {
	o := testOptions(vfs.OS())
	o.Dir, o.SegmentBytes = filepath.Join(t.TempDir(), "history"), minSegmentBytes
	l, _ := create(t, o)
	open := l.w.seg.Path
	if err := os.Rename(open, open+".away"); err != nil {
		t.Fatal(err)
	}
	main := int64(0)
	write := func() error {
		main++
		rev := kv.Rev{Main: main}
		if _, err := l.AppendKV(rev, false, content(rev)); err != nil {
			return err
		}
		return l.Commit(Applied{Term: 1, Index: uint64(main)})
	}
	var err error
	for err == nil {
		err = write()
	}
	for until := time.Now().Add((tries + 2) * retryPause); time.Now().Before(until); {
		if !errors.Is(err, kv.ErrAway) || l.Err() != nil {
			t.Fatalf("with the open segment away: %v, the log: %v", err, l.Err())
		}
		if err = l.Commit(Applied{Term: 1, Index: uint64(main)}); err == nil {
			t.Fatal("a batch was written to a segment that is away")
		}
	}
	if err := os.Rename(open+".away", open); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); l.Commit(Applied{Term: 1,
		Index: uint64(main)}) != nil; {
		if time.Now().After(deadline) {
			t.Fatal("the segment is back, and the log does not go on")
		}
		time.Sleep(time.Millisecond)
	}
	for range 500 {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestOpenTwice: a log that is open cannot be opened a second time, and that changes nothing.
func TestOpenTwice(t *testing.T) {
	o := testOptions(vfs.OS())
	o.Dir = filepath.Join(t.TempDir(), "history")
	l, _ := create(t, o)
	names := func() []string {
		list, err := o.FS.List(o.Dir)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	l.awaitAllocated()
	before := names()
	if _, err := Open(o); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("a second time: %v", err)
	}
	if after := names(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("%v, before: %v", after, before)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
