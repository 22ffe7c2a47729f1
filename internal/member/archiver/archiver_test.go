package archiver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/bucket"
	"vigil/internal/debugpage"
	"vigil/internal/kv"
	"vigil/internal/state/fsm"
	"vigil/internal/state/lineage"
	"vigil/internal/store/archive"
	"vigil/internal/vfs"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// small makes small objects and frequent bases.
func small(o *Options) {
	o.partBytes, o.logBytes = 2000, 600
	o.BaseInterval = 5 * time.Second
}

// TestRandomHistory archives random histories with compactions, and restores them from several
// bases.
func TestRandomHistory(t *testing.T) {
	for i := range 6 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				t.Logf("seed %d", seed)
				r := rand.New(rand.NewPCG(seed, 1))
				w, b := newWorld(t, 1), newBucket(t)
				defer w.close()
				w.random(r, 100)
				w.members[0].begin(b, small)
				for range 8 {
					time.Sleep(time.Duration(1+r.IntN(8)) * time.Second)
					w.random(r, 40)
				}
				w.put("last", "x")
				w.awaitArchived(w.members[0], 10*time.Second)
				w.awaitBase(b, w.last(), 20*time.Second)
				w.verify(b, 4)
			})
		})
	}
}

// everyOperation runs a test for each operation on the bucket in turn, which fails before its
// effect or after it, until there are no more operations. strike is called for the operation, and
// for all after it.
func everyOperation(t *testing.T, run func(t *testing.T, w *world, f *faulty),
	strike func(f *faulty, first bool) error) {
	for _, late := range []bool{false, true} {
		step := 1
		if testing.Short() {
			step = 4
		}
		for n, more := 1, true; more; n += step {
			t.Run(fmt.Sprint(n, late), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, f := newWorld(t, 1), &faulty{Bucket: newBucket(t)}
					defer w.close()
					var struck atomic.Bool
					fail := func(i int, op, key string) error {
						if i < n {
							return nil
						}
						struck.Store(true)
						return strike(f, i == n)
					}
					if late {
						f.after = fail
					} else {
						f.before = fail
					}
					run(t, w, f)
					more = struck.Load()
					w.verify(f.Bucket, 1)
					if gaps := w.members[0].a.Status().Gaps; gaps != 0 {
						t.Fatalf("%d gaps", gaps)
					}
				})
			})
			if n > 200 {
				t.Fatal("too many operations")
			}
		}
	}
}

// TestEveryOperationFails lets each operation fail in turn.
func TestEveryOperationFails(t *testing.T) {
	run := func(t *testing.T, w *world, f *faulty) {
		r := rand.New(rand.NewPCG(7, 7))
		w.random(r, 30)
		w.members[0].begin(f, small)
		for range 3 {
			time.Sleep(3 * time.Second)
			w.random(r, 20)
		}
		w.put("last", "x")
		w.awaitArchived(w.members[0], time.Minute)
		w.awaitBase(f.Bucket, 40, time.Minute)
	}
	everyOperation(t, run, func(_ *faulty, first bool) error {
		if first {
			return errors.New("no network")
		}
		return nil
	})
}

// TestCrashAtEveryOperation ends the archiver at each operation in turn; a new one goes on.
func TestCrashAtEveryOperation(t *testing.T) {
	crashed := false // guarded by f.mu
	run := func(t *testing.T, w *world, f *faulty) {
		crashed = false
		r := rand.New(rand.NewPCG(7, 7))
		w.random(r, 30)
		m := w.members[0]
		m.begin(f, small)
		for range 40 {
			time.Sleep(300 * time.Millisecond)
			w.random(r, 2)
			f.mu.Lock()
			again := crashed
			if again {
				f.before, f.after, crashed = nil, nil, false
			}
			f.mu.Unlock()
			if again {
				m.end()
				m.begin(f, small)
			}
		}
		w.put("last", "x")
		f.mu.Lock()
		f.before, f.after = nil, nil
		f.mu.Unlock()
		w.awaitArchived(m, time.Minute)
		w.awaitBase(f.Bucket, 50, time.Minute)
	}
	everyOperation(t, run, func(f *faulty, _ bool) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		crashed = true
		return errors.New("the process is gone")
	})
}

