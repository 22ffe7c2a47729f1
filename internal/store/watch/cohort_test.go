package watch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// flock is a hub with a stream that has watchers of the key k, in a bubble of fake time.
type flock struct {
	t   *testing.T
	src *memSource
	hub *Hub
	s   *Stream
}

func withFlock(t *testing.T, watchers int, o Options, run func(f *flock)) {
	synctest.Test(t, func(t *testing.T) {
		f := &flock{t: t, src: newMemSource()}
		f.hub = New(f.src, o)
		defer f.hub.Close()
		f.s = f.hub.NewStream(StreamInfo{})
		f.s.NotifyReady(NewReady(), f)
		for range watchers {
			f.s.Create(CreateRequest{Key: []byte("k"), ProgressNotify: true})
		}
		f.take()
		run(f)
		checkValid(t, f.hub)
	})
}

func (f *flock) put() {
	rev, events := f.src.commit(op{key: "k", value: "v"})
	f.hub.Publish(rev, events)
	synctest.Wait()
}

// take returns the queued responses.
func (f *flock) take() (all []Response) {
	f.t.Helper()
	for {
		rs, err := f.s.Take(nil, 1<<20)
		if err != nil {
			f.t.Fatal(err)
		}
		if len(rs) == 0 {
			return all
		}
		all = append(all, rs...)
	}
}

// ids returns the watchers that get the responses, which must be so many.
func (f *flock) ids(responses int) (ids []int64) {
	f.t.Helper()
	rs := f.take()
	if len(rs) != responses {
		f.t.Errorf("%d responses, want %d", len(rs), responses)
	}
	for _, r := range rs {
		ids = append(append(ids, r.WatchID), r.Also...)
	}
	return ids
}

func (f *flock) want(ids []int64, want ...int64) {
	f.t.Helper()
	if slices.Sort(ids); !slices.Equal(ids, want) {
		f.t.Errorf("watchers %v got the event, want %v", ids, want)
	}
}

// divided requires that the watchers of the key have so many cohorts.
func (f *flock) divided(cohorts int) {
	f.t.Helper()
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	if n := len(f.hub.mu.live.exact["k"].cohorts()); n != cohorts {
		f.t.Errorf("%d cohorts, want %d", n, cohorts)
	}
}

// TestCohort: watchers that do not change are divided, and every change ends that.
func TestCohort(t *testing.T) {
	withFlock(t, 3, Options{}, func(f *flock) {
		f.put()
		f.divided(0)
		f.want(f.ids(1), 0, 1, 2)
		f.put()
		f.divided(1)
		f.want(f.ids(1), 0, 1, 2)

		f.s.Create(CreateRequest{Key: []byte("k")})
		f.take()
		f.divided(0)
		f.put()
		f.want(f.ids(1), 0, 1, 2, 3)
		f.put()
		f.divided(1)
		f.want(f.ids(1), 0, 1, 2, 3)

		f.s.Cancel(1)
		f.take()
		f.divided(0)
		f.put()
		f.put()
		f.divided(1)
		f.take()

		// A cancel of another watcher of the stream changes nothing.
		f.s.Create(CreateRequest{Key: []byte("z")})
		f.s.Cancel(4)
		f.take()
		f.put()
		f.divided(1)
		f.want(f.ids(1), 0, 2, 3)
	})
}

// TestCohortKinds: watchers get the same responses only if they have asked for the same.
func TestCohortKinds(t *testing.T) {
	withFlock(t, 2, Options{}, func(f *flock) {
		f.s.Create(CreateRequest{Key: []byte("k"), PrevKV: true})
		f.s.Create(CreateRequest{Key: []byte("k"), NoPut: true})
		f.s.Create(CreateRequest{Key: []byte("k"), PrevKV: true})
		f.s.Create(CreateRequest{Key: []byte("k"), NoPut: true})
		f.take()
		for range 3 {
			f.put()
			rs := f.take()
			if len(rs) != 2 || rs[0].WatchID != 0 || !slices.Equal(rs[0].Also, []int64{1}) || rs[1].WatchID != 2 || !slices.Equal(rs[1].Also, []int64{4}) {
				t.Errorf("got %+v", rs)
			}
		}
		f.divided(3)
	})
}

// TestCohortFuture: a watcher of a later revision gets nothing before it, and the events of the others are queued for them together meanwhile.
func TestCohortFuture(t *testing.T) {
	withFlock(t, 2, Options{}, func(f *flock) {
		f.s.Create(CreateRequest{Key: []byte("k"), StartRev: f.src.Revision() + 4})
		f.take()
		for range 3 {
			f.put()
			f.want(f.ids(1), 0, 1)
		}
		f.divided(2)
		f.single(f.hub.mu.live, 0, 1)
		for range 2 {
			f.put()
			f.want(f.ids(1), 0, 1, 2)
		}
		f.single(f.hub.mu.live, 0, 0)
	})
}

