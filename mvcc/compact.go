package mvcc

import (
	"context"
	"sync"
	"sync/atomic"

	"vigil/history"
)

// trimmer is the goroutine that drops from the index what a compaction has made needless. It goes
// over the keys in slices and holds the store's lock for one slice at a time.
type trimmer struct {
	// done is the compact revision that the index has been brought to.
	done atomic.Int64
	// kick has one token when there may be something to do.
	kick chan struct{}
	quit chan struct{}
	wg   sync.WaitGroup

	mu struct {
		sync.Mutex
		// advanced is closed and replaced when done has moved.
		advanced chan struct{}
		stopped  bool
	}
}

func (t *trimmer) start(s *Store) {
	t.kick = make(chan struct{}, 1)
	t.quit = make(chan struct{})
	t.mu.advanced = make(chan struct{})
	t.done.Store(s.snap.Load().compact)
	t.wg.Go(func() {
		for {
			select {
			case <-t.quit:
				return
			case <-t.kick:
			}
			for to := s.snap.Load().compact; to > t.done.Load(); to = s.snap.Load().compact {
				if !s.trimAll(to) {
					return
				}
				t.advance(to)
			}
		}
	})
}

func (t *trimmer) stop() {
	t.mu.Lock()
	stopped := t.mu.stopped
	t.mu.stopped = true
	t.mu.Unlock()
	if !stopped {
		close(t.quit)
	}
	t.wg.Wait()
}

// wake makes the trimmer look at the compact revision.
func (t *trimmer) wake() {
	select {
	case t.kick <- struct{}{}:
	default:
	}
}

func (t *trimmer) advance(to int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done.Store(to)
	close(t.mu.advanced)
	t.mu.advanced = make(chan struct{})
}

// WaitTrimmed returns when the index holds nothing any more that a committed compaction at rev has
// made needless. Its errors are ctx's, and history.ErrClosed after Close.
func (s *Store) WaitTrimmed(ctx context.Context, rev int64) error {
	for {
		s.trim.mu.Lock()
		advanced := s.trim.mu.advanced
		s.trim.mu.Unlock()
		if s.trim.done.Load() >= rev {
			return nil
		}
		select {
		case <-advanced:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.trim.quit:
			return history.ErrClosed
		}
	}
}

// trimAll goes over the whole index once. It returns false if it was told to stop.
func (s *Store) trimAll(compact int64) bool {
	from := ""
	for {
		select {
		case <-s.trim.quit:
			return false
		case s.lock <- struct{}{}:
		}
		next, more := s.trimSlice(from, compact)
		<-s.lock
		if !more {
			return true
		}
		from = next
	}
}

// trimSlice goes over TrimKeys keys from one on. The caller holds the lock, and so there is no open
// batch: what it removes from the tree becomes what readers see at once.
func (s *Store) trimSlice(from string, compact int64) (next string, more bool) {
	tree := s.writer.tree
	var dead []string
	it := tree.View().Range(from, "")
	for n := 0; it.Next(); n++ {
		if n == s.opts.TrimKeys {
			next, more = it.Key(), true
			break
		}
		e := it.Value()
		b := e.block.Load()
		k := b.needless(compact)
		switch {
		case k == int(b.n.Load()):
			dead = append(dead, it.Key())
		case k > 0:
			e.block.Store(b.without(k, false))
		}
	}
	for _, key := range dead {
		tree.Delete(key)
	}
	if len(dead) > 0 {
		snap := *s.snap.Load()
		snap.tree = tree.Snapshot()
		s.snap.Store(&snap)
	}
	return next, more
}
