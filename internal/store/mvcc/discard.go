package mvcc

import (
	"vigil/internal/kv"
	"vigil/internal/store/mvcc/meter"
)

// Discard sets whether the writer discards the results of the next requests. It then runs no ranges
// of transactions and reads no previous pairs; their results are empty. The effect of the requests
// on the store is the same.
func (w *Writer) Discard(on bool) { w.discard = on }

// runMetered runs a request under the limits. It estimates discarded results; if the estimate
// exceeds a limit, it calls run again, which then reads them. A run that fails because of a limit
// must have changed nothing.
func (w *Writer) runMetered(run func() error) error {
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

// estimate counts a range without running it. It counts at least as much as running the range
// would. It returns false if only running the range shows the numbers.
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
