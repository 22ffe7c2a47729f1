package fsm

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/state/cluster"
	"vigil/internal/state/lineage"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
)

// The buckets of history's meta records that belong to this package, besides mvcc.MetaBucket.
const (
	// memberBucket holds the records of package cluster by member id.
	memberBucket byte = 'c'
	// raftBucket holds raft's configuration under confKey.
	raftBucket byte = 'r'
)

var confKey = []byte("conf")

// InitialRecords returns the first meta records of a store.
func InitialRecords(members *cluster.State, conf *raftpb.ConfState) []history.Meta {
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
	lineage  *lineage.State // replaced, never modified

	dec   Decoder
	entry Entry
	// progress is the progress of the entry in entry, or of an entry that was partly applied before
	// a crash.
	progress progress
	// batchBytes is the size of a batch at which the rest of an entry is left to the next batch.
	batchBytes int64
}

// New returns the machine of the state in the store. log holds the records of the store.
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
		case string(progressKey):
			m.progress, err = parseProgress(v)
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
	if err := m.loadLineage(log); err != nil {
		return nil, fmt.Errorf("fsm: %w: %w", kv.ErrCorrupt, err)
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

// Members returns the membership, the open batch included. It is immutable.
func (m *Machine) Members() *cluster.State { return m.members }

// ConfState returns raft's configuration. It must not be modified.
func (m *Machine) ConfState() *raftpb.ConfState { return m.conf }

// apply is the one switch over the kinds of requests. more is set if a part of the request is
// applied and the rest belongs to the next batch.
func (m *Machine) apply(r *Request, out *Outcome) (more bool) {
	res := &out.Result
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
		res.Err = m.changeMembers(cluster.Change{Op: cluster.SetAttributes, Member: *r.Attributes})
	case KindAlarm:
		res.Alarm, res.Err = m.changeAlarm(*r.Alarm)
	case KindVersion:
		res.Err = m.changeVersion(*r.Version)
	case KindClaim:
		res.Err = m.addClaim(*r.Claim)
	case KindArchive:
		res.Err = m.addArchive(*r.Archive)
	case KindAuth:
		res.Auth, res.Err = m.changeAuth(r.Auth, out)
	}
	m.leases.follow(m.store)
	return more
}

// changeMembers changes the membership by a request, without raft.
func (m *Machine) changeMembers(c cluster.Change) error {
	next, rec, err := m.members.Change(c)
	if err != nil {
		return err
	}
	return m.setMembers(next, rec)
}

func (m *Machine) setMembers(next *cluster.State, rec cluster.Record) error {
	if err := m.store.SetMeta(history.Meta{Bucket: memberBucket, Key: rec.Key(),
		Value: rec.Value}); err != nil {
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

// Revision returns the newest revision, the open batch included.
func (m *Machine) Revision() int64 { return m.store.Revision() }

// Pending returns the size of the open batch in bytes.
func (m *Machine) Pending() int { return m.store.Pending() }

// Commit makes the outcome of the entries up to the position a readable. The outcome is durable
// when the store is synced or the log replayed. An error that is a kv.Shortage changed nothing, and
// Commit may be called again; every other error is fatal.
func (m *Machine) Commit(a history.Applied) (mvcc.Published, error) {
	p, err := m.store.Commit(a)
	if err == nil {
		m.leases.followed = 0
	}
	return p, err
}
