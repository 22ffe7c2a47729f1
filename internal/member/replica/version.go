package replica

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
)

// versionInterval is how often the leader looks whether the cluster should speak another level of the
// API. Clients that begin a downgrade see it take effect within that time, as with etcd.
const versionInterval = 5 * time.Second

// APILevel serves and changes the level of the API that the cluster speaks.
type APILevel struct {
	r *Replica
	// active are the levels as of the applied position. Stored by the apply goroutine.
	active atomic.Pointer[kv.Versions]
}

// Versions is which level of the API the cluster speaks, as far as this member knows.
func (a *APILevel) Versions() kv.Versions { return *a.active.Load() }

// follow takes over the levels of a commit, and logs what has changed. The apply goroutine calls it.
func (a *APILevel) follow(next kv.Versions) {
	last := a.active.Load()
	if last != nil && *last == next {
		return
	}
	kept := next // so that only this allocates
	if a.active.Store(&kept); last == nil {
		return
	}
	log := a.r.cfg.Logger
	if next.Cluster != last.Cluster {
		log.Info("updated cluster version", slog.String("from", last.Cluster.String()), slog.String("to", next.Cluster.String()))
		if next.Cluster == next.Target {
			log.Info("The server is ready to downgrade", slog.String("target-version", next.Target.Full()), slog.String("server-version", kv.APIVersion.String()))
		}
	}
	switch none := (kv.Version{}); {
	case next.Target != none && last.Target != next.Target:
		log.Info("a downgrade is enabled", slog.String("target-version", next.Target.Full()))
	case next.Target == none && last.Target != none:
		log.Info("the downgrade is canceled", slog.String("target-version", last.Target.Full()))
	}
}

// ValidateDowngrade says why a downgrade to a level cannot begin: an error of kv.Versions.CheckDowngrade,
// or as Range.
func (a *APILevel) ValidateDowngrade(ctx context.Context, to kv.Version) error {
	if _, err := a.r.readable(ctx, false); err != nil {
		return err
	}
	return a.Versions().CheckDowngrade(to)
}

// EnableDowngrade begins a downgrade. Errors: those of ValidateDowngrade, and as Put.
func (a *APILevel) EnableDowngrade(ctx context.Context, to kv.Version) error {
	if err := a.ValidateDowngrade(ctx, to); err != nil {
		return err
	}
	return a.change(ctx, kv.VersionChange{Op: kv.DowngradeBegin, Version: to})
}

// CancelDowngrade ends a downgrade, wherever it is. Errors: kv.ErrNoDowngrade, and as Put.
func (a *APILevel) CancelDowngrade(ctx context.Context) error {
	if _, err := a.r.readable(ctx, false); err != nil {
		return err
	}
	if a.Versions().Target == (kv.Version{}) {
		return kv.ErrNoDowngrade
	}
	return a.change(ctx, kv.VersionChange{Op: kv.DowngradeEnd})
}

func (a *APILevel) change(ctx context.Context, c kv.VersionChange) error {
	_, err := a.r.Propose(ctx, &fsm.Request{Version: &c})
	return err
}

// lead has the cluster speak the level that it should, while this member leads.
func (a *APILevel) lead(ctx context.Context) {
	tick := time.NewTicker(versionInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		v := a.Versions()
		next := v.Next(kv.APIVersion)
		if next == v.Cluster || a.r.node.LeadTerm() == 0 {
			continue
		}
		if err := a.change(ctx, kv.VersionChange{Op: kv.VersionSet, Version: next}); err != nil && ctx.Err() == nil {
			a.r.cfg.Logger.Warn("failed to update the cluster version", slog.String("to", next.String()), slog.Any("error", err))
		}
	}
}
