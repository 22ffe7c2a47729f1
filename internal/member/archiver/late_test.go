package archiver

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"vigil/internal/bucket"
	"vigil/internal/offline/archived"
	"vigil/internal/store/archive"
	"vigil/internal/vfs/memfs"
)

// late is a member's way to the bucket on which manifests are held up: the bucket receives them
// when release is called, whatever the member did before that.
type late struct {
	bucket.Bucket
	mu      sync.Mutex
	on      bool
	waiting map[string][]byte
}

func (l *late) Put(ctx context.Context, key string, data []byte) error {
	l.mu.Lock()
	held := l.on && strings.HasPrefix(key, archive.BasePrefix)
	if held {
		if l.waiting == nil {
			l.waiting = map[string][]byte{}
		}
		l.waiting[key] = slices.Clone(data)
	}
	l.mu.Unlock()
	if held {
		<-ctx.Done()
		return ctx.Err()
	}
	return l.Bucket.Put(ctx, key, data)
}

func (l *late) hold(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on = on
}

func (l *late) holds() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

// release lets the manifests arrive, and returns their names.
func (l *late) release(t *testing.T) (names []string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on = false
	for name, data := range l.waiting {
		if err := l.Bucket.Put(t.Context(), name, data); err != nil {
			t.Fatal(name, err)
		}
		names = append(names, name)
	}
	l.waiting = nil
	return names
}

// lateWorld is a world of three members, each with a late way to one bucket.
func lateWorld(t *testing.T, options func(*Options)) (*world, *dated, []*late) {
	w := newWorld(t, 3)
	b := &dated{Bucket: newBucket(t), at: map[string]time.Time{}}
	var ways []*late
	for _, m := range w.members {
		l := &late{Bucket: b}
		ways = append(ways, l)
		m.begin(l, options)
	}
	return w, b, ways
}

// verifyOffline verifies an archive as vigilctl does.
func verifyOffline(t *testing.T, b bucket.Bucket) *archived.Verdict {
	t.Helper()
	a, err := archived.Open(t.Context(), b, "memory")
	if err != nil {
		t.Fatal(err)
	}
	fsys := memfs.New()
	if err := fsys.MkdirAll("v"); err != nil {
		t.Fatal(err)
	}
	v, err := a.Verify(t.Context(), archived.VerifyOptions{FS: fsys, Dir: "v"})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// prune removes what rules do not keep, by a plan that was made before meanwhile is called.
func prune(t *testing.T, b bucket.Bucket, r archived.Rules, meanwhile func()) *archived.PrunePlan {
	t.Helper()
	a, err := archived.Open(t.Context(), b, "memory")
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.PlanPrune(t.Context(), r, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	meanwhile()
	if _, err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPruneAndLateBase: while the manifest of a base is on its way, its sender is replaced, and the
// parts that it shares with an older base are pruned: before it arrives, and between the plan and
// the removal. The newest state can be restored throughout, a verification names the base, and the
// next prune removes it.
//
//vigil:norace
func TestPruneAndLateBase(t *testing.T) {
	for _, during := range []bool{false, true} {
		t.Run(fmt.Sprint("during the prune ", during), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { pruneAndLateBase(t, during) })
		})
	}
}

func pruneAndLateBase(t *testing.T, during bool) {
	w, b, ways := lateWorld(t,
		func(o *Options) { o.partBytes, o.logBytes, o.BaseInterval = 2000, 600, time.Hour })
	defer w.close()
	r := rand.New(rand.NewPCG(11, 12))
	write := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Minute) {
			w.random(r, 6)
		}
	}
	write(4 * time.Hour)
	old := w.archiving()
	way := ways[old.id-1]
	way.hold(true)
	for end := time.Now().Add(3 * time.Hour); way.holds() == 0; time.Sleep(5 * time.Second) {
		w.put("soon", "x")
		if time.Now().After(end) {
			t.Fatal("no base was begun")
		}
	}
	w.put("between", "x") // the base of the successor is another one
	old.end()
	// The bases of the successor share less and less with the one that is on its way.
	write(40 * time.Hour)
	rules := archived.Rules{All: time.Hour}
	var names []string
	release := func() { names = way.release(t) }
	if during {
		prune(t, b, rules, release)
	} else {
		if p := prune(t, b, rules, func() {}); len(p.Remove) == 0 {
			t.Fatal("nothing was removed")
		}
		release()
	}
	w.put("after", "x")
	w.awaitArchived(w.members[w.leader-1], time.Minute)
	newest := func() {
		t.Helper()
		o := readAll(t, b)
		s := restore(t, b, &o, &o.bases[len(o.bases)-1], w.last())
		w.compare(s)
		s.close(t)
	}
	newest()
	v := verifyOffline(t, b)
	lost := 0
	for _, d := range v.Damages {
		if !strings.HasPrefix(d.Name, archive.PartPrefix) && !slices.Contains(names, d.Name) {
			t.Errorf("%v", d)
		}
		lost++
	}
	if lost == 0 {
		t.Error("no part of the base was pruned: the test tests nothing")
	}
	if _, revision := old.Position(); v.Revision != revision {
		t.Errorf("verified up to revision %d, want %d: %+v", v.Revision, revision, v)
	}
	// The member that has written it archives again, and the archive is pruned once more.
	ended := w.archiving()
	old.begin(way, func(o *Options) {
		o.partBytes, o.logBytes, o.BaseInterval = 2000,
			600, time.Hour
	})
	time.Sleep(10 * time.Second)
	ended.end()
	write(3 * time.Hour)
	prune(t, b, rules, func() {})
	w.awaitArchived(w.members[w.leader-1], time.Minute)
	newest()
	if v := verifyOffline(t, b); len(v.Damages) > 0 || len(v.Gaps) > 0 {
		t.Errorf("after the next prune: %+v", v)
	}
}

