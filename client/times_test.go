package client_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"vigil/client"
)

// markedAt waits until the time of a revision is known.
func markedAt(t *testing.T, c *client.Client, rev int64) client.TimeSpan {
	t.Helper()
	for {
		spans, err := c.TimesOf(t.Context(), rev)
		if err != nil {
			t.Fatal(err)
		}
		if !spans[0].At.IsZero() {
			return spans[0]
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestTimes(t *testing.T) {
	c := connect(t)
	ctx := t.Context()
	var spans []client.TimeSpan
	var revs []int64
	for i := range 3 {
		r, err := c.Put(ctx, "k", fmt.Append(nil, i))
		if err != nil {
			t.Fatal(err)
		}
		revs = append(revs, r.Header.Revision)
		spans = append(spans, markedAt(t, c, r.Header.Revision))
	}
	for i := 1; i < len(spans); i++ {
		if spans[i].After.Before(spans[i-1].At) || !spans[i].At.After(spans[i].After) {
			t.Errorf("spans %v", spans)
		}
	}
	all, err := c.TimesOf(ctx, append(revs, revs[2]+1000)...)
	if err != nil || len(all) != 4 || all[1] != spans[1] || !all[3].At.IsZero() || all[3].After.IsZero() {
		t.Errorf("times %v, %v, want %v and one that is not known", all, err, spans)
	}
	for i, s := range spans {
		if rev, err := c.RevisionAt(ctx, s.At); err != nil || rev < revs[i] {
			t.Errorf("revision at %v: %d, %v, want at least %d", s.At, rev, err, revs[i])
		}
		if rev, err := c.RevisionAt(ctx, s.At.Add(-time.Millisecond)); err == nil && rev >= revs[i] {
			t.Errorf("revision before %v: %d, want one below %d", s.At, rev, revs[i])
		}
	}
	// The first write may be before the first time that is known, others are not.
	for i := range 2 {
		past := spans[i+1].At.Add(-time.Millisecond)
		r, err := c.Get(ctx, "k", client.WithTime(past))
		if err != nil || r.KV() == nil || string(r.KV().Value) != fmt.Sprint(i) {
			t.Errorf("get at %v: %+v, %v", past, r, err)
		}
		n := 0
		for kv, err := range c.List(ctx, "", client.WithPrefix(), client.WithTime(past)).All() {
			if n++; err != nil || string(kv.Value) != fmt.Sprint(i) {
				t.Errorf("list at %v: %+v, %v", past, kv, err)
			}
		}
		if n != 1 {
			t.Errorf("list at %v: %d keys", past, n)
		}
		w := c.Watch(ctx, "k", client.WithTime(past))
		next := i + 1
		for ev, err := range w.Events() {
			if err != nil || string(ev.KV.Value) != fmt.Sprint(next) {
				t.Fatalf("watch from %v: %+v, %v", past, ev, err)
			}
			if next++; next == 3 {
				break
			}
		}
		w.Close()
	}
}

func TestTimeErrors(t *testing.T) {
	c := connect(t)
	ctx := t.Context()
	r, err := c.Put(ctx, "k", []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	span := markedAt(t, c, r.Header.Revision)
	if r, err = c.Put(ctx, "k", []byte("2")); err != nil {
		t.Fatal(err)
	}
	markedAt(t, c, r.Header.Revision)
	for _, get := range []func(time.Time) error{
		func(at time.Time) error { _, err := c.RevisionAt(ctx, at); return err },
		func(at time.Time) error { _, err := c.Get(ctx, "k", client.WithTime(at)); return err },
		func(at time.Time) error {
			for _, err := range c.Watch(ctx, "k", client.WithTime(at)).Events() {
				return err
			}
			return nil
		},
	} {
		if err := get(time.Unix(1, 0)); !errors.Is(err, client.ErrTimeUnknown) && !errors.Is(err, client.ErrCompacted) {
			t.Errorf("long ago: %v", err)
		}
		if err := get(time.Now().Add(time.Hour)); !errors.Is(err, client.ErrFutureRevision) {
			t.Errorf("in the future: %v", err)
		}
	}
	if _, err := c.Txn(ctx).Then(client.OpGet("k", client.WithTime(span.At))).Commit(); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("in a transaction: %v", err)
	}
	if _, err := c.Compact(ctx, r.Header.Revision); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(ctx, "k", client.WithTime(span.At)); !errors.Is(err, client.ErrCompacted) {
		t.Errorf("compacted: %v", err)
	} else {
		t.Log(err)
	}
	closed := c.Watch(ctx, "k", client.WithTime(span.At))
	closed.Close()
	for _, err := range closed.Events() {
		t.Errorf("a watcher that was closed: %v", err)
	}
}
