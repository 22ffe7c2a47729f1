package mirror

import (
	"context"
	"iter"
)

// Change is a key that is not what it was. Old is nil if the key is new, New if it is gone.
type Change[T any] struct {
	Old, New *Item[T]
}

// Key is the key that changed.
func (c Change[T]) Key() string {
	if c.New != nil {
		return c.New.Key
	}
	return c.Old.Key
}

// maxChanges is how many changes wait for one that iterates over them.
const maxChanges = 1024

// subscriber is an iteration over changes. Its fields are guarded by Mirror.mu.
type subscriber[T any] struct {
	changes []Change[T] // from what it has been given up to the mirror's view, unless it is behind
	behind  bool        // too many: what changed is found out by comparing
	ready   chan struct{}
}

func (s *subscriber[T]) add(changes []Change[T]) {
	if s.behind = s.behind || len(s.changes)+len(changes) > maxChanges; s.behind {
		s.changes = nil
	} else {
		s.changes = append(s.changes, changes...)
	}
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// Changes iterates over the changes: first every key there is, as new, and then what happens, until the context or the
// mirror ends, for which it yields an error unless the mirror was closed. Applied one after the other to an empty
// map they give the view.
//
// One that is slow delays nobody. What changes more than once meanwhile may then be seen as one change, from what it
// was to what it is; to see every change use Config.OnChange.
func (m *Mirror[T]) Changes(ctx context.Context) iter.Seq2[Change[T], error] {
	return func(yield func(Change[T], error) bool) {
		s := &subscriber[T]{behind: true, ready: make(chan struct{}, 1)}
		s.ready <- struct{}{}
		base := newView[T](nil)
		m.mu.Lock()
		m.mu.subscribers[s] = struct{}{}
		m.mu.Unlock()
		defer func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			delete(m.mu.subscribers, s)
		}()
		for {
			var end error
			ended := false
			select {
			case <-s.ready:
			case <-ctx.Done():
				ended, end = true, context.Cause(ctx)
			case <-m.done:
				ended, end = true, m.Err()
			}
			if ctx.Err() == nil { // what is there is told before the end of the mirror
				m.mu.Lock()
				changes, behind, view := s.changes, s.behind, m.view.Load()
				s.changes, s.behind = nil, false
				m.mu.Unlock()
				if behind {
					changes = view.diff(base)
				}
				base = view
				for _, c := range changes {
					if !yield(c, nil) {
						return
					}
				}
			}
			if ended {
				if end != nil {
					yield(Change[T]{}, end)
				}
				return
			}
		}
	}
}