// TestHangingBucket: an operation that never returns delays neither the end of the archiver nor
// another member's work.
func TestHangingBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(t, 1), newBucket(t)
		defer w.close()
		release := make(chan struct{})
		hanging := 0
		f := &faulty{Bucket: b}
		f.before = func(n int, op, key string) error {
			if n > 12 {
				f.mu.Lock()
				hanging++
				f.mu.Unlock()
				<-release
			}
			return nil
		}
		m := w.members[0]
		m.begin(f, small)
		for range 100 {
			time.Sleep(10 * time.Second)
			w.put("k", "v")
		}
		f.mu.Lock()
		if hanging == 0 || hanging > maxRunning {
			t.Errorf("%d operations hang, the most is %d", hanging, maxRunning)
		}
		f.mu.Unlock()
		st := m.a.Status()
		if st.State != debugpage.ArchiveFailing || st.LagSeconds < 60 || st.Error == "" {
			t.Errorf("status %+v", st)
		}
		begun := time.Now()
		m.end()
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("the end took %v", took)
		}
		close(release)
		f.mu.Lock()
		f.before = nil
		f.mu.Unlock()
		m.begin(f, small)
		w.put("last", "x")
		w.awaitArchived(m, time.Minute)
		w.verify(f, 1)
	})
}

// TestHangingBases: writes of base states that never return stop neither the entries nor the
// beginning of another session.
func TestHangingBases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(t, 1), newBucket(t)
		defer w.close()
		release := make(chan struct{})
		defer close(release)
		hang, hanging := false, 0
		f := &faulty{Bucket: b}
		f.before = func(_ int, op, key string) error {
			f.mu.Lock()
			hangs := hang && op == "put" && strings.HasPrefix(key, archive.PartPrefix)
			if hangs {
				hanging++
			}
			f.mu.Unlock()
			if hangs {
				<-release
			}
			return nil
		}
		m := w.members[0]
		m.begin(f, small)
		w.put("first", "x")
		w.awaitArchived(m, time.Minute)
		w.awaitBase(b, 1, time.Minute)
		f.mu.Lock()
		hang = true
		f.mu.Unlock()
		for range 60 {
			w.put("k", "v")
			time.Sleep(10 * time.Second)
		}
		f.mu.Lock()
		if hanging == 0 {
			t.Error("no operation hangs")
		}
		f.mu.Unlock()
		w.awaitArchived(m, time.Minute)
		// The appointment lapses.
		lead := func(id uint64) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.leader = id
		}
		lead(0)
		time.Sleep(2 * appointment)
		lead(m.id)
		w.put("last", "x")
		w.awaitArchived(m, time.Minute)
	})
}

// TestHangingBasesAndEntries: next to two writes of base states, two of entries never return, and
// leave one operation at a time. Another session begins all the same.
func TestHangingBasesAndEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(t, 1), newBucket(t)
		defer w.close()
		release := make(chan struct{})
		defer close(release)
		// left are the writes that still hang.
		left := map[string]int{}
		f := &faulty{Bucket: b}
		f.before = func(_ int, op, key string) error {
			prefix, _, _ := strings.Cut(key, "/")
			f.mu.Lock()
			hangs := op == "put" && left[prefix+"/"] > 0
			if hangs {
				left[prefix+"/"]--
			}
			f.mu.Unlock()
			if hangs {
				<-release
				return nil
			}
			time.Sleep(100 * time.Millisecond)
			return nil
		}
		m := w.members[0]
		m.begin(f, small)
		w.put("first", "x")
		w.awaitArchived(m, time.Minute)
		w.awaitBase(b, 1, time.Minute)
		hang := func(prefix string, n int) {
			f.mu.Lock()
			left[prefix] = n
			f.mu.Unlock()
			for all := m.a.guard.hanging() + n; m.a.guard.hanging() < all; {
				w.put("k", "v")
				time.Sleep(10 * time.Second)
			}
		}
		hang(archive.PartPrefix, maxBases)
		hang(archive.LogPrefix, maxRunning-1-maxBases)
		w.awaitArchived(m, time.Minute)
		for range 2 {
			// The appointment lapses.
			w.mu.Lock()
			w.leader = 0
			w.mu.Unlock()
			time.Sleep(2 * appointment)
			w.mu.Lock()
			w.leader = m.id
			w.mu.Unlock()
			w.put("last", "x")
			w.awaitArchived(m, time.Minute)
		}
	})
}

