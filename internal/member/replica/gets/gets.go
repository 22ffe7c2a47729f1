// Package gets makes linearizable reads of one key ready without a goroutine for each: reads that
// arrive while the member asks for a read index share the next one and get their results together.
package gets

import (
	"context"
	"sync"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/replica/proposal"
)

// Options configure Gets.
type Options struct {
	// Ready waits until reads may read the store. The first of them arrived at since. Its error is
	// the result of all.
	Ready func(ctx context.Context, since time.Time) error
	// Queue passes the results to the callers.
	Queue *proposal.Queue
}

// Gets holds the reads that were started. Any goroutine may call Add.
type Gets struct {
	o  Options
	mu struct {
		sync.Mutex
		waiting []*proposal.Call
		// when the first of the reads that Run makes ready now arrived; zero if there are none
		since  time.Time
		closed bool
	}
	wake chan struct{} // receives when waiting stops being empty
}

// New returns Gets without reads.
func New(o Options) *Gets { return &Gets{o: o, wake: make(chan struct{}, 1)} }

// maxAge is how long reads may have waited while Add still starts others. A few network round trips
// are enough unless something is wrong; then each read waits with its own deadline.
const maxAge = time.Second

// maxWaiting bounds the memory of reads, whose clients may have gone: beyond it the reads go to
// handlers, whose number is limited.
const maxWaiting = 1 << 14

// Add starts a read that arrives now. It returns false while many reads wait or some have waited
// for long, and after Run has ended.
func (g *Gets) Add(req *kv.RangeRequest, done kv.Completion, now time.Time) (started bool) {
	g.mu.Lock()
	if g.mu.closed || len(g.mu.waiting) >= maxWaiting || !g.mu.since.IsZero() &&
		now.Sub(g.mu.since) > maxAge {
		g.mu.Unlock()
		return false
	}
	g.mu.waiting = append(g.mu.waiting, g.o.Queue.StartRead(req, done, now))
	first := len(g.mu.waiting) == 1
	g.mu.Unlock()
	if first {
		select {
		case g.wake <- struct{}{}:
		default:
		}
	}
	return true
}

// takeWaiting returns the reads that wait. It reuses the memory of list.
func (g *Gets) takeWaiting(list []*proposal.Call) []*proposal.Call {
	g.mu.Lock()
	defer g.mu.Unlock()
	list, g.mu.waiting = g.mu.waiting, list[:0]
	if g.mu.since = (time.Time{}); len(list) > 0 {
		g.mu.since = list[0].At
	}
	return list
}

// Run makes reads ready until ctx ends. Reads that wait then fail with kv.ErrStopped. The caller
// calls it once.
func (g *Gets) Run(ctx context.Context) {
	var list []*proposal.Call
	for {
		if list = g.takeWaiting(list); len(list) > 0 {
			list = g.deliver(list, g.o.Ready(ctx, list[0].At))
			continue
		}
		select {
		case <-g.wake:
		case <-ctx.Done():
			g.mu.Lock()
			g.mu.closed = true
			g.mu.Unlock()
			g.deliver(g.takeWaiting(nil), kv.ErrStopped)
			return
		}
	}
}

// deliver passes the reads with their result to the queue, and returns the list without them.
func (g *Gets) deliver(list []*proposal.Call, err error) []*proposal.Call {
	for _, p := range list {
		p.Result.Err = err
	}
	return g.o.Queue.DeliverReads(list)
}
