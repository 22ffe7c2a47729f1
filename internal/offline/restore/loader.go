package restore

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
)

// batchBytes is about the size of the records in one batch of the store.
const batchBytes = 1 << 20

// ContentError is an error of what a backup contains. Others are errors of the store that is built,
// and of the system.
type ContentError struct{ err error }

func (e *ContentError) Error() string { return e.err.Error() }

// Unwrap returns the error in it.
func (e *ContentError) Unwrap() error { return e.err }

func badContent(format string, args ...any) error {
	return &ContentError{fmt.Errorf(format, args...)}
}

// loader adds records to a new store.
type loader struct {
	log     *history.Log
	pending int
	last    int64 // the newest record's revision
	records int64
}

// addRecord adds a record of a backup that does not say when its revisions were made.
func (l *loader) addRecord(rev kv.Rev, tombstone bool, data []byte) error {
	return l.addRecordAt(history.Stamp{Rev: rev}, tombstone, data)
}

// addRecordAt adds a record of the backup.
func (l *loader) addRecordAt(at history.Stamp, tombstone bool, data []byte) error {
	rev := at.Rev
	if rev.Main > maxRevision {
		return badContent("revision %d is more than %d", rev.Main, int64(maxRevision))
	}
	if err := mvcc.CheckRecord(rev, tombstone, data); err != nil {
		return &ContentError{err}
	}
	l.log.SetTime(at.Time)
	if _, err := l.log.AppendKV(rev, tombstone, data); err != nil {
		return err
	}
	l.last = rev.Main
	l.records++
	if l.pending += len(data) + 64; l.pending < batchBytes {
		return nil
	}
	l.pending = 0
	return l.log.Commit(history.Applied{})
}

// applyEntry applies an entry. visit is called after each request, and with nil when a batch ends
// in the middle of a request or between two; if it returns true, the rest of the entry is not
// applied.
func applyEntry(m *fsm.Machine, e *raftpb.Entry,
	visit func(*fsm.Outcome) (stop bool)) (stopped bool, err error) {
	open, err := m.Open(e)
	if err != nil {
		return false, err
	}
	open.DiscardResults()
	for {
		out, err := open.Next()
		switch {
		case err != nil || out == nil:
			return false, err
		case out.BatchFull:
			if _, err := m.Commit(history.Applied{}); err != nil {
				return false, err
			}
			if visit(nil) {
				return true, nil
			}
		case visit(out):
			return true, nil
		}
	}
}
