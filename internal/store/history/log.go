package history

import (
	"context"
	"fmt"
	"io/fs"
	"iter"
	"sync"
	"sync/atomic"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/growing"
	"vigil/internal/store/history/metas"
	"vigil/internal/store/history/segfile"
	"vigil/internal/vfs"
)

// Log is a revision-ordered log in a directory. It puts the parts together: each has its own state,
// and uses only parts above it in this list.
type Log struct {
	o       Options
	reports segfile.Reports
	pinned  *vfs.Pinned // Options.FS
	dir     directory
	end     *ending
	cat     *catalog
	sizes   *sizes
	work    *agenda
	alloc   *allocator
	seal    *sealer
	rec     *reclaimer
	done    sync.WaitGroup // the goroutines

	w    writer       // owned by the writer goroutine
	left atomic.Int64 // of the open segment's file, less what its tables will take
	// refused is why the current batch could not be written, a kv.Shortage.
	refused atomic.Pointer[error]

	// Owned by CheckPlaces.
	placed int         // sealed segments that it has compared
	noCopy fs.FileInfo // a file at the path of a sealed segment that is not a copy of it

	// checkpointing is held through Checkpoint, before sealer.order.
	checkpointing sync.Mutex
}

// newLog returns a log without segments in the directory that was pinned.
func newLog(o Options, pinned *vfs.Pinned) *Log {
	o = o.withDefaults()
	o.FS = pinned
	l := &Log{o: o, pinned: pinned, reports: segfile.NewReports(), end: newEnding()}
	l.dir = directory{fs: pinned, path: o.Dir, noSync: o.NoSync}
	l.cat = &catalog{reports: l.reports, logger: o.Logger, metas: metas.NewIndex()}
	l.sizes = &sizes{most: o.SegmentBytes, cat: l.cat}
	l.work = newAgenda(l.end)
	l.alloc = newAllocator(l.dir, o.Logger, l.sizes, l.end, l.work)
	l.seal = newSealer(l.dir, o.Logger, l.end, l.cat, l.work)
	l.rec = &reclaimer{dir: l.dir, logger: o.Logger, sizes: l.sizes, end: l.end,
		cat: l.cat, work: l.work,
		alloc: l.alloc, seal: l.seal}
	l.setMember(format.Identity{ClusterID: o.ClusterID, MemberID: o.MemberID})
	l.w.pending.Sorted = true
	l.w.metas = metas.NewState()
	return l
}

// setMember sets the identity that segments get from now on.
func (l *Log) setMember(id format.Identity) {
	l.o.ClusterID, l.o.MemberID = id.ClusterID, id.MemberID
	l.alloc.member, l.rec.member = id, id
}

// Exists reports whether dir holds a log. The files of a Create that a crash interrupted do not
// count.
func Exists(fsys vfs.FS, dir string) (bool, error) { return segfile.Exists(fsys, dir) }

// Create makes a new log whose first batch holds the meta records at position first. It is durable
// when Create returns; after a crash before that it is there whole or not at all. It fails with
// fs.ErrExist if there is a log already.
func Create(o Options, first Applied, meta []Meta) (_ *Log, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	switch ok, err := Exists(o.FS, o.Dir); {
	case err != nil:
		return nil, err
	case ok:
		return nil, fmt.Errorf("history: %s: %w", o.Dir, fs.ErrExist)
	}
	if err := o.FS.MkdirAll(o.Dir); err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	pinned, err := vfs.Pin(o.FS, o.Dir)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	defer func() {
		if err != nil {
			pinned.Release()
		}
	}()
	if err := pinned.LockDir(); err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	// The first segment gets its name, and so the log begins to exist, with the first batch in it.
	l := newLog(o, pinned)
	seg, err := l.alloc.prepareSegment(1)
	if err != nil {
		return nil, err
	}
	l.openManifest(nil, seg, format.Chain{})
	for i := range meta {
		if err = l.AppendMeta(meta[i]); err != nil {
			break
		}
	}
	if err == nil {
		err = l.Commit(first)
	}
	if err == nil {
		err = l.alloc.nameSegment(seg)
	} else {
		l.dir.discard(seg.File, seg.Path)
	}
	if err != nil {
		return nil, err
	}
	l.start(first)
	return l, nil
}

