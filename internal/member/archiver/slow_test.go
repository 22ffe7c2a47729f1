package archiver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/bucket"
)

// TestSlowBucket: each request takes up to two seconds. An entry waits for the request before and
// its own while one member archives; when that member ends, for the few requests that depend on
// each other with which another one begins.
func TestSlowBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const request = 2 * time.Second
		w, b := newWorld(t, 3), newBucket(t)
		defer w.close()
		slow := &faulty{Bucket: b, before: func(int, string, string) error {
			time.Sleep(request/2 + rand.N(request/2))
			return nil
		}}
		options := func(o *Options) { o.BaseInterval = 20 * time.Second }
		for _, m := range w.members {
			m.begin(slow, options)
		}
		age := newAges(w, b, 100*time.Millisecond)
		w.put("first", "x")
		w.awaitArchived(w.members[0], time.Minute)
		w.awaitBase(b, 1, time.Minute)
		age.write(time.Minute)
		if most := DefaultInterval + 2*request; age.worst > most {
			t.Errorf("an entry was missing for %v although nothing failed, the most is %v",
				age.worst, most)
		}
		t.Logf("nothing fails: at most %v", age.worst)
		for i := range 8 {
			ended := w.archiving()
			age.worst = 0
			age.write(time.Duration(300*i) * time.Millisecond)
			ended.end()
			age.write(20 * time.Second)
			t.Logf("round %d: at most %v", i, age.worst)
			// The request that was interrupted; the order; identity and names, manifest and newest
			// entry, the entries; half a second for each of the two members to notice.
			if most := DefaultInterval + 4*request + time.Second; age.worst > most {
				t.Errorf("round %d: an entry was missing for %v, the most is %v", i,
					age.worst, most)
			}
			ended.begin(slow, options)
			age.write(10 * time.Second)
		}
		w.awaitArchived(w.members[w.leader-1], time.Minute)
		w.verify(b, 2)
	})
}

// TestDeadConnection: requests get no answer until they are given up, as on a connection that a
// firewall has forgotten, and their repetitions do. A storage that takes longer for each request is
// waited for all the same.
func TestDeadConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(t, 1), newBucket(t)
		defer w.close()
		var dead atomic.Bool
		var takes atomic.Int64
		f := &stalling{Bucket: b, stall: func() (time.Duration, bool) {
			return time.Duration(takes.Load()), dead.Swap(false)
		}}
		m := w.members[0]
		m.begin(f, func(o *Options) { o.BaseInterval = time.Hour })
		age := newAges(w, b, 100*time.Millisecond)
		w.put("first", "x")
		w.awaitArchived(m, time.Minute)
		for range 5 {
			age.worst = 0
			dead.Store(true)
			age.write(20 * time.Second)
			if most := DefaultInterval + shortTimeout + time.Second; age.worst > most {
				t.Errorf("an entry was missing for %v, the most is %v", age.worst, most)
			}
		}
		takes.Store(int64(opTimeout - time.Second))
		age.write(10 * time.Minute)
		takes.Store(0)
		w.put("last", "x")
		w.awaitArchived(m, 2*time.Minute)
		if st := m.a.Status(); st.Objects < 20 {
			t.Errorf("%+v", st)
		}
		w.verify(b, 1)
	})
}

// slowLink is a bucket that takes a number of bytes in a second.
type slowLink struct {
	bucket.Bucket
	rate int
}

func (s slowLink) Put(ctx context.Context, key string, data []byte) error {
	select {
	case <-time.After(time.Duration(len(data)) * time.Second / time.Duration(s.rate)):
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.Bucket.Put(ctx, key, data)
}

// TestSlowLink: a base gets through a link that is as slow as a bucket may be, although its parts
// take minutes.
func TestSlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(t, 1), newBucket(t)
		defer w.close()
		value := make([]byte, 1<<20)
		random := rand.NewChaCha8([32]byte{})
		for i := range 33 {
			_, _ = random.Read(value)
			w.put(fmt.Sprint(i), string(value))
		}
		m := w.members[0]
		m.begin(slowLink{b, bucket.SlowestRate}, func(o *Options) { o.BaseInterval = time.Hour })
		w.awaitBase(b, w.last(), 20*time.Minute)
	})
}

// failingSource is a member whose raft log cannot be read at times.
type failingSource struct {
	*member
	fails *atomic.Bool
}

func (s failingSource) Entries(first, last, maxBytes uint64) ([]*raftpb.Entry, error) {
	if s.fails.Swap(false) {
		return nil, errors.New("the log cannot be read")
	}
	return s.member.Entries(first, last, maxBytes)
}

// TestPauseAfterOutage: the pause after failures begins anew once a member has archived again.
func TestPauseAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(t, 1), newBucket(t)
		defer w.close()
		var away, fails atomic.Bool
		away.Store(true)
		f := &faulty{Bucket: b, before: func(_ int, op, _ string) error {
			if away.Load() && op == "list" {
				return errors.New("away")
			}
			return nil
		}}
		m := w.members[0]
		m.begin(f, func(o *Options) {
			o.BaseInterval, o.Source = time.Hour,
				failingSource{m, &fails}
		})
		age := newAges(w, b, 100*time.Millisecond)
		w.put("first", "x")
		time.Sleep(time.Minute)
		away.Store(false)
		w.awaitArchived(m, 2*maxPause)
		age.write(time.Minute)
		age.worst = 0
		fails.Store(true)
		age.write(maxPause)
		if fails.Load() {
			t.Fatal("the log was not read")
		}
		if most := 2 * DefaultInterval; age.worst > most {
			t.Errorf("an entry was missing for %v after one failure, the most is %v",
				age.worst, most)
		}
		w.awaitArchived(m, maxPause)
		w.verify(b, 1)
	})
}
