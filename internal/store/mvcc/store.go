package mvcc

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"
	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc/index"
	"vigil/internal/store/mvcc/keytree"
	"vigil/internal/store/mvcc/meter"
	"vigil/internal/store/mvcc/pagecount"
	"vigil/internal/store/ration"
)

// MetaBucket is the bucket of history's meta records that belongs to this package.
const MetaBucket byte = 'm'

// compactKey is the key, in MetaBucket, of the compact revision.
const compactKey = "compact"

// Limits bound what one write request may do.
type Limits = meter.Limits

// The default limits.
const (
	MaxRecordBytes = meter.MaxRecordBytes
	MaxChangeBytes = meter.MaxChangeBytes
	MaxResultBytes = meter.MaxResultBytes
	MaxVisitedKeys = meter.MaxVisitedKeys
)

// Options configures a Store. The zero value is the default.
type Options struct {
	// Logger receives messages for operators; default none.
	Logger *slog.Logger
	// TrimKeys is the number of keys that the background visits at a time while it drops compacted
	// changes from the index; the writer may have to wait for that long. Default 512.
	TrimKeys int
	// Pins is the number of older states that the store keeps to count the keys of the pages of a
	// list; default 32, none if negative.
	Pins int
	// Parallel is the number of goroutines that Open uses; default GOMAXPROCS.
	Parallel int
	// Ranges lends the memory of results. If it is set, Range and ReadTxn may return long lists
	// (kv.LongRecords), whose pieces the caller must give back, and may have to wait for memory.
	// Default none: all results lie in one buffer.
	Ranges *ration.Budget
	// Limits bound write requests. They must be equal on all members.
	Limits Limits
}

// Validate says everything that is wrong with the options.
func (o Options) Validate() error {
	var errs []error
	if o.TrimKeys < 0 {
		errs = append(errs, fmt.Errorf("mvcc: TrimKeys %d is negative", o.TrimKeys))
	}
	if o.Parallel < 0 {
		errs = append(errs, fmt.Errorf("mvcc: Parallel %d is negative", o.Parallel))
	}
	if err := o.Limits.Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// FatalError is an error of the store itself and not of a request: memory and disk may no longer
// agree. The member must stop.
type FatalError struct {
	// Op names the operation that failed.
	Op  string
	Err error
}

func (e *FatalError) Error() string { return "mvcc: " + e.Op + ": " + e.Err.Error() }

func (e *FatalError) Unwrap() error { return e.Err }

// Store is the key space with its history. See the package comment.
type Store struct {
	log    *history.Log
	opts   Options
	writer *Writer

	// snap is the state that readers see. Only the holder of lock stores it.
	snap  atomic.Pointer[snapshot]
	trees pagecount.Trees
	rests pagecount.Rests

	// lock holds one token while the writer has a batch open that does not wait for room, or while
	// the trimmer works on the index.
	lock chan struct{}
	// Cut holds cuts while it reads what belongs to the writer of the log; Close waits for it.
	cuts   sync.RWMutex
	trim   trimmer
	hashes hashes
	counts counts
}

// snapshot is the state at a commit. It is immutable.
type snapshot struct {
	tree keytree.Snapshot
	hist *history.View
	// rev is the newest revision, and live the newest one that made or deleted a key: the tree's
	// counts hold for the revisions from live to rev.
	rev, live int64
	compact   int64
	times     times
	// changes counts the keys made and deleted since Open.
	changes int64
}

// Open builds the index over the records of log and starts the background. The log must stay open
// until Close has returned.
func Open(log *history.Log, o Options) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.TrimKeys == 0 {
		o.TrimKeys = 512
	}
	if o.Pins == 0 {
		o.Pins = 32
	}
	s := &Store{log: log, opts: o, lock: make(chan struct{}, 1)}
	compact, known := int64(-1), times{}
	for k, v := range log.Meta(MetaBucket) {
		err := known.load(history.Meta{Key: k, Value: v})
		if string(k) == compactKey {
			compact, known.compact, err = decodeCompact(v)
		}
		if err != nil {
			return nil, err
		}
	}
	view := log.View()
	x, live, largest, dead, err := rebuild(view, compact, o.Parallel)
	if err != nil {
		return nil, fmt.Errorf("mvcc: building the index: %w", err)
	}
	rev := max(view.Last(), compact, 1)
	if err := known.complete(view, rev, compact); err != nil {
		return nil, err
	}
	s.trees.Limit = max(o.Pins, 0)
	s.writer = &Writer{s: s, log: log, index: x, rev: rev, live: live, compact: compact,
		times: known, largest: largest, chunk: eventsChunk}
	if err := s.writer.SetTime(0); err != nil {
		return nil, err
	}
	s.writer.meter.Limits = o.Limits.WithDefaults()
	s.snap.Store(&snapshot{tree: x.Tree.Snapshot(), hist: view, rev: rev, live: live,
		compact: compact, times: known})
	s.hashes.init()
	s.counts.init()
	// Before the first call that returns the used size of the log.
	for _, recs := range dead {
		s.reportDead(recs)
	}
	s.trim.start(s)
	return s, nil
}

// Close stops the background. Reads may go on until the log is closed, but Cut fails.
func (s *Store) Close() {
	s.trim.stop()
	s.cuts.Lock()
	defer s.cuts.Unlock()
}

// Writer returns the one writer.
func (s *Store) Writer() *Writer { return s.writer }

