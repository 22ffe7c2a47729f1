package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vigil/internal/kv"
	"vigil/internal/vfs"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// crashAt returns a file system that runs crash before its n-th operation.
func crashAt(n int64, crash func(), inner vfs.FS) (vfs.FS, func() bool) {
	var seen atomic.Int64
	fs := faultfs.New(inner, func(faultfs.Op, string) faultfs.Fault {
		if seen.Add(1) == n {
			crash()
		}
		return faultfs.None
	})
	return fs, func() bool { return seen.Load() >= n }
}

// script is the work of a member in a fault test: it writes until something fails, and returns the
// revisions that were acknowledged with their values.
func script(r *Replica, writes int) (acked map[int64]string, err error) {
	acked = map[int64]string{}
	for i := range writes {
		text := fmt.Sprintf("%d %s", i, strings.Repeat("x", i*37%700))
		if i%5 == 4 {
			res, err := r.Txn(context.Background(), &kv.TxnRequest{Success: []kv.Op{
				{Put: &kv.PutRequest{Key: []byte("ta"), Value: []byte(text)}},
				{Put: &kv.PutRequest{Key: []byte("tb"), Value: []byte(text)}},
			}})
			if err != nil {
				return acked, err
			}
			acked[res.Revision] = text
			continue
		}
		res, err := r.Put(context.Background(),
			&kv.PutRequest{Key: fmt.Appendf(nil, "k%d", i%7), Value: []byte(text)})
		if err != nil {
			return acked, err
		}
		acked[res.Revision] = text
	}
	return acked, nil
}

// Every operation on the disk fails once, in each way it can: refused, done but reported as failed,
// or done by half. The member either continues, or says why it cannot and stops; what it
// acknowledged is there when the disk is well again, after a loss of power too, and transactions
// are whole.
//
//vigil:norace
func TestEveryOperationFailsOnce(t *testing.T) {
	const writes = 60
	faults := []faultfs.Fault{faultfs.Fail, faultfs.FailPersisted, faultfs.ShortWrite}
	runs, died := 0, 0
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 9))
	stride := int64(5) // how many operations lie between those that fail
	if os.Getenv("VIGIL_CRASHES") != "" {
		stride = 1
	}
	for _, fault := range faults {
		// The number of operations differs a little from run to run, with the timing of the
		// background: go on until a few runs did not reach the operation that was to fail.
		missed := 0
		for n := int64(1); missed < 3; n += stride {
			inner := memfs.New()
			var fired atomic.Bool
			among := faultfs.Nth(n, fault, func(op faultfs.Op, _ string) bool {
				return op.Changes() && (fault != faultfs.ShortWrite || op == faultfs.OpWrite)
			})
			fs := faultfs.New(inner, func(op faultfs.Op, name string) faultfs.Fault {
				f := among(op, name)
				if f != faultfs.None {
					fired.Store(true)
				}
				return f
			})
			runs++
			name := fmt.Sprintf("%v at change %d", fault, n)
			if fails(t, name, rng, fs, inner, writes) {
				died++
			}
			if !fired.Load() {
				missed++
			}
		}
	}
	t.Logf("%d runs, %d members stopped", runs, died)
	if died == 0 {
		t.Error("no fault had any effect")
	}
}

func faultConfig(fs vfs.FS) Config {
	c := config(fs)
	c.WALSegmentBytes, c.HistorySegmentBytes = 8<<10, 4<<10
	c.SnapshotCount, c.SnapshotCatchUpEntries = 10, 3
	c.RequestTimeout = 10 * time.Second
	return c
}

