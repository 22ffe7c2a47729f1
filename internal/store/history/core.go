package history

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/segfile"
	"vigil/internal/vfs"
)

const (
	// allocatePause is the time between a failed allocation and the next try.
	allocatePause = time.Second
	// retryPause is the time between a step that failed for lack of a resource and its retry.
	retryPause = 200 * time.Millisecond
	// tries is how often a step that the writer waits for is tried before its failure ends the log. A step that
	// fails for lack of a resource is retried without limit.
	tries = 3
)

// syncError is a sync that failed. What is on disk is unknown then, and another sync cannot find out.
type syncError struct{ err error }

func (e *syncError) Error() string { return e.err.Error() }
func (e *syncError) Unwrap() error { return e.err }

// final reports whether err ends the log: a failed sync, or damage, which is an I/O error too: after that of a rename it is
// unknown which of the names is on disk. Any other error of an operation on files changes nothing.
func final(err error) bool {
	var failed *syncError
	return errors.As(err, &failed) || vfs.CauseOf(err) == vfs.Damage
}

// core is what the parts of a Log share: the options, the lock, how the log ended, and operations on
// files whose failure may end it.
type core struct {
	segfile.Reports
	o      Options
	failed chan struct{} // closed with mu.err set
	// ended is set if the log is closed or has failed.
	ended atomic.Bool

	// mu also guards fields of the allocator, the sealer and the catalog. It is never held over I/O.
	mu struct {
		sync.Mutex
		changed sync.Cond // a field that mu guards
		closed  bool
		retired bool  // closed, but for the files
		err     error // the error that ended the log
	}
}

func newCore(o Options) *core {
	c := &core{o: o.withDefaults(), failed: make(chan struct{}), Reports: segfile.NewReports()}
	c.mu.changed.L = &c.mu.Mutex
	return c
}

// Failed is closed when a write or a sync failed for good; Err then says why.
func (c *core) Failed() <-chan struct{} { return c.failed }

// Err returns the error that ended the log, nil before that.
func (c *core) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.err
}

// alive returns the error of an operation that needs the log to be writable.
func (c *core) alive() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.aliveLocked()
}

func (c *core) aliveLocked() error {
	if c.mu.err == nil && c.mu.closed {
		return ErrClosed
	}
	return c.mu.err
}

// fail ends the log, if no earlier error did, and returns the error that ended it.
func (c *core) fail(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failLocked(err)
}

// failFinal ends the log if err is final. It returns err.
func (c *core) failFinal(err error) error {
	if final(err) {
		_ = c.fail(err)
	}
	return err
}

func (c *core) failLocked(err error) error {
	if c.mu.err == nil {
		c.mu.err = err
		close(c.failed)
		c.ended.Store(true)
	}
	c.mu.changed.Broadcast()
	return c.mu.err
}

// endLocked marks the log as closed; with retired set its files stay open.
func (c *core) endLocked(retired bool) {
	c.mu.closed, c.mu.retired = true, retired
	c.ended.Store(true)
	c.mu.changed.Broadcast()
}

// identity returns the cluster and the member of the log. They may be 0 until Open has read a segment.
func (c *core) identity() format.Identity {
	return format.Identity{ClusterID: c.o.ClusterID, MemberID: c.o.MemberID}
}

func (c *core) path(name string) string { return filepath.Join(c.o.Dir, name) }

func (c *core) syncFile(f vfs.File, path string) error {
	if c.o.NoSync {
		return nil
	}
	if err := f.Sync(); err != nil {
		return &syncError{fmt.Errorf("history: sync %s: %w", path, err)}
	}
	return nil
}

func (c *core) syncDir() error {
	if c.o.NoSync {
		return nil
	}
	err := c.o.FS.SyncDir(c.o.Dir)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("history: sync %s: %w", c.o.Dir, err)
	if c := vfs.CauseOf(err); c == vfs.Exhausted || c == vfs.Away {
		return vfs.MarkShortage(err) // the directory could not even be opened
	}
	return &syncError{err}
}

// abandon removes a segment without commits. If that fails, the next Open removes it.
func (c *core) abandon(file vfs.File, path string) {
	_ = file.Close()
	_ = c.o.FS.Remove(path)
}

// allocationFailed returns the error of an allocation that failed with err. A final one ends the log; one for lack of
// a resource is a kv.Shortage.
func (c *core) allocationFailed(path string, err error) error {
	err = fmt.Errorf("history: allocate %s: %w", path, err)
	if marked := vfs.MarkShortage(err); kv.Shortage(marked) || !final(err) {
		return marked
	}
	return c.fail(err)
}
