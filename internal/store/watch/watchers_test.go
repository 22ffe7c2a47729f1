package watch

import (
	"math/rand/v2"
	"testing"
)

// TestWatcherSet compares a set with a map.
func TestWatcherSet(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var s watcherSet
	model := map[int64]*watcher{}
	for i := range 20_000 {
		id := rng.Int64N(1 + int64(i/100)%(3*fewWatchers))
		if w := s.get(id); w != model[id] {
			t.Fatalf("watcher %d is %v, want %v", id, w, model[id])
		}
		switch {
		case rng.IntN(2) == 0:
			s.remove(id)
			delete(model, id)
		case model[id] == nil:
			w := &watcher{id: id}
			s.add(w)
			model[id] = w
		}
		n := 0
		for w := range s.all() {
			if n++; model[w.id] != w {
				t.Fatalf("watcher %d is %v, want %v", w.id, w, model[w.id])
			}
		}
		if n != len(model) || s.len() != n {
			t.Fatalf("there are %d watchers, the set yields %d and counts %d", len(model), n, s.len())
		}
		if n == 0 && s.byID != nil {
			t.Fatal("an empty set keeps a map")
		}
	}
}
