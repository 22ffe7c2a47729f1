package replica

import (
	"context"
	"log/slog"
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
)

// versionInterval is how often the leader looks whether the cluster should speak another level of the
// API. Clients that begin a downgrade see it take effect within that time, as with etcd.
const versionInterval = 5 * time.Second

// Versions is which level of the API the cluster speaks, as far as this member knows.
func (r *Replica) Versions() kv.Versions { return *r.versions.Load() }

// storeVersions makes the levels known, and says in the log what has changed.
func (r *Replica) storeVersions(next kv.Versions) {
	last := r.versions.Swap(&next)
	if last == nil || *last == next {
		return
	}
	log := r.cfg.Logger
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
func (r *Replica) ValidateDowngrade(ctx context.Context, to kv.Version) error {
	if _, err := r.readable(ctx, false); err != nil {
		return err
	}
	if r.members.Load().Level() < fsm.LevelVersions {
		return kv.ErrVersionUnknown
	}
	return r.Versions().CheckDowngrade(to)
}

// EnableDowngrade begins a downgrade. Errors: those of ValidateDowngrade, and as Put.
func (r *Replica) EnableDowngrade(ctx context.Context, to kv.Version) error {
	if err := r.ValidateDowngrade(ctx, to); err != nil {
		return err
	}
	return r.changeVersion(ctx, kv.VersionChange{Op: kv.DowngradeBegin, Version: to})
}

// CancelDowngrade ends a downgrade, wherever it is. Errors: kv.ErrNoDowngrade, and as Put.
func (r *Replica) CancelDowngrade(ctx context.Context) error {
	if _, err := r.readable(ctx, false); err != nil {
		return err
	}
	if r.Versions().Target == (kv.Version{}) {
		return kv.ErrNoDowngrade
	}
	return r.changeVersion(ctx, kv.VersionChange{Op: kv.DowngradeEnd})
}

func (r *Replica) changeVersion(ctx context.Context, c kv.VersionChange) error {
	_, err := r.Propose(ctx, &fsm.Request{Version: &c})
	return err
}

// followVersion has the cluster speak the level that it should, while this member leads.
func (r *Replica) followVersion(ctx context.Context) {
	tick := time.NewTicker(versionInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		v := r.Versions()
		next := v.Next(kv.APIVersion)
		if next == v.Cluster || r.node.LeadTerm() == 0 || r.members.Load().Level() < fsm.LevelVersions {
			continue
		}
		if err := r.changeVersion(ctx, kv.VersionChange{Op: kv.VersionSet, Version: next}); err != nil && ctx.Err() == nil {
			r.cfg.Logger.Warn("failed to update the cluster version", slog.String("to", next.String()), slog.Any("error", err))
		}
	}
}
