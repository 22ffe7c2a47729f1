package history

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
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

// Applied is a position of the raft log.
type Applied struct{ Term, Index uint64 }

var (
	// ErrNotFound: there is no record at that revision.
	ErrNotFound = errors.New("history: no record at that revision")
	// ErrClosed: the log is closed.
	ErrClosed = errors.New("history: closed")
	// ErrIdentity: the directory belongs to another cluster or member.
	ErrIdentity = errors.New("history: the data belongs to another member")
	// ErrVersion: a file is in a version of the format that this program does not read.
	ErrVersion = errors.New("history: unknown format version")
)

// Log is a revision-ordered log in a directory.
type Log struct {
	o      Options
	view   atomic.Pointer[View] // what readers see; stored by the writer
	roomy  atomic.Bool          // Room has nothing to say
	left   atomic.Int64         // of the open segment's file, less what its tables will take
	ahead  atomic.Int64         // the size of the next segment, 0 while there is none
	failed chan struct{}        // closed with mu.err set
	done   sync.WaitGroup       // the sealer and the allocator

	w writer // owned by the writer goroutine

	// syncMu is held by whoever syncs or seals, so that segments become durable in order. It comes
	// before mu.
	syncMu sync.Mutex
	// checkpointing is held through Checkpoint, before syncMu.
	checkpointing sync.Mutex

	mu struct {
		sync.Mutex
		changed sync.Cond // some field below
		closed  bool
		retired bool         // closed, but for the files
		err     error        // what ended the life of the log
		sealing *openSegment // full, no longer written to, not yet sealed
		// sealErr is why the last of sealTries tries to seal it failed.
		sealErr   error
		sealTries int
		next      *openSegment // allocated, not yet in use
		nextID    uint64       // of the segment to allocate after next
		reserve   vfs.File     // allocated, see reserve.go
		// reserveSize is its size; fitting is set while next and reserve must stay, see fit.go and
		// takeReserve.
		reserveSize int64
		fitting     bool
		// allocate asks for next and reserve, waited says that the writer cannot go on without
		// next; allocErr is why the last attempt, at triedAt, failed.
		allocate bool
		waited   bool
		allocErr error
		triedAt  time.Time
		synced   Applied
		// segs are the segments in front of the open one as they are now; replaced, never changed.
		// The writer and the Views may still know those that were merged.
		segs []*segment
	}

	// dead guards the deadSets of all segments. It comes before mu, and is never held over I/O but
	// that of reading a table.
	dead   sync.Mutex
	metaAt metaIndex
	rec    reclaim
	// appended counts the bytes of batches, rate those of a second of late.
	appended, rate atomic.Int64
}

func newLog(o Options) *Log {
	l := &Log{o: o.withDefaults(), failed: make(chan struct{})}
	l.mu.changed.L = &l.mu.Mutex
	l.metaAt = metaIndex{newest: map[string]metaPlace{}, dead: map[uint64]int64{}}
	l.rec.init()
	l.w.pend.sorted = true
	l.w.metas = metaState{}
	return l
}

// Exists says whether dir holds a log. What a Create left behind that a crash cut short does not
// count.
func Exists(fsys vfs.FS, dir string) (bool, error) {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("history: %w", err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, logSuffix) || strings.HasSuffix(name, sealedSuffix) {
			return true, nil
		}
	}
	return false, nil
}

// Create makes a new log whose first batch holds the meta records at position first. It is durable
// when Create returns; after a crash before that it is there whole or not at all. It fails with
// fs.ErrExist if there is a log already.
func Create(o Options, first Applied, meta []Meta) (*Log, error) {
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
	l := newLog(o)
	// The first segment gets its name, and so the log begins to exist, with the first batch in it.
	seg, err := l.prepare(1)
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
		err = l.finish(seg)
	} else {
		l.abandon(seg)
	}
	if err != nil {
		return nil, err
	}
	l.noteSynced(seg, seg.end, first)
	l.mu.nextID = 2
	l.start()
	return l, nil
}

// Identity returns the ids that the log was created with.
func (l *Log) Identity() (clusterID, memberID uint64) { return l.o.ClusterID, l.o.MemberID }

// Applied returns the position of the newest committed batch.
func (l *Log) Applied() Applied { return l.view.Load().applied }

// LastRev returns the newest committed revision; zero if no record was ever written. Its sub
// revision is not known, and 0, if the record itself was reclaimed.
func (l *Log) LastRev() kv.Rev { return l.view.Load().last }

// Meta returns the live meta records of a bucket, those of the current batch included, sorted by
// key. The slices must not be modified and stay valid. Writer only; the log must not be written
// during the iteration.
func (l *Log) Meta(bucket byte) iter.Seq2[[]byte, []byte] { return l.w.metas.all(bucket) }

// View returns the view of the newest committed batch. It takes no lock.
func (l *Log) View() *View { return l.view.Load() }

// Failed is closed when a write or a sync failed for good; Err then says why.
func (l *Log) Failed() <-chan struct{} { return l.failed }

// Err returns the error that ended the life of the log, nil while it lives.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.err
}

// alive returns the error of an operation that needs the log to be writable.
func (l *Log) alive() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.aliveLocked()
}

func (l *Log) aliveLocked() error {
	if l.mu.err == nil && l.mu.closed {
		return ErrClosed
	}
	return l.mu.err
}

// fail ends the life of the log, if err is the first to do so, and returns what did.
func (l *Log) fail(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failLocked(err)
}

func (l *Log) failLocked(err error) error {
	if l.mu.err == nil {
		l.mu.err = err
		close(l.failed)
		l.noteRoomLocked()
	}
	l.mu.changed.Broadcast()
	return l.mu.err
}

// newSalt returns a number that nobody can guess.
func newSalt() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // documented never to fail
	return le.Uint64(b[:])
}

func (l *Log) path(name string) string { return filepath.Join(l.o.Dir, name) }
