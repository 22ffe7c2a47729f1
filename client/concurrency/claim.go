package concurrency

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"vigil/client"
)

// claim is a key of a session in a queue of keys. It is its turn when no earlier key exists that it
// waits for.
type claim struct {
	s    *Session
	key  string
	free func()
	rev  int64 // create revision, the place in the queue; 0 if it is not known
	// unknown: an attempt to create the key was not answered, so it may still be applied.
	unknown bool

	over   context.Context // ends when the claim is or may be lost, or is given up
	cancel context.CancelCauseFunc
	done   sync.WaitGroup

	leaving struct {
		sync.Mutex
		gone bool // the key was deleted, and may belong to another claim by now
	}
}

// errReleased ends a claim that its owner gives up.
var errReleased = errors.New("it was released")

// joinQueue adds a new key below name to the queue.
func joinQueue(ctx context.Context, s *Session, name string, value []byte) (*claim, error) {
	q := &claim{s: s}
	q.key, q.free = s.newKey(name)
	if err := q.createKey(ctx, value); err != nil {
		if q.unknown { // an attempt before the last one may have created the key
			err = errors.Join(err, q.removeKey(ctx))
		} else {
			q.free()
		}
		return nil, err
	}
	q.over, q.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	q.done.Go(func() { q.cancel(q.waitEnd()) })
	return q, nil
}

// createKey writes the key. No other code writes it, so an attempt with an unknown outcome is
// repeated.
func (q *claim) createKey(ctx context.Context, value []byte) error {
	for n := 1; ; n++ {
		r, err := q.s.c.Txn(ctx).If(client.Missing(q.key)).
			Then(client.OpPut(q.key, value, client.WithLease(q.s.Lease()))).
			Else(client.OpGet(q.key)).Commit()
		q.unknown = q.unknown || errors.Is(err, client.ErrUncertain)
		switch {
		case errors.Is(err, client.ErrLeaseNotFound):
			return fmt.Errorf("session %x: %w: %w", int64(q.s.Lease()), ErrLost, err)
		case errors.Is(err, client.ErrUncertain) && client.Temporary(err) && pause(ctx, n):
			continue
		case err != nil:
			return err
		case r.Succeeded:
			q.rev = r.Header.Revision
			return nil
		}
		kv := r.Responses[0].Get.KV()
		if kv.Lease != q.s.Lease() || !q.unknown {
			return fmt.Errorf("%q exists already, and is not of this session", q.key)
		}
		q.rev = kv.CreateRevision
		return nil
	}
}