// fails runs the script on fs, whose disk is inner, and checks the files that are left. It reports
// whether the member died.
func fails(t *testing.T, name string, rng *rand.Rand, fs vfs.FS, inner *memfs.FS,
	writes int) (died bool) {
	c := faultConfig(fs)
	var acked map[int64]string
	r, err := Open(c)
	if err != nil {
		died = true
		if !errors.Is(err, faultfs.ErrInjected) {
			t.Errorf("%s: open: %v", name, err)
		}
	} else {
		r.Start()
		var failed error
		select {
		case <-r.Ready():
			acked, err = script(r, writes)
			if err != nil {
				died = true
				if !errors.Is(err, kv.ErrStopped) {
					t.Errorf("%s: a write says %v", name, err)
				}
				failed = <-r.Failed()
			}
		case failed = <-r.Failed():
			died = true
		}
		if died && !errors.Is(failed, faultfs.ErrInjected) {
			t.Errorf("%s: the member failed with %v", name, failed)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.Stop(ctx); err != nil && !errors.Is(err, faultfs.ErrInjected) {
			t.Errorf("%s: stop: %v", name, err)
		}
		if ctx.Err() != nil {
			t.Errorf("%s: stop took %v", name, patience)
		}
	}
	// By turns the files that the process left, and the part of them that survives a loss of power.
	if rng.IntN(2) == 0 {
		checkAcked(t, name+", then a kill", inner.Kill(), acked)
	} else {
		checkAcked(t, name+", then a crash", inner.Crash(rng), acked)
	}
	return died
}

func checkAcked(t *testing.T, name string, disk *memfs.FS, acked map[int64]string) {
	t.Helper()
	r, err := Open(faultConfig(disk))
	if err != nil {
		t.Errorf("%s: open afterwards: %v", name, err)
		return
	}
	defer r.Stop(context.Background())
	r.Start()
	select {
	case <-r.Ready():
	case err := <-r.Failed():
		t.Errorf("%s: afterwards: %v", name, err)
		return
	}
	now := r.Status().Revision
	seen, err := watchFrom(r, 2, now)
	if err != nil {
		t.Errorf("%s: watch afterwards: %v", name, err)
		return
	}
	for rev := int64(2); rev <= now; rev++ {
		if n := len(seen[rev]); n == 0 || n == 1 && strings.HasPrefix(seen[rev][0].Key, "t") {
			t.Errorf("%s: revision %d is %v", name, rev, seen[rev])
		}
	}
	for rev, text := range acked {
		if !slices.ContainsFunc(seen[rev], func(ch change) bool { return ch.Value == text }) {
			t.Errorf("%s: revision %d was acknowledged and holds %v; the store is at %d", name, rev,
				seen[rev], now)
		}
	}
}

// The disk fills up under load. Writes are refused by name; what was acknowledged is there, reads
// go on, and with room again all is well. A write that is on its way when the disk fills up gets an
// answer in time as well.
func TestFullDisk(t *testing.T) {
	for _, room := range []int64{0, 3000, 9000, 20000, 50000, 100000} {
		t.Run(fmt.Sprint(room), func(t *testing.T) {
			t.Parallel()
			inner := memfs.New()
			fs := faultfs.New(inner, nil)
			c := faultConfig(fs)
			r := start(t, c)
			fs.SetFree(room)
			acked, err := script(r, 100000)
			if errors.Is(err, kv.ErrTimeout) {
				// It was on its way when the disk filled up. The next one is refused by name.
				_, err = script(r, 1)
			}
			switch {
			case errors.Is(err, kv.ErrNoSpace):
				if got := mustRange(t, r,
					&kv.RangeRequest{Key: []byte("k"), End: []byte("l"),
						Serializable: true}).Count; len(acked) > 7 && got == 0 {
					t.Error("nothing can be read")
				}
				fs.SetFree(1 << 40)
				for deadline := time.Now().Add(patience); ; {
					more, err := script(r, 20)
					for rev, text := range more {
						acked[rev] = text
					}
					if err == nil {
						break
					}
					if time.Now().After(deadline) {
						t.Fatalf("with room again: %v", err)
					}
				}
			default:
				t.Fatalf("a write says %v", err)
			}
			t.Logf("%d writes, then %v", len(acked), err)
			fs.SetFree(1 << 40)
			r.Stop(context.Background())
			checkAcked(t, "afterwards", inner.Kill(), acked)
		})
	}
}

// Many writes are on their way when the disk fills up: each gets an answer in time, those that
// apply has taken already as well.
func TestFullDiskAnswersInTime(t *testing.T) {
	inner := memfs.New()
	fs := faultfs.New(inner, nil)
	c := faultConfig(fs)
	c.RequestTimeout = 500 * time.Millisecond
	r := start(t, c)
	fs.SetFree(20000)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var timeouts atomic.Int64
	var writers sync.WaitGroup
	for w := range 32 {
		writers.Go(func() {
			for {
				_, err := r.Put(ctx,
					&kv.PutRequest{Key: fmt.Appendf(nil, "k%d", w), Value: make([]byte, 100)})
				switch {
				case err == nil:
				case errors.Is(err, kv.ErrTimeout):
					timeouts.Add(1)
					return
				default:
					if !errors.Is(err, kv.ErrNoSpace) {
						t.Errorf("a write says %v", err)
					}
					return
				}
			}
		})
	}
	writers.Wait()
	if ctx.Err() != nil {
		t.Error("writes waited for the disk and not for their timeout")
	}
	t.Logf("%d writes were on their way", timeouts.Load())
	fs.SetFree(1 << 40)
	if err := r.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}
