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

// The buckets of history's meta records that belong to this package, beside mvcc.MetaBucket.
const (
	// memberBucket holds the records of package cluster, by member id.
	memberBucket byte = 'c'
	// raftBucket holds raft's configuration under confKey.
	raftBucket byte = 'r'
)

var confKey = []byte("conf")

// Initial returns the meta records that a store begins with.
func Initial(members *cluster.State, conf *raftpb.ConfState) []history.Meta {
	var out []history.Meta
	for _, r := range members.Records() {
		out = append(out, history.Meta{Bucket: memberBucket, Key: r.Key(), Value: r.Value})
	}
	return append(out, confRecord(conf))
}

func confRecord(conf *raftpb.ConfState) history.Meta {
	return history.Meta{Bucket: raftBucket, Key: confKey, Value: cluster.EncodeConfState(conf)}
}

// Machine is the state machine. It has one owner.
type Machine struct {
	store    *mvcc.Writer
	members  *cluster.State
	conf     *raftpb.ConfState
	alarms   []kv.Alarm // sorted; replaced, never modified
	versions kv.Versions
	leases   leases
	auth     authority

	dec     Decoder
	results []Result
	observe func(*Request, *Result)
	// part is the entry of which a part is carried out.
	part part
	// batchBytes is the size of a batch at which the rest of an entry is left to the next one.
	batchBytes int64
}

// Result is what one request came to: Err, or the field that matches the request. A request for
// attributes or a version has neither if it succeeded, nor does one for an alarm that changes nothing. Whoever is
// handed it owns it.
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

// Outcome is what one entry came to.
type Outcome struct {
	// Header names the group; it is zero for an entry without content.
	Header Header
	// Results has one element for each request of the group, or one for a configuration change.
	// The slice is valid until the next call of Apply. A part of an entry has those of its requests.
	Results []Result
	// ConfChange, if set, is for raft.
	ConfChange *raftpb.ConfChangeV2
	// Tokens are those that were issued, which every member has to know. The slice is valid until the
	// next call of Apply.
	Tokens []Token
	// More is set if requests of the entry are left because the batch is large. The batch must be committed
	// at the position of the entry before, and Apply of the same entry then goes on.
	More bool
}

// New returns the machine whose state is in the store. log is where the store keeps its records.
func New(log *history.Log, store *mvcc.Store) (*Machine, error) {
	m := &Machine{store: store.Writer(), members: &cluster.State{}, batchBytes: DefaultBatchBytes}
	for k, v := range log.Meta(memberBucket) {
		if err := m.members.Load(k, v); err != nil {
			return nil, fmt.Errorf("fsm: %w: %w", kv.ErrCorrupt, err)
		}
	}
	for k, v := range log.Meta(raftBucket) {
		var err error
		switch string(k) {
		case string(confKey):
			m.conf, err = cluster.DecodeConfState(v)
		case string(partKey):
			m.part, err = parsePart(v)
		}
		if err != nil {
			return nil, fmt.Errorf("fsm: %w: %w", kv.ErrCorrupt, err)
		}
	}
	if m.conf == nil {
		return nil, fmt.Errorf("fsm: %w: the store holds no raft configuration", kv.ErrCorrupt)
	}
	if err := m.loadAlarms(log); err != nil {
		return nil, err
	}
	if err := m.loadVersions(log); err != nil {
		return nil, err
	}
	if err := m.auth.load(log); err != nil {
		return nil, err
	}
	if err := m.leases.load(log, store); err != nil {
		return nil, err
	}
	m.auth.keys = m.leases.state.Each
	return m, nil
}

// Observe has f told of each request as soon as it is carried out: the machine has no clock, and whoever
// wants to know how long requests take must see them end. f must not keep what it is given.
func (m *Machine) Observe(f func(*Request, *Result)) { m.observe = f }

// Members returns the membership, the open batch included. It is immutable.
func (m *Machine) Members() *cluster.State { return m.members }

// ConfState returns raft's configuration. It must not be modified.
func (m *Machine) ConfState() *raftpb.ConfState { return m.conf }

// Apply carries out one committed entry. wanted says whether anyone here waits for results of the
// group: without, the machine may leave out what only they need. The error is fatal.
func (m *Machine) Apply(e *raftpb.Entry, wanted func(Header) bool) (Outcome, error) {
	var out Outcome
	var err error
	m.leases.at = history.Applied{Term: e.GetTerm(), Index: e.GetIndex()}
	switch {
	case e.GetType() == raftpb.EntryConfChangeV2:
		out, err = m.confChange(e.GetData())
	case e.GetType() != raftpb.EntryNormal:
		err = fmt.Errorf("%w: entry type %v", ErrFormat, e.GetType())
	case len(e.GetData()) > 0:
		out, err = m.group(e, wanted)
	}
	if err != nil {
		return out, fmt.Errorf("fsm: entry %d of term %d: %w", e.GetIndex(), e.GetTerm(), err)
	}
	return out, nil
}