// pause waits after the nth attempt, for up to a second. It returns false if the context ended
// before.
func pause(ctx context.Context, n int) bool {
	d := min(time.Second, 25*time.Millisecond<<min(n-1, 6))
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// waitEnd waits for the end of the claim and returns its reason.
func (q *claim) waitEnd() error {
	ctx, stop := until(q.over, q.s.Lost(), q.s.lost)
	defer stop()
	for rev := q.rev; ; {
		if err := waitDeleted(ctx, q.s.c, q.key, rev+1); ctx.Err() != nil {
			return context.Cause(ctx)
		} else if err != nil {
			return fmt.Errorf("%w: %q cannot be watched: %w", ErrLost, q.key, err)
		}
		r, err := q.s.c.Get(ctx, q.key, client.WithKeysOnly())
		if err != nil {
			return fmt.Errorf("%w: %q cannot be read: %w", ErrLost, q.key, err)
		}
		if kv := r.KV(); kv == nil || kv.CreateRevision != q.rev {
			return fmt.Errorf("%w: %q was deleted", ErrLost, q.key)
		}
		rev = r.Header.Revision
	}
}

// waitTurn waits until no key below name exists that was created before this one.
func (q *claim) waitTurn(ctx context.Context, name string) error {
	ctx, stop := until(ctx, q.over.Done(), func() error { return context.Cause(q.over) })
	defer stop()
	for {
		before, rev, err := q.previousKey(ctx, name)
		if err != nil || before == "" {
			return err
		}
		if err := waitDeleted(ctx, q.s.c, before, rev+1); err != nil {
			return err
		}
	}
}

// previousKey returns the last key below name that was created before this one, empty if there is
// none, and the revision of the answer.
func (q *claim) previousKey(ctx context.Context, name string) (key string, rev int64, err error) {
	r, err := q.s.c.Txn(ctx).If(client.CreateRevision(q.key).Equal(q.rev)).
		Then(client.OpGet(name+"/", client.WithPrefix(), client.WithKeysOnly(), client.WithLimit(1),
			client.WithSort(client.SortByCreateRevision, client.SortDescend),
			client.WithCreateRevisions(0, q.rev-1))).Commit()
	switch {
	case err != nil:
		return "", 0, causeOf(ctx, err)
	case !r.Succeeded:
		return "", 0, fmt.Errorf("%w: %q was deleted", ErrLost, q.key)
	}
	if kv := r.Responses[0].Get.KV(); kv != nil {
		return kv.Key, r.Header.Revision, nil
	}
	return "", r.Header.Revision, nil
}

// waitDeleted waits until a key has been deleted at a revision or later, or that revision was
// compacted. The caller must check again.
func waitDeleted(ctx context.Context, c *client.Client, key string, rev int64) error {
	return waitChanged(ctx, c, key, rev, client.WithoutPuts())
}

// waitChanged waits until a key has changed at a revision or later, or that revision was compacted.
func waitChanged(ctx context.Context, c *client.Client, key string, rev int64,
	kind client.WatchOption) error {
	w := c.Watch(ctx, key, client.FromRevision(rev), kind)
	defer w.Close()
	for _, err := range w.Events() {
		if errors.Is(err, client.ErrCompacted) {
			return nil
		}
		return causeOf(ctx, err)
	}
	return context.Cause(ctx)
}

// causeOf returns the cause of the context's end instead of an error that follows from it.
func causeOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// giveUp gives up the claim and deletes its key, once. If it was lost before, the error matches
// ErrLost.
func (q *claim) giveUp(ctx context.Context) error {
	q.cancel(errReleased)
	q.done.Wait()
	q.leaving.Lock()
	defer q.leaving.Unlock()
	var err error
	if !q.leaving.gone {
		err = q.removeKey(ctx)
		q.leaving.gone = err == nil
	}
	if cause := context.Cause(q.over); err == nil && errors.Is(cause, ErrLost) {
		return cause
	}
	return err
}

// removeKey deletes the key, for some time even after the end of the context. The name can be used
// again unless the outcome of an attempt to create or delete the key is unknown: such an attempt
// may be applied later, and must not affect the key of another claim.
func (q *claim) removeKey(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), q.s.lease.TTL())
	defer cancel()
	for n := 1; ; n++ {
		rev, err := q.deleteKey(ctx, q.rev)
		switch {
		case err == nil && q.unknown:
			go q.sweepLateKey(rev)
			return nil
		case err == nil:
			if n == 1 {
				q.free()
			}
			return nil
		case !errors.Is(err, client.ErrUncertain) || !client.Temporary(err) || !pause(ctx, n):
			return fmt.Errorf("%q remains until its session ends: %w", q.key, err)
		}
	}
}

// deleteKey deletes the key if it was created at a revision, or if that is 0 by any attempt of this
// session. It returns the revision at which the key does not exist.
func (q *claim) deleteKey(ctx context.Context, created int64) (rev int64, err error) {
	ours := client.Lease(q.key).Equal(int64(q.s.Lease()))
	if created != 0 {
		ours = client.CreateRevision(q.key).Equal(created)
	}
	r, err := q.s.c.Txn(ctx).If(ours).Then(client.OpDelete(q.key)).Commit()
	if err != nil {
		return 0, err
	}
	return r.Header.Revision, nil
}

// sweepLateKey deletes the key of a claim that was given up, if an attempt to create it is applied
// late. It ends with the session.
func (q *claim) sweepLateKey(rev int64) {
	ctx, stop := until(context.Background(), q.s.Lost(), q.s.lost)
	defer stop()
	for {
		err := waitChanged(ctx, q.s.c, q.key, rev+1, client.WithoutDeletes())
		if err == nil {
			var at int64
			if at, err = q.deleteKey(ctx, 0); err == nil {
				rev = at
			}
		}
		if err != nil && !(client.Temporary(err) && pause(ctx, 5)) {
			return
		}
	}
}

// whyLost returns nil while the claim is held.
func (q *claim) whyLost() error {
	if q.over.Err() != nil {
		return context.Cause(q.over)
	}
	if q.s.Err() != nil { // known at once; the end of the claim follows a little later
		return q.s.lost()
	}
	return nil
}
