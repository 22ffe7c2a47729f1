package archived

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"vigil/internal/bucket"
	"vigil/internal/store/archive"
)

// timed is a bucket with a clock of its own, in which objects can be locked and rights can be
// missing.
type timed struct {
	bucket.Bucket
	now     *time.Time
	times   map[string]time.Time
	locked  map[string]bool
	denied  bool
	deleted []string
}

func (b *timed) Put(ctx context.Context, key string, data []byte) error {
	b.times[key] = *b.now
	return b.Bucket.Put(ctx, key, data)
}

func (b *timed) List(ctx context.Context, prefix, after string,
	limit int) ([]bucket.Object, error) {
	list, err := b.Bucket.List(ctx, prefix, after, limit)
	for i := range list {
		list[i].Modified = b.times[list[i].Key]
	}
	return list, err
}

func (b *timed) Delete(ctx context.Context, key string) error {
	switch {
	case b.denied:
		return fmt.Errorf("delete %s: %w", key, bucket.ErrDenied)
	case b.locked[key]:
		return fmt.Errorf("delete %s: %w", key, bucket.ErrLocked)
	}
	b.deleted = append(b.deleted, key)
	return b.Bucket.Delete(ctx, key)
}

// longArchive is an archive of some days with a base every two hours and log objects between them.
func longArchive(t *testing.T, seed uint64, days int) (*node, *timed) {
	n, _ := newNode(t, seed)
	b := &timed{Bucket: n.b, now: &n.now, times: map[string]time.Time{archive.IdentityName: n.now},
		locked: map[string]bool{}}
	n.b = b
	for i := range days * 12 {
		n.base(i%5 > 0)
		n.work(4)
		n.send()
		n.now = n.now.Add(time.Hour)
		n.work(4)
		n.send()
		n.now = n.now.Add(time.Hour)
	}
	n.mark()
	n.send()
	return n, b
}

const day = 24 * time.Hour

// A prune keeps what the rules say: each state of the period of --keep-all, and base states before
// it; all that remains is sound.
func TestPrune(t *testing.T) {
	n, b := longArchive(t, 20, 5)
	before := n.open()
	p, err := before.PlanPrune(t.Context(), Rules{All: day, Daily: 4 * day}, n.now)
	n.must(err)
	if len(b.deleted) > 0 {
		t.Fatal("a plan has deleted something")
	}
	daily := 0
	for _, k := range p.Keep {
		if slices.Equal(k.Reasons, []string{"daily"}) {
			daily++
		}
	}
	if daily < 3 || daily > 4 || len(p.Keep) < 12 || len(p.Remove) == 0 {
		t.Errorf("%d daily of %d: %+v", daily, len(p.Keep), p.Keep)
	}
	times := map[int64]time.Time{}
	for _, m := range n.marks {
		times[m.Revision] = time.UnixMilli(m.Time)
	}
	res, err := p.Run(t.Context())
	n.must(err)
	if res.Removed != len(p.Remove) || len(res.Locked) > 0 {
		t.Errorf("%+v, %d planned", res, len(p.Remove))
	}
	a := n.open()
	v := verify(t, a, false)
	if len(v.Damages) > 0 || v.Rebuilt != len(p.Keep) || v.Unlisted > 0 {
		t.Errorf("%+v", v)
	}
	restoredRevs := 0
	for rev, at := range times {
		if n.now.Sub(at) > day || rev%3 > 0 {
			continue
		}
		restoredRevs++
		if r := restoreTo(t, a, Target{Revision: rev}); r.store.Revision() != rev {
			t.Errorf("revision %d instead of %d", r.store.Revision(), rev)
		}
	}
	if restoredRevs < 5 {
		t.Error("only", restoredRevs)
	}
	// A second time nothing is left to remove.
	p, err = a.PlanPrune(t.Context(), Rules{All: day, Daily: 4 * day}, n.now)
	if err != nil || len(p.Remove) > 0 {
		t.Errorf("%v, %v", p.Remove, err)
	}
}

// Whatever the rules are, the newest state can be restored afterwards.
func TestPruneKeepsTheNewestState(t *testing.T) {
	n, b := longArchive(t, 21, 2)
	for _, r := range []Rules{{All: 1}, {Hourly: 1}, {Daily: 1}} {
		p, err := n.open().PlanPrune(t.Context(), r, n.now)
		n.must(err)
		_, err = p.Run(t.Context())
		n.must(err)
		r := restoreTo(t, n.open(), Target{})
		if r.store.Revision() != n.store.Revision() || len(r.res.Missing) > 0 {
			t.Errorf("%+v", r.res)
		}
	}
	// The newest base has lost a part: an older one is the newest that can be restored.
	n.work(3)
	n.base(true)
	n.work(3)
	n.base(false)
	parts := n.last.PartsOf(archive.RecordsPart)
	n.must(b.Bucket.Delete(t.Context(), parts[len(parts)-1].Name))
	for _, rules := range []Rules{{Daily: 1}, {All: 1}} {
		p, err := n.open().PlanPrune(t.Context(), rules, n.now)
		n.must(err)
		_, err = p.Run(t.Context())
		n.must(err)
		if r := restoreTo(t, n.open(), Target{}); r.store.Revision() != n.store.Revision() {
			t.Errorf("%+v: %+v", rules, r.res)
		}
	}
}