// openManifest sets the first manifest: the segments before the open one, and the open one, at the
// end of the chain.
func (l *Log) openManifest(segs []*segment, open *growing.Segment, end format.Chain) {
	v := &View{segs: segs, open: &segment{id: open.Head.ID}, growing: open,
		tail: open.Memory, end: open.End,
		last: end.Last, applied: end.Applied}
	for _, s := range segs {
		v.lasts = append(v.lasts, s.last)
	}
	l.cat.manifest.Store(v)
	l.w.seg, l.w.last, l.w.applied = open, end.Last, end.Applied
	l.noteLeft()
}

// start starts the goroutines. They end when the log does. The open segment is durable up to its
// end, which is at the position at.
func (l *Log) start(at Applied) {
	open := l.w.seg
	l.seal.noteSynced(open, open.End, at)
	l.alloc.mu.nextID = open.Head.ID + 1
	l.alloc.mu.wanted = true
	l.done.Go(l.seal.sealInBackground)
	l.done.Go(l.alloc.allocateInBackground)
	l.done.Go(l.alloc.resizeInBackground)
	l.done.Go(l.rec.reclaimInBackground)
}

// Failed is closed when a write or a sync failed for good; Err then says why.
func (l *Log) Failed() <-chan struct{} { return l.end.failed }

// Err returns the error that ended the log, nil before that.
func (l *Log) Err() error { return l.end.failure() }

// Damage yields damage that background work found: reclaim, the marking of dead records, a
// compaction. The log goes on. Its owner counts the damage and raises the alarm.
func (l *Log) Damage() <-chan error { return l.reports.Damage() }

// ReportDamage yields err on Damage if it is damage. It is for background work, which has no caller
// to return it to.
func (l *Log) ReportDamage(err error) { l.reports.ReportDamage(err) }

// Identity returns the ids that the log was created with.
func (l *Log) Identity() (clusterID, memberID uint64) { return l.o.ClusterID, l.o.MemberID }

// Applied returns the position of the newest committed batch.
func (l *Log) Applied() Applied { return l.cat.manifest.Load().applied }

// LastRev returns the newest committed revision; zero if no record was ever written. Its sub
// revision is not known, and 0, if the record itself was reclaimed.
func (l *Log) LastRev() kv.Rev { return l.cat.manifest.Load().last }

// View returns the view of the newest committed batch. It takes no lock.
func (l *Log) View() *View { return l.cat.manifest.Load() }

// Dead marks records as no longer needed; reclaim frees their space later. Records may be marked
// twice, or be gone already. The marks are in memory only: the caller repeats them after Open.
//
// The caller guarantees that the compaction which made them dead is committed, and that a tombstone
// is marked only with or after all older records of its key.
//
// A record whose segment cannot be read is skipped: it stays, and so do all later tombstones, until
// the next Open. Dead returns the first error.
func (l *Log) Dead(recs []DeadRecord) error {
	defer l.work.queueWork()
	return l.cat.markAllDead(recs)
}

// Size returns the bytes that were written to the segments (allocated ones beyond that not
// counted), and how many of them are not known to be dead.
func (l *Log) Size() (total, live int64) { return l.cat.countBytes() }

// Appended returns how many bytes were written to the segments since the log was opened.
func (l *Log) Appended() int64 { return l.sizes.appended.Load() }

// Sync makes everything that was committed before the call durable and returns the position that is
// now durable. It may take as long as the disk does.
func (l *Log) Sync() (Applied, error) { return l.seal.syncAll() }

// Synced returns a position that is durable. It takes no I/O.
func (l *Log) Synced() Applied { return l.seal.durable() }

// Meta returns the live meta records of a bucket, sorted by key, including the records of the
// current batch. The slices must not be modified and stay valid. Writer only; the log must not be
// written during the iteration.
func (l *Log) Meta(bucket byte) iter.Seq2[[]byte, []byte] { return l.w.metas.Bucket(bucket) }

// AllMeta returns the live meta records of all buckets, including the records of the current batch,
// in no order. The values must not be modified and stay valid. Writer only.
func (l *Log) AllMeta() []Meta { return l.w.metas.All() }

// CommittedMeta is AllMeta without the changes of the current batch.
func (l *Log) CommittedMeta() []Meta { return l.w.metas.Committed() }

// Reclaim requests that all segments with dead records are rewritten now, even where it is not
// worth it, and returns.
func (l *Log) Reclaim() { l.work.requestAll() }

// WaitReclaimed returns when reclaim has nothing to do. Its errors are ctx's, the error of a
// rewrite that failed, the error that ended the log, and ErrClosed.
func (l *Log) WaitReclaimed(ctx context.Context) error { return l.work.awaitIdle(ctx) }

// ReclaimStats returns the present counts.
func (l *Log) ReclaimStats() ReclaimStats { return l.work.countRewrites() }
