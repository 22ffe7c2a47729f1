package mvcc

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
	"strings"

	"vigil/internal/kv"
	"vigil/internal/store/history"
)

// Each record has the time of its revision: the clock of the leader that added the entry to the
// log, see Writer.SetTime. Times do not descend, unless a clock that was far ahead has been
// corrected. So a search finds the newest revision at a time.

const (
	// MaxClockLag is the number of milliseconds that a clock may be behind the time of the newest
	// revision: the next revisions get that time then. Clocks of members differ by less. The store
	// trusts a clock that is further behind: an earlier clock was ahead.
	MaxClockLag = 10_000
	// MaxSetBacks is the number of corrections of clocks that the store remembers. Before older
	// corrections the times of the records count.
	MaxSetBacks = 1 << 10
	// backPrefix begins the key, in MetaBucket, of a setBack. Its revision follows as a big-endian
	// u64; the value is its time as uvarint.
	backPrefix = "back"
)

// setBack is a correction of the clock: revisions up to revision were made at or before time,
// whatever their records say.
type setBack struct{ revision, time int64 }

// times holds what a state knows about times besides its records. It is immutable.
type times struct {
	// newest is the time of the newest revision, 0 if it is not known.
	newest int64
	// compact is the time of the compact revision, whose record may be gone; 0 if it is not known.
	compact int64
	// backs ascend by revision and by time.
	backs []setBack
}

// of returns the time of a revision whose record has a time; 0 if it is not known.
func (t *times) of(revision, recorded int64) int64 {
	i := sort.Search(len(t.backs), func(i int) bool { return t.backs[i].revision >= revision })
	if i < len(t.backs) {
		return min(recorded, t.backs[i].time)
	}
	return recorded
}

// load adds the times in a meta record.
func (t *times) load(m history.Meta) error {
	rest, ok := strings.CutPrefix(string(m.Key), backPrefix)
	if !ok {
		return nil
	}
	ms, n := binary.Uvarint(m.Value)
	if len(rest) != 8 || n <= 0 || n != len(m.Value) || ms > kv.MaxTime {
		return fmt.Errorf("mvcc: the correction of times %x of %q: %w", m.Value,
			m.Key, kv.ErrCorrupt)
	}
	t.backs = append(t.backs, setBack{int64(binary.BigEndian.Uint64([]byte(rest))), int64(ms)})
	return nil
}

// complete ends the loading of the times of a store at a revision.
func (t *times) complete(hist *history.View, revision, compact int64) error {
	slices.SortFunc(t.backs, func(a, b setBack) int { return cmp.Compare(a.revision, b.revision) })
	last, _, err := hist.Search(func(history.Stamp) bool { return false })
	if err != nil {
		return fmt.Errorf("mvcc: %w", err)
	}
	recorded := last.Time
	if last.Rev.Main < compact || last.Rev.Main == compact && t.compact > 0 {
		// The compact revision is the newest. Which records are left below it differs from member
		// to member.
		recorded = t.compact
	}
	t.newest = t.of(revision, recorded)
	return nil
}

func (b setBack) meta(deleted bool) history.Meta {
	key := binary.BigEndian.AppendUint64([]byte(backPrefix), uint64(b.revision))
	return history.Meta{Bucket: MetaBucket, Key: key,
		Value: binary.AppendUvarint(nil, uint64(b.time)), Deleted: deleted}
}

// SetTime sets the time of the revisions that follow, in milliseconds since 1970, by the clock of
// the leader that added their entry to the log; 0 for an entry without a time. Errors: a
// *FatalError.
func (w *Writer) SetTime(ms int64) error {
	if w.stamp = NextTime(w.times.newest, ms); w.stamp < w.times.newest {
		if err := w.setBack(setBack{w.rev, ms}); err != nil {
			return err
		}
	}
	w.log.SetTime(w.stamp)
	return nil
}

// NextTime returns the time of the revisions that an entry makes: newest is the time of the newest
// revision, and ms the time of the entry, 0 for none. A result below newest is a correction of the
// clock.
func NextTime(newest, ms int64) int64 {
	if ms > 0 && newest-ms > MaxClockLag {
		return ms
	}
	return max(newest, ms)
}

// setBack adds a correction.
func (w *Writer) setBack(b setBack) error {
	if err := w.beginRequest(); err != nil {
		return err
	}
	// Earlier corrections with a later time have no effect any more.
	keep := sort.Search(len(w.times.backs),
		func(i int) bool { return w.times.backs[i].time >= b.time })
	from := max(keep-MaxSetBacks+1, 0)
	for i, old := range w.times.backs {
		if i < from || i >= keep {
			if err := w.appendMeta(old.meta(true)); err != nil {
				return err
			}
		}
	}
	w.times.backs, w.times.newest = append(slices.Clone(w.times.backs[from:keep]), b), b.time
	return w.appendMeta(b.meta(false))
}

