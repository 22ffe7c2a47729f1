package mvcc

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc/index"
	"vigil/internal/store/mvcc/record"
)

// trimmer is the goroutine that drops from the index the changes that a compaction made needless,
// and reports their records to the log. It visits the keys in slices and holds the store's lock for
// one slice at a time.
//
// The trimmer may drop a record once it is below the compact revision: a watcher may still start at
// the compact revision itself, so records of that revision stay until the next compaction.
type trimmer struct {
	// done is the compact revision up to which the index has been trimmed.
	done atomic.Int64
	// thorough is set when the log should reclaim all garbage.
	thorough atomic.Bool
	// kick holds one token when there may be something to do.
	kick chan struct{}
	quit chan struct{}
	// cancel ends the hash in progress, when quit is closed.
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu struct {
		sync.Mutex
		// The trimmer closes and replaces advanced when done has moved.
		advanced chan struct{}
		stopped  bool
	}
}

// start starts the goroutine.
func (t *trimmer) start(s *Store) {
	t.kick = make(chan struct{}, 1)
	t.quit = make(chan struct{})
	t.mu.advanced = make(chan struct{})
	t.done.Store(math.MinInt64)
	opened := s.snap.Load().compact
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel = cancel
	t.wg.Go(func() {
		t.advance(opened)
		s.roll(false)
		for {
			select {
			case <-t.quit:
				return
			case <-t.kick:
			}
			for to := s.snap.Load().compact; to > t.done.Load(); to = s.snap.Load().compact {
				began := time.Now()
				if !s.hashDue(ctx, to) || !s.hashes.wait(to, t.quit) {
					return
				}
				if !s.trimAll(to) {
					return
				}
				t.advance(to)
				s.counts.trims.Observe(time.Since(began))
				s.counts.lastTrimmed.Store(time.Now().Unix())
				total, live := s.log.Size()
				s.opts.Logger.Info("finished scheduled compaction", "compact-revision", to, "took",
					time.Since(began).String(),
					"size", total, "size-in-use", live)
			}
			if !s.clean() {
				return
			}
			thorough := t.thorough.Swap(false)
			s.roll(thorough)
			if thorough {
				s.log.Reclaim()
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
		t.cancel()
	}
	t.wg.Wait()
}

// wake makes the trimmer check the compact revision.
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

// WaitTrimmed waits until the index holds no change that a committed compaction at rev has made
// needless. Its errors are ctx's, and history.ErrClosed after Close.
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

// trimAll visits the whole index once. It returns false if the trimmer was stopped.
func (s *Store) trimAll(compact int64) bool {
	s.dropBoundary(s.trim.done.Load())
	p := s.newRests()
	from := ""
	for {
		if !s.acquire() {
			return false
		}
		began := time.Now()
		next, more, dead := s.trimSlice(from, compact)
		<-s.lock
		s.counts.slices.Observe(time.Since(began))
		s.counts.dropped.Add(uint64(len(dead)))
		s.reportDead(dead)
		if !more {
			return true
		}
		p.Pause()
		from = next
	}
}

// acquire takes the lock. It returns false if the trimmer is stopped.
func (s *Store) acquire() bool {
	select {
	case <-s.trim.quit:
		return false
	case s.lock <- struct{}{}:
		return true
	}
}

// reportDead reports needless records to the log. Records that the log cannot mark take space until
// the next start, and so do later deletions.
func (s *Store) reportDead(recs []history.DeadRecord) {
	if len(recs) == 0 {
		return
	}
	if err := s.log.Dead(recs); err != nil {
		s.opts.Logger.Warn("cannot note which records are dead", "error", err.Error())
	}
}

// dropBoundary reports to the log the records that were kept for watchers from the last compact
// revision: the deletions at that revision, and the puts that were replaced within it. The index no
// longer has them.
func (s *Store) dropBoundary(compact int64) {
	if compact <= 0 {
		return
	}
	newest := map[string]history.DeadRecord{}
	var dead []history.DeadRecord
	sc := s.snap.Load().hist.Scan(kv.Rev{Main: compact})
	defer sc.Close()
	for sc.Next() && sc.Rev().Main == compact {
		var r record.KeyValue
		if r.Decode(sc.Data()) != nil {
			break
		}
		if old, ok := newest[string(r.Key)]; ok {
			dead = append(dead, old)
		}
		newest[string(r.Key)] = history.DeadRecord{Rev: sc.Rev(), Tombstone: sc.Tombstone()}
	}
	if err := sc.Err(); err != nil {
		s.log.ReportDamage(err)
		s.opts.Logger.Warn("cannot read what the last compaction kept", "revision", compact,
			"error", err.Error())
		return
	}
	for _, r := range newest {
		if r.Tombstone {
			dead = append(dead, r)
		}
	}
	s.reportDead(dead)
}

// roll lets the log begin a new segment if most of the open segment is dead, or with any set if
// some of it is. The caller holds the lock and so acts as the writer.
func (s *Store) roll(any bool) {
	for s.log.RollWanted(any) && s.log.WaitNext() && s.acquire() {
		rolled, err, waits := false, error(nil), s.writer.open
		if !waits {
			if rolled, err = s.log.Roll(); rolled {
				// The previous view holds the memory of the sealed segment.
				snap := *s.snap.Load()
				snap.hist = s.log.View()
				s.snap.Store(&snap)
			}
		}
		<-s.lock
		if rolled || waits || err != nil {
			return // an error has ended the life of the log; the writer will get it
		}
	}
}

// Reclaim requests to reclaim the space of all records that compactions made needless, whether it
// is worth the work or not. It does not wait.
func (s *Store) Reclaim() {
	s.trim.thorough.Store(true)
	s.trim.wake()
}

// WaitReclaimed waits until the index is trimmed for a committed compaction at rev and the log has
// reclaimed the space, as far as that is worth the work. Its errors are the errors of WaitTrimmed.
func (s *Store) WaitReclaimed(ctx context.Context, rev int64) error {
	if err := s.WaitTrimmed(ctx, rev); err != nil {
		return err
	}
	// The log reports and retries a failed rewrite; the compaction remains valid.
	if err := s.log.WaitReclaimed(ctx); ctx.Err() != nil || errors.Is(err, history.ErrClosed) {
		return err
	}
	return nil
}

// trimSlice visits TrimKeys keys, beginning at from. The caller holds the lock. Readers see its
// changes of the tree at once, or with the batch that waits for room. dead are the records that are
// no longer needed.
func (s *Store) trimSlice(from string, compact int64) (next string, more bool,
	dead []history.DeadRecord) {
	x := s.writer.index
	var gone []string
	it := x.Tree.View().Range(from, "")
	for n := 0; it.Next(); n++ {
		if n == s.opts.TrimKeys {
			next, more = it.Key(), true
			break
		}
		e := index.At(&it)
		list := e.Changes()
		k := list.Needless(compact)
		for i := range k {
			if r := list.At(i); r.Main < compact {
				dead = append(dead, history.DeadRecord{Rev: r.Rev(), Tombstone: r.Tombstone()})
			}
		}
		switch n := list.Len(); {
		case k == n:
			gone = append(gone, it.Key())
		case k > 0:
			x.Cut(e, k)
		}
	}
	for _, key := range gone {
		e, _ := x.Get(key)
		x.Drop(key, e)
	}
	s.publishIndex(len(gone) > 0)
	return next, more, dead
}

// publishIndex lets readers use the index after the trimmer has worked on it: its tree if that has
// changed, and its table, because the previous table would keep removed slabs in memory. The caller
// holds the lock.
func (s *Store) publishIndex(changed bool) {
	x, old := s.writer.index, s.snap.Load()
	if !changed && old.tree.Table() == x.Pool.Table() {
		return
	}
	if s.writer.open {
		s.writer.stale = true // readers must not see the batch yet
		return
	}
	snap := *old
	snap.tree = x.Tree.Snapshot()
	s.snap.Store(&snap)
}
