package history

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
)

const (
	// retryPause is the time between a step that failed for lack of a resource and its retry.
	retryPause = 200 * time.Millisecond
	// tries is how often a step that the writer waits for is tried before its failure ends the
	// log. A step that fails for lack of a resource is retried without limit.
	tries = 3
)

// phase is how far a log's owner has ended it.
type phase int

const (
	phaseOpen    phase = iota
	phaseRetired       // nothing is written any more, the files stay open
	phaseClosed
)

// ending knows whether a log still accepts writes, and why not.
type ending struct {
	failed chan struct{} // closed with mu.err set
	over   atomic.Bool   // the log was retired or closed, or has failed
	// ctx is canceled when that happens, which ends the goroutines.
	ctx    context.Context
	cancel context.CancelFunc

	mu struct {
		sync.Mutex
		phase phase
		err   error // the error that ended the log
	}
}

func newEnding() *ending {
	e := &ending{failed: make(chan struct{})}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e
}

// failure returns the error that ended the log, nil before that.
func (e *ending) failure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.err
}

// checkWritable returns the error of an operation that writes: nil while the log accepts writes.
func (e *ending) checkWritable() error {
	if !e.over.Load() {
		return nil
	}
	if err := e.failure(); err != nil {
		return err
	}
	return ErrClosed
}

// fail ends the log, if no earlier error did, and returns the error that ended it.
func (e *ending) fail(err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.err == nil {
		e.mu.err = err
		close(e.failed)
		e.over.Store(true)
		e.cancel()
	}
	return e.mu.err
}

// failIfFinal ends the log if err is final and no kv.Shortage. It returns err.
func (e *ending) failIfFinal(err error) error {
	if isFinal(err) && !kv.Shortage(err) {
		_ = e.fail(err)
	}
	return err
}

// failUnlessShort returns the error of a step without which the log cannot go on: a kv.Shortage,
// after which the step is retried, or the error that ends the log.
func (e *ending) failUnlessShort(err error) error {
	if ended := e.checkWritable(); ended != nil {
		return ended
	}
	if kv.Shortage(err) {
		return err
	}
	return e.fail(err)
}

// enter moves the log to a later phase and returns the phase before. An earlier phase has no
// effect.
func (e *ending) enter(p phase) (before phase) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before = e.mu.phase
	e.mu.phase = max(before, p)
	e.over.Store(true)
	e.cancel()
	return before
}

// waitToRetry waits for retryPause, or less if the log ends.
func (e *ending) waitToRetry() {
	select {
	case <-e.ctx.Done():
	case <-time.After(retryPause):
	}
}