// appendMeta adds a record of this package.
func (w *Writer) appendMeta(m history.Meta) error {
	if err := w.log.AppendMeta(m); err != nil {
		return w.fail("meta record", err)
	}
	return nil
}

// timeAt returns the time of the newest revision at or below revision, which must not be compacted.
func (w *Writer) timeAt(revision int64) (int64, error) {
	if revision == w.rev {
		return w.times.newest, nil
	}
	v := w.view()
	before, _, err := v.around(revision + 1)
	return before.time, err
}

// moment is a revision and when it was made.
type moment struct {
	revision int64
	time     int64 // 0 if it is not known
	// exact: the time is the time of the record.
	exact bool
}

func (v *view) moment(at history.Stamp) moment {
	t := v.times.of(at.Rev.Main, at.Time)
	return moment{at.Rev.Main, t, t == at.Time}
}

// around returns the newest known revision below revision, and the oldest known one at or above it:
// zero for none. Compacted revisions may be unknown.
func (v *view) around(revision int64) (before, at moment, err error) {
	b, f, err := v.records().Around(kv.Rev{Main: revision})
	if err != nil {
		return before, at, fmt.Errorf("mvcc: the time of revision %d: %w", revision, err)
	}
	c := v.compactMoment()
	before, at = withCompact(c, v.moment(b), v.moment(f), c.revision < revision)
	return before, at, nil
}

// until returns the newest revision with a time at or before ms, and the oldest with a later one,
// as around.
func (v *view) until(ms int64) (before, at moment, err error) {
	b, f, err := v.records().Search(func(s history.Stamp) bool { return v.moment(s).time > ms })
	if err != nil {
		return before, at, fmt.Errorf("mvcc: the revision at %s: %w", kv.FormatTime(ms), err)
	}
	c := v.compactMoment()
	before, at = withCompact(c, v.moment(b), v.moment(f), c.time <= ms)
	return before, at, nil
}

// compactMoment returns the compact revision, whose record may be gone.
func (v *view) compactMoment() moment {
	return v.moment(history.Stamp{Rev: kv.Rev{Main: v.compact}, Time: v.times.compact})
}

// withCompact replaces before, or at if isBefore is not set, with the compact revision c if the
// time of c is known and c is nearer.
func withCompact(c, before, at moment, isBefore bool) (moment, moment) {
	switch {
	case c.time == 0:
	case isBefore && before.revision < c.revision:
		before = c
	case !isBefore && (at.revision == 0 || at.revision > c.revision):
		at = c
	}
	return before, at
}

// NewestTime returns the time of the newest revision that readers see, 0 if it is not known.
func (s *Store) NewestTime() int64 { return s.snap.Load().times.newest }

// TimeSpan returns when a revision was made. Its errors are errors of the log.
func (s *Store) TimeSpan(revision int64) (span kv.TimeSpan, err error) {
	v := s.read()
	before, at, err := v.around(revision)
	if err == nil && at.revision > 0 && at.time == 0 {
		_, at, err = v.until(0)
	}
	switch {
	case err != nil:
		return span, err
	case at.revision == revision && at.exact:
		before.time = at.time
	case at.revision == revision:
		// The clock was ahead then. Only revisions made before that have the right time.
		if before, _, err = v.until(at.time - 1); err != nil {
			return span, err
		}
	}
	// A revision is made in the millisecond before its time.
	return kv.TimeSpan{After: max(before.time-1, 0), At: at.time}, nil
}

// RevisionAt returns the newest revision that was made at or before a time. It can be read unless
// it is compacted during the call. Errors: a *kv.TimeError, or one of the log.
func (s *Store) RevisionAt(ms int64) (int64, error) {
	v := s.read()
	before, at, err := v.until(ms)
	switch {
	case err != nil:
		return 0, err
	case before.time == 0 && at.revision == 0:
		return 0, &kv.TimeError{Reason: kv.NoTimes, Time: ms}
	case before.time == 0 && v.times.compact == 0:
		return 0, &kv.TimeError{Reason: kv.TimeBeforeFirst, Time: ms, Bound: at.time}
	case before.revision < v.compact:
		_, first, err := v.around(v.compact)
		if err != nil {
			return 0, err
		}
		return 0, &kv.TimeError{Reason: kv.TimeCompacted, Time: ms, Bound: first.time,
			Revision: before.revision, CompactRevision: v.compact}
	}
	return before.revision, nil
}
