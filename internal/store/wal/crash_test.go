package wal

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// crashes is how many crashes the random test goes through: VIGIL_CRASHES, or the default.
func crashes(t *testing.T, otherwise int) int {
	s := os.Getenv("VIGIL_CRASHES")
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	must(t, err)
	return n
}

// logState is the log after a call of Append, with what TruncateBefore gave up still in it.
type logState struct {
	start Start
	ents  []*raftpb.Entry // from start.Index+1 on
	hard  hardState
	gone  uint64 // entries below it were given up
}

func (s logState) last() uint64 { return s.start.Index + uint64(len(s.ents)) }

func (s logState) term(index uint64) uint64 {
	if index == s.start.Index {
		return s.start.Term
	}
	return s.ents[index-s.start.Index-1].GetTerm()
}

func (s logState) with(batches []Batch) logState {
	for _, b := range batches {
		if b.Snapshot != nil {
			s.start, s.ents, s.gone = *b.Snapshot, nil, 0
		}
		if h := hardOf(b.HardState); h != (hardState{}) {
			s.hard = h
		}
		if len(b.Entries) > 0 {
			keep := b.Entries[0].GetIndex() - s.start.Index - 1
			s.ents = append(slices.Clone(s.ents[:keep]), b.Entries...)
		}
	}
	return s
}

// matches says why the log is not in the state s.
func (s logState) matches(w *WAL) error {
	first, _ := w.FirstIndex()
	last, _ := w.LastIndex()
	if last != s.last() || first-1 < s.start.Index || first > max(s.gone, s.start.Index+1) {
		return fmt.Errorf("log from %d to %d, want at most from %d, to %d", first, last,
			max(s.gone, s.start.Index+1), s.last())
	}
	for i := first - 1; i <= last; i++ {
		if term, err := w.Term(i); err != nil || term != s.term(i) {
			return fmt.Errorf("term of %d is %d, %v, want %d", i, term, err, s.term(i))
		}
	}
	if first <= last {
		got, err := w.Entries(first, last+1, math.MaxUint64)
		if err != nil {
			return err
		}
		if want := s.ents[first-1-s.start.Index:]; !sameEntries(got, want) {
			return fmt.Errorf("entries%s, want%s", describe(got), describe(want))
		}
	}
	if hardOf(w.HardState()) != s.hard {
		return fmt.Errorf("hard state %v, want %v", w.HardState(), s.hard)
	}
	return nil
}

// crasher runs random operations on a log whose machine loses power at a random operation of the
// file system, again and again.
type crasher struct {
	*testing.T
	rng  *rand.Rand
	mem  *memfs.FS
	left int64 // operations of the file system until the next crash
	w    *WAL

	// states are what the log may be in, oldest first; the last is what it is in while it is open.
	states []logState
	term   uint64
	// created is set when the log was once there.
	created bool

	survived, lost, torn int
}

func (c *crasher) options() Options {
	o := testOptions(faultfs.New(c.mem, func(faultfs.Op, string) faultfs.Fault {
		c.left--
		if c.left < 0 {
			return faultfs.Fail
		}
		return faultfs.None
	}))
	o.CacheBytes = 2000
	return o
}

// dead reports whether an error is that of the crash, and fails the test if it is another one.
func (c *crasher) dead(err error) bool {
	c.Helper()
	if err == nil {
		return false
	}
	if !errors.Is(err, faultfs.ErrInjected) || c.left >= 0 {
		c.Fatalf("%v\n%s", err, c.mem)
	}
	return true
}

// open opens the log, or makes it if there is none yet, and finds out its state.
func (c *crasher) open() bool {
	o := c.options()
	there, err := Exists(o.FS, o.Dir)
	if c.dead(err) {
		return false
	}
	if !there {
		if c.created {
			c.Fatal("the log is gone")
		}
		c.w, err = Create(o, Start{Index: 1, Term: 1})
	} else {
		c.w, err = Open(o)
	}
	if c.dead(err) {
		return false
	}
	c.created = true
	c.w.run = func(step func()) { step() }
	var errs []error
	for i, s := range slices.Backward(c.states) {
		err := s.matches(c.w)
		if c.left < 0 {
			return false
		}
		if err == nil {
			c.survived += i
			c.lost += len(c.states) - 1 - i
			c.states = []logState{s}
			return true
		}
		errs = append(errs, fmt.Errorf("state %d: %w", i, err))
	}
	c.Fatalf("the log is in none of %d possible states: %v\n%s", len(c.states),
		errors.Join(errs...), c.mem)
	return false
}

