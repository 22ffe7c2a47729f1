package wal

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/vfs"
)

const (
	defaultSegmentBytes = 64 << 20
	defaultCacheBytes   = 16 << 20
	minSegmentBytes     = 2 * headerSize
	maxSegmentBytes     = 1 << 30
	// smallSegment is the default of Options.SmallSegmentBytes.
	smallSegment = 2 << 20
	// segmentTime is how long a segment should last at the present rate.
	segmentTime = 8 * time.Second

	// MaxEntryBytes is the most data an entry may have.
	MaxEntryBytes = 1 << 30
	// MaxGroupBytes is the most that one call of Append may write.
	MaxGroupBytes = 2 << 30
)

// Options are the place of the log and its settings. FS, Dir and Identity are required; the zero
// value of the others is their default.
type Options struct {
	FS vfs.FS
	// Dir holds the segments. Nothing else uses it, and one process at a time.
	Dir string
	// ID is the owner of the log. Open refuses a log of another owner.
	ID Identity
	// SegmentBytes is the largest size of a segment, 64 MiB by default, rounded up to whole pages
	// of 4 KiB. Segments are smaller, down to SmallSegmentBytes, while little is written. A group
	// that does not fit gets a larger segment.
	SegmentBytes int64
	// SmallSegmentBytes is the size of a segment while little is written, 2 MiB by default, unless
	// SegmentBytes is less. A full disk has no space for a larger one, so the largest entry should
	// fit.
	SmallSegmentBytes int64
	// CacheBytes limits the newest entries that are kept in memory, 16 MiB by default.
	CacheBytes int64
	// Logger receives the events at open and in the background; default none.
	Logger *slog.Logger
	// Applied is the position that the store has durably applied; the zero value means
	// none. Open refuses a log that does not hold it or begin right after it.
	Applied Start
	// NoSync leaves out every sync: a crash of the machine may lose or destroy the log.
	NoSync bool
}

// Identity is the owner of a log.
type Identity struct {
	ClusterID uint64
	MemberID  uint64
}

// Start is the position before the first entry of a log, which has Index+1.
type Start struct {
	Index uint64
	Term  uint64
}

// Batch is the content of one MsgStorageAppend. The parts take effect in the order of the fields.
type Batch struct {
	// Snapshot, if set, drops every entry and lets the log begin after it. It forces Sync.
	Snapshot *Start
	// HardState, if set and not empty, replaces the hard state. It is not kept.
	HardState *raftpb.HardState
	// Entries follow each other without a gap, and the first follows an entry of the log; entries
	// from its index on are dropped. The log keeps the entries themselves: they must not be
	// changed.
	Entries []*raftpb.Entry
	// Sync requests that all this, and everything appended before, is durable when Append returns.
	Sync bool
}

// leastSegment is the size of the first segment, and of all segments while little is written.
func (o *Options) leastSegment() int64 {
	return min(o.SegmentBytes, (o.SmallSegmentBytes+writeAlign-1)&^(writeAlign-1))
}

func (o Options) withDefaults() (Options, error) {
	if o.SegmentBytes == 0 {
		o.SegmentBytes = defaultSegmentBytes
	}
	o.SegmentBytes = (o.SegmentBytes + writeAlign - 1) &^ (writeAlign - 1)
	if o.SmallSegmentBytes == 0 {
		o.SmallSegmentBytes = smallSegment
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = defaultCacheBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, o.Validate()
}

// Validate names every field that is wrong.
func (o Options) Validate() error {
	var errs []error
	if o.FS == nil {
		errs = append(errs, errors.New("wal: FS is not set"))
	}
	if o.Dir == "" {
		errs = append(errs, errors.New("wal: Dir is not set"))
	}
	if o.SegmentBytes != 0 &&
		(o.SegmentBytes < minSegmentBytes || o.SegmentBytes > maxSegmentBytes) {
		errs = append(errs, fmt.Errorf("wal: SegmentBytes is %d, it must be between %d and %d",
			o.SegmentBytes, minSegmentBytes, int64(maxSegmentBytes)))
	}
	if n := o.SmallSegmentBytes; n != 0 && (n < minSegmentBytes || n > maxSegmentBytes) {
		errs = append(errs, fmt.Errorf("wal: SmallSegmentBytes is %d, it must be between %d and %d",
			n, minSegmentBytes, int64(maxSegmentBytes)))
	}
	if o.CacheBytes < 0 {
		errs = append(errs, fmt.Errorf("wal: CacheBytes is %d", o.CacheBytes))
	}
	return errors.Join(errs...)
}

var (
	// ErrIdentity marks a log that belongs to another cluster or member.
	ErrIdentity = errors.New("wal: the log belongs to another member")
	// ErrVersion marks a log in an unknown version of the format.
	ErrVersion = errors.New("wal: unknown format version")
	// ErrClosed is returned by a log after Close.
	ErrClosed = errors.New("wal: closed")
	// ErrInvalid marks an Append that contradicts the log. Nothing was written.
	ErrInvalid = errors.New("wal: invalid append")
)

// CorruptError names the first bad byte and its file. It is kv.ErrCorrupt.
type CorruptError struct {
	File   string
	Offset int64
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("wal: %s is corrupt at offset %d: %s", e.File, e.Offset, e.Reason)
}

// Unwrap makes errors.Is(err, kv.ErrCorrupt) true.
func (e *CorruptError) Unwrap() error { return kv.ErrCorrupt }
