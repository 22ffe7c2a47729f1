package archiver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"vigil/internal/bucket"
)

// errHanging: operations on the bucket hang past their limit, so that no other one starts.
var errHanging = errors.New("earlier operations on the bucket hang")

const (
	// opTimeout limits an operation.
	opTimeout = 30 * time.Second
	// shortTimeout limits operations on one object while the bucket answers in much less: a request
	// on a connection that is dead gets no answer, and its repetition opens another one. Each
	// operation that takes too long doubles the limit, up to opTimeout. bytesTime is added for the
	// bytes of an object.
	shortTimeout = 5 * time.Second
	// patience is the ratio of the limit to the duration of the last operation.
	patience = 4
	// opGrace is how long an operation may take to return after its context has ended.
	opGrace = 500 * time.Millisecond
	// maxRunning bounds the operations in progress, hanging ones included; each keeps one object in
	// memory. A session needs three at its start, later one for entries and one for bases. maxBases
	// bounds the ones for bases: one, and another while the first hangs. Unless all hang, an
	// operation waits for its turn, so that a session can start with one at a time. Bases never use
	// the last one.
	maxRunning = 3 + maxBases
	maxBases   = 2
)

// basesKey marks a context whose operations serve bases.
type basesKey struct{}

// forBases returns a context for operations of bases: if they hang, operations of entries go on.
func forBases(ctx context.Context) context.Context {
	return context.WithValue(ctx, basesKey{}, true)
}

// guard runs operations on the bucket. It abandons an operation that does not return when its
// context ends, such as a write to a file server that is away: that delays neither the caller nor
// the end of the member. The zero value is ready.
type guard struct {
	mu struct {
		sync.Mutex
		running, hanging count
		// changed, if set, is closed when one of them changes.
		changed chan struct{}
		// short is the limit of operations on one object, 0 for shortTimeout.
		short time.Duration
	}
}

// count counts operations, and the ones of bases among them.
type count struct{ all, bases int }

func (c *count) add(n, bases int) {
	c.all += n
	c.bases += n * bases
}

// limit returns the limit of time of an operation on one object with a number of bytes.
func (g *guard) limit(bytes int) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(g.mu.short, shortTimeout) + bytesTime(bytes)
}

// bytesTime returns the time that a number of bytes may take.
func bytesTime(n int) time.Duration { return time.Duration(n) * time.Second / bucket.SlowestRate }

// adapt adjusts the limit to the duration of an operation, or to its timeout.
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

// do runs f with a time limit. f must not use memory that its caller changes later, since it may
// outlive the call.
func (g *guard) do(ctx context.Context, limit time.Duration,
	f func(ctx context.Context) error) error {
	bases := 0
	if ctx.Value(basesKey{}) != nil {
		bases = 1
	}
	if err := g.admit(ctx, bases); err != nil {
		return err
	}
	begun := time.Now()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		err := f(limited)
		g.note(&g.mu.running, -1, bases)
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
	g.note(&g.mu.hanging, 1, bases)
	go func() {
		<-done
		g.note(&g.mu.hanging, -1, bases)
	}()
	if err := ctx.Err(); err != nil {
		return err
	}
	return fmt.Errorf("%w: no answer after %v", errHanging, limit)
}

// timed returns the error of an operation. The error names the limit if the limit ended the
// operation.
func timed(ctx, limited context.Context, limit time.Duration, err error) error {
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return fmt.Errorf("no answer after %v: %w", limit, err)
	}
	return err
}

// admit counts an operation; bases is 1 if it serves a base. It waits for others to end, unless too
// many hang.
func (g *guard) admit(ctx context.Context, bases int) error {
	for {
		changed, err := g.tryAdmit(bases)
		if changed == nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryAdmit counts an operation. Otherwise it returns the reason, or a channel to wait for.
func (g *guard) tryAdmit(bases int) (changed <-chan struct{}, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	full := func(c count) bool {
		return c.all >= maxRunning-bases ||
			bases > 0 && c.bases >= maxBases
	}
	switch {
	case !full(g.mu.running):
		g.mu.running.add(1, bases)
		return nil, nil
	case full(g.mu.hanging):
		return nil, errHanging
	}
	if g.mu.changed == nil {
		g.mu.changed = make(chan struct{})
	}
	return g.mu.changed, nil
}

// note adds n operations to a count.
func (g *guard) note(c *count, n, bases int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c.add(n, bases)
	if g.mu.changed != nil {
		close(g.mu.changed)
		g.mu.changed = nil
	}
}

// hanging returns how many operations hang.
func (g *guard) hanging() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.hanging.all
}