func (c *crasher) batch(s logState) Batch {
	rng := c.rng
	first, _ := c.w.FirstIndex()
	var b Batch
	if rng.IntN(60) == 0 {
		c.term++
		b.Snapshot = &Start{Index: s.last() + uint64(rng.IntN(20)), Term: c.term}
		s = s.with([]Batch{b})
		first = s.last() + 1
	}
	if rng.IntN(2) == 0 {
		b.HardState = hard(c.term, uint64(rng.IntN(3)), s.last())
	}
	if rng.IntN(4) > 0 {
		index := s.last() + 1
		if rng.IntN(8) == 0 {
			c.term++
			index -= uint64(rng.Int64N(int64(min(s.last()+1-max(first, s.start.Index+1), 20) + 1)))
		}
		size := []int{0, 10, 100, 500, 3000, 20000}[min(rng.IntN(12), 5)]
		if size == 20000 && rng.IntN(10) > 0 {
			size = 300
		}
		b.Entries = entries(index, c.term, rng.IntN(5)+1, rng.IntN(size+1))
	}
	b.Sync = rng.IntN(3) > 0
	return b
}

// step does something with the log; false if the machine died of it.
func (c *crasher) step() bool {
	cur := c.states[len(c.states)-1]
	switch c.rng.IntN(10) {
	case 0:
		first, _ := c.w.FirstIndex()
		index := first + uint64(c.rng.Int64N(int64(cur.last()+2-first)))
		if c.rng.IntN(3) > 0 {
			index = max(first, cur.last()-min(cur.last(), uint64(c.rng.IntN(10))))
		}
		for i := range c.states {
			c.states[i].gone = max(c.states[i].gone, index)
		}
		return !c.dead(c.w.TruncateBefore(index))
	case 1:
		if err := cur.matches(c.w); err != nil && c.left >= 0 {
			c.Fatal(err)
		}
		return c.left >= 0
	}
	var batches []Batch
	next := cur
	sync := false
	for range c.rng.IntN(3) + 1 {
		b := c.batch(next)
		batches = append(batches, b)
		next = next.with([]Batch{b})
		sync = sync || b.Sync || b.Snapshot != nil
	}
	c.states = append(c.states, next)
	if c.dead(c.w.Append(batches...)) {
		return false
	}
	if sync {
		c.states = c.states[len(c.states)-1:]
	}
	return true
}

// run goes through one life of the log, from open to crash.
func (c *crasher) run() {
	c.left = c.rng.Int64N(200)
	if c.rng.IntN(4) > 0 {
		c.left += 100
	}
	if c.open() {
		for c.step() {
			if c.rng.IntN(300) == 0 {
				if !c.dead(c.w.Close()) {
					c.states = c.states[len(c.states)-1:]
				}
				break
			}
		}
	}
	if c.w != nil && len(c.states) > 1 {
		c.torn++
	}
	if c.rng.IntN(4) == 0 {
		c.mem = c.mem.Kill()
	} else {
		c.mem = c.mem.Crash(c.rng)
	}
}

// Random appends, overwrites, hard states, snapshots and truncations, with a crash at a random
// operation of the file system: everything acknowledged is there when the log is opened again, and
// what is there is the state after one of the calls.
func TestRandomCrashes(t *testing.T) {
	const lives = 20
	n := crashes(t, 400)
	total := crasher{}
	for seed := uint64(0); n > 0; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			c := &crasher{T: t, rng: rand.New(rand.NewPCG(seed, 1)), mem: memfs.New(), term: 1,
				states: []logState{{start: Start{Index: 1, Term: 1}}}}
			for range lives {
				c.run()
			}
			total.survived += c.survived
			total.lost += c.lost
			total.torn += c.torn
		})
		if t.Failed() {
			return
		}
		n -= lives
	}
	t.Logf("of the unsynced groups at crashes %d survived and %d were lost",
		total.survived, total.lost)
}