// Nothing is deleted if it is not certain what is needed.
func TestPruneRefuses(t *testing.T) {
	ctx := t.Context()
	rules := Rules{All: 1}
	n, b := longArchive(t, 22, 1)
	refused := func(what, want string, a *Archive, r Rules, now time.Time) {
		t.Helper()
		p, err := a.PlanPrune(ctx, r, now)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %q", what, p, err, want)
		}
	}
	refused("no rule", "no rule that keeps anything", n.open(), Rules{}, n.now)
	refused("clock", "one of the clocks is wrong", n.open(), rules, n.now.Add(-2*time.Hour))
	// A clock that is ahead removes no more than the right one.
	p, err := n.open().PlanPrune(ctx, Rules{All: day}, n.now.AddDate(5, 0, 0))
	if err != nil || len(p.Remove) > 0 {
		t.Errorf("%v, %v", p, err)
	}
	fresh, _ := newNode(t, 23)
	refused("no base", "no state can be restored", fresh.open(), rules, fresh.now)

	name := n.bases[1].Name()
	data, err := bucket.ReadAll(ctx, b, name, 1<<20)
	n.must(err)
	n.must(b.Bucket.Delete(ctx, name))
	n.must(b.Bucket.Put(ctx, name, data[:100]))
	refused("manifest", name, n.open(), rules, n.now)
	n.must(b.Bucket.Delete(ctx, name))
	n.must(b.Bucket.Put(ctx, name, data))

	b.denied = true
	p, err = n.open().PlanPrune(ctx, rules, n.now)
	n.must(err)
	if _, err := p.Run(ctx); !errors.Is(err, bucket.ErrDenied) {
		t.Error(err)
	}
	if len(b.deleted) > 0 {
		t.Error(b.deleted)
	}
	n.must(b.Bucket.Delete(ctx, archive.IdentityName))
	refused("identity", "vigil-archive.json", n.open(), rules, n.now)
}

// Locked objects remain, with everything that they list.
func TestPruneLocked(t *testing.T) {
	n, b := longArchive(t, 24, 1)
	p, err := n.open().PlanPrune(t.Context(), Rules{All: 1}, n.now)
	n.must(err)
	name := n.bases[3].Name()
	if !slices.Contains(p.Remove, name) {
		t.Fatal("not removed:", name)
	}
	b.locked[name] = true
	res, err := p.Run(t.Context())
	if err != nil || !slices.Equal(res.Locked, []string{name}) {
		t.Fatal(res, err)
	}
	a := n.open()
	if v := verify(t, a, false); len(v.Damages) > 0 {
		t.Errorf("%+v", v)
	}
	if r := restoreTo(t, a, Target{Index: n.bases[3].Index}); r.res.Base != name {
		t.Error(r.res)
	}
}

// A part that a sender has not listed yet is not removed before it is a day old.
func TestPruneLeavesNewParts(t *testing.T) {
	n, _ := newNode(t, 25)
	b := &timed{Bucket: n.b, now: &n.now, times: map[string]time.Time{}}
	n.b = b
	n.base(false)
	w := n.seal.NewMeta()
	_, o, err := w.Seal()
	n.must(err)
	n.put(o.Name, o.Data)
	for _, c := range []struct {
		after time.Duration
		gone  bool
	}{{time.Hour, false}, {2 * day, true}} {
		n.now = n.now.Add(c.after)
		n.work(5)
		n.send()
		p, err := n.open().PlanPrune(t.Context(), Rules{All: day}, n.now)
		if err != nil || slices.Contains(p.Remove, o.Name) != c.gone {
			t.Errorf("%v: %v, %v", c.after, p.Remove, err)
		}
	}
}

// A base that was written while the clock of the bucket was behind makes nothing before it old.
func TestPruneClockBehind(t *testing.T) {
	n, b := longArchive(t, 45, 2)
	b.times[n.bases[12].Name()] = time.Unix(0, 0)
	b.times[n.bases[13].Name()] = time.Unix(100, 0)
	p, err := n.open().PlanPrune(t.Context(), Rules{All: 7 * day}, n.now)
	n.must(err)
	if len(p.Remove) > 0 {
		t.Errorf("would remove %d objects that are younger than two days", len(p.Remove))
	}
	// It is a state of the period before which it was written.
	p, err = n.open().PlanPrune(t.Context(), Rules{Hourly: 7 * day}, n.now)
	n.must(err)
	if !slices.ContainsFunc(p.Keep, func(k Kept) bool { return k.Name == n.bases[13].Name() }) {
		t.Errorf("%s is not kept", n.bases[13].Name())
	}
}
