package auth

import (
	"math/rand/v2"
	"testing"
	"time"

	"vigil/internal/kv"
)

// words are all keys of up to three letters of a small alphabet, with the lowest byte among them.
func words() []string {
	var out []string
	letters := []byte{0, 'a', 'b', 0xff}
	var grow func(prefix string)
	grow = func(prefix string) {
		if prefix != "" {
			out = append(out, prefix)
		}
		if len(prefix) == 3 {
			return
		}
		for _, l := range letters {
			grow(prefix + string([]byte{l}))
		}
	}
	grow("")
	return out
}

func inRange(key, from, end string) bool {
	switch end {
	case "":
		return key == from
	case "\x00":
		return key >= from
	}
	return from <= key && key < end
}

// A merged set holds a range if and only if every key of the range is in one of the permissions. The
// model knows only keys of up to three letters; the ends are drawn so that a gap is never smaller.
func TestCoversModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	all := words()
	var short []string
	for _, w := range all {
		if len(w) <= 2 {
			short = append(short, w)
		}
	}
	pick := func() string { return short[rnd.IntN(len(short))] }
	end := func(from string) string {
		switch rnd.IntN(4) {
		case 0:
			return ""
		case 1:
			return "\x00"
		}
		return pick()
	}
	type pair struct{ from, end string }
	for range 3000 {
		var perms []pair
		var spans []span
		for range rnd.IntN(6) {
			p := pair{from: pick()}
			p.end = end(p.from)
			if !validRange([]byte(p.from), []byte(p.end)) {
				continue
			}
			perms = append(perms, p)
			spans = append(spans, spanOf([]byte(p.from), []byte(p.end)))
		}
		set := merge(spans)
		for i := 1; i < len(set); i++ {
			if compareEnds(set[i-1].to, set[i].from) >= 0 {
				t.Fatalf("seed %d: %q touches %q", seed, set[i-1], set[i])
			}
		}
		for range 20 {
			q := pair{from: pick()}
			q.end = end(q.from)
			want, any := true, false
			for _, k := range all {
				if !inRange(k, q.from, q.end) {
					continue
				}
				any = true
				in := false
				for _, p := range perms {
					in = in || inRange(k, p.from, p.end)
				}
				want = want && in
			}
			if !any { // an empty range counts as its beginning
				want = false
				for _, p := range perms {
					want = want || inRange(q.from, p.from, p.end)
				}
			}
			if want && q.end == "\x00" {
				// No key of the model is above all others.
				want = false
				for _, p := range perms {
					want = want || p.end == "\x00"
				}
			}
			if got := set.covers([]byte(q.from), []byte(q.end)); got != want {
				t.Fatalf("seed %d: %q cover %q: %v, want %v", seed, perms, q, got, want)
			}
		}
	}
}

// The cases that went wrong elsewhere.
func TestCovers(t *testing.T) {
	type r struct{ key, end string }
	for _, c := range []struct {
		perms []r
		ask   r
		want  bool
	}{
		{[]r{{"a", ""}}, r{"a", ""}, true},
		{[]r{{"a", ""}}, r{"a", "\x00"}, false}, // from a key on with a right to that key
		{[]r{{"a", ""}}, r{"a", "b"}, false},
		{[]r{{"a", ""}}, r{"a", "a\x00"}, true},
		{[]r{{"a", "c"}}, r{"a", "\x00"}, false},
		{[]r{{"a", "\x00"}}, r{"a", "\x00"}, true},
		{[]r{{"a", "\x00"}}, r{"\x00", "\x00"}, false},
		{[]r{{"\x00", "\x00"}}, r{"\x00", "\x00"}, true},
		{[]r{{"a", "b"}, {"b", "c"}}, r{"a", "c"}, true},
		{[]r{{"a", "b"}, {"b\x00", "c"}}, r{"a", "c"}, false},
		{[]r{{"a", "b"}, {"b", ""}, {"b\x00", "c"}}, r{"a", "c"}, true},
		{[]r{{"a", "c"}, {"b", "\x00"}}, r{"a", "\x00"}, true},
		{nil, r{"a", ""}, false},
		{[]r{{"b", "c"}}, r{"bb", "a"}, true}, // an empty range
		{[]r{{"b", "c"}}, r{"c", "a"}, false},
	} {
		var spans []span
		for _, p := range c.perms {
			spans = append(spans, spanOf([]byte(p.key), []byte(p.end)))
		}
		if got := merge(spans).covers([]byte(c.ask.key), []byte(c.ask.end)); got != c.want {
			t.Errorf("%q cover %q: %v, want %v", c.perms, c.ask, got, c.want)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	var perms []kv.Permission
	for i := range 64 {
		perms = append(perms, kv.Permission{Key: []byte{'k', byte(2 * i)}, End: []byte{'k', byte(2*i + 1)}})
	}
	s, err := Restore(true, 5, []User{{Name: RootUser, Roles: []string{RootRole}}, {Name: "u", Roles: []string{"r"}}}, []Role{{Name: "r", Permissions: perms}})
	if err != nil {
		b.Fatal(err)
	}
	id, key := Identity{User: "u", Revision: 5}, []byte{'k', 40, 1}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.CheckRead(id, key, nil); err != nil {
			b.Fatal(err)
		}
	}
}
