package fsm

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/state/auth"
	"vigil/internal/state/cluster"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
)

// Entry is the committed entry that is being applied. A Machine has one and reuses it for each
// entry.
type Entry struct {
	m     *Machine
	entry *raftpb.Entry
	// header identifies the group or the configuration change; it is zero for an entry without
	// content.
	header GroupHeader
	kind   entryKind
	// conf and change are a configuration change, for raft and for the membership.
	conf   *raftpb.ConfChangeV2
	change cluster.Change
	// who proposed the configuration change.
	who auth.Identity
	// request is the next request, nil if it is not decoded yet.
	request *Request
	// fresh is set while the batch contains no request of this entry.
	fresh bool
	// read is the size of the results of this entry since the last batch ended.
	read    int64
	outcome Outcome
}

// entryKind says how an entry is applied.
type entryKind uint8

const (
	// entryComplete: nothing is left to apply.
	entryComplete entryKind = iota
	entryGroup
	entryConfChange
)

// Outcome is the outcome of one step of an entry. It is valid until the next step.
type Outcome struct {
	// BatchFull is set, and no other field, if the rest of the entry belongs to the next batch. The
	// caller commits the batch at the position of the entry before, and calls Next again.
	BatchFull bool
	// Request is the request that was applied; nil for a configuration change.
	Request *Request
	// Result is the result of the request or of the configuration change. The caller owns what it
	// points to.
	Result Result
	// ConfChange, if set, is for raft.
	ConfChange *raftpb.ConfChangeV2
	// Token, if set, was issued by the request. Every member must accept it.
	Token *Token
	// TokensEnd, if not 0, is the index up to which a member ends tokens that no client has sent
	// it.
	TokensEnd uint64
}

// Result is the result of one request: Err, or the field of the kind of the request. A successful
// request for attributes, a version, a claim or an archive sets none, and neither does a request
// for an alarm that changes nothing.
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

// Open begins to apply a committed entry. The results of its requests are kept unless
// DiscardResults is called. The error is fatal.
func (m *Machine) Open(entry *raftpb.Entry) (*Entry, error) {
	e := &m.entry
	*e = Entry{m: m, entry: entry, fresh: true}
	m.leases.at = history.Applied{Term: entry.GetTerm(), Index: entry.GetIndex()}
	m.store.Discard(false)
	err := m.followLineage(entry.GetTerm(), entry.GetIndex())
	switch {
	case err != nil:
	case entry.GetType() == raftpb.EntryConfChangeV2:
		err = e.openConfChange()
	case entry.GetType() != raftpb.EntryNormal:
		err = fmt.Errorf("%w: entry type %v", ErrFormat, entry.GetType())
	case len(entry.GetData()) > 0:
		err = e.openGroup()
	}
	if err == nil {
		err = m.store.SetTime(e.header.Time)
	}
	if err != nil {
		return nil, e.wrap(err)
	}
	return e, nil
}

// Header identifies the group of the entry; it is zero for an entry without content.
func (e *Entry) Header() GroupHeader { return e.header }

// DiscardResults lets the machine omit results and the work for them: no client waits for them. The
// caller calls it before the first Next.
func (e *Entry) DiscardResults() { e.m.store.Discard(true) }

// Next takes the next step of the entry: it applies one request, or ends the batch. It returns nil
// once all of the entry is applied. The error is fatal.
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
	p := &m.progress
	if p.index != e.entry.GetIndex() {
		p.begin(e.entry.GetIndex())
	}
	for i := range p.requests {
		req, err := m.dec.Next()
		if err != nil {
			return err
		}
		if req == nil {
			return fmt.Errorf("%w: %d requests of a group of %d are applied",
				kv.ErrCorrupt, p.requests, i)
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
			return nil, m.completeEntry()
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
	m.progress.nextRequest()
	e.read += m.store.Results()
	e.request, e.fresh = nil, false
	return &e.outcome, nil
}

// leaveBatch ends the batch in the middle of the entry.
func (e *Entry) leaveBatch() (*Outcome, error) {
	e.fresh, e.read = true, 0
	e.outcome = Outcome{BatchFull: true}
	return &e.outcome, e.m.storeProgress()
}

// fatal reports whether err is an error of the store itself and not of a request.
func fatal(err error) bool {
	var f *mvcc.FatalError
	return errors.As(err, &f)
}
