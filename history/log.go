package history

import (
	"errors"
	"iter"
	"log/slog"

	"vigil/internal/vfs"
	"vigil/kv"
)

// Options say where a Log is and how it is kept.
type Options struct {
	// FS is the file system; required.
	FS vfs.FS
	// Dir is the directory of the log. Nothing else may live in it.
	Dir string
	// SegmentBytes is the size at which a segment is sealed; default 64 MiB, least 4 KiB, most
	// 1 GiB. A batch larger than that gets a larger segment of its own.
	SegmentBytes int64
	// ClusterID and MemberID are written into every segment. Open refuses a directory that carries
	// others with ErrIdentity; if both are 0 it takes what is there.
	ClusterID, MemberID uint64
	// Logger takes the few things worth a line (a torn tail cut, a segment sealed); default none.
	Logger *slog.Logger
	// NoSync leaves every sync out. A crash of the machine may then lose or corrupt anything.
	NoSync bool
}

// Applied is a position of the raft log.
type Applied struct{ Term, Index uint64 }

// Meta is a record beside the key space: a value, or its deletion, under a bucket and a key.
type Meta struct {
	Bucket     byte
	Key, Value []byte
	Deleted    bool
}

var (
	// ErrNotFound: there is no record at that revision.
	ErrNotFound = errors.New("history: no record at that revision")
	// ErrClosed: the log is closed.
	ErrClosed = errors.New("history: closed")
	// ErrIdentity: the directory belongs to another cluster or member.
	ErrIdentity = errors.New("history: the data belongs to another member")
	// ErrVersion: the directory was written in a format that this program does not know.
	ErrVersion = errors.New("history: unknown format version")
)

// Log is a revision-ordered log in a directory.
type Log struct{}

// Exists says whether dir holds a log. What a Create left behind that a crash cut short does not
// count.
func Exists(fs vfs.FS, dir string) (bool, error) { return false, nil }

// Create makes a new log whose first batch holds the meta records at position first. It is durable
// when Create returns; after a crash before that it is there whole or not at all. It fails with
// fs.ErrExist if there is a log already.
func Create(o Options, first Applied, meta []Meta) (*Log, error) { return nil, nil }

// Open opens an existing log and recovers from a crash: what the crash left of a batch at the end is
// cut. Anything else that is not as it was written is an error that wraps kv.ErrCorrupt. It fails
// with fs.ErrNotExist if there is no log.
func Open(o Options) (*Log, error) { return nil, nil }

// Identity returns the ids that the log was created with.
func (l *Log) Identity() (clusterID, memberID uint64) { return }

// Applied returns the position of the newest committed batch.
func (l *Log) Applied() Applied { return Applied{} }

// LastRev returns the newest committed revision; zero if no record was ever written.
func (l *Log) LastRev() kv.Rev { return kv.Rev{} }

// Meta returns the live meta records of a bucket, those of the current batch included, sorted by
// key. The slices must not be modified and stay valid. Writer only; the log must not be written
// during the iteration.
func (l *Log) Meta(bucket byte) iter.Seq2[[]byte, []byte] { return nil }

// AppendKV adds a record to the current batch: encoded is a mvccpb.KeyValue, or for a tombstone one
// with only key and mod revision. rev must be above that of every record before. The log copies
// encoded; ref is that copy, immutable and valid as long as it is referenced.
func (l *Log) AppendKV(rev kv.Rev, tombstone bool, encoded []byte) (ref []byte, err error) {
	return nil, nil
}

// AppendMeta adds a meta record to the current batch. The log copies it.
func (l *Log) AppendMeta(m Meta) error { return nil }

// Commit ends the current batch, which may be empty: it is written to the file in one write as the
// outcome of the raft log up to a, and then visible to readers. It does not sync. a must not be
// below the position before.
//
// It may wait for the background to seal the segment before last and to allocate the next one. An
// error that wraps kv.ErrNoSpace means that no segment could be allocated: nothing was written, the
// batch is still there and Commit may be called again. Every other error is final.
func (l *Log) Commit(a Applied) error { return nil }

// WriterView returns a view that also shows the records of the current batch. It is the writer's
// and valid until the next AppendKV, Commit or WriterView.
func (l *Log) WriterView() *View { return nil }

// View returns the view of the newest committed batch. It takes no lock.
func (l *Log) View() *View { return nil }

// Sync makes everything that was committed before the call durable and returns the position that is
// now durable. It may take as long as the disk does.
func (l *Log) Sync() (Applied, error) { return Applied{}, nil }

// Synced returns a position that is durable. It takes no I/O.
func (l *Log) Synced() Applied { return Applied{} }

// Room returns nil while there is room for writes to come: the segment behind the open one is
// allocated, or the allocation is under way. Otherwise the error wraps kv.ErrNoSpace, or is that of
// the allocation. Ask before taking on new writes; what is already taken on fits into the open
// segment as long as that has place. Asking makes the log try again from time to time.
func (l *Log) Room() error { return nil }

// Failed is closed when a write or a sync failed for good; Err then says why.
func (l *Log) Failed() <-chan struct{} { return nil }

// Err returns the error that ended the life of the log, nil while it lives.
func (l *Log) Err() error { return nil }

// Size returns the bytes that were written to the segments (allocated ones beyond that not counted),
// and how many of them are not known to be dead.
func (l *Log) Size() (total, live int64) { return }

// Dead notes that the record at rev, n encoded bytes long, is not needed any more. It is counted in
// memory only: who calls it counts again after Open. It costs a binary search over the segments.
func (l *Log) Dead(rev kv.Rev, n int) {}

// Close stops the background, syncs what was committed and closes the files. It returns the error
// that ended the life of the log, if one did.
func (l *Log) Close() error { return nil }
