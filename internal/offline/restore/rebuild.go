package restore

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
	"vigil/internal/state/lineage"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
	"vigil/internal/vfs"
)

// replayBatch is the number of entries after which a batch of the store ends.
const replayBatch = 256

// State is a backup that another package reads: a state of a cluster of this program, and committed
// entries after it.
type State interface {
	// Identity returns numbers that identify the restored state: two backups with equal numbers
	// give equal states.
	Identity() []uint64
	// Size is about how many bytes the store takes.
	Size() int64
	// Build adds the records and meta records of the state to r, starts it, and applies the
	// entries.
	Build(r *Rebuild) error
}

// Rebuild is a state in a separate store, made of a base state and entries. The state machine
// applies the entries as members do, so the result is the state of the cluster. Its calls are
// Record and Meta, then Start, then Apply and all others.
type Rebuild struct {
	loader
	store   *mvcc.Store
	m       *fsm.Machine
	applied history.Applied
	entries int
}

// NewRebuild returns a Rebuild in a directory, which must not hold a store. Nothing that it writes
// is durable.
func NewRebuild(fsys vfs.FS, dir string) (*Rebuild, error) {
	log, err := history.Create(history.Options{FS: fsys, Dir: dir, ClusterID: 1, MemberID: 1,
		NoSync: true}, history.Applied{}, nil)
	if err != nil {
		return nil, err
	}
	return &Rebuild{loader: loader{log: log}}, nil
}

// Record adds a record of the base state, in the order of the revisions.
func (r *Rebuild) Record(at history.Stamp, tombstone bool, data []byte) error {
	return r.addRecordAt(at, tombstone, data)
}

// Meta adds a meta record of the base state.
func (r *Rebuild) Meta(m history.Meta) error { return r.log.AppendMeta(m) }

// Start ends the base state, which is the outcome of the log up to a position.
func (r *Rebuild) Start(at history.Applied) (err error) {
	if err := r.log.Commit(history.Applied{}); err != nil {
		return err
	}
	if r.store, err = mvcc.Open(r.log, mvcc.Options{}); err != nil {
		return err
	}
	r.applied = at
	r.m, err = fsm.New(r.log, r.store)
	return err
}

// Apply applies the next entry. With until above 0 it stops when this revision was made, and
// returns true: the rest of the entry is not applied then.
func (r *Rebuild) Apply(e *raftpb.Entry, until int64) (reached bool, err error) {
	if e.GetIndex() != r.applied.Index+1 || e.GetTerm() < r.applied.Term {
		return false, badContent("entry %d of term %d follows entry %d of term %d", e.GetIndex(),
			e.GetTerm(), r.applied.Index, r.applied.Term)
	}
	if until > 0 && makesSeveral(e) {
		r.m.SetBatchBytes(0) // a batch ends after each revision
		defer r.m.SetBatchBytes(fsm.DefaultBatchBytes)
	}
	reached, err = applyEntry(r.m, e,
		func(*fsm.Outcome) bool { return until > 0 && r.m.Revision() >= until })
	if err == nil && reached && r.m.Revision() > until {
		err = fmt.Errorf("revision %d cannot be restored: entry %d makes it together with revision %d", until, e.GetIndex(), r.m.Revision())
	}
	if errors.Is(err, fsm.ErrFormat) || errors.Is(err, kv.ErrCorrupt) {
		return false, &ContentError{err}
	}
	if err != nil {
		return false, err
	}
	r.applied = history.Applied{Term: e.GetTerm(), Index: e.GetIndex()}
	r.entries++
	if r.m.Revision() > maxRevision {
		return false, badContent("revision %d is more than %d", r.m.Revision(), int64(maxRevision))
	}
	if r.entries%replayBatch == 0 || r.m.Pending() >= fsm.DefaultBatchBytes || reached {
		return reached, r.Commit()
	}
	return reached, nil
}

// makesSeveral reports whether a request of an entry may make several revisions: the end of leases
// does, one for each, or more for a lease with many keys.
func makesSeveral(e *raftpb.Entry) bool {
	var d fsm.Decoder
	if e.GetType() != raftpb.EntryNormal || len(e.GetData()) == 0 {
		return false
	}
	if _, err := d.Reset(e.GetData()); err != nil {
		return false // applying it returns the error
	}
	for {
		req, err := d.Next()
		if err != nil || req == nil {
			return false
		}
		if req.LeaseExpire != nil || req.LeaseRevoke != nil {
			return true
		}
	}
}

// Commit makes the applied entries readable.
func (r *Rebuild) Commit() error {
	_, err := r.m.Commit(history.Applied{})
	return err
}

// Applied returns the position of the last entry.
func (r *Rebuild) Applied() history.Applied { return r.applied }

// Lineage returns the claims of terms.
func (r *Rebuild) Lineage() *lineage.State { return r.m.Lineage() }

// Revision returns the newest revision.
func (r *Rebuild) Revision() int64 { return r.m.Revision() }

// Store returns the store, which shows the state of the last Commit.
func (r *Rebuild) Store() *mvcc.Store { return r.store }

// AllMeta returns the meta records, in no order. They are of the state after the last entry once it
// is committed.
func (r *Rebuild) AllMeta() []history.Meta { return r.log.AllMeta() }

// Hash returns HashKV of the newest revision that is committed.
func (r *Rebuild) Hash(ctx context.Context) (kv.HashResult, error) { return r.store.Hash(ctx) }

// stop ends the use of the store.
func (r *Rebuild) stop() {
	if r.store != nil {
		r.store.Close()
		r.store = nil
	}
}

// Close closes the store of NewRebuild.
func (r *Rebuild) Close() error {
	r.stop()
	r.log.Retire()
	return r.log.Close()
}
