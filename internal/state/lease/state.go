package lease

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"vigil/internal/kv"
)

// Lease is a lease without its keys.
type Lease struct {
	kv.LeaseRef
	// TTL is the granted TTL. Remaining is the remaining TTL of the last checkpoint, 0 if there was
	// none since the last keep-alive. Both are in seconds.
	TTL, Remaining int64
	// Since is the index of the entry from which the time counts: Granted, or the last checkpoint
	// with the whole TTL.
	Since uint64
}

// Left returns the TTL with which a new leader begins to count, in seconds.
func (l *Lease) Left() int64 {
	return cmp.Or(l.Remaining, l.TTL)
}

// attached holds the keys of a lease, at least one, in any order. Most leases have few keys.
type attached struct {
	keys []string
	// places are the places of the keys in the list; nil while they are few.
	places map[string]int32
}

// fewKeys is the largest number of keys that are searched for in the list.
const fewKeys = 16

// place returns the place of a key in the list, -1 if the key is not attached.
func (a *attached) place(key string) int {
	if a.places == nil {
		return slices.Index(a.keys, key)
	}
	if i, ok := a.places[key]; ok {
		return int(i)
	}
	return -1
}

func (a *attached) attach(key string) {
	if a.place(key) >= 0 {
		return
	}
	a.keys = append(a.keys, key)
	switch {
	case a.places != nil:
		a.places[key] = int32(len(a.keys) - 1)
	case len(a.keys) > fewKeys:
		a.places = make(map[string]int32, 2*fewKeys)
		for i, k := range a.keys {
			a.places[k] = int32(i)
		}
	}
}

func (a *attached) detach(key string) {
	i := a.place(key)
	if i < 0 {
		return
	}
	last := len(a.keys) - 1
	moved := a.keys[last]
	a.keys[i], a.keys[last] = moved, ""
	a.keys = a.keys[:last]
	if a.places != nil {
		a.places[moved] = int32(i)
		delete(a.places, key)
	}
}

// Transition is a lease that was granted or has ended.
type Transition struct {
	Lease
	Ended bool
}

// State holds all leases with their keys. One goroutine changes it; Removals, Lookup, Keys, Each,
// All and Len are for any goroutine.
type State struct {
	mu struct {
		sync.RWMutex
		// leases are without pointers, so that the garbage collector does not visit them.
		leases map[int64]Lease
		// keys are the attached keys by the id of the lease. Keys may have a lease that does not
		// exist: a backup of etcd can contain such keys. They are attached when the id is granted,
		// as after a restart.
		keys map[int64]*attached
	}
	// removals counts the leases that have ended.
	removals atomic.Uint64
	// transitions has the transitions since the last TakeTransitions. Owned by the goroutine that
	// changes the state.
	transitions []Transition
}

// New returns a state without leases.
func New() *State {
	s := &State{}
	s.mu.leases, s.mu.keys = map[int64]Lease{}, map[int64]*attached{}
	return s
}

// Load adds a lease that was stored, or replaces it.
func (s *State) Load(l Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.leases[l.ID] = l
}

// Grant adds a lease. Errors: kv.ErrLeaseNotFound for the id 0, kv.ErrLeaseTTLTooLarge,
// kv.ErrLeaseExists.
func (s *State) Grant(r kv.LeaseGrantRequest, index uint64) (Lease, error) {
	switch {
	case r.ID == 0:
		return Lease{}, kv.ErrLeaseNotFound
	case r.TTL > kv.MaxLeaseTTL:
		return Lease{}, kv.ErrLeaseTTLTooLarge
	case s.Exists(r.ID):
		return Lease{}, kv.ErrLeaseExists
	}
	l := Lease{LeaseRef: kv.LeaseRef{ID: r.ID, Granted: index}, TTL: max(r.TTL, 0), Since: index}
	s.Load(l)
	s.transitions = append(s.transitions, Transition{Lease: l})
	return l, nil
}

// Exists reports whether a lease exists. It is for the goroutine that changes the state.
func (s *State) Exists(id int64) bool {
	_, ok := s.mu.leases[id]
	return ok
}

// Has reports whether the life r of a lease exists. It is for the goroutine that changes the state.
func (s *State) Has(r kv.LeaseRef) bool {
	l, ok := s.mu.leases[r.ID]
	return ok && l.LeaseRef == r
}

// Remove removes a lease and its attachments.
func (s *State) Remove(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.mu.leases[id]; ok {
		delete(s.mu.leases, id)
		delete(s.mu.keys, id)
		s.removals.Add(1)
		s.transitions = append(s.transitions, Transition{Lease: l, Ended: true})
	}
}