// TestSuccessor ends the member that archives, again and again: another one goes on without a gap.
func TestSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(t, 3), newBucket(t)
		defer w.close()
		r := rand.New(rand.NewPCG(3, 4))
		for _, m := range w.members {
			m.begin(b, small)
		}
		for range 6 {
			for range 20 {
				time.Sleep(time.Second)
				w.random(r, 10)
			}
			var at *member
			for _, m := range w.members {
				if m.a.Status().State == debugpage.ArchiveSending {
					if at != nil {
						t.Fatal("two members archive")
					}
					at = m
				}
			}
			if at == nil {
				t.Fatal("no member archives")
			}
			if at.id == w.leader {
				t.Errorf("the leader archives")
			}
			if lag := w.members[w.leader-1].a.Status().LagSeconds; lag > 1.6 {
				t.Errorf("a lag of %v s", lag)
			}
			at.end()
			for i := range 12 {
				time.Sleep(time.Second)
				w.random(r, 10)
				// The successor has been at work for a few seconds.
				if lag := w.members[w.leader-1].a.Status().LagSeconds; lag > 2.5 {
					t.Errorf("a lag of %v s %d s after the member that archives has ended", lag,
						i+1)
				}
			}
			at.begin(b, small)
		}
		// Another leader: the one that archives goes on, unless it is the leader.
		w.mu.Lock()
		w.leader, w.term = 2, 3
		w.mu.Unlock()
		for range 8 {
			time.Sleep(time.Second)
			w.random(r, 10)
			if lag := w.members[1].a.Status().LagSeconds; lag > 2.5 {
				t.Errorf("a lag of %v s after an election", lag)
			}
		}
		w.put("last", "x")
		time.Sleep(10 * time.Second)
		w.awaitArchived(w.members[1], time.Minute)
		w.verify(b, 5)
		for _, m := range w.members {
			if st := m.a.Status(); st.Gaps != 0 || st.ArchivedIndex < w.last() {
				t.Errorf("member %d: %+v", m.id, st)
			}
		}
	})
}

// TestOutage: after the bucket was away for all members, the leader does not go on to archive
// because the others have failed.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(t, 3), newBucket(t)
		defer w.close()
		f := &faulty{Bucket: b}
		for _, m := range w.members {
			m.begin(f, small)
		}
		w.put("a", "b")
		w.awaitArchived(w.members[0], time.Minute)
		time.Sleep(2 * lookInterval) // until all know the archive
		strike := func(before func(int, string, string) error) {
			f.mu.Lock()
			f.before = before
			f.mu.Unlock()
		}
		strike(func(int, string, string) error { return errors.New("away") })
		leader := w.members[w.leader-1]
		failing := func() bool {
			st := leader.a.Status()
			return st.State == debugpage.ArchiveFailing && st.FailingSeconds > outageAfter.Seconds()
		}
		for end := time.Now().Add(10 * time.Minute); !failing(); time.Sleep(time.Second) {
			w.put("c", "d")
			if time.Now().After(end) {
				t.Fatal("the leader is never tried")
			}
		}
		strike(nil)
		w.awaitArchived(leader, time.Minute)
		for range 20 {
			w.put("e", "f")
			time.Sleep(time.Second)
		}
		w.awaitArchived(leader, time.Minute)
		if st := leader.a.Status(); st.State != debugpage.ArchiveStandby {
			t.Errorf("the leader still archives: %+v", st)
		}
		w.verify(b, 1)
	})
}

// TestOtherMemberHasEntries: the appointee's log begins too late, and another member's does not.
func TestOtherMemberHasEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(t, 3), newBucket(t)
		defer w.close()
		for _, m := range w.members {
			m.begin(b, small)
		}
		w.put("a", "b")
		time.Sleep(10 * time.Second)
		w.awaitArchived(w.members[0], time.Minute)
		for range 5 {
			w.put("c", "d")
		}
		for _, m := range w.members {
			if m.id != 3 {
				m.truncate(w.last() + 1)
			}
		}
		w.awaitArchived(w.members[0], time.Minute)
		time.Sleep(2 * appointment) // the member that archived before goes on for a while
		w.verify(b, 1)
		for _, m := range w.members {
			if st := m.a.Status(); st.Gaps != 0 {
				t.Errorf("member %d: %+v", m.id, st)
			}
		}
	})
}

// TestGap: entries that no log has any more are reported, and a base bridges them.
func TestGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(t, 1), newBucket(t)
		defer w.close()
		f := &faulty{Bucket: b}
		m := w.members[0]
		long := func(o *Options) { small(o); o.BaseInterval = time.Hour }
		m.begin(f, long)
		w.put("a", "b")
		w.awaitArchived(m, time.Minute)
		f.mu.Lock()
		f.before = func(int, string, string) error { return errors.New("away") }
		f.mu.Unlock()
		for range 20 {
			time.Sleep(time.Second)
			w.put("c", "d")
		}
		m.truncate(w.last() - 4)
		f.mu.Lock()
		f.before = nil
		f.mu.Unlock()
		w.put("e", "f")
		w.awaitArchived(m, time.Minute)
		st := m.a.Status()
		if st.Gaps != 1 || st.Gap == nil || st.Gap.Last != m.FirstIndex()-1 {
			t.Fatalf("status %+v, gap %+v", st, st.Gap)
		}
		w.awaitBase(b, st.Gap.Last, time.Minute)
		w.put("g", "h")
		w.awaitArchived(m, time.Minute)
		o := readAll(t, b)
		// What the sender had read before the outage is archived after it.
		archived := o.bases[0].Index
		for _, l := range o.logs {
			if first, last, _ := archive.ParseLogName(l.Key); first <= archived+1 {
				archived = max(archived, last)
			}
		}
		if st.Gap.First != archived+1 {
			t.Fatalf("gap %+v, archived up to %d", st.Gap, archived)
		}
		r := restore(t, b, &o, &o.bases[len(o.bases)-1], w.last())
		w.compare(r)
		r.close(t)
		// A successor does not report it again.
		m.end()
		m.begin(f, long)
		w.put("i", "j")
		w.awaitArchived(m, time.Minute)
		time.Sleep(20 * time.Second)
		if st := m.a.Status(); st.Gaps > 0 {
			t.Fatalf("status %+v", st)
		}
	})
}

