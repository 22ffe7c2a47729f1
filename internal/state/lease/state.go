package lease

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"vigil/internal/kv"
)

// Lease is a lease without its keys.
type Lease struct {
	kv.LeaseRef
	// TTL is the granted TTL. Remaining is the remaining TTL of the last checkpoint, 0 if there was none since the last
	// keep-alive. Both are in seconds.
	TTL, Remaining int64
	// Since is the index of the entry from which the time counts: Granted, or the last checkpoint with the whole TTL.
	Since uint64
}

// Left returns the TTL with which a new leader begins to count, in seconds.
func (l *Lease) Left() int64 {
	return cmp.Or(l.Remaining, l.TTL)
}

// entry is a lease with its keys: in many if it is not nil, otherwise in few. Most leases have few keys.
type entry struct {
	Lease
	few  []string
	many map[string]struct{}
}

// fewKeys is the largest number of keys in a list.
const fewKeys = 16

func (e *entry) attach(key string) {
	switch {
	case e.many != nil:
		e.many[key] = struct{}{}
	case slices.Contains(e.few, key):
	case len(e.few) < fewKeys:
		e.few = append(e.few, key)
	default:
		e.many = map[string]struct{}{key: {}}
		for _, k := range e.few {
			e.many[k] = struct{}{}
		}
		e.few = nil
	}
}

func (e *entry) detach(key string) {
	if e.many != nil {
		delete(e.many, key)
		return
	}
	if i := slices.Index(e.few, key); i >= 0 {
		last := len(e.few) - 1
		e.few[i], e.few[last] = e.few[last], ""
		e.few = e.few[:last]
	}
}

func (e *entry) count() int { return len(e.few) + len(e.many) }

func (e *entry) keys() []string {
	if e.many != nil {
		return slices.Sorted(maps.Keys(e.many))
	}
	return slices.Sorted(slices.Values(e.few))
}

// Transition is a lease that was granted or has ended.
type Transition struct {
	Lease
	Ended bool
}

// State holds all leases with their keys. One goroutine changes it; Removals, Lookup, Keys, Each, All and Len are for any goroutine.
type State struct {
	mu struct {
		sync.RWMutex
		leases map[int64]*entry
		// orphans are keys with a lease that does not exist, by its id. A backup of etcd can contain such keys. They are
		// attached when the id is granted, like after a restart.
		orphans map[int64]*entry
	}
	// removals counts the leases that have ended.
	removals atomic.Uint64
	// transitions are those since the last TakeTransitions. Owned by the goroutine that changes the state.
	transitions []Transition
}

// New returns a state without leases.
func New() *State {
	s := &State{}
	s.mu.leases, s.mu.orphans = map[int64]*entry{}, map[int64]*entry{}
	return s
}

// Load adds a lease that was stored.
func (s *State) Load(l Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.mu.orphans[l.ID]
	if e == nil {
		e = &entry{}
	}
	e.Lease = l
	delete(s.mu.orphans, l.ID)
	s.mu.leases[l.ID] = e
}

// of returns the entry of an id, which may be one of orphans; nil if there is neither a lease nor a key with the id.
// mu is held.
func (s *State) of(id int64) *entry {
	if e := s.mu.leases[id]; e != nil {
		return e
	}
	return s.mu.orphans[id]
}

// Grant adds a lease. Errors: kv.ErrLeaseNotFound for the id 0, kv.ErrLeaseTTLTooLarge, kv.ErrLeaseExists.
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
	e := s.mu.leases[r.ID]
	return e != nil && e.LeaseRef == r
}

// Remove removes a lease and its attachments.
func (s *State) Remove(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.mu.leases[id]; e != nil {
		delete(s.mu.leases, id)
		s.removals.Add(1)
		s.transitions = append(s.transitions, Transition{Lease: e.Lease, Ended: true})
	}
}

// Checkpoint sets the remaining TTL of a lease. It returns the lease, and whether it was changed. A checkpoint of a lease
// that does not exist any more, of more than its TTL, or of the time before the last checkpoint with the whole TTL
// changes nothing.
func (s *State) Checkpoint(c kv.LeaseCheckpoint, index uint64) (Lease, bool) {
	e := s.mu.leases[c.ID]
	if e == nil || e.LeaseRef != c.LeaseRef || c.Remaining < 0 || c.Remaining > e.TTL {
		return Lease{}, false
	}
	next := e.Lease
	if c.Remaining == 0 {
		next.Since = index
	} else if c.Since != e.Since {
		return Lease{}, false
	}
	next.Remaining = c.Remaining
	if next == e.Lease {
		return Lease{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.Lease = next
	return next, true
}

// Attach moves a key from one lease to another; 0 is none. The lease to exists, the lease from may not. key is copied.
func (s *State) Attach(key []byte, from, to int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.of(from); e != nil {
		e.detach(string(key))
		if s.mu.orphans[from] == e && e.count() == 0 {
			delete(s.mu.orphans, from)
		}
	}
	if e := s.mu.leases[to]; e != nil {
		e.attach(string(key))
	}
}

// AttachAll attaches the keys of the key space when the state is loaded.
func (s *State) AttachAll(keys func(yield func(key string, lease int64) bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, id := range keys {
		e := s.of(id)
		if e == nil {
			e = &entry{}
			s.mu.orphans[id] = e
		}
		e.attach(strings.Clone(key))
	}
}

// TakeTransitions returns the leases that were granted or ended since the last call, in order. The slice is valid until
// the next change.
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
	if e := s.mu.leases[id]; e != nil {
		return e.Lease, true
	}
	return Lease{}, false
}

// Keys returns the keys of a lease in order, nil if there is none.
func (s *State) Keys(id int64) []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.mu.leases[id]; e != nil {
		return e.keys()
	}
	return nil
}

// Each returns the keys of a lease in any order, which costs less than Keys. The state must not be changed meanwhile.
func (s *State) Each(id int64) iter.Seq[string] {
	return func(yield func(string) bool) {
		s.mu.RLock()
		defer s.mu.RUnlock()
		e := s.mu.leases[id]
		if e == nil {
			return
		}
		for _, k := range e.few {
			if !yield(k) {
				return
			}
		}
		for k := range e.many {
			if !yield(k) {
				return
			}
		}
	}
}

// Attached returns how many keys a lease has.
func (s *State) Attached(id int64) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.mu.leases[id]; e != nil {
		return e.count()
	}
	return 0
}

// All returns all leases, sorted by id.
func (s *State) All() []Lease {
	s.mu.RLock()
	out := make([]Lease, 0, len(s.mu.leases))
	for _, e := range s.mu.leases {
		out = append(out, e.Lease)
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