// Revision returns the newest revision that readers see.
func (s *Store) Revision() int64 { return s.snap.Load().rev }

// CompactRevision returns the revision of the last compaction, -1 if there was none.
func (s *Store) CompactRevision() int64 { return s.snap.Load().compact }

// Stats are sizes of the index.
type Stats struct {
	// Keys is the number of keys at the newest revision, Known the number of all keys that the
	// index holds.
	Keys, Known int
	// Pinned is the number of older states kept for counting.
	Pinned int
	// Trimmed is the compact revision up to which the index has been trimmed.
	Trimmed int64
}

// Stats returns the present sizes.
func (s *Store) Stats() Stats {
	tree := s.snap.Load().tree
	return Stats{Keys: tree.Live(), Known: tree.Len(), Pinned: s.trees.Len(),
		Trimmed: s.trim.done.Load()}
}

// Leased returns each key that is attached to a lease, with the lease, in key order. Call it only
// while the writer is idle and has no batch open. The keys are parts of the index: keep copies of
// them.
func (s *Store) Leased() iter.Seq2[string, int64] {
	tree := s.snap.Load().tree
	return func(yield func(string, int64) bool) {
		for it := tree.Range("", ""); it.Next(); {
			if l := index.At(&it).Lease(); l != 0 && !yield(it.Key(), l) {
				return
			}
		}
	}
}

// Get returns the encoded mvccpb.KeyValue of a key as it was at a revision, nil if it did not
// exist. A revision of 0 or less means the newest. The caller owns the result.
//
// Errors: a *kv.CompactedError, kv.ErrFutureRev, or one of the log.
func (s *Store) Get(key []byte, revision int64) ([]byte, error) {
	for {
		v := s.read()
		at, err := v.resolve(revision)
		if err != nil {
			return nil, err
		}
		b, err := v.get(str(key), at)
		if err := s.overtaken(at, revision); err == errAgain {
			continue
		} else if err != nil {
			return nil, err
		}
		return b, err
	}
}

// errAgain is the error of a read of the newest revision that a compaction above it overtook: the
// revision is no longer the newest and the read must start over.
var errAgain = errors.New("mvcc: overtaken by a compaction")

// overtaken returns an error if a compaction may have removed what a reader was reading at revision
// at. Call it after reading the index.
func (s *Store) overtaken(at, asked int64) error {
	compact := s.snap.Load().compact
	switch {
	case at >= compact:
		return nil
	case asked > 0:
		return &kv.CompactedError{CompactRevision: compact}
	default:
		return errAgain
	}
}

// read returns the view that a reader sees now.
func (s *Store) read() view {
	snap := s.snap.Load()
	return view{s: s, snapshot: *snap}
}

// view is a state to read: the state of a snapshot, or inside the writer the state of its open
// batch.
type view struct {
	s *Store
	snapshot
	// w is set if this is the writer's view: then the records include its batch, and no compaction
	// can overtake it.
	w *Writer
	// memory is the memory of results, nil for the heap.
	memory *answerMemory
}

// records returns the records of the state.
func (v *view) records() *history.View {
	if v.hist == nil {
		v.hist = v.w.log.WriterView()
	}
	return v.hist
}

// resolve turns the revision that a request names into the one to read.
func (v *view) resolve(revision int64) (int64, error) {
	if revision > v.rev {
		return 0, kv.ErrFutureRev
	}
	if revision <= 0 {
		revision = v.rev
	}
	if revision < v.compact {
		return 0, &kv.CompactedError{CompactRevision: v.compact}
	}
	return revision, nil
}

// get returns the record of a key at a revision, nil if it does not exist.
func (v *view) get(key string, at int64) ([]byte, error) {
	s, ok := v.find(key, at)
	if !ok {
		return nil, nil
	}
	return v.record(s.Rev, nil)
}

// find returns a key as it was at a revision; ok is false if it did not exist.
func (v *view) find(key string, at int64) (s index.State, ok bool) {
	e, ok := index.Of(v.tree, key)
	if !ok {
		return index.State{}, false
	}
	return e.At(at)
}

// record appends a record to dst. The error is ration.ErrFull if there is no memory for it now.
func (v *view) record(rev kv.Rev, dst []byte) ([]byte, error) {
	room := math.MaxInt
	if v.memory != nil {
		room = tempSize
	}
	b, need, err := v.records().GetWithin(rev, room, dst)
	for err == nil && need > 0 {
		if err := v.memory.charge(need, 0); err != nil {
			return nil, err
		}
		b, need, err = v.records().GetWithin(rev, need, dst)
	}
	if err != nil {
		return nil, fmt.Errorf("mvcc: reading revision %d.%d: %w", rev.Main, rev.Sub, err)
	}
	return b, nil
}

// alive returns ctx's error at some values of i, for loops over many keys.
func alive(ctx context.Context, i int) error {
	if i&1023 == 1023 {
		return ctx.Err()
	}
	return nil
}

// str returns b as a string without copying, for a lookup: the caller must not keep the string, nor
// change b while using it.
func str(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// raw returns s as bytes without copying, to read at once.
func raw(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// bounds turns a request's key and range end into the bounds of a range of the index. single is set
// if the range is the one key.
func bounds(key, end []byte) (from, to string, single bool) {
	switch {
	case len(end) == 0:
		return str(key), "", true
	case len(end) == 1 && end[0] == 0:
		return str(key), "", false
	default:
		return str(key), str(end), false
	}
}