// TestForeignBucket: a bucket of another cluster, one with other encryption, and one with another
// history are refused and never written to.
func TestForeignBucket(t *testing.T) {
	const recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
	write := func(t *testing.T, b bucket.Bucket, id archive.Identity) {
		data, err := id.Encode()
		if err == nil {
			err = b.Put(context.Background(), archive.IdentityName, data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, prepare := range map[string]func(t *testing.T, b bucket.Bucket) func(*Options){
		"another cluster": func(t *testing.T, b bucket.Bucket) func(*Options) {
			write(t, b, archive.NewIdentity(clusterID+1, archive.ID{1}, time.Now(), nil))
			return small
		},
		"encrypted": func(t *testing.T, b bucket.Bucket) func(*Options) {
			write(t, b, archive.NewIdentity(clusterID, archive.ID{1}, time.Now(),
				[]string{recipient}))
			return small
		},
		"not encrypted": func(t *testing.T, b bucket.Bucket) func(*Options) {
			write(t, b, archive.NewIdentity(clusterID, archive.ID{1}, time.Now(), nil))
			return func(o *Options) { small(o); o.Recipients = []string{recipient} }
		},
		"another history": func(t *testing.T, b bucket.Bucket) func(*Options) {
			w := newWorld(t, 1)
			defer w.close()
			w.members[0].begin(b, small)
			for range 100 {
				w.put("a", "b")
			}
			time.Sleep(3 * time.Second)
			w.awaitArchived(w.members[0], time.Minute)
			return small
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &faulty{Bucket: newBucket(t)}
				options := prepare(t, f)
				w := newWorld(t, 1)
				defer w.close()
				w.do(fsm.Request{Claim: &lineage.Claim{Term: w.term, ID: lineage.ID{1}}})
				f.before = func(_ int, op, key string) error {
					if op == "put" {
						t.Errorf("%s was written", key)
					}
					return nil
				}
				w.members[0].begin(f, options)
				for i := range 300 {
					time.Sleep(400 * time.Millisecond)
					if i%10 == 9 {
						w.put("c", "d")
					}
					// It is looked at again and again, and stays refused meanwhile.
					st, held := w.members[0].a.Status(),
						w.members[0].a.o.Hold.LimitTruncation(2, 20, 0) != 20
					if i > 10 && (st.State != debugpage.ArchiveRefused || held) {
						t.Fatalf("after %d looks: the log is held: %v; %+v", i+1, held, st)
					}
				}
				st := w.members[0].a.Status()
				if st.State != debugpage.ArchiveRefused || st.Error == "" {
					t.Fatalf("status %+v", st)
				}
				t.Log(st.Error)
				if got := w.members[0].a.o.Hold.LimitTruncation(2, 20, 0); got != 20 {
					t.Errorf("the log is held for a refused archive: %d", got)
				}
			})
		})
	}
}

// TestVanishedIdentity: a bucket that is emptied, as an unmounted directory is, gets no second
// archive.
func TestVanishedIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(t, 1), newBucket(t)
		defer w.close()
		f := &faulty{Bucket: b}
		m := w.members[0]
		m.begin(f, small)
		w.put("a", "b")
		w.awaitArchived(m, time.Minute)
		f.mu.Lock()
		f.Bucket = newBucket(t)
		f.before = func(_ int, op, key string) error {
			if op == "put" && key == archive.IdentityName {
				t.Errorf("%s was written", key)
			}
			if op == "put" {
				return errors.New("away")
			}
			return nil
		}
		f.mu.Unlock()
		_, _, checked, err := m.a.connect(t.Context())
		if err == nil {
			err = checked()
		}
		if !errors.Is(err, bucket.ErrNotFound) {
			t.Errorf("a vanished identity: %v", err)
		}
	})
}

