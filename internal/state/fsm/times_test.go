package fsm

import (
	"errors"
	"fmt"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/store/history"
)

// The times of revisions survive a restart, are part of the contents of a store, and are not changed by a request that is
// rejected.
func TestTimes(t *testing.T) {
	b := newBox(t)
	mark := func(term uint64, marks ...kv.TimeMark) Result {
		return b.request(1, &Request{Time: &kv.TimeRequest{Term: term, Marks: marks}})
	}
	b.request(1, put("a", "1"))
	for i, c := range []struct {
		term uint64
		m    kv.TimeMark
		err  error
	}{
		{2, kv.TimeMark{Time: 1000, Revision: 2}, kv.ErrLeaderChanged},
		{1, kv.TimeMark{Time: 1000, Revision: 3}, kv.ErrTimeOrder},
		{1, kv.TimeMark{Time: 1000, Revision: 2}, nil},
		{1, kv.TimeMark{Time: 1000, Revision: 2}, kv.ErrTimeOrder},
		{1, kv.TimeMark{Time: 2000, Revision: 1}, kv.ErrTimeOrder},
	} {
		if res := mark(c.term, c.m); !errors.Is(res.Err, c.err) {
			t.Errorf("mark %d: %v, want %v", i, res.Err, c.err)
		}
	}
	b.request(1, put("a", "2"))
	if res := mark(1, kv.TimeMark{Time: 5000, Revision: 2}, kv.TimeMark{Time: 6000, Revision: 3}); res.Err != nil {
		t.Error(res.Err)
	}
	want := "{{1000 5000} 2 {5000 6000}}"
	check := func(when string) {
		t.Helper()
		at, _ := b.m.Times().At(5999)
		got := fmt.Sprint(struct {
			two kv.TimeSpan
			at  int64
			now kv.TimeSpan
		}{kv.TimeSpan{After: 1000, At: at.Time}, at.Revision, b.m.Times().Span(3)})
		if got != want || b.m.Times().Span(2).At != 1000 {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	b.commit()
	check("after the commit")
	b.reopen()
	check("after a restart")
	c, err := ReadContents(b.log.AllMeta())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(c.Times.Records()), fmt.Sprint(b.m.Times().Records()); got != want {
		t.Errorf("the contents have the times %s, want %s", got, want)
	}
	found := false
	for _, m := range c.Records() {
		found = found || m.Bucket == timeBucket
	}
	if !found {
		t.Error("the records of the contents lack the times")
	}
	if _, err := ReadContents(append(b.log.AllMeta(), history.Meta{Bucket: timeBucket, Key: []byte("k")})); !errors.Is(err, kv.ErrCorrupt) {
		t.Errorf("a malformed record of times: %v", err)
	}
}
