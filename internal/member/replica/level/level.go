// Package level serves and changes the level of the API that the cluster speaks.
package level

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
)

// interval is how often the leader looks whether the cluster should speak another level of the API.
// Clients that begin a downgrade see it take effect within that time, as with etcd.
const interval = 5 * time.Second

// Pipeline is the pipeline of the member.
type Pipeline interface {
	// AwaitReadable waits until the state may be read: unless that is serializable, until the
	// member has applied everything that any member had applied at the time of the call.
	AwaitReadable(ctx context.Context, serializable bool) (waited time.Duration, err error)
	// Propose proposes a request and waits for its result.
	Propose(context.Context, *fsm.Request) (fsm.Result, error)
	// LeadTerm returns the term in which this member leads, 0 if it does not lead.
	LeadTerm() uint64
}

// Level is the level of the API that the cluster speaks.
type Level struct {
	pipe   Pipeline
	logger *slog.Logger
	// active are the levels as of the applied position. Stored by the apply goroutine.
	active atomic.Pointer[kv.Versions]
}

// New returns the Level that begins with versions.
func New(p Pipeline, versions kv.Versions, logger *slog.Logger) *Level {
	l := &Level{pipe: p, logger: logger}
	l.active.Store(&versions)
	return l
}

// Versions is which level of the API the cluster speaks, as far as this member knows.
func (l *Level) Versions() kv.Versions { return *l.active.Load() }

// Follow takes over the levels of a commit, and logs the changes. The apply goroutine calls
// it.
func (l *Level) Follow(next kv.Versions) {
	last := l.Versions()
	if last == next {
		return
	}
	kept := next // so that only this allocates
	l.active.Store(&kept)
	log := l.logger
	if next.Cluster != last.Cluster {
		log.Info("updated cluster version", slog.String("from", last.Cluster.String()),
			slog.String("to", next.Cluster.String()))
		if next.Cluster == next.Target {
			log.Info("The server is ready to downgrade",
				slog.String("target-version", next.Target.Full()),
				slog.String("server-version", kv.APIVersion.String()))
		}
	}
	switch none := (kv.Version{}); {
	case next.Target != none && last.Target != next.Target:
		log.Info("a downgrade is enabled", slog.String("target-version", next.Target.Full()))
	case next.Target == none && last.Target != none:
		log.Info("the downgrade is canceled", slog.String("target-version", last.Target.Full()))
	}
}

// ValidateDowngrade says why a downgrade to a level cannot begin: an error of
// kv.Versions.CheckDowngrade, or as Range.
func (l *Level) ValidateDowngrade(ctx context.Context, to kv.Version) error {
	if _, err := l.pipe.AwaitReadable(ctx, false); err != nil {
		return err
	}
	return l.Versions().CheckDowngrade(to)
}

// EnableDowngrade begins a downgrade. Errors: as ValidateDowngrade, and as Put.
func (l *Level) EnableDowngrade(ctx context.Context, to kv.Version) error {
	if err := l.ValidateDowngrade(ctx, to); err != nil {
		return err
	}
	return l.change(ctx, kv.VersionChange{Op: kv.DowngradeBegin, Version: to})
}

// CancelDowngrade ends a downgrade, wherever it is. Errors: kv.ErrNoDowngrade, and as Put.
func (l *Level) CancelDowngrade(ctx context.Context) error {
	if _, err := l.pipe.AwaitReadable(ctx, false); err != nil {
		return err
	}
	if l.Versions().Target == (kv.Version{}) {
		return kv.ErrNoDowngrade
	}
	return l.change(ctx, kv.VersionChange{Op: kv.DowngradeEnd})
}

func (l *Level) change(ctx context.Context, c kv.VersionChange) error {
	_, err := l.pipe.Propose(ctx, &fsm.Request{Version: &c})
	return err
}

// Run has the cluster speak the level that it should, while this member leads, until ctx ends.
func (l *Level) Run(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		v := l.Versions()
		next := v.Next(kv.APIVersion)
		if next == v.Cluster || l.pipe.LeadTerm() == 0 {
			continue
		}
		if err := l.change(ctx, kv.VersionChange{Op: kv.VersionSet, Version: next}); err != nil &&
			ctx.Err() == nil {
			l.logger.Warn("failed to update the cluster version", slog.String("to", next.String()),
				slog.Any("error", err))
		}
	}
}