// TestDeadRecords: a part that is named again has keys that were deleted and compacted since.
func TestDeadRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(t, 1), newBucket(t)
		defer w.close()
		for i := range 100 {
			w.put(fmt.Sprint("key", i), "a value of some bytes")
		}
		m := w.members[0]
		m.begin(b, small)
		w.awaitBase(b, w.last(), time.Minute)
		for i := range 5 {
			w.do(fsm.Request{DeleteRange: &kv.DeleteRangeRequest{Key: fmt.Append(nil,
				"key", 10*i)}})
		}
		w.put("new", "x")
		_, revision := m.Position()
		w.do(fsm.Request{Compact: &kv.CompactRequest{Revision: revision}})
		time.Sleep(10 * time.Second)
		w.put("newer", "x")
		w.awaitArchived(m, time.Minute)
		w.awaitBase(b, w.last(), time.Minute)
		o := readAll(t, b)
		last := o.bases[len(o.bases)-1]
		if len(last.PartsOf(archive.LivePart)) == 0 {
			t.Errorf("no list of what counts: %+v", last.Parts)
		}
		w.verify(b, 2)
	})
}

// TestOnlyApplied: entries that the log has and this member has not applied stay there; they may be
// replaced.
func TestOnlyApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(t, 1), newBucket(t)
		defer w.close()
		m := w.members[0]
		m.begin(b, small)
		w.put("a", "b")
		w.awaitArchived(m, time.Minute)
		w.put("c", "d")
		w.awaitArchived(m, time.Minute)
		applied := w.last()
		w.mu.Lock()
		for i := range uint64(5) {
			w.entries = append(w.entries,
				&raftpb.Entry{Index: new(applied + 1 + i), Term: new(w.term),
					Type: raftpb.EntryNormal.Enum()})
		}
		w.mu.Unlock()
		time.Sleep(10 * time.Second)
		o := readAll(t, b)
		for _, x := range o.logs {
			if _, last, _ := archive.ParseLogName(x.Key); last > applied {
				t.Errorf("%s was sent, and %d is applied", x.Key, applied)
			}
		}
		if len(o.logs) == 0 {
			t.Error("no entry was sent")
		}
	})
}

// TestArchivedNeedsBase: entries count as archived only when there is a base before them, without a
// gap between.
func TestArchivedNeedsBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		defer w.close()
		f := &faulty{Bucket: newBucket(t)}
		noBases := func(_ int, op, key string) error {
			if op == "put" && strings.HasPrefix(key, archive.BasePrefix) {
				return errors.New("no room")
			}
			return nil
		}
		strike := func(before func(int, string, string) error) {
			f.mu.Lock()
			f.before = before
			f.mu.Unlock()
		}
		strike(noBases)
		m := w.members[0]
		long := func(o *Options) { small(o); o.BaseInterval = time.Hour }
		m.begin(f, long)
		for range 30 {
			w.put("a", "b")
			time.Sleep(time.Second)
		}
		if st := m.a.Status(); st.ArchivedIndex != 0 || st.LagSeconds < 20 || st.LagRevisions < 20 {
			t.Errorf("without a base: %+v", st)
		}
		strike(nil)
		w.awaitArchived(m, time.Minute)
		w.verify(f.Bucket, 1)

		strike(func(int, string, string) error { return errors.New("away") })
		for range 20 {
			w.put("c", "d")
			time.Sleep(time.Second)
		}
		m.truncate(w.last() - 4)
		strike(noBases)
		for range 40 {
			w.put("e", "f")
			time.Sleep(time.Second)
		}
		if st := m.a.Status(); st.Gap == nil || st.ArchivedIndex >= st.Gap.First ||
			st.LagSeconds < 50 || st.State != debugpage.ArchiveFailing || st.FailingSeconds < 10 {
			t.Errorf("with a gap: %+v", st)
		}
		strike(nil)
		w.awaitArchived(m, time.Minute)
		o := readAll(t, f.Bucket)
		r := restore(t, f.Bucket, &o, &o.bases[len(o.bases)-1], w.last())
		w.compare(r)
		r.close(t)
	})
}

// TestLostParts: parts that are missing or truncated are written again with the next base.
func TestLostParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(t, 1), newBucket(t)
		defer w.close()
		for i := range 100 {
			w.put(fmt.Sprint("key", i), "a value of some length")
		}
		m := w.members[0]
		m.begin(b, small)
		w.awaitArchived(m, time.Minute)
		o := readAll(t, b)
		lost := o.bases[0].PartsOf(archive.RecordsPart)
		if len(lost) < 3 {
			t.Fatalf("%d parts", len(lost))
		}
		for i, p := range lost[:2] {
			data, err := bucket.ReadAll(context.Background(), b, p.Name, archive.MaxObject)
			if err == nil {
				err = b.Delete(context.Background(), p.Name)
			}
			if err == nil && i == 0 {
				err = b.Put(context.Background(), p.Name, data[:len(data)/2])
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		w.put("c", "d")
		w.awaitBase(b, w.last(), time.Minute)
		w.awaitArchived(m, time.Minute)
		o = readAll(t, b)
		r := restore(t, b, &o, &o.bases[len(o.bases)-1], w.last())
		w.compare(r)
		r.close(t)
	})
}

// longList is a bucket whose lists take time for each name.
type longList struct {
	bucket.Bucket
	each time.Duration
}

