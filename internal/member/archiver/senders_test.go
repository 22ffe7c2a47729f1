package archiver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"vigil/internal/store/archive"
)

// TestSendersAtOnce: members that cannot always be reached, and whose ways to the bucket are slow
// and fail, archive in turns and two at a time, and shorten their logs as far as Hold lets them.
// Nothing is lost, and nothing is reported as lost.
func TestSendersAtOnce(t *testing.T) {
	for i := range 6 {
		t.Run(fmt.Sprint(i), func(t *testing.T) { synctest.Test(t, sendAtOnce) })
	}
}

func sendAtOnce(t *testing.T) {
	var rough atomic.Bool
	disturb := func(int, string, string) error {
		switch {
		case !rough.Load():
		case rand.IntN(8) == 0:
			time.Sleep(time.Duration(1+rand.IntN(6000)) * time.Millisecond)
		case rand.IntN(10) == 0:
			return errors.New("away")
		}
		return nil
	}
	w, b := newWorld(t, 3), newBucket(t)
	defer w.close()
	for _, m := range w.members {
		m.begin(&faulty{Bucket: b, before: disturb, after: disturb}, small)
	}
	w.put("first", "x")
	w.awaitArchived(w.members[0], time.Minute)
	w.awaitBase(b, 1, time.Minute)
	rough.Store(true)
	r := rand.New(rand.NewPCG(rand.Uint64(), 1))
	for range 150 {
		time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
		w.random(r, 1+r.IntN(10))
		w.mu.Lock()
		for _, m := range w.members {
			w.away[m.id] = r.IntN(6) == 0
		}
		if r.IntN(12) == 0 {
			w.leader, w.term = 1+uint64(r.IntN(3)), w.term+1
		}
		w.mu.Unlock()
		for _, m := range w.members {
			first, cut := m.FirstIndex(), w.last()-min(w.last()-1, uint64(r.IntN(20)))
			if to := m.a.o.Hold.LimitTruncation(first, cut, 0); r.IntN(2) == 0 && to >= first {
				m.truncate(to + 1)
			}
		}
	}
	rough.Store(false)
	w.mu.Lock()
	clear(w.away)
	lead := w.members[w.leader-1]
	w.mu.Unlock()
	w.put("last", "x")
	w.awaitArchived(lead, 3*time.Minute)
	time.Sleep(time.Minute)
	for _, m := range w.members {
		if st := m.a.Status(); st.Gaps > 0 {
			t.Errorf("member %d: %d gaps, the last is %+v", m.id, st.Gaps, *st.Gap)
		}
	}
	w.verify(b, 2)
}

// TestBaseAfterOthers: no base is made before the archive has the entries up to one that another
// sender has made.
func TestBaseAfterOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(t, 1), newBucket(t)
		defer w.close()
		var away atomic.Bool
		m := w.members[0]
		m.begin(&faulty{Bucket: b, before: func(_ int, op, key string) error {
			if away.Load() && op == "put" && strings.HasPrefix(key, archive.LogPrefix) {
				return errors.New("away")
			}
			return nil
		}}, small)
		w.put("a", "b")
		w.awaitArchived(m, time.Minute)
		w.awaitBase(b, 1, time.Minute)
		away.Store(true)
		for range 20 {
			w.put("a", "c")
		}
		other := w.last()
		if err := b.Put(t.Context(),
			fmt.Sprintf("%s%016x-%016x.json", archive.BasePrefix, other, 2),
			[]byte("another sender's")); err != nil {
			t.Fatal(err)
		}
		before := m.a.Status().Bases
		for range 20 {
			time.Sleep(time.Minute)
			w.put("a", "d")
		}
		if n := m.a.Status().Bases - before; n > 0 {
			t.Errorf("%d bases were made", n)
		}
		away.Store(false)
		w.awaitArchived(m, time.Minute)
		w.awaitBase(b, other+1, 5*time.Minute)
	})
}
