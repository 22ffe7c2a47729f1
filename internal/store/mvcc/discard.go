package mvcc

import (
	"vigil/internal/kv"
	"vigil/internal/store/mvcc/meter"
)

// Discard says whether the results of the requests that follow are not wanted by anyone. Ranges in
// transactions are then not run and previous pairs not read; their results are empty. What the
// requests do to the store is the same.
func (w *Writer) Discard(on bool) { w.discard = on }

// exactly runs a request. If nobody wants its results they are estimated, and read only if the estimate
// exceeds a limit: then run is called again. One that fails for a limit must have changed nothing.
func (w *Writer) exactly(run func() error) error {
	visited := w.meter.Visited
	w.meter.Rough = w.discard
	err := run()
	if err == meter.ErrRough {
		w.meter.Reset()
		w.meter.Visited = visited
		w.discard = false
		err = run()
		w.discard = true
	}
	w.meter.Rough = false
	return err
}

// estimate counts a range that is not run, with no less than running it would count. It returns false if
// only running it tells.
func (w *Writer) estimate(v *view, r *kv.RangeRequest) (bool, error) {
	from, to, single := bounds(r.Key, r.End)
	n, visited := int64(1), int64(1)
	switch {
	case single:
	case r.Revision > 0 && r.Revision < v.rev:
		return false, nil
	case !r.CountOnly:
		n = int64(v.tree.Count(from, to))
		if find := planOf(r).find; find > 0 {
			n = min(n, int64(find))
		}
		visited = n + 1
	}
	if err := w.meter.Visit(visited); err != nil {
		return true, err
	}
	// Sorting by value holds all values twice, next to the answer.
	return true, w.meter.Read(n * (3*w.largest + hitSize))
}
