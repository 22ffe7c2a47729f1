package lease

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"vigil/internal/kv"
)

func TestGrantRefuses(t *testing.T) {
	s := New()
	for _, c := range []struct {
		req  kv.LeaseGrantRequest
		want error
	}{
		{kv.LeaseGrantRequest{ID: 0, TTL: 10}, kv.ErrLeaseNotFound},
		{kv.LeaseGrantRequest{ID: 0, TTL: kv.MaxLeaseTTL + 1}, kv.ErrLeaseNotFound},
		{kv.LeaseGrantRequest{ID: 1, TTL: kv.MaxLeaseTTL + 1}, kv.ErrLeaseTTLTooLarge},
		{kv.LeaseGrantRequest{ID: 1, TTL: kv.MaxLeaseTTL}, nil},
		{kv.LeaseGrantRequest{ID: 1, TTL: kv.MaxLeaseTTL + 1}, kv.ErrLeaseTTLTooLarge},
		{kv.LeaseGrantRequest{ID: 1, TTL: 5}, kv.ErrLeaseExists},
		{kv.LeaseGrantRequest{ID: -1, TTL: -5}, nil},
	} {
		l, err := s.Grant(c.req, 7)
		if !errors.Is(err, c.want) || c.want == nil && (err != nil || l.ID != c.req.ID || l.Granted != 7) {
			t.Errorf("grant %+v: %+v, %v, want %v", c.req, l, err, c.want)
		}
	}
	if got := s.TakeTransitions(); len(got) != 2 || s.Len() != 2 || len(s.TakeTransitions()) != 0 {
		t.Errorf("changes %+v, %d leases", got, s.Len())
	}
}

// What is said about a lease that has ended says nothing about one that has its id now.
func TestAnotherLifeOfAnID(t *testing.T) {
	s := New()
	old, _ := s.Grant(kv.LeaseGrantRequest{ID: 5, TTL: 100}, 10)
	s.Remove(5)
	if l, err := s.Grant(kv.LeaseGrantRequest{ID: 5, TTL: 100}, 11); err != nil || !s.Has(l.LeaseRef) || s.Has(old.LeaseRef) {
		t.Errorf("granted again: %+v, %v", l, err)
	}
	if _, changed := s.Checkpoint(kv.LeaseCheckpoint{LeaseRef: old.LeaseRef, Remaining: 1, Since: old.Since}, 12); changed {
		t.Error("a checkpoint of the old life changed the new one")
	}
	tm := NewTimers(0)
	tm.Add(old, 0)
	tm.Add(Lease{LeaseRef: kv.LeaseRef{ID: 5, Granted: 11}, TTL: 200}, time.Second)
	if ended, _, _ := tm.Due(150*time.Second, never); len(ended) != 0 || tm.Len() != 1 || len(tm.heap) != 1 {
		t.Errorf("due: %+v", ended)
	}
}

func never(kv.LeaseRef) bool { return false }

func TestRecord(t *testing.T) {
	for _, l := range []Lease{
		{LeaseRef: kv.LeaseRef{ID: 1}},
		{LeaseRef: kv.LeaseRef{ID: 1, Granted: 7}, TTL: 60, Remaining: 3, Since: 7},
		{LeaseRef: kv.LeaseRef{ID: 1, Granted: 7}, TTL: 60, Remaining: 3, Since: 1 << 62},
		{LeaseRef: kv.LeaseRef{ID: -1, Granted: 1 << 60}, TTL: kv.MaxLeaseTTL, Remaining: 3},
	} {
		k, v := l.Record()
		if got, err := ParseRecord(k, v); err != nil || got != l {
			t.Errorf("%+v came back as %+v, %v", l, got, err)
		}
		for n := range v {
			if _, err := ParseRecord(k, v[:n]); !errors.Is(err, kv.ErrCorrupt) {
				t.Errorf("%d of %d bytes: %v", n, len(v), err)
			}
		}
	}
	for _, l := range []Lease{{}, {LeaseRef: kv.LeaseRef{ID: 1}, TTL: -1}, {LeaseRef: kv.LeaseRef{ID: 1}, TTL: 1, Remaining: 2}, {LeaseRef: kv.LeaseRef{ID: 1}, TTL: kv.MaxLeaseTTL + 1}} {
		if k, v := l.Record(); !errors.Is(second(ParseRecord(k, v)), kv.ErrCorrupt) {
			t.Errorf("%+v is read", l)
		}
	}
}

