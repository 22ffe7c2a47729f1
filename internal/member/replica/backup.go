package replica

import (
	"context"
	"fmt"
	"io"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/replica/damage"
	"vigil/internal/member/replica/handle"
	"vigil/internal/offline/snapshot"
	"vigil/internal/state/fsm"
	"vigil/internal/store/mvcc"
)

const (
	// maxBackups bounds the backups that are under way at once. Each keeps files that reclaim has
	// replaced.
	maxBackups = 8
	// settleInterval is how often a backup looks whether a segment that it has in memory is in a
	// file by now.
	settleInterval = time.Second
)

// Backup is the whole state of the member at one position, as a file of etcd that is not on disk:
// it is made while it is written. It must be closed, and is for one goroutine.
type Backup struct {
	damage *damage.Places
	export *mvcc.Export
	plan   *snapshot.Plan
	free   func()
	closed chan struct{}
}

// Backup cuts the state. storage and cluster are the versions of etcd that the file is to name. It
// takes the time to read all records, concurrently with everything else, and neither space on disk
// nor memory that grows with the state; the pace after that is the reader's alone. A member that is
// not a voter, has no leader or is not trusted answers too.
//
// Errors: ctx's, kv.ErrStopped, kv.ErrTooManyRequests while there are too many, or one of the disk.
func (r *Replica) Backup(ctx context.Context, storage, cluster string) (*Backup, error) {
	ctx, done, err := r.beginErrand(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	select {
	case r.backups <- struct{}{}:
	default:
		return nil, fmt.Errorf("%w: %d snapshots are being taken from this member",
			kv.ErrTooManyRequests, maxBackups)
	}
	b := &Backup{damage: r.damage, free: func() { <-r.backups }, closed: make(chan struct{})}
	layout := snapshot.NewLayout()
	b.export, err = handle.Read(ctx, r.current, func(h *handle.Handle) (*mvcc.Export, error) {
		layout = snapshot.NewLayout()
		return h.Store.Export(ctx, layout.Add)
	})
	if err == nil {
		err = b.finishLayout(ctx, layout, storage, cluster)
	}
	if err != nil {
		b.Close()
		if context.Cause(ctx) == kv.ErrStopped {
			err = kv.ErrStopped
		}
		return nil, err
	}
	go b.releaseMemory()
	return b, nil
}

// releaseMemory replaces segments in memory by files, so that a backup that is not read keeps no
// segment in memory.
func (b *Backup) releaseMemory() {
	tick := time.NewTicker(settleInterval)
	defer tick.Stop()
	for b.export.ReleaseMemory() {
		select {
		case <-tick.C:
		case <-b.closed:
			return
		}
	}
}

// finishLayout adds everything to a layout that is not a record.
func (b *Backup) finishLayout(ctx context.Context, l *snapshot.Layout, storage,
	cluster string) error {
	c, err := fsm.ReadContents(b.export.Meta)
	if err != nil {
		return err
	}
	// Alarms are left out: they name members of this cluster. A cluster that is restored has other
	// members, and would reject writes for a cause that is gone.
	b.plan, err = l.Finish(ctx, &snapshot.Contents{
		Index: b.export.Applied.Index, Term: b.export.Applied.Term, Compact: b.export.Compact,
		StorageVersion: storage, ClusterVersion: cluster,
		Conf: c.Conf, Members: c.Members, Leases: c.Leases, Auth: c.Auth,
	})
	b.export.Meta = nil
	return err
}

// Size is how many bytes the file has.
func (b *Backup) Size() int64 { return b.plan.Size() }

// Revision is the newest revision in it.
func (b *Backup) Revision() int64 { return b.export.Revision }

// Write writes the file, once. It ends at the first error of out, or of the disk.
func (b *Backup) Write(out io.Writer) error {
	err := snapshot.Write(out, b.plan, b.export)
	if failed := b.export.Err(); failed != nil {
		return b.damage.Translate(failed)
	}
	return err
}

// Close releases the files and the memory of the backup.
func (b *Backup) Close() {
	close(b.closed)
	if b.export != nil {
		b.export.Close()
	}
	b.free()
}
