package fsm

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/state/cluster"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
)

// Entry is the committed entry that is being applied. A Machine has one, which it uses again for each entry.
type Entry struct {
	m     *Machine
	entry *raftpb.Entry
	// header is that of the group, or of the configuration change; zero for an entry without content.
	header GroupHeader
	kind   entryKind
	// conf and change are a configuration change, as raft and as the membership know it.
	conf   *raftpb.ConfChangeV2
	change cluster.Change
	// request is the request under way, nil before the next one is decoded.
	request *Request
	// fresh says that the batch has no request of this entry yet.
	fresh bool
	// read is the size of the results of this entry since the last batch ended.
	read    int64
	outcome Outcome
}

// entryKind is how an entry is applied.
type entryKind uint8

const (
	// entryComplete has nothing more to apply.
	entryComplete entryKind = iota
	entryGroup
	entryConfChange
)

// Outcome is what one step of an entry has come to. It is valid until the next step.
type Outcome struct {
	// BatchFull is set, and nothing else, if the rest of the entry belongs to the next batch. The caller commits
	// the batch at the position of the entry before, and goes on with Next.
	BatchFull bool
	// Request is the request that was applied; nil for a configuration change.
	Request *Request
	// Result is the result of the request or of the configuration change. The caller owns what it points to.
	Result Result
	// ConfChange, if set, is for raft.
	ConfChange *raftpb.ConfChangeV2
	// Token, if set, was issued by the request. Every member has to know it.
	Token *Token
}

// Result is what one request came to: Err, or the field that matches the request. A request for
// attributes or a version has neither if it succeeded, nor does one for an alarm that changes nothing.
type Result struct {
	Put         *kv.PutResult
	DeleteRange *kv.DeleteRangeResult
	Txn         *kv.TxnResult
	Compact     *kv.CompactResult
	Alarm       *kv.Alarm
	Lease       *kv.LeaseResult
	Auth        *kv.AuthResult
	Err         error
}

// Open begins to apply a committed entry. The results of its requests are kept unless DiscardResults is called.
// The error is fatal.
func (m *Machine) Open(entry *raftpb.Entry) (*Entry, error) {
	e := &m.entry
	*e = Entry{m: m, entry: entry, fresh: true}
	m.leases.at = history.Applied{Term: entry.GetTerm(), Index: entry.GetIndex()}
	m.store.Discard(false)
	var err error
	switch {
	case entry.GetType() == raftpb.EntryConfChangeV2:
		err = e.openConfChange()
	case entry.GetType() != raftpb.EntryNormal:
		err = fmt.Errorf("%w: entry type %v", ErrFormat, entry.GetType())
	case len(entry.GetData()) > 0:
		err = e.openGroup()
	}
	if err != nil {
		return nil, e.wrap(err)
	}
	return e, nil
}

// Header names the group of the entry; it is zero for an entry without content.
func (e *Entry) Header() GroupHeader { return e.header }

// DiscardResults says that no caller waits for the results: the machine may leave out what only they need. It is
// called before the first Next.
func (e *Entry) DiscardResults() { e.m.store.Discard(true) }

// Next takes the next step of the entry: it applies one request, or ends the batch. It returns nil once all of the
// entry is applied. The error is fatal.
func (e *Entry) Next() (out *Outcome, err error) {
	switch e.kind {
	case entryGroup:
		out, err = e.nextRequest()
	case entryConfChange:
		e.kind = entryComplete
		out, err = e.applyConfChange()
	}
	if err != nil {
		return nil, e.wrap(err)
	}
	return out, nil
}

func (e *Entry) wrap(err error) error {
	return fmt.Errorf("fsm: entry %d of term %d: %w", e.entry.GetIndex(), e.entry.GetTerm(), err)
}

// openGroup reads up to the first request that is not applied yet.
func (e *Entry) openGroup() (err error) {
	m := e.m
	if e.header, err = m.dec.Reset(e.entry.GetData()); err != nil {
		return err
	}
	e.kind = entryGroup
	p := &m.part
	if p.index != e.entry.GetIndex() {
		p.begin(e.entry.GetIndex())
	}
	for i := range p.done {
		req, err := m.dec.Next()
		if err != nil {
			return err
		}
		if req == nil {
			return fmt.Errorf("%w: %d requests of a group of %d are done", kv.ErrCorrupt, p.done, i)
		}
	}
	return nil
}

func (e *Entry) nextRequest() (_ *Outcome, err error) {
	m := e.m
	if e.request == nil {
		if e.request, err = m.dec.Next(); err != nil {
			return nil, err
		}
		if e.request == nil {
			e.kind = entryComplete
			return nil, m.endPart()
		}
	}
	if !e.fresh && int64(m.store.Pending())+e.read >= m.batchBytes {
		return e.leaveBatch()
	}
	e.outcome = Outcome{Request: e.request}
	res := &e.outcome.Result
	if res.Err = m.refusal(e.header.Proposer, e.request); res.Err == nil {
		if more := m.apply(e.request, &e.outcome); more {
			return e.leaveBatch()
		}
	}
	if res.Err != nil && fatal(res.Err) {
		return nil, res.Err
	}
	m.part.next()
	e.read += m.store.Results()
	e.request, e.fresh = nil, false
	return &e.outcome, nil
}

// leaveBatch ends the batch in the middle of the entry.
func (e *Entry) leaveBatch() (*Outcome, error) {
	e.fresh, e.read = true, 0
	e.outcome = Outcome{BatchFull: true}
	return &e.outcome, e.m.storePart()
}

// fatal tells the errors of the store itself from those of a request.
func fatal(err error) bool {
	var f *mvcc.FatalError
	return errors.As(err, &f)
}