func (l longList) List(ctx context.Context, prefix, after string,
	limit int) ([]bucket.Object, error) {
	list, err := l.Bucket.List(ctx, prefix, after, limit)
	time.Sleep(time.Duration(len(list)) * l.each)
	return list, err
}

// TestNothingOldIsLost ends the member that archives, and then it and the leader together, again
// and again, while a request takes 50 ms and the list of all seconds: no entry that is older than
// that takes is missing in the archive at any time.
func TestNothingOldIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			latency  = 50 * time.Millisecond
			election = time.Second // in which nothing is committed
			limit    = 1700 * time.Millisecond
		)
		w, b := newWorld(t, 3), newBucket(t)
		defer w.close()
		slow := &faulty{Bucket: longList{b, 20 * time.Millisecond},
			before: func(int, string, string) error {
				time.Sleep(latency)
				return nil
			}}
		options := func(o *Options) { o.BaseInterval = time.Hour }
		for _, m := range w.members {
			m.begin(slow, options)
		}
		age := newAges(w, b, 20*time.Millisecond)
		w.put("k", "v")
		w.awaitArchived(w.members[0], 10*time.Second)
		age.write(3 * time.Second)
		if age.worst > 1200*time.Millisecond {
			t.Errorf("an entry was missing for %v although nothing failed", age.worst)
		}
		for i := range 8 {
			age.worst = 0
			ended := w.archiving()
			// At any moment of the interval.
			age.write(time.Duration(150*i) * time.Millisecond)
			ended.end()
			lead := w.members[w.leader-1]
			most := limit
			if i%2 == 1 && lead != ended {
				most += election
				lead.end()
				time.Sleep(election)
				w.mu.Lock()
				w.leader, w.term = 6-ended.id-lead.id, w.term+1
				w.mu.Unlock()
			}
			age.write(4 * time.Second)
			t.Logf("round %d: at most %v", i, age.worst)
			if age.worst > most {
				t.Errorf("round %d: an entry was missing for %v, the most is %v", i,
					age.worst, most)
			}
			for _, m := range w.members {
				if m.a == nil {
					m.begin(slow, options)
				}
			}
			age.write(3 * time.Second)
		}
		w.awaitArchived(w.members[w.leader-1], 10*time.Second)
		w.verify(b, 1)
	})
}

// TestPrunedIsNoGap removes the entries between base states, as prune does when it keeps one state
// of a day: a successor reports no gap and keeps what follows restorable, whether it knows what was
// archived or nothing.
func TestPrunedIsNoGap(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("all restarted ", restart), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, b := newWorld(t, 3), newBucket(t)
				defer w.close()
				for _, m := range w.members {
					m.begin(b, small)
				}
				for range 30 {
					w.put("a", "b")
					time.Sleep(time.Second)
				}
				w.awaitArchived(w.members[0], time.Minute)
				o := readAll(t, b)
				if len(o.bases) < 4 {
					t.Fatalf("%d bases", len(o.bases))
				}
				newest := o.bases[len(o.bases)-1].Index
				removed := 0
				for _, x := range o.logs {
					if first, last, _ := archive.ParseLogName(x.Key); first > o.bases[0].Index &&
						last <= newest {
						removed++
						if err := b.Delete(t.Context(), x.Key); err != nil {
							t.Fatal(err)
						}
					}
				}
				if removed == 0 {
					t.Fatal("nothing was removed")
				}
				// The logs have nothing below the newest base either, so that the holes cannot be
				// filled.
				for _, m := range w.members {
					m.truncate(newest + 1)
					if restart || m.a.Status().State == debugpage.ArchiveSending {
						m.end()
						m.begin(b, small)
					}
				}
				for range 20 {
					w.put("a", "c")
					time.Sleep(time.Second)
				}
				w.put("last", "x")
				w.awaitArchived(w.members[0], time.Minute)
				for _, m := range w.members {
					if st := m.a.Status(); st.Gaps != 0 {
						t.Errorf("member %d: %+v, gap %+v", m.id, st, st.Gap)
					}
				}
				o = readAll(t, b)
				r := restore(t, b, &o, &o.bases[len(o.bases)-1], w.last())
				w.compare(r)
				r.close(t)
			})
		})
	}
}

// TestHolesAreFilled: a successor sends the entries that the one before has left out, before and
// after the newest base: one that knows nothing, and one that takes what the cluster knows to be
// archived for complete at first.
func TestHolesAreFilled(t *testing.T) {
	for _, members := range []int{1, 3} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { holesAreFilled(t, members) })
		})
	}
}