func second(_ Lease, err error) error { return err }

func FuzzParseRecord(f *testing.F) {
	l := Lease{LeaseRef: kv.LeaseRef{ID: 7, Granted: 300}, TTL: 1000, Remaining: 900}
	k, v := l.Record()
	f.Add(k, v)
	f.Fuzz(func(t *testing.T, key, value []byte) {
		l, err := ParseRecord(key, value)
		if err != nil {
			return
		}
		if k, v := l.Record(); !bytes.Equal(k, key) || !bytes.Equal(v, value) {
			t.Errorf("%x, %x is %+v, which is %x, %x", key, value, l, k, v)
		}
	})
}

// The state against a map from key to lease.
func TestStateAgainstModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	s, granted, keys := New(), map[int64]Lease{}, map[string]int64{}
	for i := range 30_000 {
		id := rng.Int64N(12)
		switch n := rng.IntN(100); {
		case n < 5:
			l, err := s.Grant(kv.LeaseGrantRequest{ID: id, TTL: 10 + rng.Int64N(50)}, uint64(i))
			_, exists := granted[id]
			if (err == nil) != (id != 0 && !exists) {
				t.Fatalf("seed %d, step %d: grant of %d: %v", seed, i, id, err)
			}
			if err == nil {
				granted[id] = l
			}
		case n < 8:
			s.Remove(id)
			delete(granted, id)
			for k, l := range keys {
				if l == id {
					delete(keys, k)
				}
			}
		case n < 12:
			l, ok := granted[id]
			c := kv.LeaseCheckpoint{LeaseRef: l.LeaseRef, Remaining: max(rng.Int64N(70)-10, -1), Since: l.Since - uint64(rng.IntN(2))}
			got, changed := s.Checkpoint(c, uint64(i))
			// The whole TTL can always be given back; anything less only while it counts from the same entry.
			if want := ok && c.Remaining >= 0 && c.Remaining <= l.TTL && (c.Remaining == 0 || c.Since == l.Since && c.Remaining != l.Remaining); changed != want {
				t.Fatalf("seed %d, step %d: checkpoint %+v of %+v: %v", seed, i, c, l, changed)
			}
			if changed {
				granted[id] = got
			}
		default:
			key := fmt.Sprint(rng.IntN(400))
			if _, ok := granted[id]; !ok {
				id = 0
			}
			buf := []byte(key)
			s.Attach(buf, keys[key], id)
			clear(buf) // it was copied
			if keys[key] = id; id == 0 {
				delete(keys, key)
			}
		}
		if i%100 != 0 {
			continue
		}
		for id := range int64(12) {
			l, ok := s.Lookup(id)
			if want, exists := granted[id]; l != want || ok != exists || s.Exists(id) != exists {
				t.Fatalf("seed %d, step %d: lease %d is %+v, want %+v", seed, i, id, l, want)
			}
			var want []string
			for k, l := range keys {
				if l == id && id != 0 {
					want = append(want, k)
				}
			}
			slices.Sort(want)
			if got := s.Keys(id); !slices.Equal(got, want) || s.Attached(id) != len(want) {
				t.Fatalf("seed %d, step %d: keys of %d are %q, want %q", seed, i, id, got, want)
			}
			if got := slices.Sorted(s.Each(id)); !slices.Equal(got, want) {
				t.Fatalf("seed %d, step %d: each of the keys of %d: %q, want %q", seed, i, id, got, want)
			}
		}
	}
	again := New()
	for _, l := range s.All() {
		again.Load(l)
	}
	again.AttachAll(func(yield func(string, int64) bool) {
		for k, l := range keys {
			if !yield(k, l) {
				return
			}
		}
		yield("stray", 99)
	})
	if !reflect.DeepEqual(again.All(), s.All()) {
		t.Error("loaded leases are others")
	}
	for _, l := range s.All() {
		if !slices.Equal(again.Keys(l.ID), s.Keys(l.ID)) {
			t.Errorf("keys of %d after loading: %q", l.ID, again.Keys(l.ID))
		}
	}
}

