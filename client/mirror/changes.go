package mirror

import (
	"context"
	"iter"
)

// Change is a changed key. Old is nil if the key is new, New if it was deleted.
type Change[T any] struct {
	Old, New *Item[T]
}

// Key returns the changed key.
func (c Change[T]) Key() string {
	if c.New != nil {
		return c.New.Key
	}
	return c.Old.Key
}

// maxChanges bounds the pending changes of one iteration.
const maxChanges = 1024

// subscriber is an iteration over changes. Its fields are guarded by Mirror.mu.
type subscriber[T any] struct {
	changes []Change[T] // from its last view up to the mirror's, unless it is behind
	behind  bool        // there were too many: the changes follow from comparing the views
	ready   chan struct{}
}

func (s *subscriber[T]) addChanges(changes []Change[T]) {
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

// Changes iterates over the changes: first every existing key, as new, and then each change, until
// the context or the mirror ends. Then it yields an error, unless the mirror was closed. Applied in
// order to an empty map, the changes give the view.
//
// A slow iteration delays neither the mirror nor other iterations. It may see several changes of a
// key as one, from the first state to the last. To see every change use [Config.OnChange].
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
			if ctx.Err() == nil { // pending changes precede the end of the mirror
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