func holesAreFilled(t *testing.T, members int) {
	w, b := newWorld(t, members), newBucket(t)
	defer w.close()
	long := func(o *Options) { small(o); o.BaseInterval = 20 * time.Second }
	way := &faulty{Bucket: b}
	for _, m := range w.members {
		m.begin(way, long)
	}
	for range 50 {
		w.put("a", "b")
		time.Sleep(time.Second)
	}
	m := w.members[0]
	w.awaitArchived(m, time.Minute)
	removed := make(chan struct{})
	way.mu.Lock()
	// a successor begins at once
	way.before = func(int, string, string) error { <-removed; return nil }
	way.mu.Unlock()
	for _, x := range w.members {
		if x.a.Status().State == debugpage.ArchiveSending {
			x.end()
		}
	}
	o := readAll(t, b)
	newest, before, after := o.bases[len(o.bases)-1].Index, 0, 0
	if len(o.bases) != 3 {
		t.Fatalf("%d bases", len(o.bases))
	}
	for i, x := range o.logs {
		first, last, _ := archive.ParseLogName(x.Key)
		if first <= o.bases[1].Index || last == w.last() || i%3 == 0 {
			continue
		}
		if err := b.Delete(t.Context(), x.Key); err != nil {
			t.Fatal(err)
		}
		if last <= newest {
			before++
		} else {
			after++
		}
	}
	close(removed)
	if before < 3 || after < 3 {
		t.Fatalf("%d objects were removed before the newest base and %d after it", before, after)
	}
	if members == 1 {
		m.begin(b, long)
	}
	w.put("last", "x")
	w.awaitArchived(m, time.Minute)
	time.Sleep(3 * time.Second)
	for _, x := range w.members {
		if x.a == nil {
			continue
		}
		if st := x.a.Status(); st.Gaps != 0 {
			t.Errorf("member %d: %+v", x.id, st)
		}
	}
	w.verify(b, 3) // from each base by entries
}

// TestNothingIsReplaced: a sender deletes no object and tries to replace none, so that a bucket
// with object lock serves it. Only an object whose Put had no answer is put again, and has the same
// bytes.
func TestNothingIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		defer w.close()
		b := &locked{Bucket: newBucket(t), t: t, objects: map[string][]byte{}}
		n := 0
		f := &faulty{Bucket: b}
		f.after = func(int, string, string) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			if n++; n%5 == 0 {
				return errors.New("no answer")
			}
			return nil
		}
		r := rand.New(rand.NewPCG(5, 6))
		for _, m := range w.members {
			m.begin(f, small)
		}
		for i := range 60 {
			time.Sleep(time.Second)
			w.random(r, 10)
			m := w.members[i%3]
			if i%7 == 3 {
				m.end()
				m.begin(f, small)
			}
		}
		f.mu.Lock()
		f.after = nil
		f.mu.Unlock()
		w.put("last", "x")
		w.awaitArchived(w.members[0], time.Minute)
		if objects, again := b.counts(); again == 0 || objects < 50 {
			t.Errorf("%d objects, %d were put again: the test shows nothing", objects, again)
		}
		w.verify(b, 3)
	})
}

// locked is a bucket whose objects are locked. It reports who tries to change one.
type locked struct {
	bucket.Bucket
	t       *testing.T
	mu      sync.Mutex
	objects map[string][]byte
	again   int
}

func (l *locked) Put(ctx context.Context, key string, data []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if there, ok := l.objects[key]; ok {
		l.again++
		// Two senders may make a base of the same entry: the one that is there counts.
		if !bytes.Equal(there, data) && !strings.HasPrefix(key, archive.BasePrefix) &&
			key != archive.IdentityName {
			l.t.Errorf("%s was put again with other bytes", key)
		}
		return fmt.Errorf("%s: %w", key, bucket.ErrExists)
	}
	l.objects[key] = bytes.Clone(data)
	return l.Bucket.Put(ctx, key, data)
}

// counts returns the number of objects, and how many were put when they were there already.
func (l *locked) counts() (objects, again int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.objects), l.again
}

func (l *locked) Delete(_ context.Context, key string) error {
	l.t.Errorf("%s was to be deleted", key)
	return fmt.Errorf("%s: %w", key, bucket.ErrLocked)
}

