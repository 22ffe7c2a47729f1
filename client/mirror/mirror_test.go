package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"vigil/client"
	"vigil/client/mirror"
)

func number(kv client.KeyValue) (int, error) { return strconv.Atoi(string(kv.Value)) }

func start[T any](t *testing.T, cfg mirror.Config[T]) *mirror.Mirror[T] {
	t.Helper()
	m, err := mirror.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func put(t *testing.T, c *client.Client, key, value string) int64 {
	t.Helper()
	r, err := c.Put(t.Context(), key, []byte(value))
	if err != nil {
		t.Fatal(err)
	}
	return r.Header.Revision
}

func at[T any](t *testing.T, m *mirror.Mirror[T], rev int64) *mirror.View[T] {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	v, err := m.At(ctx, rev)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func keys[T any](items func(func(*mirror.Item[T]) bool)) (keys []string) {
	for it := range items {
		keys = append(keys, it.Key)
	}
	return keys
}

func TestMirror(t *testing.T) {
	c := connect(t)
	put(t, c, "n/1", "10")
	put(t, c, "n/2", "x")
	put(t, c, "other", "1")
	odd := func(it *mirror.Item[int]) []string {
		if it.Value%2 == 1 {
			return []string{"odd", "number"}
		}
		return []string{"even", "number"}
	}
	// read after At: what OnChange does comes after the view, so see below
	var changes []mirror.Change[int]
	done := make(chan struct{}, 100)
	m := start(t, mirror.Config[int]{Client: c, Key: "n/", Decode: number,
		Indexes: map[string]func(*mirror.Item[int]) []string{"parity": odd},
		OnChange: func(ch mirror.Change[int]) {
			changes = append(changes,
				ch)
			done <- struct{}{}
		}})
	<-m.Ready()
	first := m.View()
	if first.Len() != 2 {
		t.Fatal(first.Len())
	}
	if it, ok := first.Get("n/1"); !ok || it.Value != 10 || it.Err != nil || it.Version != 1 ||
		it.ModRevision != it.CreateRevision {
		t.Errorf("%+v", it)
	}
	if it, ok := first.Get("n/2"); !ok || it.Value != 0 || !errors.Is(it.Err, strconv.ErrSyntax) {
		t.Errorf("one that cannot be decoded: %+v", it)
	}
	if _, ok := first.Get("other"); ok {
		t.Error("a key outside")
	}
	put(t, c, "n/2", "7")
	put(t, c, "n/3", "8")
	if _, err := c.Delete(t.Context(), "n/1"); err != nil {
		t.Fatal(err)
	}
	rev := put(t, c, "other", "2")
	v := at(t, m, rev) // by asking for progress: nothing of the range changed then
	if got := keys(v.All()); !slices.Equal(got, []string{"n/2", "n/3"}) {
		t.Error(got)
	}
	if got := keys(v.Find("parity", "odd")); !slices.Equal(got, []string{"n/2"}) {
		t.Error(got)
	}
	if got := keys(v.Find("parity", "number")); !slices.Equal(got, []string{"n/2", "n/3"}) {
		t.Error(got)
	}
	if got := keys(v.From("n/3")); !slices.Equal(got, []string{"n/3"}) {
		t.Error(got)
	}
	if got := keys(v.Prefix("n/2")); !slices.Equal(got, []string{"n/2"}) {
		t.Error(got)
	}
	if got := keys(first.All()); !slices.Equal(got, []string{"n/1", "n/2"}) ||
		first.Revision() >= v.Revision() {
		t.Errorf("an old view changed: %q", got)
	}
	for range 5 {
		<-done
	}
	var got []string
	for _, ch := range changes {
		s := ch.Key() + " "
		if ch.Old != nil {
			s += fmt.Sprint(ch.Old.Value)
		}
		if s += ">"; ch.New != nil {
			s += fmt.Sprint(ch.New.Value)
		}
		got = append(got, s)
	}
	if want := []string{"n/1 >10", "n/2 >0", "n/2 0>7", "n/3 >8",
		"n/1 10>"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if s := m.Status(); !s.Ready || s.Lists != 1 || s.Keys != 2 || s.Revision < rev ||
		s.Trouble != nil || time.Since(s.Current) > time.Minute {
		t.Errorf("%+v", s)
	}
	m.Close()
	if err := m.Err(); err != nil {
		t.Error(err)
	}
	if _, err := m.At(t.Context(), rev+1000); err == nil {
		t.Error("waited for a view of a closed mirror")
	}
}

// TestChanges: applied to an empty map, changes give the view, also if a slow reader misses some.
func TestChanges(t *testing.T) {
	c := connect(t)
	rng := rand.New(rand.NewPCG(3, 4))
	m := start(t, mirror.Config[int]{Client: c, Decode: number})
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	type result struct {
		got  map[string]int
		n    int
		last error
	}
	follow := func(slow bool, until <-chan int64) <-chan result {
		out := make(chan result, 1)
		go func() {
			r := result{got: map[string]int{}}
			for ch, err := range m.Changes(ctx) {
				if err != nil {
					r.last = err
					break
				}
				r.n++
				old, had := r.got[ch.Key()]
				if had != (ch.Old != nil) || had && old != ch.Old.Value {
					t.Errorf("%q: had %d, change is from %+v", ch.Key(), old, ch.Old)
				}
				if ch.New == nil {
					delete(r.got, ch.Key())
				} else {
					r.got[ch.Key()] = ch.New.Value
				}
				if slow && r.n == 1 {
					<-until
				}
			}
			out <- r
		}()
		return out
	}
	until := make(chan int64)
	put(t, c, "first", "1")
	fast, slow := follow(false, nil), follow(true, until)
	var rev int64
	for i := range 3000 {
		key := fmt.Sprint("k", rng.IntN(50))
		if rng.IntN(4) == 0 {
			r, err := c.Delete(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			rev = r.Header.Revision
		} else {
			rev = put(t, c, key, fmt.Sprint(i))
		}
	}
	v := at(t, m, rev)
	want := map[string]int{}
	for it := range v.All() {
		want[it.Key] = it.Value
	}
	close(until)
	// Both have come to the end when a key that is written last has reached them.
	late := make(chan result, 1)
	go func() {
		r := result{got: map[string]int{}}
		for ch, err := range m.Changes(ctx) {
			if err != nil {
				break
			}
			r.got[ch.Key()] = ch.New.Value
			if r.n++; r.n == len(want) {
				break
			}
		}
		late <- r
	}()
	if r := <-late; !maps.Equal(r.got, want) {
		t.Errorf("one that began late has %v, want %v", r.got, want)
	}
	m.Close()
	for name, ch := range map[string]<-chan result{"fast": fast, "slow": slow} {
		if r := <-ch; !maps.Equal(r.got, want) || r.last != nil {
			t.Errorf("the %s one has %v (%d changes, %v), want %v", name, r.got, r.n, r.last, want)
		} else if name == "slow" && r.n > 200 {
			t.Errorf("the slow one got %d changes", r.n)
		}
	}
	cancel(reason)
	for _, err := range m.Changes(ctx) {
		if err != nil && !errors.Is(err, reason) {
			t.Error(err)
		}
	}
}

func TestEnds(t *testing.T) {
	c := connect(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	m, err := mirror.Follow(ctx, c, "", mirror.String)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	reason := errors.New("enough")
	cancel(reason)
	<-m.Done()
	if !errors.Is(m.Err(), reason) {
		t.Error(m.Err())
	}
	short, cancelShort := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancelShort()
	if _, err := m.At(short, 1<<40); err == nil {
		t.Error("it waited for nothing")
	}
	if _, err := mirror.Follow[string](ctx, c, "", nil); err == nil {
		t.Error("no decoder")
	}
	if _, err := mirror.Follow(ctx, nil, "", mirror.String); err == nil {
		t.Error("no client")
	}
}

// TestClosedClient: a mirror ends with its client, and no call waits for it any longer.
func TestClosedClient(t *testing.T) {
	for _, early := range []bool{true, false} {
		c, err := client.New(client.Config{Endpoints: []string{endpoint}})
		if err != nil {
			t.Fatal(err)
		}
		if early {
			_ = c.Close()
		}
		m, err := mirror.Follow(t.Context(), c, t.Name(), mirror.String)
		if err != nil {
			t.Fatal(err)
		}
		if !early {
			if _, err := m.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			_ = c.Close()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if _, err := m.At(ctx, 1<<40); !errors.Is(err, client.ErrClosed) {
			t.Errorf("early %v: %v", early, err)
		}
		cancel()
		select {
		case <-m.Done():
		case <-time.After(time.Minute):
			t.Error("it lives on")
		}
		if !errors.Is(m.Err(), client.ErrClosed) {
			t.Error(m.Err())
		}
		m.Close()
	}
}

// Nothing is written to the store: the mirror knows all the same that it is current.
func TestCurrentAtRest(t *testing.T) {
	c := connect(t)
	put(t, c, "a", "1")
	changes := make(chan struct{}, 1)
	m := start(t, mirror.Config[int]{Client: c, Decode: number, Fresh: 50 * time.Millisecond,
		OnChange: func(mirror.Change[int]) { changes <- struct{}{} }})
	if _, err := m.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	listed := m.Status().Current
	for end := time.Now().Add(20 * time.Second); !m.Status().Current.After(listed.Add(time.Second)); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not known to be current since the list: %+v", m.Status())
		}
	}
	if len(changes) != 1 {
		t.Error("no change of the list")
	}
	<-changes
	// The event at the revision of the list is not a change.
	put(t, c, "a", "2")
	<-changes
	if it, ok := m.View().Get("a"); !ok || it.Value != 2 || m.Status().Lists != 1 {
		t.Errorf("%+v, %+v", it, m.Status())
	}
	select {
	case <-changes:
		t.Error("a change twice")
	default:
	}
}
