package archived

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"vigil/internal/bucket"
	"vigil/internal/store/archive"
)

// waste is the age at which an object that belongs to no state is removed. A sender may be about to
// list a younger one.
const waste = 24 * time.Hour

// maxClockError is how far the clock of the caller may be behind the clock of the bucket.
const maxClockError = time.Hour

// Rules say which states are kept. Ages count from the newest object of the archive.
type Rules struct {
	// All keeps every state of the last All: each revision and each moment can be restored.
	All time.Duration
	// Hourly, Daily and Weekly keep one base state of each hour, day and week of this age.
	Hourly, Daily, Weekly time.Duration
}

// Validate returns an error for wrong rules.
func (r Rules) Validate() error {
	if r.All < 0 || r.Hourly < 0 || r.Daily < 0 || r.Weekly < 0 {
		return errors.New("the duration of a rule is negative")
	}
	if r == (Rules{}) {
		return errors.New("there is no rule that keeps anything: give at least --keep-all")
	}
	return nil
}

// Kept is a base state that is kept, and why.
type Kept struct {
	Name     string    `json:"name"`
	Revision int64     `json:"revision"`
	Time     time.Time `json:"time"`
	Reasons  []string  `json:"reasons"`
}

// PrunePlan lists the objects that a prune removes.
type PrunePlan struct {
	// Now is the time that ages count from.
	Now  time.Time `json:"now"`
	Keep []Kept    `json:"keep"`
	// From is the first index from which on every state is kept.
	From uint64 `json:"from"`
	// Remove are the objects, manifests first. Bytes is their size. KeptObjects and KeptBytes are
	// the number and size of the remaining ones.
	Remove      []string `json:"remove"`
	Bytes       int64    `json:"bytes"`
	KeptObjects int      `json:"keptObjects"`
	KeptBytes   int64    `json:"keptBytes"`

	a *Archive
}