// single requires that the last batch was delivered to so many watchers of the key by themselves in each cohort.
func (f *flock) single(g *group, want ...int) {
	f.t.Helper()
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	var got []int
	for _, c := range g.exact["k"].cohorts() {
		n := 0
		if c.single {
			n = len(c.watchers)
		}
		got = append(got, n)
	}
	if !slices.Equal(got, want) {
		f.t.Errorf("delivered to %v watchers by themselves, want %v", got, want)
	}
}

// TestCohortCancelInScan: watchers that are canceled while a scan reads history, also the one that starts last, leave the others together.
func TestCohortCancelInScan(t *testing.T) {
	withFlock(t, 0, Options{CatchUpBytes: 1}, func(f *flock) {
		for range 9 {
			f.src.commit(op{key: "k", value: "v"})
		}
		f.hub.Publish(f.src.Revision(), nil)
		synctest.Wait()
		reads := 0
		f.src.mu.onRead = func() {
			f.src.mu.Unlock()
			defer f.src.mu.Lock()
			switch reads++; reads {
			case 5:
				f.s.Cancel(1)
				f.s.Cancel(4)
			case 9:
				f.hub.mu.Lock()
				g := f.hub.mu.reading[0]
				f.hub.mu.Unlock()
				f.single(g, 0, 0)
			}
		}
		for _, start := range []int64{2, 2, 2, 8, 10} {
			f.s.Create(CreateRequest{Key: []byte("k"), StartRev: start})
		}
		synctest.Wait()
		events := map[int64]int{}
		for _, r := range f.take() {
			for _, one := range r.each(nil) {
				events[one.WatchID] += len(one.Events)
			}
		}
		if want := map[int64]int{0: 9, 1: 4, 2: 9, 3: 3, 4: 0}; reads < 9 || !maps.Equal(events, want) {
			t.Errorf("%d reads, events %v, want %v", reads, events, want)
		}
	})
}