// mark is a lease as a model of the timers sees it.
type mark struct {
	lease    Lease
	deadline time.Duration
	ending   bool
	marked   bool
	retry    time.Duration
}

// The timers against a list that is searched each time: nothing ends early, and everything in time.
func TestTimersAgainstModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	const interval = 20 * time.Second
	now := time.Duration(rng.Int64N(1e12))
	tm, model := NewTimers(interval), map[int64]*mark{}
	lastMark := map[int64]time.Duration{}
	for i := range 50_000 {
		id := 1 + rng.Int64N(60)
		m := model[id]
		switch n := rng.IntN(100); {
		case n < 10:
			l := Lease{LeaseRef: kv.LeaseRef{ID: id, Granted: uint64(i)}, TTL: 1 + rng.Int64N(60)}
			tm.Add(l, now)
			model[id] = &mark{lease: l, deadline: now + seconds(l.TTL)}
			lastMark[id] = now
		case n < 15:
			tm.Remove(id)
			delete(model, id)
		case n < 60:
			if m != nil && m.marked && rng.IntN(2) == 0 {
				tm.Unmark(tm.Marked(id))
				m.marked = false
			}
			ttl, ok := tm.Renew(id, now)
			if want := m != nil && !m.ending && !m.marked; ok != want || ok && ttl != m.lease.TTL {
				t.Fatalf("seed %d, step %d: renewing %+v: %v", seed, i, m, ok)
			}
			if ok {
				m.deadline = max(m.deadline, now+seconds(m.lease.TTL))
				lastMark[id] = now
			}
		case n < 63 && m != nil && m.ending && m.retry == 0:
			known := rng.IntN(2) == 0
			m.retry = now + time.Duration(rng.Int64N(5e9))
			tm.Retry(m.lease.LeaseRef, m.retry, known)
			m.ending = !known
		case n < 65:
			var all []Lease
			for _, m := range model {
				m.lease.Remaining = rng.Int64N(m.lease.TTL + 1)
				m.deadline, m.ending, m.retry = now+seconds(m.lease.Left())+time.Second, false, 0
				m.marked = m.lease.Remaining > 0
				all = append(all, m.lease)
				lastMark[m.lease.ID] = now
			}
			tm = Fill(interval, all, now, time.Second)
		default:
			now += time.Duration(rng.Int64N(3e9))
		}
		ended, checkpoints, more := tm.Due(now, func(kv.LeaseRef) bool { return rng.IntN(4) == 0 })
		for _, ref := range ended {
			m := model[ref.ID]
			if m == nil || m.lease.LeaseRef != ref || m.deadline > now || m.ending && m.retry == 0 || m.retry > now {
				t.Fatalf("seed %d, step %d at %v: due is %+v, which is %+v", seed, i, now, ref, m)
			}
			m.ending, m.retry = true, 0
		}
		for _, c := range checkpoints {
			m := model[c.ID]
			left := (m.deadline - now + time.Second - 1) / time.Second
			if m.lease.LeaseRef != c.LeaseRef || c.Remaining != min(int64(left), m.lease.TTL) || now-lastMark[c.ID] < interval {
				t.Fatalf("seed %d, step %d at %v: checkpoint %+v of %+v, the last at %v", seed, i, now, c, m, lastMark[c.ID])
			}
			lastMark[c.ID], m.marked = now, true
			if _, n := tm.Marked(c.ID); n == 0 {
				t.Fatalf("seed %d, step %d: not marked", seed, i)
			}
		}
		if !more {
			for id, m := range model {
				if m.deadline <= now && !m.ending && m.retry <= now {
					t.Fatalf("seed %d, step %d at %v: %d is not due: %+v", seed, i, now, id, m)
				}
				if !m.ending && m.deadline-now > interval && now-lastMark[id] > interval+4*time.Second && m.retry == 0 {
					t.Fatalf("seed %d, step %d at %v: %d has no checkpoint since %v", seed, i, now, id, lastMark[id])
				}
			}
		}
		if tm.Len() != len(model) {
			t.Fatalf("seed %d, step %d: %d timers, want %d", seed, i, tm.Len(), len(model))
		}
		for k, x := range tm.heap {
			if tm.pool.at(x.timer).at != k || k > 0 && tm.heap[(k-1)/2].due > x.due {
				t.Fatalf("seed %d, step %d: no heap at %d", seed, i, k)
			}
		}
	}
}