// Checkpoint sets the remaining TTL of a lease. It returns the lease, and whether it was changed. A
// checkpoint of a lease that no longer exists, of more than its TTL, or of the time before the last
// checkpoint with the whole TTL changes nothing.
func (s *State) Checkpoint(c kv.LeaseCheckpoint, index uint64) (Lease, bool) {
	l, ok := s.mu.leases[c.ID]
	if !ok || l.LeaseRef != c.LeaseRef || c.Remaining < 0 || c.Remaining > l.TTL {
		return Lease{}, false
	}
	next := l
	if c.Remaining == 0 {
		next.Since = index
	} else if c.Since != l.Since {
		return Lease{}, false
	}
	next.Remaining = c.Remaining
	if next == l {
		return Lease{}, false
	}
	s.Load(next)
	return next, true
}

// Attach moves a key from one lease to another; 0 means none. The lease to exists, the lease from
// may not. It copies key.
func (s *State) Attach(key []byte, from, to int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.mu.keys[from]; e != nil {
		e.detach(string(key))
		if len(e.keys) == 0 {
			delete(s.mu.keys, from)
		}
	}
	if _, ok := s.mu.leases[to]; ok {
		s.attach(string(key), to)
	}
}

// attach attaches a key to a lease. mu is held.
func (s *State) attach(key string, to int64) {
	e := s.mu.keys[to]
	if e == nil {
		e = &attached{}
		s.mu.keys[to] = e
	}
	e.attach(key)
}

// AttachAll attaches the keys of the key space when the state is loaded.
func (s *State) AttachAll(keys func(yield func(key string, lease int64) bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, id := range keys {
		s.attach(strings.Clone(key), id)
	}
}

// TakeTransitions returns the leases that were granted or ended since the last call, in order. The
// slice is valid until the next change.
func (s *State) TakeTransitions() []Transition {
	c := s.transitions
	s.transitions = s.transitions[:0]
	return c
}

// Removals counts the leases that have ended: while the number stays the same, no lease ends.
func (s *State) Removals() uint64 { return s.removals.Load() }

// Lookup returns a lease.
func (s *State) Lookup(id int64) (Lease, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	l, ok := s.mu.leases[id]
	return l, ok
}

// of returns the keys of a lease, nil if there are none. mu is held.
func (s *State) of(id int64) *attached {
	if _, ok := s.mu.leases[id]; ok {
		return s.mu.keys[id]
	}
	return nil
}

// Keys returns the keys of a lease in order, nil if there are none.
func (s *State) Keys(id int64) []string {
	keys := s.list(id)
	slices.Sort(keys) // may take a second, in which the state changes
	return keys
}

// list returns the keys of a lease in any order, nil if there are none.
func (s *State) list(id int64) []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.of(id); e != nil {
		return slices.Clone(e.keys)
	}
	return nil
}

// someKeys is how many keys Each takes at a time.
const someKeys = 256

// Each returns the keys of a lease in any order, which costs less than Keys. The state may change
// during the call: Each returns every key that stays attached all the time, maybe twice.
func (s *State) Each(id int64) iter.Seq[string] {
	return func(yield func(string) bool) {
		// Go from the last key to the first: when a key is detached, the last key takes its place,
		// and that one was returned, or is still to come.
		var some []string
		for end := math.MaxInt; end > 0; {
			some, end = s.before(id, end, some[:0])
			for _, k := range some {
				if !yield(k) {
					return
				}
			}
		}
	}
}

// before appends some keys of a lease before a place to dst, and returns the place of the first
// one, 0 if there are none.
func (s *State) before(id int64, end int, dst []string) ([]string, int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e := s.of(id)
	if e == nil {
		return dst, 0
	}
	end = min(end, len(e.keys))
	first := max(end-someKeys, 0)
	return append(dst, e.keys[first:end]...), first
}

// Attached returns how many keys a lease has.
func (s *State) Attached(id int64) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.of(id); e != nil {
		return len(e.keys)
	}
	return 0
}

// All returns all leases, sorted by id.
func (s *State) All() []Lease {
	s.mu.RLock()
	out := make([]Lease, 0, len(s.mu.leases))
	for _, l := range s.mu.leases {
		out = append(out, l)
	}
	s.mu.RUnlock()
	slices.SortFunc(out, func(a, b Lease) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Len returns the number of leases.
func (s *State) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.mu.leases)
}
