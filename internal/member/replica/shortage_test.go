package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
	"vigil/internal/member/replica/damage"
	"vigil/internal/vfs"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// errnoLife is the life of a member on a disk that fails.
type errnoLife struct {
	c     Config
	errno syscall.Errno
	r     *Replica
	// want is what the member has acknowledged: the value of each key, "" for one that was deleted.
	want map[string]string
	// died is the error that ended the member, if one did.
	died error
}

// open opens the member, again as long as the injected error comes.
func (l *errnoLife) open() error {
	err := error(nil)
	for range 40 {
		if l.r, err = Open(l.c); err == nil {
			break
		}
		if !errors.Is(err, l.errno) || errors.Is(err, kv.ErrCorrupt) {
			return fmt.Errorf("open: %w", err)
		}
	}
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	l.r.Start()
	select {
	case <-l.r.Ready():
		return nil
	case l.died = <-l.r.Failed():
		return fmt.Errorf("start: %w", l.died)
	case <-time.After(time.Minute):
		return errors.New("not ready after a minute")
	}
}

// patiently calls step again while it is refused for want of something, or has no outcome in time.
func (l *errnoLife) patiently(step func() error) error {
	begin := time.Now()
	for {
		err := step()
		switch {
		case err == nil, errors.Is(err, kv.ErrCompacted):
			return nil
		case errors.Is(err, kv.ErrStopped):
			select { // requests are rejected before the reason is known
			case l.died = <-l.r.Failed():
				return fmt.Errorf("the member failed: %w", l.died)
			case <-time.After(time.Minute):
				return err
			}
		case !kv.Shortage(err) && !errors.Is(err, kv.ErrTimeout) &&
			!errors.Is(err, damage.ErrUnreadable) && !errors.Is(err, l.errno):
			return err
		case time.Since(begin) > 5*time.Minute:
			return fmt.Errorf("after five minutes: %w", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// run goes through everything that a member does with files.
func (l *errnoLife) run() (err error) {
	ctx := context.Background()
	l.want = map[string]string{}
	defer func() {
		if l.r != nil {
			if serr := l.r.Stop(ctx); err == nil {
				err = serr
			}
		}
	}()
	if err := l.open(); err != nil {
		return err
	}
	for i := range 70 {
		key, value := fmt.Sprint("k", i%7), fmt.Sprint(i, strings.Repeat("x", i*37%700))
		err := l.patiently(func() error {
			_, err := l.r.Put(ctx, &kv.PutRequest{Key: []byte(key), Value: []byte(value)})
			if err == nil {
				l.want[key] = value
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("put %d: %w", i, err)
		}
		step := func() error { return nil }
		switch i {
		case 12, 33:
			step = func() error {
				_, err := l.r.DeleteRange(ctx, &kv.DeleteRangeRequest{Key: []byte("k3")})
				if err == nil {
					l.want["k3"] = ""
				}
				return err
			}
		case 20, 50:
			rev := l.r.Status().Revision
			step = func() error {
				_, err := l.r.Compact(ctx, &kv.CompactRequest{Revision: rev, Physical: true})
				return err
			}
		case 25:
			step = func() error { return l.r.Reclaim(ctx) }
		case 30:
			n := 0
			step = func() error {
				n++
				_, err := l.r.Checkpoint(ctx, fmt.Sprint("data/copy", n))
				return err
			}
		case 35:
			step = func() error { _, err := l.r.HashKV(ctx, 0); return err }
		case 40:
			if err := l.r.Stop(ctx); err != nil {
				return fmt.Errorf("stop: %w", err)
			}
			if err := l.open(); err != nil {
				return err
			}
		case 45:
			time.Sleep(3 * time.Second) // for what is done now and then
		}
		if err := l.patiently(step); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

// left returns how what is on a disk differs from what was acknowledged.
func (l *errnoLife) left(disk vfs.FS) error {
	r, err := Open(faultConfig(disk))
	if err != nil {
		return err
	}
	defer r.Stop(context.Background())
	r.Start()
	select {
	case <-r.Ready():
	case err := <-r.Failed():
		return err
	}
	for key, value := range l.want {
		res, err := r.Range(context.Background(), &kv.RangeRequest{Key: []byte(key)})
		if err != nil {
			return err
		}
		got := ""
		if res.Count > 0 {
			var pair mvccpb.KeyValue
			if err := proto.Unmarshal(res.KVs.At(0), &pair); err != nil {
				return err
			}
			got = string(pair.Value)
		}
		// What came last may have taken effect without an answer when the member stopped.
		if got != value && l.died == nil {
			return fmt.Errorf("key %s has %.10q, want %.10q", key, got, value)
		}
	}
	if list := r.Alarms.Active(); len(list) > 0 && l.died == nil {
		return fmt.Errorf("alarms %v", list)
	}
	return nil
}

// oddities are errors that say nothing about what is on disk, and lack nothing.
var oddities = []syscall.Errno{syscall.EACCES, syscall.ENOENT, syscall.EINTR}

// Every operation of a member on files fails with every error of the operating system, once and
// several times in a row. A lack of space, descriptors or memory stops nothing, is refused by name,
// and is over when it is over; so are other errors that come once. Only a sync or a write of the
// logs may end the member then, and only EIO may be called damage. What was acknowledged is there,
// for the next process and after a loss of power.
//
//vigil:norace
func TestEveryErrorOfTheSystem(t *testing.T) {
	stride := int64(211)
	if os.Getenv("VIGIL_CRASHES") != "" {
		stride = 7
	}
	runs, hits, died := 0, 0, 0
	try := func(errno syscall.Errno, width int64, mayEnd bool,
		among func(op faultfs.Op, name string) bool) {
		missed := 0
		for n := 1 + int64(errno)%stride; missed < 1; n += stride {
			w := faultfs.NewWindow(n, width, errno, among)
			disk := memfs.New()
			synctest.Test(t, func(t *testing.T) {
				c := faultConfig(faultfs.New(disk, w.Decide))
				c.ScrubBytesPerSecond, c.ScrubPause = 1<<30, 100*time.Millisecond
				if !mayEnd && !slices.Contains(oddities, errno) {
					c.Logger = strict(t)
				}
				l := errnoLife{c: c, errno: errno}
				err := l.run()
				runs++
				if w.Hit() == "" {
					missed++
				} else {
					hits++
				}
				what := fmt.Sprintf("%d times %s", width, w.Hit())
				switch {
				case err == nil:
				case mayEnd && errors.Is(err, errno), errno == syscall.EIO &&
					errors.Is(err, kv.ErrCorrupt):
					died++
					l.died = err
				default:
					t.Errorf("%s: %v", what, err)
				}
				if l.r != nil && errno != syscall.EIO &&
					(l.r.Metrics().Damaged > 0 || len(l.r.Alarms.Active()) > 0) {
					t.Errorf("%s: damage %d, alarms %v", what, l.r.Metrics().Damaged,
						l.r.Alarms.Active())
				}
				for _, after := range []*memfs.FS{disk.Crash(rand.New(rand.NewPCG(uint64(n), 1))),
					disk.Kill()} {
					if err := l.left(after); err != nil {
						t.Errorf("%s, then: %v", what, err)
					}
				}
			})
			if t.Failed() {
				return
			}
		}
	}
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE,
		syscall.ENFILE, syscall.ENOMEM} {
		for _, width := range []int64{1, 9} {
			try(errno, width, false, func(op faultfs.Op, _ string) bool { return op.Lacks(errno) })
		}
	}
	for _, errno := range oddities {
		ends := []faultfs.Op{faultfs.OpWrite, faultfs.OpSync, faultfs.OpSyncDir}
		try(errno, 1, false, func(op faultfs.Op, _ string) bool {
			// A directory that does not exist has no log in it.
			return !slices.Contains(ends, op) &&
				(errno != syscall.ENOENT || op != faultfs.OpList && op != faultfs.OpStat)
		})
	}
	for _, errno := range []syscall.Errno{syscall.EIO, syscall.ENOSPC, syscall.ENOMEM,
		syscall.EACCES} {
		try(errno, 1, true, nil)
	}
	t.Logf("%d runs, %d with a failure, %d members stopped", runs, hits, died)
}
