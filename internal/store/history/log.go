package history

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/metas"
	"vigil/internal/store/history/segfile"
	"vigil/internal/vfs"
)

const (
	defaultSegmentBytes = 64 << 20
	minSegmentBytes     = 4 << 10
	maxSegmentBytes     = 1 << 30
)

// Options say where a Log is and how it is kept.
type Options struct {
	// FS is the file system; required.
	FS vfs.FS
	// Dir is the directory of the log. Nothing else may live in it.
	Dir string
	// SegmentBytes is the most that a segment grows to before it is sealed; default 64 MiB, least
	// 4 KiB, most 1 GiB. Segments are smaller, down to 4 MiB, while the log is small and filled
	// slowly. A batch larger than that gets a larger segment of its own.
	SegmentBytes int64
	// ClusterID and MemberID are written into every segment. Open refuses a directory that carries
	// others with ErrIdentity; if both are 0 it takes what is there.
	ClusterID, MemberID uint64
	// Logger takes the few things worth a line (a torn tail cut, a segment sealed); default none.
	Logger *slog.Logger
	// NoSync leaves every sync out. A crash of the machine may then lose or corrupt anything.
	NoSync bool
}

func (o Options) withDefaults() Options {
	if o.SegmentBytes == 0 {
		o.SegmentBytes = defaultSegmentBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Validate names every field that is wrong.
func (o *Options) Validate() error {
	var errs []error
	if o.FS == nil {
		errs = append(errs, errors.New("history: Options.FS is not set"))
	}
	if o.Dir == "" {
		errs = append(errs, errors.New("history: Options.Dir is not set"))
	}
	if n := o.SegmentBytes; n != 0 && (n < minSegmentBytes || n > maxSegmentBytes) {
		errs = append(errs, fmt.Errorf("history: Options.SegmentBytes is %d, not between %d and %d", n, minSegmentBytes, maxSegmentBytes))
	}
	return errors.Join(errs...)
}

// The vocabulary of the files is that of package format.
type (
	Applied      = format.Applied
	Meta         = format.Meta
	CorruptError = format.CorruptError
)

// ErrVersion means that a file is in a version of the format that this program does not read.
var ErrVersion = format.ErrVersion

var (
	// ErrNotFound: there is no record at that revision.
	ErrNotFound = errors.New("history: no record at that revision")
	// ErrClosed: the log is closed.
	ErrClosed = segfile.ErrClosed
	// ErrIdentity: the directory belongs to another cluster or member.
	ErrIdentity = format.ErrIdentity
)

// Log is a revision-ordered log in a directory.
type Log struct {
	*core
	dir   *vfs.Pinned // Options.FS
	cat   *catalog
	alloc *allocator
	seal  *sealer
	rec   *reclaimer
	done  sync.WaitGroup // the goroutines

	w    writer       // owned by the writer goroutine
	left atomic.Int64 // of the open segment's file, less what its tables will take
	// refused is why the current batch could not be written, a kv.Shortage.
	refused atomic.Pointer[error]

	// Owned by CheckPlaces.
	placed int         // sealed segments that it has compared
	noCopy fs.FileInfo // a file in the place of a sealed segment that is no copy of it

	// checkpointing is held through Checkpoint, before syncMu.
	checkpointing sync.Mutex
}

func newLog(o Options) *Log {
	c, rec := newCore(o), newReclaimState()
	cat := &catalog{core: c, rec: rec, metas: metas.NewIndex()}
	l := &Log{
		core:  c,
		cat:   cat,
		alloc: &allocator{core: c, cat: cat, rec: rec},
		seal:  &sealer{core: c, cat: cat, rec: rec},
	}
	l.rec = &reclaimer{core: c, reclaimState: rec, cat: cat, alloc: l.alloc, seal: l.seal}
	l.w.pend.Sorted = true
	l.w.metas = metas.NewState()
	return l
}

// Exists reports whether dir holds a log. The files of a Create that a crash interrupted do not count.
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
	o.FS = pinned
	l := newLog(o)
	l.dir = pinned
	defer func() {
		if err != nil {
			pinned.Release()
		}
	}()
	if err := pinned.LockDir(); err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	// The first segment gets its name, and so the log begins to exist, with the first batch in it.
	seg, err := l.alloc.prepare(1)
	if err != nil {
		return nil, err
	}
	l.w.seg = seg
	for i := range meta {
		if err = l.AppendMeta(meta[i]); err != nil {
			break
		}
	}
	if err == nil {
		err = l.Commit(first)
	}
	if err == nil {
		err = l.alloc.finish(seg)
	} else {
		l.abandon(seg.File, seg.Path)
	}
	if err != nil {
		return nil, err
	}
	l.seal.noteSynced(seg, seg.End, first)
	l.alloc.nextID = 2
	l.start()
	return l, nil
}

// Identity returns the ids that the log was created with.
func (l *Log) Identity() (clusterID, memberID uint64) { return l.o.ClusterID, l.o.MemberID }

// Applied returns the position of the newest committed batch.
func (l *Log) Applied() Applied { return l.cat.view.Load().applied }

// LastRev returns the newest committed revision; zero if no record was ever written. Its sub
// revision is not known, and 0, if the record itself was reclaimed.
func (l *Log) LastRev() kv.Rev { return l.cat.view.Load().last }

// View returns the view of the newest committed batch. It takes no lock.
func (l *Log) View() *View { return l.cat.view.Load() }

// Dead marks records as no longer needed; reclaim frees their space later. Records may be marked twice, or be gone
// already. The marks are in memory only: the caller repeats them after Open.
//
// The caller guarantees that the compaction which made them dead is committed, and that a tombstone is marked only with
// or after all older records of its key.
//
// A record whose segment cannot be read is skipped: it stays, and so do all later tombstones, until the next Open. Dead
// returns the first error.
func (l *Log) Dead(recs []DeadRecord) error { return l.cat.noteDead(recs) }

// Size returns the bytes that were written to the segments (allocated ones beyond that not counted),
// and how many of them are not known to be dead.
func (l *Log) Size() (total, live int64) { return l.cat.size() }

// Appended returns how many bytes were written to the segments since the log was opened.
func (l *Log) Appended() int64 { return l.cat.appended.Load() }

// Sync makes everything that was committed before the call durable and returns the position that is
// now durable. It may take as long as the disk does.
func (l *Log) Sync() (Applied, error) { return l.seal.sync() }

// Synced returns a position that is durable. It takes no I/O.
func (l *Log) Synced() Applied { return l.seal.position() }

// Meta returns the live meta records of a bucket, those of the current batch included, sorted by
// key. The slices must not be modified and stay valid. Writer only; the log must not be written
// during the iteration.
func (l *Log) Meta(bucket byte) iter.Seq2[[]byte, []byte] { return l.w.metas.Bucket(bucket) }

// AllMeta returns the live meta records of all buckets, those of the current batch included, in no
// order. The values must not be modified and stay valid. Writer only.
func (l *Log) AllMeta() []Meta { return l.w.metas.All() }

// CommittedMeta is AllMeta without what the current batch does.
func (l *Log) CommittedMeta() []Meta { return l.w.metas.Committed() }