// TestLateFirstBase: the first base of a member is on its way when another one is appointed, which
// finds no base and makes one. Its manifest arrives before the other is complete or after it, so
// that there are two. Every state from the older one on can be restored.
func TestLateFirstBase(t *testing.T) {
	for _, c := range []struct {
		name string
		// before: it arrives before the other base is complete. handover: another member archives
		// afterwards.
		before, handover bool
	}{{"before", true, false}, {"after, and another sender", false, true}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { lateFirstBase(t, c.before, c.handover) })
		})
	}
}

func lateFirstBase(t *testing.T, before, handover bool) {
	w, b, ways := lateWorld(t,
		func(o *Options) { o.partBytes, o.logBytes, o.BaseInterval = 2000, 600, time.Hour })
	defer w.close()
	r := rand.New(rand.NewPCG(13, 14))
	keys, were := map[string]string{}, map[int64]map[string]string{} // now, and at each revision
	write := func(n int) {
		for range n {
			key, value := fmt.Sprint("k", r.IntN(20)), fmt.Sprint(r.Uint64())
			w.put(key, value)
			keys[key] = value
			_, revision := w.members[0].Position()
			were[revision] = maps.Clone(keys)
			time.Sleep(200 * time.Millisecond)
		}
	}
	for _, l := range ways {
		l.hold(true)
	}
	await := func(l *late) {
		for end := time.Now().Add(time.Minute); l.holds() == 0; {
			write(1)
			if time.Now().After(end) {
				t.Fatal("no base was begun")
			}
		}
	}
	write(20)
	// Usually the smallest of those that do not lead; another one if the leader heard of it
	// earlier.
	first, second := w.members[1], w.members[2]
	for end := time.Now().Add(time.Minute); ways[first.id-1].holds() == 0; {
		if ways[second.id-1].holds() > 0 {
			first, second = second, first
			break
		}
		write(1)
		if time.Now().After(end) {
			t.Fatal("no base was begun")
		}
	}
	write(20)   // entries after it, some of which the first member sends
	first.end() // its manifest is on its way
	write(30)   // another one is appointed
	await(ways[second.id-1])
	if before {
		ways[first.id-1].release(t)
		ways[second.id-1].hold(false)
	} else {
		ways[second.id-1].hold(false)
	}
	write(100)
	w.awaitArchived(w.members[w.leader-1], time.Minute)
	if !before {
		ways[first.id-1].release(t)
	}
	for _, l := range ways {
		l.hold(false)
	}
	if handover {
		second.end()
	}
	write(100)
	w.awaitArchived(w.members[w.leader-1], time.Minute)
	a, err := archived.Open(t.Context(), b, "memory")
	if err != nil {
		t.Fatal(err)
	}
	states, err := a.States(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(states) < 2 {
		t.Fatalf("%+v", states)
	}
	for _, s := range states {
		if s.State != "ok" {
			t.Errorf("%+v", s)
		}
	}
	o := readAll(t, b)
	tested := 0
	for revision, want := range were {
		if revision <= o.bases[0].Revision {
			continue
		}
		p, err := a.OpenPast(t.Context(), archived.Target{Revision: revision},
			memfs.New(), "past", nil)
		if err != nil {
			t.Fatalf("revision %d: %v", revision, err)
		}
		got := map[string]string{}
		for k, err := range p.Keys(t.Context(), "", "\x00") {
			if err != nil {
				t.Fatal(err)
			}
			got[string(k.Key)] = string(k.Value)
		}
		if !maps.Equal(got, want) {
			t.Errorf("revision %d: %v, want %v", revision, got, want)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		tested++
	}
	if tested < 100 {
		t.Errorf("only %d revisions", tested)
	}
	if v := verifyOffline(t, b); len(v.Damages) > 0 || len(v.Gaps) > 0 ||
		v.Rebuilt != len(o.bases) || v.Replayed != len(o.bases)-1 {
		t.Errorf("%+v", v)
	}
	for _, m := range w.members {
		if m.a != nil && m.a.Status().Gaps > 0 {
			t.Errorf("member %d: %+v", m.id, m.a.Status().Gap)
		}
	}
}