// TestCohortCancel: a watcher that is canceled while a batch is delivered gets nothing after the answer, and the others get the event.
func TestCohortCancel(t *testing.T) {
	withFlock(t, 3, Options{}, func(f *flock) {
		f.put()
		f.put()
		f.divided(1)
		f.take()
		h := f.hub
		h.mu.Lock()
		h.mu.live.running = true // as if the matcher had released the lock
		h.mu.Unlock()
		f.s.Cancel(1)
		h.mu.Lock()
		h.mu.live.running = false
		h.mu.Unlock()
		f.put()
		var got []string
		for _, r := range f.take() {
			for _, one := range r.each(nil) {
				got = append(got, fmt.Sprintf("%d canceled=%v events=%d", one.WatchID, one.Canceled, len(one.Events)))
			}
		}
		want := []string{"1 canceled=true events=0", "0 canceled=false events=1", "2 canceled=false events=1"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestCohortNoRoom: if there is no room for a cohort, all its watchers get the event later, once.
func TestCohortNoRoom(t *testing.T) {
	withFlock(t, 3, Options{StreamBytes: 700}, func(f *flock) {
		f.put()
		f.put()
		f.divided(1)
		for range 20 {
			f.put()
		}
		stalled := 0
		for _, w := range f.hub.Stats().Streams[0].Watchers {
			if w.State == Stalled {
				stalled++
			}
		}
		if stalled != 3 {
			t.Errorf("%d watchers wait for room, want 3", stalled)
		}
		events := map[int64]int{}
		for events[0] < 22 || events[1] < 22 || events[2] < 22 {
			rs := f.take()
			if len(rs) == 0 {
				t.Fatalf("got %v events, and no more", events)
			}
			for _, r := range rs {
				for _, one := range r.each(nil) {
					events[one.WatchID] += len(one.Events)
				}
			}
			synctest.Wait()
		}
		if events[0]+events[1]+events[2] != 66 {
			t.Errorf("got %v events, want 22 each", events)
		}
	})
}

// TestCohortMembers: the members of a round get the event with their cohorts, and then none waits any more.
func TestCohortMembers(t *testing.T) {
	withFlock(t, 2, Options{}, func(f *flock) {
		for range 2 {
			f.s.Create(CreateRequest{Key: []byte("k"), Fragment: true})
		}
		f.put()
		f.put()
		f.divided(2)
		f.take()
		f.hub.mu.Lock()
		f.s.mu.Lock()
		for _, id := range []int64{0, 3} {
			f.s.watchers.get(id).member = true
			f.s.mu.members++
		}
		f.s.mu.Unlock()
		f.hub.mu.Unlock()
		f.put()
		f.want(f.ids(1), 0, 1, 2, 3)
		f.s.mu.Lock()
		defer f.s.mu.Unlock()
		if f.s.mu.members != 0 {
			t.Errorf("watchers wait for %d others that got the event", f.s.mu.members)
		}
	})
}

// TestCohortFragments: the fragments of a watcher follow each other.
func TestCohortFragments(t *testing.T) {
	withFlock(t, 0, Options{FragmentBytes: 200}, func(f *flock) {
		for range 2 {
			f.s.Create(CreateRequest{Key: []byte("a"), End: []byte("z"), Fragment: true})
		}
		f.take()
		for range 3 {
			rev, events := f.src.commit(op{key: "a", value: strings.Repeat("v", 100)}, op{key: "b", value: strings.Repeat("v", 100)})
			f.hub.Publish(rev, events)
			synctest.Wait()
			var got []string
			for _, r := range f.take() {
				got = append(got, fmt.Sprintf("%d %v %v", r.WatchID, r.Also, r.Fragment))
			}
			if want := []string{"0 [] true", "0 [] false", "1 [] true", "1 [] false"}; !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	})
}

// TestCohortCounts: what is queued for a cohort counts for each of its watchers, also after it has ended.
func TestCohortCounts(t *testing.T) {
	withFlock(t, 2, Options{}, func(f *flock) {
		events := func(want ...int64) {
			t.Helper()
			var got []int64
			for _, w := range f.hub.Stats().Streams[0].Watchers {
				got = append(got, w.Events)
			}
			if !slices.Equal(got, want) {
				t.Errorf("the watchers have %d events, want %d", got, want)
			}
		}
		for range 4 {
			f.put()
		}
		events(0, 0)
		f.take()
		events(4, 4)
		f.s.Create(CreateRequest{Key: []byte("k")})
		f.take()
		for range 3 {
			f.put()
		}
		f.divided(1)
		f.take()
		events(7, 7, 3)
	})
}

// TestCohortProgress: the watchers of a cohort are notified after an interval without an event, and not after one with events.
func TestCohortProgress(t *testing.T) {
	withFlock(t, 2, Options{ProgressInterval: time.Second}, func(f *flock) {
		tick := func(want ...int64) {
			t.Helper()
			time.Sleep(f.s.interval)
			synctest.Wait()
			f.want(f.ids(len(want)), want...)
		}
		tick(0, 1)
		f.put()
		f.put()
		f.divided(1)
		f.take()
		tick()
		tick(0, 1)
		f.put()
		f.take()
		tick()
		tick(0, 1)
	})
}

// TestCohortPartlyTaken: a run that was taken in part is continued with the next ids.
func TestCohortPartlyTaken(t *testing.T) {
	withFlock(t, 5, Options{}, func(f *flock) {
		for range 3 {
			f.put()
			var ids []int64
			for len(ids) < 5 {
				rs, err := f.s.Take(nil, 2*(headerSize+1))
				if err != nil || len(rs) != 1 || len(rs[0].Also) > 1 {
					t.Fatalf("took %+v: %v", rs, err)
				}
				ids = append(append(ids, rs[0].WatchID), rs[0].Also...)
			}
			f.want(ids, 0, 1, 2, 3, 4)
			f.take()
		}
	})
}

// TestCohortsApart: watchers that have their streams for themselves are not divided.
func TestCohortsApart(t *testing.T) {
	src := newMemSource()
	h := New(src, Options{})
	defer h.Close()
	tg := &target{}
	for range 3 {
		s := h.NewStream(StreamInfo{})
		tg.watchers = append(tg.watchers, &watcher{stream: s})
	}
	for range 3 {
		if tg.begin() {
			tg.divide(0, func() {})
		}
	}
	if tg.division != nil || !tg.alone || tg.begin() {
		t.Errorf("cohorts %v, alone %v", tg.cohorts(), tg.alone)
	}
}

// crowd returns a settled target of n watchers, so many on each stream.
func crowd(n, each int) *target {
	t := &target{settled: true}
	var s *Stream
	for i := range n {
		if i%each == 0 {
			s = &Stream{}
		}
		t.watchers = append(t.watchers, &watcher{stream: s, id: int64(i % each), target: t})
	}
	return t
}

// TestDivide: dividing many watchers lets others take the hub's lock often. If most have their stream for themselves, that is seen soon.
// A watcher that joins meanwhile is in no cohort that lacks it.
func TestDivide(t *testing.T) {
	const n = 20 * sample
	for _, c := range []struct {
		each, join, cohorts, pauses int
		alone                       bool
	}{
		{each: 1, pauses: sample, alone: true},
		{each: 2, cohorts: n / 2, pauses: 2*n + n/2},
		{each: n, cohorts: 1, pauses: 2*n + 1},
		{each: n, join: 1, pauses: 2*n + 1},
		{each: n, join: n + n/2, pauses: 2*n + 1},
		{each: n, join: 2*n + 1, pauses: 2*n + 1},
		{each: 1, join: sample, pauses: sample},
	} {
		tg, pauses := crowd(n, c.each), 0
		tg.divide(0, func() {
			if pauses++; pauses == c.join {
				tg.watchers = append(tg.watchers, &watcher{stream: tg.watchers[0].stream, id: n, target: tg})
				tg.undivide()
			}
		})
		if len(tg.cohorts()) != c.cohorts || pauses != c.pauses || tg.alone != c.alone || tg.settled == (c.join > 0) {
			t.Errorf("%+v: %d cohorts, %d pauses, alone: %v, settled: %v", c, len(tg.cohorts()), pauses, tg.alone, tg.settled)
		}
		if err := tg.validCohorts(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
