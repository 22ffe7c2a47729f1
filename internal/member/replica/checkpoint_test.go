package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/offline/datadir"
	"vigil/internal/store/history"
	"vigil/internal/vfs"
)

// TestCheckpoint takes checkpoints of a member under load. The offline check reads each, and it
// holds exactly the state that the member named.
func TestCheckpoint(t *testing.T) {
	root := t.TempDir()
	c := tinyConfig(vfs.OS())
	c.HistoryDir, c.WALDir = filepath.Join(root, "m", "history"), filepath.Join(root, "m", "wal")
	r := start(t, c)
	values := map[int64]string{}
	var mu sync.Mutex
	stop := make(chan struct{})
	var writers sync.WaitGroup
	put := func(w, i int) int64 {
		v := fmt.Sprint("value ", w, " ", i)
		rev := mustPut(t, r, fmt.Sprint("key", w), v)
		mu.Lock()
		defer mu.Unlock()
		values[rev] = v
		return rev
	}
	for w := range 4 {
		writers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					put(w, i)
				}
			}
		})
	}
	type made struct {
		dir string
		history.Checkpoint
	}
	var all []made
	for i := range 8 {
		var least int64
		for k := range 10 {
			least = put(9, 10*i+k)
		}
		dir := filepath.Join(root, fmt.Sprint("checkpoint", i))
		cp, err := r.Checkpoint(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		if cp.Revision < least {
			t.Errorf("revision %d, and %d was acknowledged", cp.Revision, least)
		}
		all = append(all, made{dir, cp})
	}
	close(stop)
	writers.Wait()
	if _, err := r.Checkpoint(t.Context(), all[0].dir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over another: %v", err)
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Checkpoint(t.Context(), filepath.Join(root, "late")); !errors.Is(err,
		kv.ErrStopped) {
		t.Errorf("of a stopped member: %v", err)
	}
	for _, m := range all {
		ch, err := datadir.Open(datadir.Options{FS: vfs.OS(), Dir: m.dir})
		if err != nil {
			t.Fatal(err)
		}
		for range ch.Files(t.Context()) {
		}
		rep := ch.Report()
		if !rep.OK() || rep.Kind != datadir.KindCheckpoint || rep.Revision != m.Revision ||
			rep.Index != m.Applied.Index ||
			rep.Bytes != m.Bytes || len(rep.Files) != m.Segments ||
			rep.Member != "8e9e05c52164694d" {
			t.Errorf("%+v: %+v", m, rep)
		}
		l, err := history.Open(history.Options{FS: vfs.OS(), Dir: filepath.Join(m.dir, "history")})
		if err != nil {
			t.Fatal(err)
		}
		puts := int64(0)
		s := l.View().Scan(kv.Rev{})
		for s.Next() {
			puts++
			if want := values[s.Rev().Main]; want == "" ||
				!bytes.HasSuffix(s.Data(), []byte(want)) {
				t.Errorf("revision %d has %q, want %q", s.Rev().Main, s.Data(), want)
			}
		}
		if err := errors.Join(s.Err(), l.Close()); err != nil || puts != m.Revision-1 {
			t.Errorf("%d records up to %d: %v", puts, m.Revision, err)
		}
	}
}

// A checkpoint that is under way ends when the member is stopped.
func TestCheckpointWhileStopping(t *testing.T) {
	root := t.TempDir()
	c := tinyConfig(vfs.OS())
	c.HistoryDir, c.WALDir = filepath.Join(root, "m", "history"), filepath.Join(root, "m", "wal")
	r := start(t, c)
	for i := range 50 {
		mustPut(t, r, fmt.Sprint(i), "value")
	}
	done := make(chan error)
	go func() {
		for i := 0; ; i++ {
			if _, err := r.Checkpoint(context.Background(),
				filepath.Join(root, fmt.Sprint(i))); err != nil {
				done <- err
				return
			}
		}
	}()
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, kv.ErrStopped) {
		t.Error(err)
	}
}
