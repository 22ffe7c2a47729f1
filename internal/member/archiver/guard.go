package archiver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// errHanging: operations on the bucket do not return although their time is over, so that no other one is begun.
var errHanging = errors.New("earlier operations on the bucket hang")

const (
	// opTimeout limits an operation.
	opTimeout = 30 * time.Second
	// shortTimeout limits operations on one object while the bucket answers in much less: a request on a connection that is dead
	// gets no answer, and its repetition opens another one. Each that took too long doubles the limit, up to opTimeout. slowestRate
	// adds the time that the bytes of an object take at this rate.
	shortTimeout = 5 * time.Second
	slowestRate  = 64 << 10
	// patience is the ratio of the limit to the time that the last operation took.
	patience = 4
	// opGrace is how long an operation may take to return after its context has ended.
	opGrace = 500 * time.Millisecond
	// maxRunning is how many operations are in progress: three while a session begins, then one of the entries, and maxBases of bases,
	// which is one, and another while it hangs. Those that hang count, and each keeps one object in memory.
	maxRunning = 3 + maxBases
	maxBases   = 2
)

// basesKey is the key of a context whose operations are of bases.
type basesKey struct{}

// forBases returns a context for operations of bases: if they hang, those of the entries go on.
func forBases(ctx context.Context) context.Context { return context.WithValue(ctx, basesKey{}, true) }

// guard makes operations on the bucket. An operation that does not return when its context ends, such as a write to a file server
// that is away, is left alone: it delays neither its caller nor the end of the member. The zero value is ready.
type guard struct {
	mu struct {
		sync.Mutex
		running, hanging int
		bases            int // of running
		// short is the limit of operations on one object, 0 for shortTimeout.
		short time.Duration
	}
}

// limit returns the limit of time of an operation on one object with a number of bytes.
func (g *guard) limit(bytes int) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(g.mu.short, shortTimeout) + time.Duration(bytes)*time.Second/slowestRate
}

// adapt takes into account what an operation took, or that its time was over.
func (g *guard) adapt(took time.Duration, over bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.short = max(g.mu.short, shortTimeout)
	if over {
		g.mu.short *= 2
	} else {
		g.mu.short = patience * took
	}
	g.mu.short = min(g.mu.short, opTimeout)
}

// do runs f with a limit of time. f must not use memory of its caller that the caller changes later.
func (g *guard) do(ctx context.Context, limit time.Duration, f func(ctx context.Context) error) error {
	bases := 0
	if ctx.Value(basesKey{}) != nil {
		bases = 1
	}
	if !g.begin(bases) {
		return errHanging
	}
	begun := time.Now()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		err := f(limited)
		g.end(bases)
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil {
			g.adapt(time.Since(begun), false)
		}
		return timed(ctx, limited, limit, err)
	case <-limited.Done():
	}
	if ctx.Err() == nil {
		g.adapt(0, true)
	}
	grace := time.NewTimer(opGrace)
	defer grace.Stop()
	select {
	case err := <-done:
		return timed(ctx, limited, limit, err)
	case <-grace.C:
	}
	g.noteHanging(1)
	go func() {
		<-done
		g.noteHanging(-1)
	}()
	if err := ctx.Err(); err != nil {
		return err
	}
	return fmt.Errorf("%w: no answer after %v", errHanging, limit)
}

// timed returns the error of an operation, which names the limit if that has ended the operation.
func timed(ctx, limited context.Context, limit time.Duration, err error) error {
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return fmt.Errorf("no answer after %v: %w", limit, err)
	}
	return err
}

// begin counts an operation, bases is 1 if it is one of a base; false if there are too many.
func (g *guard) begin(bases int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.running >= maxRunning || bases > 0 && g.mu.bases >= maxBases {
		return false
	}
	g.mu.running++
	g.mu.bases += bases
	return true
}

// end ends what begin has counted.
func (g *guard) end(bases int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.running--
	g.mu.bases -= bases
}

func (g *guard) noteHanging(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.hanging += n
}

// hanging returns how many operations hang.
func (g *guard) hanging() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.hanging
}
