package history

import (
	"fmt"
	"slices"
	"vigil/internal/store/history/format"
)

// decide notes what can be left out. From then on it may only become more.
func (w *rewriting) decide() error {
	r := w.r
	segs := r.cat.segments()
	i := max(slices.Index(segs, w.run[0]), 0)
	if !slices.Equal(segs[i:min(i+len(w.run), len(segs))], w.run) {
		return fmt.Errorf("history: reclaim: segments %d to %d are no neighbors", w.run[0].id, w.last.LastID)
	}
	older := segs[:i]
	r.cat.dead.Lock()
	for _, s := range older {
		w.keepTombs = w.keepTombs || s.dead.Shelters()
	}
	for _, s := range w.run {
		w.keepTombs = w.keepTombs || s.dead.Unsure
		w.dead = append(w.dead, s.dead.Clone())
		w.size += max(s.size.Load()-s.dead.Dead.Bytes, format.HeaderSize+format.FooterSize)
	}
	r.cat.dead.Unlock()
	return w.decideMetas(older)
}

// decideMetas notes which meta records are kept: a value if it is the newest, a deletion if it is
// the last word here and there is a value in an older segment.
func (w *rewriting) decideMetas(older []*segment) error {
	type found struct {
		at   metaRecord
		meta Meta
	}
	latest := map[string]found{}
	deletions := false
	for _, s := range w.run {
		err := s.src.Load().file.EachMeta(func(off uint32, m Meta) {
			m.Value = nil
			latest[m.Name()] = found{metaRecord{s, off}, m}
			deletions = deletions || m.Deleted
		})
		if err != nil {
			return w.unreadable(s, err)
		}
	}
	values, unsure := map[string]bool{}, false
	if deletions {
		for _, s := range older {
			err := s.src.Load().file.EachMeta(func(_ uint32, m Meta) {
				if name := m.Name(); !m.Deleted && latest[name].meta.Deleted {
					values[name] = true
				}
			})
			if err != nil {
				// It may have any value: all deletions stay.
				w.r.ReportDamage(err)
				w.r.o.Logger.Warn("cannot determine which deletions in the history are needed", "error", err.Error())
				unsure = true
			}
		}
	}
	w.metas = map[metaRecord]bool{}
	for name, f := range latest {
		newest, ok := w.r.cat.metas.Newest(f.meta.Bucket, f.meta.Key)
		switch {
		case ok && newest > w.last.LastID:
		case f.meta.Deleted:
			if values[name] || unsure {
				w.metas[f.at] = true
			}
		case ok:
			w.metas[f.at] = true
		}
	}
	return nil
}
