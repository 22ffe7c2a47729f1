package history

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/vfs"
	"vigil/internal/vfs/memfs"
)

// content makes the bytes of the record at rev, so that a reader can identify it.
func content(rev kv.Rev) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%d/%d ", rev.Main, rev.Sub), 1+int(rev.Main+rev.Sub)%9)
}

// TestConcurrent reads in every way and syncs while batches are written and segments sealed.
func TestConcurrent(t *testing.T) {
	for _, on := range []string{"memory", "disk"} {
		t.Run(on, func(t *testing.T) {
			o := testOptions(memfs.New())
			if on == "disk" {
				o.FS, o.Dir = vfs.OS(), filepath.Join(t.TempDir(), "history")
			}
			concurrent(t, o)
		})
	}
}

func concurrent(t *testing.T, o Options) {
	l, _ := create(t, o)
	var (
		stop atomic.Bool
		wg   sync.WaitGroup
	)
	check := func(rev kv.Rev, data []byte, err error) bool {
		if err != nil || !bytes.Equal(data, content(rev)) {
			t.Errorf("%v is %q: %v", rev, data, err)
			return false
		}
		return true
	}
	// Every main revision m has m%3+1 records.
	some := func(rng *rand.Rand, last int64) kv.Rev {
		main := 1 + rng.Int64N(last)
		return kv.Rev{Main: main, Sub: rng.Int64N(main%3 + 1)}
	}
	reader := func(seed uint64, read func(rng *rand.Rand, v *View) bool) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 9))
			v := l.View()
			for !stop.Load() {
				if rng.IntN(5) > 0 { // an old view is as good
					v = l.View()
				}
				if v.Last() > 0 && !read(rng, v) {
					return
				}
			}
		})
	}
	reader(1, func(rng *rand.Rand, v *View) bool {
		rev := some(rng, v.Last())
		data, err := v.Get(rev, nil)
		return check(rev, data, err)
	})
	reader(2, func(rng *rand.Rand, v *View) bool {
		revs := make([]kv.Rev, 20)
		for i := range revs {
			revs[i] = some(rng, v.Last())
		}
		var out kv.Records
		_, err := v.GetSome(revs, math.MaxInt, &out)
		for i := range out.Len() {
			if !check(revs[i], out.At(i), err) {
				return false
			}
		}
		return err == nil
	})
	reader(3, func(rng *rand.Rand, v *View) bool {
		next := some(rng, v.Last())
		s := v.Scan(next)
		defer s.Close()
		for range 200 {
			if !s.Next() {
				break
			}
			if s.Rev() != next {
				t.Errorf("scan at %v, want %v", s.Rev(), next)
				return false
			}
			if !check(s.Rev(), s.Data(), s.Err()) {
				return false
			}
			next.Sub++
			if next.Sub > next.Main%3 {
				next = kv.Rev{Main: next.Main + 1}
			}
		}
		return s.Err() == nil
	})
	wg.Go(func() {
		for !stop.Load() {
			if a, err := l.Sync(); err != nil || l.Synced().Index < a.Index {
				t.Error(a, err)
				return
			}
			_, _ = l.Size()
			if err := l.Check(tContext); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for main := int64(1); main <= 1500; main++ {
		for sub := range main%3 + 1 {
			rev := kv.Rev{Main: main, Sub: sub}
			if _, err := l.AppendKV(rev, false, content(rev)); err != nil {
				t.Fatal(err)
			}
		}
		if main%10 == 0 {
			rev := kv.Rev{Main: main}
			data, err := l.WriterView().Get(rev, nil)
			check(rev, data, err)
		}
		if main%2 == 0 {
			if err := l.Commit(Applied{Term: 1, Index: uint64(main)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	stop.Store(true)
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCloseUnderReaders closes a log while it is read: reads end with the right bytes or ErrClosed.
func TestCloseUnderReaders(t *testing.T) {
	d, m := small(t, 9)
	for range 8 {
		o := testOptions(vfs.OS())
		o.Dir = filepath.Join(t.TempDir(), "history")
		d.write(t, o.FS, o.Dir)
		l, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		v := l.View()
		var wg sync.WaitGroup
		begun := make(chan struct{}, 4)
		for range cap(begun) {
			wg.Go(func() {
				for i := 0; ; i++ {
					for _, r := range m.recs()[:20] {
						got, err := v.Get(r.rev, nil)
						if err == ErrClosed {
							return
						}
						if err != nil || !bytes.Equal(got, r.data) {
							t.Errorf("%v: %q: %v", r.rev, got, err)
							return
						}
					}
					if i == 3 {
						begun <- struct{}{}
					}
				}
			})
		}
		<-begun
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
	}
}
