package check

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
)

// PagePrefix is that of the keys that are listed in pages. No two puts of them have the same value.
const PagePrefix = "p/"

// Order is what the answer to a list is sorted by.
type Order string

const (
	ByKey     Order = "key"
	ByVersion Order = "version"
	ByCreate  Order = "creation"
	ByMod     Order = "modification"
	ByValue   Order = "value"
)

// Listing is a request for a range of keys, with all options, and what its answer has besides the
// keys.
type Listing struct {
	// From and To bound the keys.
	From, To string
	// Rev is the revision to read, 0 for the newest one.
	Rev, Limit int64
	By         Order // the default is ByKey
	Descend    bool
	// Serializable allows any former state.
	Serializable        bool
	KeysOnly, CountOnly bool
	// The bounds of revisions are not used if they are 0.
	MinMod, MaxMod, MinCreate, MaxCreate int64

	Count int64
	More  bool
}

func (l *Listing) String() string {
	if l == nil {
		return ""
	}
	type fields Listing
	quoted := fields(*l)
	// a page begins after the zero byte
	quoted.From, quoted.To = strconv.Quote(l.From), strconv.Quote(l.To)
	return fmt.Sprintf(" %+v", quoted)
}

// compare compares two keys in the order of the answer, without regard to direction.
func (l *Listing) compare(a, b Item) int {
	switch l.By {
	case ByVersion:
		return cmp.Compare(a.Version, b.Version)
	case ByCreate:
		return cmp.Compare(a.Create, b.Create)
	case ByMod:
		return cmp.Compare(a.Mod, b.Mod)
	case ByValue:
		return cmp.Compare(a.Value, b.Value)
	}
	return cmp.Compare(a.Key, b.Key)
}

// keeps reports whether the bounds of revisions leave a key in the answer.
func (l *Listing) keeps(i Item) bool {
	return i.Mod >= l.MinMod && i.Create >= l.MinCreate && (l.MaxMod == 0 || i.Mod <= l.MaxMod) &&
		(l.MaxCreate == 0 || i.Create <= l.MaxCreate)
}

// checkPage compares the answer to a list with the state at its revision. Keys that are equal by
// the order may be in any order, and any of them may be left out by the limit.
func checkPage(v *Violations, t *timeline, o *Op, rev int64) {
	l := o.Page
	want := slices.DeleteFunc(t.states(rev),
		func(i Item) bool { return i.Key < l.From || i.Key >= l.To })
	if l.Count != int64(len(want)) {
		v.Add("the count is wrong, %d keys were there: %v", len(want), o)
		return
	}
	want = slices.DeleteFunc(want, func(i Item) bool { return !l.keeps(i) })
	if l.CountOnly {
		want = nil
	}
	slices.SortStableFunc(want, func(a, b Item) int {
		if l.Descend {
			a, b = b, a
		}
		return l.compare(a, b)
	})
	there := map[Item]bool{}
	for _, i := range want {
		there[l.shown(i)] = true
	}
	more := l.Limit > 0 && int64(len(want)) > l.Limit
	if more {
		want = want[:l.Limit]
	}
	if l.More != more || len(o.Found) != len(want) {
		v.Add("the page is wrong, want %d keys and more %t: %v", len(want), more, o)
		return
	}
	for n, found := range o.Found {
		if !there[found] {
			v.Add("the page has what was not there, %v: %v", found, o)
			return
		}
		delete(there, found) // each once
		if l.By == ByValue && l.KeysOnly {
			continue
		}
		if l.compare(found, want[n]) != 0 {
			v.Add("the page is not in order, %v is where %v was due: %v", found, want[n], o)
			return
		}
	}
}

// shown is a key as the answer has it.
func (l *Listing) shown(i Item) Item {
	if l.KeysOnly {
		i.Value = ""
	}
	return i
}
