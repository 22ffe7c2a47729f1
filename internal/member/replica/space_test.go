package replica

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/replica/space"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// await polls for what the keeper and the space monitor do at their ticks.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

func fillTo(t *testing.T, r *Replica, want error) (n int) {
	t.Helper()
	for ; ; n++ {
		_, err := r.Put(t.Context(),
			&kv.PutRequest{Key: fmt.Appendf(nil, "k%04d", n), Value: make([]byte, 200)})
		if err == nil {
			continue
		}
		if !errors.Is(err, want) {
			t.Fatal(err)
		}
		return n
	}
}

// The alarm comes with the quota and goes with the data, over a restart too; what makes room is let
// through, and an operator may disarm.
func TestQuota(t *testing.T) {
	disk := memfs.New()
	c := config(disk)
	c.QuotaBytes = 100_000
	r := start(t, c)
	own := kv.Alarm{MemberID: r.memberID, Type: kv.AlarmNoSpace}
	if n := fillTo(t, r, kv.ErrNoSpace); n < 300 {
		t.Errorf("refused after %d puts", n)
	}
	if list := r.Alarms.Active(); len(list) != 1 || list[0] != own {
		t.Errorf("a put was refused, and the alarms are %v", list)
	}
	// The put that was refused would have crossed the quota. Tables come when a segment is sealed.
	if got := r.Status().InUse; got > c.QuotaBytes+c.QuotaBytes/20 || got < c.QuotaBytes-400 {
		t.Errorf("%d bytes are live, the quota is %d", got, c.QuotaBytes)
	}

	// It is refused while there is the alarm, also by members that replay the log.
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	r = start(t, c)
	if list, err := r.Alarms.Alarms(t.Context()); err != nil || len(list) != 1 || list[0] != own {
		t.Fatalf("after a restart: %v, %v", list, err)
	}
	put := kv.Op{Put: &kv.PutRequest{Key: []byte("k"), Value: []byte("v")}}
	if _, err := r.Txn(t.Context(),
		&kv.TxnRequest{Compare: []kv.Compare{{Key: []byte("k")}},
			Failure: []kv.Op{put}}); !errors.Is(err, kv.ErrNoSpace) {
		t.Errorf("a transaction with a put: %v", err)
	}

	// Disarmed by hand it comes back with the next request that the quota has no room for.
	if got, err := r.Alarms.ChangeAlarm(t.Context(),
		kv.AlarmChange{Alarm: own, Clear: true}); err != nil || got == nil {
		t.Fatal(got, err)
	}
	if n := fillTo(t, r, kv.ErrNoSpace); n > 1 {
		t.Errorf("refused after %d puts", n)
	}
	if !r.Alarms.Raised(own) {
		t.Error("a put was refused again, and there is no alarm")
	}

	// A little less is not enough, much less is.
	if _, err := r.DeleteRange(t.Context(),
		&kv.DeleteRangeRequest{Key: []byte("k"), End: []byte("l")}); err != nil {
		t.Fatal(err)
	}
	if !r.Alarms.Raised(own) {
		t.Error("cleared before compaction")
	}
	if _, err := r.Compact(t.Context(),
		&kv.CompactRequest{Revision: r.Status().Revision}); err != nil {
		t.Fatal(err)
	}
	await(t, "no alarm", func() bool { return !r.Alarms.Raised(own) })
	if live := r.Status().InUse; live >= c.QuotaBytes*90/100 {
		t.Errorf("cleared with %d live bytes", live)
	}
	mustPut(t, r, "k", "v")
	// Alarms of others are for others.
	other := kv.Alarm{MemberID: 5, Type: kv.AlarmNoSpace}
	if _, err := r.Alarms.ChangeAlarm(t.Context(), kv.AlarmChange{Alarm: other}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Put(t.Context(), &kv.PutRequest{Key: []byte("k")}); !errors.Is(err,
		kv.ErrNoSpace) {
		t.Errorf("with another member's alarm: %v", err)
	}
}

// The quota is compared with what there will be: the request that comes and all that are under way
// count.
func TestQuotaCountsRequests(t *testing.T) {
	c := config(memfs.New())
	c.QuotaBytes = 400_000
	r := start(t, c)
	large := make([]byte, 500_000)
	for what, do := range map[string]func() error{
		"a put": func() error {
			_, err := r.Put(t.Context(), &kv.PutRequest{Key: []byte("large"), Value: large})
			return err
		},
		"a transaction": func() error {
			_, err := r.Txn(t.Context(),
				&kv.TxnRequest{Failure: []kv.Op{{Txn: &kv.TxnRequest{Success: []kv.Op{{Put: &kv.PutRequest{Key: []byte("large"), Value: large}}}}}}})
			return err
		},
	} {
		if err := do(); !errors.Is(err, kv.ErrNoSpace) {
			t.Errorf("%s as large as the quota: %v", what, err)
		}
	}
	own := kv.Alarm{MemberID: r.memberID, Type: kv.AlarmNoSpace}
	for range 3 { // it does not clear itself: the data have not become less
		r.monitor.Tick()
		if !r.Alarms.Raised(own) {
			t.Error("no alarm of the requests that were refused")
		}
		time.Sleep(r.cfg.TickInterval)
	}
	if _, err := r.Alarms.ChangeAlarm(t.Context(),
		kv.AlarmChange{Alarm: own, Clear: true}); err != nil {
		t.Fatal(err)
	}
	mustPut(t, r, "small", "1") // there is room for others
	var wg sync.WaitGroup
	var refused atomic.Int64
	for i := range 100 {
		wg.Go(func() {
			_, err := r.Put(t.Context(),
				&kv.PutRequest{Key: fmt.Append(nil, "k", i), Value: large[:20_000]})
			switch {
			case errors.Is(err, kv.ErrNoSpace):
				refused.Add(1)
			case err != nil:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if live := r.Status().InUse; live > c.QuotaBytes+c.QuotaBytes/20 ||
		live < c.QuotaBytes-50_000 || refused.Load() == 0 {
		t.Errorf("%d bytes are live, %d requests were refused", live, refused.Load())
	}
	if !r.Alarms.Raised(own) {
		t.Error("requests were refused, and there is no alarm")
	}
}

// When the alarm is raised and cleared, without a clock: by a refusal or at the quota, cleared
// below nine tenths of what there was then, and neither in between. A member that has not applied
// the end of an alarm rejects nothing for it.
func TestAlarmClearedElsewhere(t *testing.T) {
	g := startGroup(t, steady)
	lead := g.leader()
	lags := g.list[0]
	if lags == lead {
		lags = g.list[1]
	}
	alarm := kv.Alarm{MemberID: 0x77, Type: kv.AlarmNoSpace}
	if _, err := lead.Alarms.ChangeAlarm(t.Context(), kv.AlarmChange{Alarm: alarm}); err != nil {
		t.Fatal(err)
	}
	await(t, "the alarm", func() bool { return lags.Alarms.Raised(alarm) })
	if _, err := lags.Put(t.Context(), &kv.PutRequest{Key: []byte("k")}); err != kv.ErrNoSpace {
		t.Fatalf("a put with the alarm: %v", err)
	}
	g.net.setCut(lags.memberID, true)
	if _, err := lead.Alarms.ChangeAlarm(t.Context(),
		kv.AlarmChange{Alarm: alarm, Clear: true}); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := lags.Put(short, &kv.PutRequest{Key: []byte("k")}); err == nil ||
		errors.Is(err, kv.ErrNoSpace) {
		t.Errorf("a put while the member cannot know of the alarm's end: %v", err)
	}
	g.net.setCut(lags.memberID, false)
	mustPut(t, lags, "k", "v")
}

// While the disk is full puts are refused and deletions are not, and nothing is to be disarmed.
func TestFullDiskLetsDeletionsThrough(t *testing.T) {
	fs := faultfs.New(memfs.New(), nil)
	c := config(fs)
	c.WALSegmentBytes, c.HistorySegmentBytes = 64<<10, 32<<10
	r := start(t, c)
	mustPut(t, r, "k", "v")
	await(t, "space that is allocated ahead", func() bool { return allocated(r) })
	fs.SetFree(0)
	n := fillTo(t, r, kv.ErrNoSpace)
	if n == 0 {
		t.Fatal("nothing was written")
	}
	for i := range 10 {
		if res, err := r.DeleteRange(t.Context(),
			&kv.DeleteRangeRequest{Key: fmt.Appendf(nil, "k%04d", i)}); err != nil ||
			res.Deleted != 1 {
			t.Fatalf("deletion %d: %+v, %v", i, res, err)
		}
	}
	if _, err := r.Compact(t.Context(),
		&kv.CompactRequest{Revision: r.Status().Revision}); err != nil {
		t.Fatal(err)
	}
	if len(r.Alarms.Active()) != 0 {
		t.Errorf("alarms %v", r.Alarms.Active())
	}
	if _, err := r.Put(t.Context(), &kv.PutRequest{Key: []byte("k")}); !errors.Is(err,
		kv.ErrNoSpace) && err != nil {
		t.Error(err)
	}
	fs.SetFree(1 << 30)
	await(t, "room again", func() bool {
		_, err := r.Put(t.Context(), &kv.PutRequest{Key: []byte("k")})
		return err == nil
	})
}

// The scrubber and a read find damage: it is not served, counted, and alarmed once.
func TestDamageIsAlarmed(t *testing.T) {
	disk := memfs.New()
	c := config(disk)
	c.HistorySegmentBytes = 4 << 10
	c.ScrubBytesPerSecond, c.ScrubPause = 1<<30, time.Millisecond
	r := start(t, c)
	for i := range 200 {
		mustPut(t, r, fmt.Sprintf("k%03d", i), fmt.Sprintf("%0200d", i))
	}
	var file string
	await(t, "a sealed segment", func() bool {
		names, err := disk.List(c.HistoryDir)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			if len(n) > 20 && n[len(n)-4:] == ".seg" {
				file = c.HistoryDir + "/" + n
				return true
			}
		}
		return false
	})
	await(t, "a round", func() bool { return r.Metrics().ScrubRounds > 0 })
	f, err := disk.OpenWrite(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("damage"), 1500); err != nil {
		t.Fatal(err)
	}
	own := kv.Alarm{MemberID: r.memberID, Type: kv.AlarmCorrupt}
	await(t, "the alarm", func() bool { return r.Alarms.Raised(own) })
	if m := r.Metrics(); m.Damaged == 0 || m.Scrubbed == 0 {
		t.Errorf("%+v", m)
	}
	bad := 0
	for i := range 200 {
		res, err := r.Range(t.Context(), &kv.RangeRequest{Key: fmt.Appendf(nil, "k%03d", i)})
		switch {
		case err == nil && res.Count == 1:
		case errors.Is(err, kv.ErrCorrupt):
			bad++
		default:
			t.Fatalf("key %d: %v", i, err)
		}
	}
	if bad > 10 { // a mapping of this disk keeps the old bytes
		t.Errorf("%d keys cannot be read", bad)
	}
	if _, err := r.Put(t.Context(), &kv.PutRequest{Key: []byte("k")}); !errors.Is(err,
		kv.ErrCorrupt) {
		t.Error(err)
	}
	// Disarmed without a repair it comes back.
	if _, err := r.Alarms.ChangeAlarm(t.Context(),
		kv.AlarmChange{Alarm: own, Clear: true}); err != nil {
		t.Fatal(err)
	}
	await(t, "the alarm again", func() bool { return r.Alarms.Raised(own) })
	r.Stop(context.Background())
}

// A process without file descriptors, or with files that it may not open, has no damaged data: the
// scrubber raises no alarm, and reads everything when it can.
func TestShortageIsNoDamage(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM,
		syscall.EACCES, syscall.EINTR} {
		disk := memfs.New()
		var failing atomic.Bool
		var failed atomic.Int64
		c := config(faultfs.New(disk, func(op faultfs.Op, name string) faultfs.Fault {
			if failing.Load() && op == faultfs.OpOpen && strings.HasSuffix(name, ".seg") {
				failed.Add(1)
				return faultfs.Errno(errno)
			}
			return faultfs.None
		}))
		c.HistorySegmentBytes = 4 << 10
		c.ScrubBytesPerSecond, c.ScrubPause = 1<<30, time.Millisecond
		r := start(t, c)
		for i := range 100 {
			mustPut(t, r, fmt.Sprintf("k%03d", i), fmt.Sprintf("%0200d", i))
		}
		failing.Store(true)
		await(t, "a scrubber that opens files", func() bool { return failed.Load() > 3 })
		failing.Store(false)
		rounds := r.Metrics().ScrubRounds
		await(t, "a round", func() bool { return r.Metrics().ScrubRounds > rounds })
		mustPut(t, r, "k", "v")
		if m := r.Metrics(); m.Damaged != 0 || len(r.Alarms.Active()) != 0 {
			t.Errorf("%v: damage was found %d times, alarms %v", errno, m.Damaged,
				r.Alarms.Active())
		}
		if err := r.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// A member without data takes little space, also while it waits for more and after a restart.
func TestFreshMemberIsSmall(t *testing.T) {
	disk := memfs.New()
	c := config(disk)
	c.WALSegmentBytes, c.HistorySegmentBytes = 0, 0
	for range 2 {
		r := start(t, c)
		for i := range 20 {
			mustPut(t, r, fmt.Sprint("k", i), "v")
		}
		await(t, "space that is allocated ahead", func() bool {
			_, err := disk.Stat("data/history/reserve")
			return err == nil && r.Metrics().WAL.Spares > 0 && r.current.Load().Log.WaitNext()
		})
		total := int64(0)
		for _, dir := range []string{c.WALDir, c.HistoryDir} {
			names, err := disk.List(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				if st, err := disk.Stat(dir + "/" + name); err == nil {
					total += st.Size()
				}
			}
		}
		if total > 20_000_000 {
			t.Errorf("a fresh member takes %d bytes", total)
		}
		t.Logf("%d bytes", total)
		if err := r.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// After a start the live bytes count once the compactions that were applied again are carried out:
// what they free raises no alarm, and stops no request.
func TestQuotaAwaitsCompactionsAppliedAgain(t *testing.T) {
	c := config(memfs.New())
	c.QuotaBytes = 100_000
	r := start(t, c)
	<-r.Ready()
	await(t, "a first sample", func() bool { return r.space.Counted() })
	put := func() {
		for n := range 200 {
			mustPut(t, r, fmt.Sprintf("k%04d", n), strings.Repeat("v", 250))
		}
	}
	put()
	// While a backup reads, the background carries out nothing.
	reads, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	backup := make(chan error, 1)
	go func() {
		e, err := r.current.Load().Store.Export(context.Background(),
			func(kv.Rev, bool, []byte) error {
				once.Do(func() {
					close(reads)
					<-release
				})
				return nil
			})
		if err == nil {
			e.Close()
		}
		backup <- err
	}()
	<-reads
	res, err := r.Put(t.Context(), &kv.PutRequest{Key: []byte("k0000")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Compact(t.Context(), &kv.CompactRequest{Revision: res.Revision}); err != nil {
		t.Fatal(err)
	}
	// As if this were applied again after a start.
	r.space.Recount()
	put()
	if _, err := r.Compact(t.Context(),
		&kv.CompactRequest{Revision: r.Status().Revision}); err != nil {
		t.Fatal(err)
	}
	// The keeper may have taken the first compaction for the last one that was applied again.
	r.space.Recount()
	if live := r.Status().InUse; live < c.QuotaBytes {
		t.Fatalf("%d bytes are live: the test is about more than %d", live, c.QuotaBytes)
	}
	for range 10 {
		r.monitor.Tick()
		if r.space.Admit(1, r.queue, nil) == space.ErrQuota || len(r.Alarms.Active()) > 0 {
			t.Fatal("what is still to be counted stops the cluster")
		}
	}
	close(release)
	if err := <-backup; err != nil {
		t.Fatal(err)
	}
	await(t, "the figure to count", func() bool { return r.space.Counted() })
	r.monitor.Tick()
	if live := r.Status().InUse; live >= c.QuotaBytes ||
		r.space.Admit(1, r.queue, nil) == space.ErrQuota || len(r.Alarms.Active()) > 0 {
		t.Errorf("%d bytes are live, alarms %v", live, r.Alarms.Active())
	}
}

// The disk is full and it is not known yet, because the file system takes its time. What is
// allocated is not used up by puts, one after the other or many at once: deletions and compactions
// go on, over restarts too.
func TestUnknownFullDiskKeepsRoomToFree(t *testing.T) {
	for _, size := range []int{200, 5 << 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			disk := memfs.New()
			var slow atomic.Pointer[chan struct{}]
			fs := faultfs.New(disk, func(op faultfs.Op, name string) faultfs.Fault {
				if held := slow.Load(); held != nil && op == faultfs.OpPreallocate {
					<-*held
				}
				return faultfs.None
			})
			c := config(fs)
			r := start(t, c)
			mustPut(t, r, "old", "v")
			await(t, "space that is allocated ahead", func() bool { return allocated(r) })
			next := 0
			for range 3 {
				held := make(chan struct{})
				slow.Store(&held)
				fs.SetFree(0)
				var writers sync.WaitGroup
				for w := range 8 {
					writers.Go(func() {
						for i := 0; ; i++ {
							_, err := r.Put(context.Background(),
								&kv.PutRequest{Key: fmt.Appendf(nil, "k%d/%d", w, i),
									Value: make([]byte, size)})
							if err != nil {
								if !errors.Is(err, kv.ErrNoSpace) {
									t.Errorf("put %d: %v", i, err)
								}
								return
							}
						}
					})
				}
				writers.Wait()
				free := func(when string) {
					for range 4 {
						next++
						if _, err := r.DeleteRange(t.Context(),
							&kv.DeleteRangeRequest{Key: fmt.Appendf(nil, "k%d/", next%8),
								End: fmt.Appendf(nil, "k%d/1", next%8)}); err != nil {
							t.Fatalf("%s: a deletion: %v", when, err)
						}
					}
					if _, err := r.Compact(t.Context(),
						&kv.CompactRequest{Revision: r.Status().Revision}); err != nil &&
						!errors.Is(err, kv.ErrCompacted) {
						t.Fatalf("%s: a compaction: %v", when, err)
					}
				}
				free("before it is known")
				slow.Store(nil)
				close(held)
				free("when it is known")
				if len(r.Alarms.Active()) > 0 {
					t.Fatalf("alarms %v", r.Alarms.Active())
				}
				if err := r.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
				r = start(t, c)
				free("after a restart")
			}
		})
	}
}

// allocated reports whether there is all that is allocated ahead.
func allocated(r *Replica) bool {
	st, err := r.cfg.FS.Stat(r.cfg.HistoryDir + "/reserve")
	return err == nil && st.Size() > 0 && r.current.Load().Log.WaitNext() &&
		r.Metrics().WAL.Spares > 0
}