// group carries out the requests of a group, from where the last part of it ended.
func (m *Machine) group(e *raftpb.Entry, wanted func(Header) bool) (Outcome, error) {
	h, err := m.dec.Reset(e.GetData())
	if err != nil {
		return Outcome{}, err
	}
	p := &m.part
	if p.index != e.GetIndex() {
		p.begin(e.GetIndex())
	}
	if !p.underWay {
		p.underWay, p.wanted = true, wanted(h)
	}
	m.store.Discard(!p.wanted)
	clear(m.results)
	m.results = m.results[:0]
	m.auth.tokens = m.auth.tokens[:0]
	first, read := p.done, int64(0)
	left := func() (Outcome, error) {
		return Outcome{Header: h, Results: m.results, Tokens: m.auth.tokens, More: true}, m.leave()
	}
	for i := 0; ; i++ {
		req, err := m.dec.Next()
		switch {
		case err != nil:
			return Outcome{}, err
		case req == nil && i < p.done:
			return Outcome{}, fmt.Errorf("%w: %d requests of a group of %d are done", kv.ErrCorrupt, p.done, i)
		case req == nil:
			return Outcome{Header: h, Results: m.results, Tokens: m.auth.tokens}, m.endPart()
		case i < p.done:
			continue
		case i > first && int64(m.store.Pending())+read >= m.batchBytes:
			return left()
		}
		var res Result
		if len(m.alarms) > 0 {
			res.Err = m.refusal(h.Proposer, req)
		}
		if res.Err == nil {
			res.Err = Authorize(m.auth.state, req.Identity, req, m.auth.keys)
		}
		if res.Err == nil {
			var more bool
			if res, more = m.request(req); more {
				return left()
			}
		}
		if res.Err != nil && fatal(res.Err) {
			return Outcome{}, res.Err
		}
		p.next()
		read += m.store.Results()
		m.results = append(m.results, res)
		if m.observe != nil {
			m.observe(req, &m.results[len(m.results)-1])
		}
	}
}

// fatal tells the errors of the store itself from those of a request.
func fatal(err error) bool {
	var f *mvcc.FatalError
	return errors.As(err, &f)
}

// request is the one switch over what can be asked for. more is set if the request has done a part of its
// work and is to be carried out again, in the next batch.
func (m *Machine) request(r *Request) (res Result, more bool) {
	switch r.Kind() {
	case KindPut:
		var put kv.PutResult
		if put, res.Err = m.store.Put(r.Put, m.leases.state); res.Err == nil {
			res.Put = &put
		}
	case KindDeleteRange:
		var del kv.DeleteRangeResult
		if del, res.Err = m.store.DeleteRange(r.DeleteRange); res.Err == nil {
			res.DeleteRange = &del
		}
	case KindTxn:
		res.Txn, res.Err = m.store.Txn(r.Txn, m.leases.state)
	case KindCompact:
		var c kv.CompactResult
		if c, res.Err = m.store.Compact(r.Compact.Revision); res.Err == nil {
			res.Compact = &c
		}
	case KindLeaseGrant, KindLeaseRevoke, KindLeaseCheckpoint, KindLeaseExpire:
		res.Lease, more, res.Err = m.lease(r)
	case KindAttributes:
		res.Err = m.change(cluster.Change{Op: cluster.SetAttributes, Member: *r.Attributes})
	case KindAlarm:
		res.Alarm, res.Err = m.changeAlarm(*r.Alarm)
	case KindVersion:
		res.Err = m.changeVersion(*r.Version)
	case KindAuth:
		res.Auth, res.Err = m.changeAuth(r.Auth)
	}
	m.leases.follow(m.store)
	return res, more
}

// change changes the membership by an ordinary request.
func (m *Machine) change(c cluster.Change) error {
	next, rec, err := m.members.Change(c)
	if err != nil {
		return err
	}
	return m.setMembers(next, rec)
}

func (m *Machine) setMembers(next *cluster.State, rec cluster.Record) error {
	if err := m.store.SetMeta(history.Meta{Bucket: memberBucket, Key: rec.Key(), Value: rec.Value}); err != nil {
		return err
	}
	m.members = next
	return nil
}

// setConf stores raft's configuration.
func (m *Machine) setConf(conf *raftpb.ConfState) error {
	if err := m.store.SetMeta(confRecord(conf)); err != nil {
		return err
	}
	m.conf = conf
	return nil
}

// Pending returns the size of the open batch in bytes.
func (m *Machine) Pending() int { return m.store.Pending() }

// Commit makes the outcome of the entries up to a readable, and durable as soon as the store is
// synced or the log replayed. An error that is a kv.Shortage changed nothing, and Commit may be
// called again; every other one is fatal.
func (m *Machine) Commit(a history.Applied) (mvcc.Published, error) {
	p, err := m.store.Commit(a)
	if err == nil {
		m.leases.followed = 0
	}
	return p, err
}