// TestOldPartsAreSentAgain: a part that is damaged spoils the bases that list it, and none that is
// made FullInterval later.
func TestOldPartsAreSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(t, 1), newBucket(t)
		defer w.close()
		for i := range 100 {
			w.put(fmt.Sprint("key", i), "a value of some length")
		}
		m := w.members[0]
		d := &dated{Bucket: b, at: map[string]time.Time{}}
		m.begin(d, func(o *Options) { small(o); o.FullInterval = 30 * time.Second })
		w.awaitArchived(m, time.Minute)
		begun := time.Now()
		o := readAll(t, b)
		bad := o.bases[0].PartsOf(archive.RecordsPart)[0].Name
		data, err := bucket.ReadAll(t.Context(), b, bad, archive.MaxObject)
		if err == nil {
			err = b.Delete(t.Context(), bad)
		}
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/2] ^= 1
		if err := b.Put(t.Context(), bad, data); err != nil {
			t.Fatal(err)
		}
		for time.Since(begun) < time.Minute {
			w.put("more", "x")
			time.Sleep(time.Second)
		}
		w.awaitArchived(m, time.Minute)
		o = readAll(t, b)
		spoiled := 0
		for _, base := range o.bases {
			lists := slices.ContainsFunc(base.Parts,
				func(p archive.Part) bool { return p.Name == bad })
			if lists {
				spoiled++
			}
			// A base may be due some seconds after the part has become too old.
			if age := base.Time.Sub(begun); lists && age > 40*time.Second ||
				!lists && age < 20*time.Second {
				t.Errorf("the base after %v lists the damaged part: %v", age, lists)
			}
			oldest := base.Time
			for _, p := range base.Parts {
				if at := d.written(p.Name); at.Before(oldest) {
					oldest = at
				}
			}
			if age := base.Time.Sub(oldest); age > 40*time.Second {
				t.Errorf("the base after %v has a part that is %v old", base.Time.Sub(begun), age)
			}
		}
		if spoiled < 3 || spoiled > len(o.bases)-3 {
			t.Errorf("%d of %d bases list the damaged part", spoiled, len(o.bases))
		}
		w.put("last", "x")
		w.awaitArchived(m, time.Minute)
		o = readAll(t, b)
		r := restore(t, b, &o, &o.bases[len(o.bases)-1], w.last())
		w.compare(r)
		r.close(t)
	})
}

// dated is a bucket that knows when its objects were written.
type dated struct {
	bucket.Bucket
	mu sync.Mutex
	at map[string]time.Time
}

func (d *dated) Put(ctx context.Context, key string, data []byte) error {
	err := d.Bucket.Put(ctx, key, data)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		d.at[key] = time.Now()
	}
	return err
}

func (d *dated) written(key string) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at[key]
}

func (d *dated) List(ctx context.Context, prefix, after string,
	limit int) ([]bucket.Object, error) {
	list, err := d.Bucket.List(ctx, prefix, after, limit)
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range list {
		list[i].Modified = d.at[list[i].Key]
	}
	return list, err
}

// TestDiskCrashAtEveryOperation ends the member and the machine of the directory at each change of
// its file system in turn: what was not synced is lost, and the raft log has what was not archived
// only. A new archiver goes on without a gap.
func TestDiskCrashAtEveryOperation(t *testing.T) {
	step := int64(1)
	if testing.Short() {
		step = 20
	}
	// Half of a write, or nothing of any other operation; all of it without an answer; a sync that
	// loses what was written.
	for _, fault := range []faultfs.Fault{faultfs.ShortWrite, faultfs.FailPersisted,
		faultfs.FailLost} {
		n, more := int64(1), true
		for ; more; n += step {
			synctest.Test(t, func(t *testing.T) { more = crashDisk(t, n, fault) })
			if t.Failed() {
				t.Fatalf("%v at change %d", fault, n)
			}
		}
		t.Logf("%v: %d changes", fault, n)
	}
}

// crashDisk is TestDiskCrashAtEveryOperation for the n-th change. It returns false if there are
// fewer.
func crashDisk(t *testing.T, n int64, fault faultfs.Fault) bool {
	w := newWorld(t, 1)
	defer w.close()
	m, r := w.members[0], rand.New(rand.NewPCG(7, 8))
	w.random(r, 40)
	mem := memfs.New()
	var mu sync.Mutex
	changes := int64(0)
	fsys := faultfs.New(mem, func(op faultfs.Op, _ string) faultfs.Fault {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case changes >= n: // the process has ended
			return faultfs.Fail
		case !op.Changes():
			return faultfs.None
		}
		if changes++; changes < n {
			return faultfs.None
		}
		return fault
	})
	struck := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return changes >= n
	}
	open := func(fsys vfs.FS) bucket.Bucket {
		b, err := bucket.NewDirectory(fsys, "/archive", true)
		if err != nil && !struck() {
			t.Fatal(err)
		}
		return b
	}
	if b := open(fsys); !struck() {
		m.begin(b, small)
		for i := 0; i < 8 && !struck(); i++ {
			w.random(r, 4)
			time.Sleep(time.Second)
		}
		archived := m.a.Status().ArchivedIndex
		m.end()
		if archived > 0 {
			m.truncate(archived + 1)
		}
	}
	b := open(mem.Crash(rand.New(rand.NewPCG(uint64(n), 1))))
	m.begin(b, small)
	w.put("last", "x")
	w.awaitArchived(m, time.Minute)
	w.verify(b, 1)
	if st := m.a.Status(); st.Gaps != 0 {
		t.Errorf("status %+v, gap %+v", st, st.Gap)
	}
	return struck()
}
