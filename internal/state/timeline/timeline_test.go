package timeline

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"vigil/internal/kv"
)

const (
	second = int64(1000)
	hour   = 3600 * second
	day    = 24 * hour
)

// model holds every mark that was added and not dropped by a clock that went back.
type model struct {
	marks   []kv.TimeMark
	compact int64
	// latest is the latest time of any mark: old ones were thinned by it, whether it still exists or not.
	latest int64
}

func (m *model) add(r *kv.TimeRequest) {
	if r.Back {
		m.marks = slices.DeleteFunc(m.marks, func(k kv.TimeMark) bool { return k.Time >= r.Marks[0].Time })
	}
	m.marks = append(m.marks, r.Marks...)
	m.latest = max(m.latest, m.marks[len(m.marks)-1].Time)
}

// check compares the answers of a state with everything that is known. Answers about what is not compacted must be true,
// and not wider than the spacing of marks of their age.
func (m *model) check(s *State, r *rand.Rand) error {
	if err := s.valid(); err != nil {
		return err
	}
	back, err := Load(s.Records())
	if err != nil {
		return err
	}
	if len(s.blocks)+len(back.blocks) > 0 && !reflect.DeepEqual(back, s) {
		return errors.New("invariant 2: the records are those of another state")
	}
	newest := m.marks[len(m.marks)-1]
	for range 20 {
		rev := m.compact + r.Int64N(newest.Revision-m.compact+2)
		var want kv.TimeSpan
		for _, k := range m.marks {
			if k.Revision < rev {
				want.After = k.Time
			} else if want.At == 0 {
				want.At = k.Time
			}
		}
		got := s.Span(rev)
		if got.After > want.After || want.At > 0 && got.At < want.At || want.At == 0 && got.At != 0 {
			return fmt.Errorf("revision %d: %+v, which is not around %+v", rev, got, want)
		}
		width := spacing(m.latest - want.After)
		if want.At > 0 && rev > m.compact+1 && (got.At-want.At > width || want.After-got.After > width) && len(s.blocks) > 70 {
			return fmt.Errorf("revision %d: %+v, and it is known to be in %+v; marks of that age are %d ms apart", rev, got, want, width)
		}
		// The newest revision at a time is at most the true one, and exact at the time of a mark that is kept.
		ms := newest.Time - r.Int64N(2*hour)
		at, ok := s.At(ms)
		var exact kv.TimeMark
		for _, k := range m.marks {
			if k.Time <= ms {
				exact = k
			}
		}
		if ok && (at.Revision > exact.Revision || at.Time > ms) {
			return fmt.Errorf("at %d: %+v, want at most %+v", ms, at, exact)
		}
		if m.latest-exact.Time < hour/2 && exact.Revision > m.compact && at.Revision != exact.Revision {
			return fmt.Errorf("at %d: %+v, want %+v", ms, at, exact)
		}
	}
	if last, ok := s.Last(); !ok || last != newest {
		return fmt.Errorf("the newest mark is %+v, want %+v", last, newest)
	}
	return nil
}

func TestRandomMarks(t *testing.T) {
	for range 4 {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 1))
		s, m := &State{}, &model{}
		records := map[string]Record{}
		now, rev := int64(1_700_000_000_000), int64(1)
		for step := range 6000 {
			req := &kv.TimeRequest{}
			switch r.IntN(400) {
			case 0:
				now += r.Int64N(30 * day)
			case 1:
				now += r.Int64N(2 * hour)
			case 2:
				if len(m.marks) > 0 {
					now -= r.Int64N(10 * hour)
					req.Back = true
				}
			case 3:
				m.compact = max(m.compact, rev-r.Int64N(2000))
			}
			for range 1 + r.IntN(2) {
				now += 1 + r.Int64N(2*second)
				rev += r.Int64N(5)
				req.Marks = append(req.Marks, kv.TimeMark{Time: now, Revision: rev})
			}
			next, changed, err := s.Add(req, rev, m.compact)
			if err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			m.add(req)
			for _, c := range changed {
				if _, ok := records[string(c.Key)]; c.Deleted && !ok {
					t.Fatalf("seed %d, step %d: a record that does not exist is deleted", seed, step)
				} else if c.Deleted {
					delete(records, string(c.Key))
				} else {
					records[string(c.Key)] = c
				}
			}
			if len(changed) > 2*maxThinned+4 && m.compact == 0 && !req.Back {
				t.Fatalf("seed %d, step %d: %d records changed", seed, step, len(changed))
			}
			s = next
			if step%50 != 0 {
				continue
			}
			if err := m.check(s, r); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			all := s.Records()
			if len(all) != len(records) {
				t.Fatalf("seed %d, step %d: %d records are stored, the state has %d", seed, step, len(records), len(all))
			}
			for _, want := range all {
				if !reflect.DeepEqual(records[string(want.Key)], want) {
					t.Fatalf("seed %d, step %d: the record of %x is stored as %x", seed, step, want.Key, records[string(want.Key)].Value)
				}
			}
		}
	}
}

