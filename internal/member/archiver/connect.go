package archiver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"vigil/internal/bucket"
	"vigil/internal/store/archive"
)

// errRefused: the bucket is not one that this cluster may write to.
var errRefused = errors.New("the archive is refused")

const (
	// lookInterval is how often a member without an identity looks for it, and refusedInterval how often it looks whether a
	// bucket that it has refused is another one now.
	lookInterval    = 2 * time.Second
	refusedInterval = 30 * time.Second
)

// watchBucket reads the identity of the archive, so that a wrong bucket is reported at the start and by every member.
func (a *Archiver) watchBucket(ctx context.Context) {
	for {
		_, err := a.readIdentity(ctx)
		pause := lookInterval
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errRefused):
			pause = refusedInterval
		case err != nil:
			a.noteFailure(sending, "reading the identity of the archive", err)
		case a.hasIdentity():
			return
		}
		if !wait(ctx, pause) {
			return
		}
	}
}

func (a *Archiver) hasIdentity() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.identity != nil
}

// openBucket returns the bucket.
func (a *Archiver) openBucket(ctx context.Context) (bucket.Bucket, error) {
	a.mu.Lock()
	b := a.mu.bucket
	a.mu.Unlock()
	if b != nil {
		return b, nil
	}
	opened, err := doValue(ctx, &a.guard, opTimeout, a.o.Open)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	if b = a.mu.bucket; b == nil {
		a.mu.bucket = opened
	}
	a.mu.Unlock()
	if b != nil { // another goroutine was first
		return b, errors.Join(opened.Close())
	}
	return opened, nil
}

// closeBucket closes the bucket. It does not wait for one that hangs.
func (a *Archiver) closeBucket() {
	a.mu.Lock()
	b := a.mu.bucket
	a.mu.bucket = nil
	a.mu.Unlock()
	if b == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := a.guard.do(ctx, opTimeout, func(context.Context) error { return b.Close() }); err != nil {
		a.o.Logger.Warn("the archive was not closed", slog.String("archive", a.o.Address), slog.String("error", oneLine(err.Error())))
	}
}

// doValue is guard.do with a result.
func doValue[T any](ctx context.Context, g *guard, limit time.Duration, f func(context.Context) (T, error)) (T, error) {
	result := make(chan T, 1)
	var none T
	err := g.do(ctx, limit, func(ctx context.Context) error {
		v, err := f(ctx)
		if err == nil {
			result <- v
		}
		return err
	})
	if err != nil {
		return none, err
	}
	return <-result, nil
}

// readIdentity reads the identity of the archive and checks it; nil if the bucket has none. An error that wraps errRefused says why
// nothing is written.
func (a *Archiver) readIdentity(ctx context.Context) (*archive.Identity, error) {
	b, err := a.openBucket(ctx)
	if err != nil {
		return nil, err
	}
	data, err := doValue(ctx, &a.guard, a.guard.limit(0), func(ctx context.Context) ([]byte, error) {
		return bucket.ReadAll(ctx, b, archive.IdentityName, archive.MaxJSON)
	})
	a.mu.Lock()
	known := a.mu.identity
	a.mu.Unlock()
	switch {
	case errors.Is(err, bucket.ErrNotFound) && known != nil:
		// An unmounted directory, for instance: a second archive must not begin there.
		return nil, fmt.Errorf("its identity %s has vanished: %w", archive.IdentityName, err)
	case errors.Is(err, bucket.ErrNotFound):
		a.noteVacant()
		return nil, nil
	case err != nil:
		return nil, err
	}
	id, err := archive.DecodeIdentity(data)
	if err == nil {
		err = a.checkIdentity(&id, known)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", errRefused, err)
		a.refuse(err, time.Time{})
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.identity, a.mu.vacant = &id, false
	if a.mu.foreign.IsZero() {
		a.mu.refused = nil
		a.o.Hold.setOff(false)
	}
	return &id, nil
}

// checkIdentity returns why this cluster must not write to an archive.
func (a *Archiver) checkIdentity(id, known *archive.Identity) error {
	if uint64(id.Cluster) != a.o.ClusterID {
		return fmt.Errorf("it belongs to cluster %s, and this is cluster %x: use another bucket or prefix", id.Cluster, a.o.ClusterID)
	}
	if known != nil && known.Archive != id.Archive {
		return fmt.Errorf("it is archive %s, and was archive %s before: restart the member if the bucket was replaced on purpose", id.Archive, known.Archive)
	}
	_, err := archive.NewSealer(*id, a.o.Recipients)
	return err
}

// noteVacant notes that the bucket has no archive yet.
func (a *Archiver) noteVacant() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.vacant, a.mu.refused, a.mu.foreign = true, nil, time.Time{}
	a.o.Hold.setOff(false)
}

// refuse notes that nothing is written to the bucket, and logs it once. foreign is the time if a session refuses its history.
func (a *Archiver) refuse(err error, foreign time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.refused == nil || a.mu.refused.Error() != err.Error() {
		a.o.Logger.Error("the archive is not written to; the member serves without it", slog.String("archive", a.o.Address), slog.String("error", oneLine(err.Error())))
	}
	a.mu.refused, a.mu.foreign = err, foreign
	a.o.Hold.setOff(true)
}

// acceptHistory notes that the archive has the history of this cluster.
func (a *Archiver) acceptHistory() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.refused, a.mu.foreign = nil, time.Time{}
	a.o.Hold.setOff(false)
}

// connect returns the bucket and the identity of the archive, which it makes if there is none. An identity that this member has read
// before is read again meanwhile: nothing is written until checked returns no error.
func (a *Archiver) connect(ctx context.Context) (_ bucket.Bucket, _ *archive.Identity, checked func() error, _ error) {
	checked = func() error { return nil }
	b, err := a.openBucket(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	a.mu.Lock()
	known := a.mu.identity
	a.mu.Unlock()
	if known != nil {
		return b, known, begin(func() error { _, err := a.readIdentity(ctx); return err }), nil
	}
	id, err := a.readIdentity(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	if id != nil {
		return b, id, checked, nil
	}
	first := archive.NewIdentity(a.o.ClusterID, time.Now(), a.o.Recipients)
	data, err := first.Encode()
	if err != nil {
		return nil, nil, nil, err
	}
	err = a.guard.do(ctx, a.guard.limit(len(data)), func(ctx context.Context) error { return b.Put(ctx, archive.IdentityName, data) })
	if err != nil && !errors.Is(err, bucket.ErrExists) {
		return nil, nil, nil, fmt.Errorf("writing %s: %w", archive.IdentityName, err)
	}
	// Another member may have been first, or another cluster.
	if id, err = a.readIdentity(ctx); err == nil && id == nil {
		err = fmt.Errorf("%s was written and is not there", archive.IdentityName)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	if id.Archive == first.Archive {
		a.o.Logger.Info("began an archive", slog.String("archive", a.o.Address), slog.String("archive-id", id.Archive.String()))
	}
	return b, id, checked, nil
}
