package custody

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/replica/handle"
	"vigil/internal/store/history"
	"vigil/internal/vfs"
	"vigil/internal/vfs/memfs"
)

// places answers checks with an error, and notes when they came.
type places struct {
	err error
	at  []time.Time
}

func (p *places) CheckPlaces() error {
	p.at = append(p.at, time.Now())
	return p.err
}

// A difference makes the checks more frequent, is declared when it has lasted, once, and passes
// when the files are back.
func TestDeclared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, err := history.Create(history.Options{FS: memfs.New(), Dir: "h", ClusterID: 1,
			MemberID: 1}, history.Applied{Term: 1, Index: 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		files := &places{}
		w := New(Options{RaftLog: files,
			Current: handle.NewCurrent(handle.New(log, nil, nil), nil, nil),
			Logger:  slog.New(slog.DiscardHandler)})
		defer w.Close()
		declarations := 0
		pass := func(d time.Duration) (checks int) {
			before := len(files.at)
			for end := time.Now().Add(d); time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
				if w.Due() {
					declarations += count(w.Check())
				}
			}
			return len(files.at) - before
		}
		declared := func() bool {
			n := declarations
			declarations = 0
			return n == 1
		}
		if n := pass(10 * time.Second); n < 9 || n > 10 {
			t.Errorf("%d checks in 10 s", n)
		}
		files.err = fmt.Errorf("gone: %w", &vfs.AwayError{Path: "data/wal"})
		for pass(10*time.Millisecond) == 0 {
		}
		if w.Err() != nil || declared() || w.Away() != "" {
			t.Errorf("declared after one difference: %v", w.Err())
		}
		if n := pass(time.Second); n < 4 || n > 5 {
			t.Errorf("%d checks in a second after a difference", n)
		}
		if !errors.Is(w.Err(), kv.ErrAway) || !declared() || w.Away() == "" {
			t.Errorf("not declared: %v", w.Err())
		}
		// It is not known whether they are back.
		files.err = vfs.ErrUnsure
		pass(time.Second)
		if w.Err() == nil || declared() {
			t.Error("declared again, or not any more")
		}
		files.err = nil
		pass(time.Second)
		if w.Err() != nil || declared() || w.Away() != "" {
			t.Errorf("still declared: %v", w.Err())
		}
		w.Close()
		if n := pass(10 * time.Second); n != 0 {
			t.Errorf("%d checks after Close", n)
		}
	})
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