// The marks of years take a bounded number of records.
func TestBounded(t *testing.T) {
	s := &State{}
	now, rev := int64(1_700_000_000_000), int64(1)
	most := 0
	for range 100_000 {
		now += 4000 * second // 12 years
		rev++
		next, _, err := s.Add(&kv.TimeRequest{Marks: []kv.TimeMark{{Time: now, Revision: rev}}}, rev, 0)
		if err != nil {
			t.Fatal(err)
		}
		s = next
		most = max(most, len(s.blocks))
	}
	size := 0
	for _, r := range s.Records() {
		size += len(r.Key) + len(r.Value)
	}
	t.Logf("12 years: at most %d blocks, now %d marks in %d bytes", most, s.Len(), size)
	if most > MaxBlocks/2 {
		t.Errorf("%d blocks", most)
	}
	if first, _ := s.First(); now-first.Time < 12*365*day {
		t.Errorf("the oldest mark is only %v old", time.Duration(now-first.Time)*time.Millisecond)
	}
}

func TestOldestBlocksAreDropped(t *testing.T) {
	s := &State{}
	for i := range MaxBlocks {
		s.blocks = append(s.blocks, &block{slices.Repeat([]kv.TimeMark{{Time: int64(i + 1), Revision: int64(i + 1)}}, 1)})
	}
	last := s.blocks[MaxBlocks-1]
	for i := range int64(BlockMarks - 1) {
		last.marks = append(last.marks, kv.TimeMark{Time: MaxBlocks + 1 + i, Revision: MaxBlocks + 1 + i})
	}
	next, _, err := s.Add(&kv.TimeRequest{Marks: []kv.TimeMark{{Time: 1 << 20, Revision: 1 << 20}}}, 1<<20, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.valid(); err != nil {
		t.Error(err)
	}
	if first, _ := next.First(); first.Time != 2 {
		t.Errorf("the first mark is at %d, want 2", first.Time)
	}
}

func TestAddRejects(t *testing.T) {
	mark := func(ms, rev int64) kv.TimeMark { return kv.TimeMark{Time: ms, Revision: rev} }
	s, _, err := (&State{}).Add(&kv.TimeRequest{Marks: []kv.TimeMark{mark(10, 5)}}, 5, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]kv.TimeRequest{
		"no marks":               {},
		"too many":               {Marks: make([]kv.TimeMark, kv.MaxTimeMarks+1)},
		"the same time":          {Marks: []kv.TimeMark{mark(10, 6)}},
		"an earlier time":        {Marks: []kv.TimeMark{mark(9, 6)}},
		"a lower revision":       {Marks: []kv.TimeMark{mark(11, 4)}},
		"back, a lower revision": {Back: true, Marks: []kv.TimeMark{mark(9, 4)}},
		"back to zero":           {Back: true, Marks: []kv.TimeMark{mark(0, 6)}},
		"a future revision":      {Marks: []kv.TimeMark{mark(11, 7)}},
		"a time too late":        {Marks: []kv.TimeMark{mark(kv.MaxTime+1, 6)}},
		"times that descend":     {Marks: []kv.TimeMark{mark(12, 6), mark(12, 6)}},
		"revisions that descend": {Marks: []kv.TimeMark{mark(12, 6), mark(13, 5)}},
	} {
		if _, _, err := s.Add(&r, 6, 0); !errors.Is(err, kv.ErrTimeOrder) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUntil(t *testing.T) {
	s := &State{}
	for i := int64(1); i <= 200; i++ {
		var err error
		if s, _, err = s.Add(&kv.TimeRequest{Marks: []kv.TimeMark{{Time: 100 * i, Revision: 10 * i}}}, 10*i, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, rev := range []int64{0, 9, 10, 11, 640, 641, 1000, 1999, 2000, 5000} {
		u := s.Until(rev)
		if err := u.valid(); err != nil {
			t.Error(err)
		}
		if want := int(min(rev/10, 200)); u.Len() != want {
			t.Errorf("until revision %d: %d marks, want %d", rev, u.Len(), want)
		}
	}
	if s.Len() != 200 {
		t.Error("the state has changed")
	}
}

func FuzzLoad(f *testing.F) {
	s, _, err := (&State{}).Add(&kv.TimeRequest{Marks: []kv.TimeMark{{Time: 1_700_000_000_000, Revision: 300}, {Time: 1_700_000_001_000, Revision: 301}, {Time: 1_700_000_009_000, Revision: 1 << 40}}}, 1<<40, 0)
	if err != nil {
		f.Fatal(err)
	}
	r := s.Records()[0]
	f.Add(r.Key, r.Value)
	f.Fuzz(func(t *testing.T, key, value []byte) {
		s, err := Load([]Record{{Key: key, Value: value}})
		if err != nil {
			if !errors.Is(err, kv.ErrCorrupt) {
				t.Error(err)
			}
			return
		}
		back := s.Records()
		if len(back) != 1 || !bytes.Equal(back[0].Key, key) || !bytes.Equal(back[0].Value, value) {
			t.Errorf("%x of %x becomes %+v", value, key, back)
		}
	})
}

// Compaction drops whole blocks of compacted revisions, and never the newest mark below the compact revision nor a later one.
func TestTrim(t *testing.T) {
	s := &State{}
	for i := int64(1); i <= 4*BlockMarks; i++ {
		var err error
		if s, _, err = s.Add(&kv.TimeRequest{Marks: []kv.TimeMark{{Time: 100 * i, Revision: 10 * i}}}, 10*i, 0); err != nil {
			t.Fatal(err)
		}
	}
	for compact := int64(0); compact <= 10*4*BlockMarks; compact += 5 {
		blocks := trim(s.blocks, compact)
		cut := &State{blocks: blocks}
		below, ok := s.before(func(m kv.TimeMark) bool { return m.Revision >= compact })
		if got, gotOK := cut.before(func(m kv.TimeMark) bool { return m.Revision >= compact }); got != below || gotOK != ok {
			t.Fatalf("compacted at %d: the newest mark below is %v, want %v", compact, got, below)
		}
		if want := max(0, (compact-11)/10/BlockMarks); int64(len(s.blocks)-len(blocks)) != want {
			t.Fatalf("compacted at %d: %d blocks are dropped, want %d", compact, len(s.blocks)-len(blocks), want)
		}
	}
}

func TestLoadRejects(t *testing.T) {
	s, _, err := (&State{}).Add(&kv.TimeRequest{Marks: []kv.TimeMark{{Time: 1000, Revision: 300}, {Time: 2000, Revision: 300}}}, 300, 0)
	if err != nil {
		t.Fatal(err)
	}
	good := s.Records()[0]
	other := func(change func(r *Record)) []Record {
		r := Record{Key: bytes.Clone(good.Key), Value: bytes.Clone(good.Value)}
		change(&r)
		return []Record{r}
	}
	for name, records := range map[string][]Record{
		"a long key":      other(func(r *Record) { r.Key = append(r.Key, 0) }),
		"time 0":          other(func(r *Record) { clear(r.Key) }),
		"a time too late": other(func(r *Record) { r.Key[0] = 1 }),
		"no value":        other(func(r *Record) { r.Value = nil }),
		"another version": other(func(r *Record) { r.Value[0] = 2 }),
		"a rest":          other(func(r *Record) { r.Value = append(r.Value, 1) }),
		"the same time":   other(func(r *Record) { r.Value = append(r.Value, 0, 1) }),
		"too many marks":  other(func(r *Record) { r.Value = append(r.Value, bytes.Repeat([]byte{1, 1}, BlockMarks-1)...) }),
		"overlapping":     append(other(func(r *Record) { r.Key[7]++ }), good),
	} {
		if _, err := Load(records); !errors.Is(err, kv.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