// PlanPrune returns the objects that rules do not keep. now is the clock of the caller. It fails if
// a manifest cannot be read, because its parts are not known then, and if no state can be restored.
func (a *Archive) PlanPrune(ctx context.Context, r Rules, now time.Time) (*PrunePlan, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if reason, bad := a.damaged[archive.IdentityName]; bad {
		return nil, fmt.Errorf("%s: nothing is removed: %s: %s", a.where,
			archive.IdentityName, reason)
	}
	p := &PrunePlan{a: a, Now: a.NewestObject(), Keep: []Kept{}, Remove: []string{}}
	if p.Now.Sub(now) > maxClockError {
		return nil, fmt.Errorf("%s: nothing is removed: its newest object was written at %s, and the clock of this machine is at %s: one of the clocks is wrong",
			a.where, p.Now.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	newest := -1
	for i, o := range a.Bases {
		m, err := a.Manifest(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("%s: nothing is removed, because a manifest cannot be read, and which parts it lists is not known: %w", a.where, err)
		}
		if a.complete(m) {
			newest = i
		}
	}
	if newest < 0 {
		return nil, fmt.Errorf("%s: nothing is removed: no state can be restored: there is no base state with all of its parts", a.where)
	}
	keep := a.chooseBases(r, p.Now, newest)
	p.From = a.Bases[keep.from].Index
	a.fillPlan(p, keep)
	return p, nil
}

// complete reports whether all parts of a base exist with their size.
func (a *Archive) complete(m *archive.Base) bool {
	for _, p := range m.Parts {
		if o, ok := a.Parts[p.Name]; !ok || o.Size != p.Size {
			return false
		}
	}
	return !a.damagedPart(m)
}

// choice says which bases are kept, with the reasons; from the base from on all entries are kept
// too.
type choice struct {
	reasons map[int][]string
	from    int
}

// chooseBases applies the rules to the bases. newest is the newest one that can be restored.
func (a *Archive) chooseBases(r Rules, now time.Time, newest int) choice {
	c := choice{reasons: map[int][]string{}, from: newest}
	// A base is not older than one before it: the clock of the bucket was behind when it was
	// written.
	written := make([]time.Time, len(a.Bases))
	for i, o := range a.Bases {
		written[i] = later(written[max(i-1, 0)], o.Object.Modified)
	}
	age := func(i int) time.Duration { return now.Sub(written[i]) }
	c.reasons[newest] = append(c.reasons[newest], "newest")
	if r.All > 0 {
		// The entries of the period begin at the newest complete base at or before its beginning;
		// without one at the first base.
		c.from = newest
		for c.from > 0 && (age(c.from) < r.All || !a.complete(a.Bases[c.from].manifest)) {
			c.from--
		}
		c.from = min(c.from, newest)
	}
	for i := c.from; i < len(a.Bases); i++ {
		c.reasons[i] = append(c.reasons[i], "all")
	}
	for _, rule := range []struct {
		name   string
		age    time.Duration
		period string
	}{{"hourly", r.Hourly, "2006-01-02T15"}, {"daily", r.Daily, "2006-01-02"},
		{"weekly", r.Weekly, ""}} {
		last := ""
		for i := len(a.Bases) - 1; i >= 0 && rule.age > 0; i-- {
			t := a.Bases[i].Object.Modified.UTC()
			period := t.Format(rule.period)
			if rule.period == "" {
				year, week := t.ISOWeek()
				period = fmt.Sprintf("%d-%d", year, week)
			}
			if age(i) > rule.age || period == last || !a.complete(a.Bases[i].manifest) {
				continue
			}
			last = period
			c.reasons[i] = append(c.reasons[i], rule.name)
		}
	}
	return c
}

// fillPlan sorts all objects into those that are kept and those that are removed.
func (a *Archive) fillPlan(p *PrunePlan, c choice) {
	listed := map[string]bool{}
	remove := func(o bucket.Object, yes bool) {
		if yes {
			p.Remove = append(p.Remove, o.Key)
			p.Bytes += o.Size
		} else {
			p.KeptObjects++
			p.KeptBytes += o.Size
		}
	}
	p.KeptObjects++ // the identity
	for i, o := range a.Bases {
		reasons := c.reasons[i]
		remove(o.Object, len(reasons) == 0)
		if len(reasons) == 0 {
			continue
		}
		p.Keep = append(p.Keep,
			Kept{Name: o.Object.Key, Revision: o.manifest.Revision, Time: o.manifest.Time,
				Reasons: reasons})
		for _, part := range o.manifest.Parts {
			listed[part.Name] = true
		}
	}
	for _, o := range a.Logs {
		remove(o.Object, o.Last <= a.Bases[c.from].Index)
	}
	var parts []string
	for name := range a.Parts {
		parts = append(parts, name)
	}
	slices.Sort(parts)
	for _, name := range parts {
		o := a.Parts[name]
		remove(o, !listed[name] && p.Now.Sub(o.Modified) >= waste)
	}
}

// Pruned is the result of a prune.
type Pruned struct {
	Removed int `json:"removed"`
	// Locked are objects that the bucket does not allow to remove yet; they remain, with the parts
	// that they list.
	Locked []string `json:"locked,omitempty"`
}

// Run removes the objects: first the manifests, then log objects, then parts that no remaining
// manifest lists.
func (p *PrunePlan) Run(ctx context.Context) (Pruned, error) {
	a := p.a
	var res Pruned
	keep := map[string]bool{}
	byName := map[string]*archive.Base{}
	for _, o := range a.Bases {
		byName[o.Object.Key] = o.manifest
	}
	for _, prefix := range []string{archive.BasePrefix, archive.LogPrefix, archive.PartPrefix} {
		for _, name := range p.Remove {
			if !strings.HasPrefix(name, prefix) || keep[name] {
				continue
			}
			err := a.b.Delete(ctx, name)
			switch {
			case errors.Is(err, bucket.ErrLocked):
				res.Locked = append(res.Locked, name)
				if m := byName[name]; m != nil {
					for _, part := range m.Parts {
						keep[part.Name] = true
					}
				}
			case err != nil && !errors.Is(err, bucket.ErrNotFound):
				return res, fmt.Errorf("%s: removed %d of %d objects: %w", a.where, res.Removed,
					len(p.Remove), err)
			default:
				res.Removed++
			}
		}
	}
	return res, nil
}
