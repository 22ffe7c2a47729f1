package check

import (
	"cmp"
	"slices"
	"time"
)

// Compaction is that the compaction of a revision was about to be requested at a time.
type Compaction struct {
	At  time.Duration
	Rev int64
}

// Compactions are those of a run, in order of time.
type Compactions []Compaction

// highest returns the highest revision that may have been compacted at a time.
func (c Compactions) highest(at time.Duration) (rev int64) {
	for _, x := range c {
		if x.At > at {
			break
		}
		rev = max(rev, x.Rev)
	}
	return rev
}

// floor is the newest revision that answers have shown, by time.
type floor struct {
	byRet []*Op
	rev   int64
}

func newFloor(ops []Op) *floor {
	f := &floor{}
	for n := range ops {
		if ops[n].Outcome == Acked {
			f.byRet = append(f.byRet, &ops[n])
		}
	}
	slices.SortFunc(f.byRet, func(a, b *Op) int { return cmp.Compare(a.Ret, b.Ret) })
	return f
}

// before returns the newest revision that was known before a time. Times do not decrease from call
// to call.
func (f *floor) before(at time.Duration) int64 {
	for ; len(f.byRet) > 0 && f.byRet[0].Ret < at; f.byRet = f.byRet[1:] {
		f.rev = max(f.rev, f.byRet[0].Rev)
	}
	return f.rev
}