// A remaining TTL that is stored while an older one is being taken back stays marked.
func TestMarks(t *testing.T) {
	tm := NewTimers(10 * time.Second)
	l := Lease{LeaseRef: kv.LeaseRef{ID: 1, Granted: 1}, TTL: 100}
	tm.Add(l, 0)
	tm.Due(10*time.Second, never)
	ref, first := tm.Marked(1)
	tm.Due(20*time.Second, never)
	tm.Unmark(ref, first)
	if _, n := tm.Marked(1); n == 0 || n == first {
		t.Errorf("mark %d after %d was taken back", n, first)
	}
	_, n := tm.Marked(1)
	tm.Unmark(kv.LeaseRef{ID: 1, Granted: 2}, n)
	if _, again := tm.Marked(1); again != n {
		t.Error("another life's mark was taken back")
	}
	tm.Unmark(ref, n)
	if _, n := tm.Marked(1); n != 0 {
		t.Errorf("mark %d", n)
	}
}

func many(n int) []Lease {
	out := make([]Lease, n)
	for i := range out {
		out[i] = Lease{LeaseRef: kv.LeaseRef{ID: int64(i)*7919 + 1, Granted: uint64(i)}, TTL: 10 + int64(i%600)}
	}
	return out
}

// A tick over 100,000 leases, of which all are renewed in time.
func BenchmarkTick(b *testing.B) {
	all := many(100_000)
	tm := Fill(5*time.Minute, all, 0, 0)
	now := time.Duration(0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		now += 100 * time.Millisecond
		for k := range 1000 {
			tm.Renew(all[(i*1000+k)%len(all)].ID, now)
		}
		for more := true; more; {
			_, _, more = tm.Due(now, never)
		}
	}
}

func BenchmarkRenew(b *testing.B) {
	all := many(100_000)
	tm := Fill(5*time.Minute, all, 0, 0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		tm.Renew(all[i%len(all)].ID, time.Duration(i))
	}
}

// What 100,000 leases with a key each take, counted and stored.
func BenchmarkMemory(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		s := New()
		for _, l := range many(100_000) {
			s.Load(l)
			s.Attach([]byte(strings.Repeat("k", 30)+fmt.Sprint(l.ID)), 0, l.ID)
		}
		Fill(5*time.Minute, s.All(), 0, 0)
	}
}

func TestTimerSize(t *testing.T) {
	if n := unsafe.Sizeof(timer{}); n > 64 {
		t.Errorf("a timer has %d bytes: more than a line of the cache", n)
	}
}

// TestEachAndChanges changes the state while the keys of a lease are visited, which a client may let take long.
func TestEachAndChanges(t *testing.T) {
	const keys = 5000
	s := New()
	for id := range int64(2) {
		if _, err := s.Grant(kv.LeaseGrantRequest{ID: id + 1, TTL: 60}, 1); err != nil {
			t.Fatal(err)
		}
	}
	name := func(i int) []byte { return fmt.Appendf(nil, "%05d", i) }
	for i := range keys {
		s.Attach(name(i), 0, 1)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	attached, left := map[string]bool{}, map[string]bool{}
	visits := 0
	for k := range s.Each(1) {
		attached[k] = true
		if visits++; visits%2 != 0 {
			continue
		}
		changed := make(chan struct{})
		go func() {
			defer close(changed)
			gone := name(rng.IntN(keys))
			left[string(gone)] = true
			s.Attach(gone, 1, 2)
			s.Attach(name(keys+visits), 0, 1)
		}()
		select {
		case <-changed:
		case <-time.After(10 * time.Second):
			t.Fatal("the state cannot be changed while the keys of a lease are visited")
		}
	}
	for i := range keys {
		if k := string(name(i)); !attached[k] && !left[k] {
			t.Errorf("key %s was attached all the time, and was not visited", k)
		}
	}
}
