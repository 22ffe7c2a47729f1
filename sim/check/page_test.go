package check

import (
	"strings"
	"testing"
	"time"
)

// TestPage judges pages of a small store, right ones and wrong ones.
func TestPage(t *testing.T) {
	a, b, c := Item{"p/a", "3", 2, 5, 2}, Item{"p/b", "1", 3, 3, 1}, Item{"p/c", "2", 4, 4, 1}
	h := &History{Base: 1, Start: map[string]Item{}, Revs: []Revision{
		{2, []Event{{Item: Item{"p/a", "0", 2, 2, 1}}}}, {3, []Event{{Item: b}}},
		{4, []Event{{Item: c}}}, {5, []Event{{Item: a}}},
		{6, []Event{{Item{Key: "p/b", Mod: 6}, true}}},
	}}
	all := Listing{From: "p/", To: "p0", Rev: 5, Count: 3}
	with := func(change func(*Listing)) Listing {
		l := all
		change(&l)
		return l
	}
	bare := func(i Item) Item {
		i.Value = ""
		return i
	}
	tests := []struct {
		name  string
		list  Listing
		found []Item
		want  string
	}{
		{"all", all, []Item{a, b, c}, ""},
		{"a page", with(func(l *Listing) { l.Limit, l.More = 2, true }), []Item{a, b}, ""},
		{"the last page", with(func(l *Listing) { l.From, l.Limit, l.Count = "p/b\x00", 2, 1 }),
			[]Item{c}, ""},
		{"by value", with(func(l *Listing) { l.By = ByValue }), []Item{b, c, a}, ""},
		{"by modification, newest first",
			with(func(l *Listing) { l.By, l.Descend, l.Limit, l.More = ByMod, true, 1, true }),
			[]Item{a}, ""},
		{"by version, one of two",
			with(func(l *Listing) { l.By, l.Limit, l.More = ByVersion, 1, true }), []Item{c}, ""},
		{"keys only", with(func(l *Listing) { l.KeysOnly = true }),
			[]Item{bare(a), bare(b), bare(c)}, ""},
		{"count only", with(func(l *Listing) { l.CountOnly = true }), nil, ""},
		{"changed since 4", with(func(l *Listing) { l.MinMod = 4 }), []Item{a, c}, ""},
		{"created up to 3", with(func(l *Listing) { l.MaxCreate = 3 }), []Item{a, b}, ""},
		{"the newest state", with(func(l *Listing) { l.Rev, l.Count = 0, 2 }), []Item{a, c}, ""},

		{"the present state instead of a former one", with(func(l *Listing) { l.Count = 2 }),
			[]Item{a, c}, "count is wrong"},
		{"a wrong count", with(func(l *Listing) { l.Count, l.CountOnly = 4, true }), nil,
			"count is wrong"},
		{"a key that is missing", all, []Item{a, c}, "page is wrong"},
		{"no more", with(func(l *Listing) { l.Limit = 2 }), []Item{a, b}, "page is wrong"},
		{"more than there is", with(func(l *Listing) { l.More = true }), []Item{a, b, c},
			"page is wrong"},
		{"a key twice", all, []Item{a, b, b}, "what was not there"},
		{"a wrong value", all, []Item{a, b, {"p/c", "9", 4, 4, 1}}, "what was not there"},
		{"values though keys only", with(func(l *Listing) { l.KeysOnly = true }), []Item{a, b, c},
			"what was not there"},
		{"another order", all, []Item{b, a, c}, "not in order"},
		{"another page", with(func(l *Listing) { l.Limit, l.More = 2, true }), []Item{b, c},
			"not in order"},
		{"a key that the bounds leave out", with(func(l *Listing) { l.MinMod = 4 }), []Item{a, b},
			"what was not there"},
	}
	for _, test := range tests {
		o := Op{Kind: Page, Outcome: Acked, Rev: 6, Page: &test.list, Found: test.found}
		var v Violations
		checkReads(&v, h.Timeline(), []Op{o})
		got := strings.Join(v, "\n")
		if test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: want %q, got %q", test.name, test.want, got)
		}
	}
}

// TestPageOrder: a linearizable page is not older than what was known, and serializable ones do not
// go back.
func TestPageOrder(t *testing.T) {
	h := &History{Base: 1, Start: map[string]Item{}, Revs: []Revision{
		{10, []Event{{Item: Item{"p/a", "0", 2, 2, 1}}}},
		{20, []Event{{Item: Item{"p/a", "1", 2, 3, 2}}}},
	}}
	at := func(n int) time.Duration { return time.Duration(n) }
	list := func(serializable bool, rev int64, call int) Op {
		i := Item{"p/a", "0", 2, 2, 1}
		if rev == 3 {
			i = Item{"p/a", "1", 2, 3, 2}
		}
		return Op{Kind: Page, Outcome: Acked, Rev: rev, Call: at(call), Ret: at(call + 1),
			Found: []Item{i},
			Page:  &Listing{From: "p/", To: "p0", Serializable: serializable, Count: 1}}
	}
	elsewhere := func(o Op) Op { o.Member = 1; return o }
	for _, test := range []struct {
		name, want string
		ops        []Op
	}{
		{"in order", "", []Op{list(false, 2, 12), list(false, 3, 30),
			elsewhere(list(true, 2, 40))}},
		{"older than an answer of the member", "went back",
			[]Op{list(false, 3, 30), list(true, 2, 40)}},
		{"stale", "stale", []Op{list(false, 2, 30)}},
		{"back", "went back", []Op{list(true, 3, 30), list(true, 2, 40)}},
	} {
		got := strings.Join(append(Check(h, test.ops, time.Minute), CheckLocal(test.ops)...), "\n")
		if test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: want %q, got %q", test.name, test.want, got)
		}
	}
}
