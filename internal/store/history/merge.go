package history

import (
	"fmt"
	"slices"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/garbage"
	"vigil/internal/store/history/segfile"
)

// mergePlan is what a rewrite will merge, and what it may leave out.
type mergePlan struct {
	run   []*segment      // sealed neighbors
	files []*segfile.File // of run
	older []*segfile.File // of the segments before run
	dead  []garbage.Set   // of the segments of run, as they were at the start
	// keepTombs is set if tombstones are kept though dead; tombs are their numbers in the merged
	// segment, once it is written.
	keepTombs bool
	tombs     []int
	size      int64 // about what the merged segment will have
}

// first and last return the footers of the first and the last file of the run.
func (p *mergePlan) first() *format.Footer { return p.files[0].Footer() }

func (p *mergePlan) last() *format.Footer { return p.files[len(p.files)-1].Footer() }

// planMerge returns the plan of a merge of run. From then on, what may be left out can only become
// more.
func (c *catalog) planMerge(run []*segment) (mergePlan, error) {
	c.dead.Lock()
	defer c.dead.Unlock()
	segs := c.segments()
	i := max(slices.Index(segs, run[0]), 0)
	if !slices.Equal(segs[i:min(i+len(run), len(segs))], run) {
		return mergePlan{}, fmt.Errorf("history: reclaim: segments %d to %d are not neighbors",
			run[0].id, run[len(run)-1].id)
	}
	p := mergePlan{run: run}
	for _, s := range segs[:i] {
		p.older = append(p.older, s.file())
		p.keepTombs = p.keepTombs || s.dead.Shelters()
	}
	for _, s := range run {
		p.files = append(p.files, s.file())
		p.keepTombs = p.keepTombs || s.dead.Unsure
		p.dead = append(p.dead, s.dead.Clone())
		p.size += max(s.size.Load()-s.dead.Dead.Bytes, format.HeaderSize+format.FooterSize)
	}
	return p, nil
}

// mergeRun replaces the segments of the plan by one with the file merged: in the manifest, and for
// the readers of older views. It returns the new segment, and the files of the old ones, which the
// caller releases and removes.
func (c *catalog) mergeRun(p *mergePlan, merged *segfile.File) (*segment, []*segfile.File) {
	c.dead.Lock()
	defer c.dead.Unlock()
	s := newSealed(merged, p.run[len(p.run)-1].last)
	c.inheritDead(p, s, merged)
	c.metas.Clean(merged.Footer().FirstID, merged.Footer().LastID)
	for _, old := range p.run {
		old.dead = garbage.Set{}
		old.into.Store(s)
		old.src.Store(nil)
	}
	c.replaceManifest(func(v *View) {
		i := slices.Index(v.segs, p.run[0])
		v.segs = slices.Concat(v.segs[:i], []*segment{s}, v.segs[i+len(p.run):])
		v.lasts = slices.Concat(v.lasts[:i], []kv.Rev{s.last}, v.lasts[i+len(p.run):])
	})
	return s, p.files
}

// inheritDead marks in s, whose file is merged, the records that died since the plan, and the
// tombstones that were kept. The caller holds c.dead.
func (c *catalog) inheritDead(p *mergePlan, s *segment, merged *segfile.File) {
	var late []DeadRecord // records that died since the plan
	for i, old := range p.run {
		records, err := diedSince(p.files[i], &old.dead, &p.dead[i])
		if err != nil {
			c.noteUnmarked(p.files[i], err)
		}
		late = append(late, records...)
		s.dead.Unsure = s.dead.Unsure || old.dead.Unsure || err != nil
	}
	err := segfile.Guard(func(a *segfile.Access) error {
		a.Borrow(merged)
		for _, k := range p.tombs {
			if err := markFile(&s.dead, merged, k, true); err != nil {
				return err
			}
		}
		for _, r := range late {
			k, err := merged.Find(r.Rev)
			if err != nil {
				return err
			}
			if k < 0 {
				return format.Corrupt(merged.Path(), int64(merged.Footer().BodyEnd),
					"the record of revision %d/%d is missing", r.Rev.Main, r.Rev.Sub)
			}
			if err := markFile(&s.dead, merged, k, r.Tombstone); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.dead.Unsure = true
		c.noteUnmarked(merged, err)
	}
}

// diedSince returns the records of a file that are dead now and were not in old. After an error it
// returns none.
func diedSince(f *segfile.File, now, old *garbage.Set) (records []DeadRecord, err error) {
	err = segfile.Guard(func(a *segfile.Access) error {
		if err := a.To(f); err != nil {
			return err
		}
		for k := range now.Since(old) {
			rev, tombstone, err := f.RevisionOf(k)
			if err != nil {
				return err
			}
			records = append(records, DeadRecord{Rev: rev, Tombstone: tombstone})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return records, nil
}

// noteUnmarked reports that dead records of a file could not be marked.
func (c *catalog) noteUnmarked(f *segfile.File, err error) {
	c.reports.ReportDamage(err)
	c.logger.Warn("cannot determine which records of a history segment are dead",
		"file", f.Path(), "error", err.Error())
}
