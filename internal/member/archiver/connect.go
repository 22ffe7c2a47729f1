package archiver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"vigil/internal/bucket"
	"vigil/internal/state/lineage"
	"vigil/internal/store/archive"
)

var (
	// errRefused: this cluster must not write to the bucket.
	errRefused = errors.New("the archive is refused")
	// errUnclaimed: this member does not know its incarnation of the cluster yet.
	errUnclaimed = errors.New("no leader has claimed its term yet")
)

const (
	// lookInterval is the time between two attempts of a member to read the identity, and
	// refusedInterval between two checks whether a refused bucket has been replaced.
	lookInterval    = 2 * time.Second
	refusedInterval = 30 * time.Second
	// claimInterval is the time between two checks whether a claim has arrived.
	claimInterval = 50 * time.Millisecond
)

// watchBucket reads the identity of the archive, so that every member reports a wrong bucket,
// already at its start.
func (a *Archiver) watchBucket(ctx context.Context) {
	for {
		_, err := a.readIdentity(ctx)
		pause := lookInterval
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errUnclaimed):
			for pause = 0; a.incarnation() == (archive.ID{}); {
				if !wait(ctx, claimInterval) {
					return
				}
			}
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

// incarnation returns the incarnation of the cluster, zero while this member does not know it.
func (a *Archiver) incarnation() archive.ID {
	s, _ := a.o.Source.Lineage()
	return archive.ID(s.Incarnation())
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
	if err := a.guard.do(ctx, opTimeout,
		func(context.Context) error { return b.Close() }); err != nil {
		a.o.Logger.Warn("the archive was not closed", slog.String("archive", a.o.Address),
			slog.String("error", oneLine(err.Error())))
	}
}

// doValue is guard.do with a result.
func doValue[T any](ctx context.Context, g *guard, limit time.Duration,
	f func(context.Context) (T, error)) (T, error) {
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

// readIdentity reads and checks the identity of the archive. It returns nil if the bucket has none.
// An error that wraps errRefused says why nothing may be written.
func (a *Archiver) readIdentity(ctx context.Context) (*archive.Identity, error) {
	b, err := a.openBucket(ctx)
	if err != nil {
		return nil, err
	}
	data, err := doValue(ctx, &a.guard, a.guard.limit(0),
		func(ctx context.Context) ([]byte, error) {
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
		if begun, ok := a.begun(); ok {
			err = fmt.Errorf("%w: archive %s of this cluster was begun here, and there is none "+
				"now: is "+
				"the file system mounted, and is it the right bucket? To begin another archive, "+
				"use another prefix or directory", errRefused, begun)
			a.refuse(err, time.Time{})
			return nil, err
		}
		a.noteVacant()
		return nil, nil
	case err != nil:
		return nil, err
	}
	id, err := archive.DecodeIdentity(data)
	if err == nil {
		err = a.checkIdentity(&id, known)
	}
	if errors.Is(err, errUnclaimed) {
		return nil, err
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", errRefused, err)
		a.refuse(err, time.Time{})
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.identity, a.mu.vacant = &id, false
	if a.mu.archivedIn != id.Archive {
		a.mu.known, a.mu.archived = false, mark{}
	}
	if a.mu.foreign.IsZero() {
		a.mu.refused = nil
		a.o.Hold.setOff(false)
	}
	return &id, nil
}

// checkIdentity returns why this cluster must not write to an archive.
func (a *Archiver) checkIdentity(id, known *archive.Identity) error {
	if uint64(id.Cluster) != a.o.ClusterID {
		return fmt.Errorf("it belongs to cluster %s, and this is cluster %x: "+
			"use another bucket or prefix", id.Cluster, a.o.ClusterID)
	}
	switch own := a.incarnation(); {
	case own == archive.ID{}:
		return errUnclaimed
	case own != id.Incarnation:
		return fmt.Errorf("it belongs to incarnation %s of cluster %x, and this is "+
			"incarnation %s: "+
			"the cluster was restored, started without its data, or forced to a single member; "+
			"use another bucket or prefix, and keep this one to restore from", id.Incarnation,
			a.o.ClusterID, own)
	}
	if begun, ok := a.begun(); ok && begun != id.Archive {
		return fmt.Errorf("it is archive %s, and this cluster has begun archive %s here: "+
			"use another bucket or prefix", id.Archive, begun)
	}
	if known != nil && known.Archive != id.Archive {
		return fmt.Errorf("it is archive %s, and was archive %s before: "+
			"use another bucket or prefix", id.Archive, known.Archive)
	}
	_, err := archive.NewSealer(*id, a.o.Recipients)
	return err
}

// begun returns the archive that the cluster has begun at this address.
func (a *Archiver) begun() (archive.ID, bool) {
	s, _ := a.o.Source.Lineage()
	id, ok := s.Archive(a.o.Place)
	return archive.ID(id), ok
}

// noteBegun records in the cluster that this archive is at this address.
func (a *Archiver) noteBegun(ctx context.Context, id *archive.Identity) error {
	if err := a.proposeBegun(ctx, id.Archive); err != nil {
		return err
	}
	if begun, ok := a.begun(); !ok || begun != id.Archive {
		return fmt.Errorf("archive %s was noted at this address, not %s", begun, id.Archive)
	}
	return nil
}

// proposeBegun records an archive at this address. The zero value records none: after that call
// this member knows everything recorded before it.
func (a *Archiver) proposeBegun(ctx context.Context, id archive.ID) error {
	if begun, ok := a.begun(); ok && begun == id {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	if err := a.o.Source.NoteArchive(ctx, a.o.Place, lineage.ID(id)); err != nil {
		return fmt.Errorf("noting where the archive is: %w", err)
	}
	return nil
}

// awaitClaim waits until this member has applied the claim of the leader that appoints it.
func (a *Archiver) awaitClaim(ctx context.Context) error {
	for a.appointed() {
		a.mu.Lock()
		term := a.mu.order.term
		a.mu.Unlock()
		if a.claimed(term) {
			return nil
		}
		if !wait(ctx, claimInterval) {
			return ctx.Err()
		}
	}
	return errNotAppointed
}

// noteVacant notes that the bucket has no archive yet.
func (a *Archiver) noteVacant() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.vacant, a.mu.refused, a.mu.foreign = true, nil, time.Time{}
	a.o.Hold.setOff(false)
}

// refuse stops all writing to the bucket, and logs that once. foreign is the time if a session
// refuses its history.
func (a *Archiver) refuse(err error, foreign time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.refused == nil || a.mu.refused.Error() != err.Error() {
		a.o.Logger.Error("the archive is not written to; the member serves without it",
			slog.String("archive", a.o.Address), slog.String("error", oneLine(err.Error())))
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

// connect returns the bucket and the identity of the archive. It makes the identity if there is
// none. If this member has read the identity before, connect reads it again in the background: the
// caller writes nothing until checked returns nil.
func (a *Archiver) connect(ctx context.Context) (_ bucket.Bucket, _ *archive.Identity,
	checked func() error, _ error) {
	checked = func() error { return nil }
	b, err := a.openBucket(ctx)
	if err == nil {
		err = a.awaitClaim(ctx)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	a.mu.Lock()
	known := a.mu.identity
	a.mu.Unlock()
	if known != nil {
		return b, known, startAsync(func() error { _, err := a.readIdentity(ctx); return err }), nil
	}
	id, err := a.readIdentity(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	if id != nil {
		return b, id, checked, nil
	}
	// Another member may have begun an archive here a moment ago.
	if err := a.proposeBegun(ctx, archive.ID{}); err != nil {
		return nil, nil, nil, err
	}
	if _, ok := a.begun(); ok {
		return nil, nil, nil, fmt.Errorf("another member has begun the archive")
	}
	first := archive.NewIdentity(a.o.ClusterID, a.incarnation(), time.Now(), a.o.Recipients)
	data, err := first.Encode()
	if err != nil {
		return nil, nil, nil, err
	}
	err = a.guard.do(ctx, a.guard.limit(len(data)),
		func(ctx context.Context) error { return b.Put(ctx, archive.IdentityName, data) })
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
		a.o.Logger.Info("began an archive", slog.String("archive", a.o.Address),
			slog.String("archive-id", id.Archive.String()))
	}
	return b, id, checked, nil
}
