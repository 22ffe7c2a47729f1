package fsm

import (
	"encoding/binary"

	"vigil/internal/kv"
	"vigil/internal/state/lease"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
)

// leaseBucket holds the records of package lease.
const leaseBucket byte = 'l'

// leases holds the leases of the machine.
type leases struct {
	state *lease.State
	// at is the position of the entry in progress.
	at history.Applied
	// followed is how many attachments of the open batch the state includes.
	followed int
}

func (l *leases) load(log *history.Log, store *mvcc.Store) error {
	l.state = lease.New()
	for k, v := range log.Meta(leaseBucket) {
		rec, err := lease.ParseRecord(k, v)
		if err != nil {
			return err
		}
		l.state.Load(rec)
	}
	l.state.AttachAll(store.Leased())
	return nil
}

// follow adds the attachments of the last request to the state, before the next request, which may
// end the lease.
func (l *leases) follow(store *mvcc.Writer) {
	changes := store.Leases()
	for _, c := range changes[l.followed:] {
		l.state.Attach(c.Key, c.From, c.To)
	}
	l.followed = len(changes)
}

// Leases returns the leases. Other goroutines may call the methods of lease.State that are for
// them; they see the applied state, which may be slightly newer than the readable state.
func (m *Machine) Leases() *lease.State { return m.leases.state }

// lease applies a request about leases. A large request is applied in parts, see progress.
func (m *Machine) lease(r *Request) (_ *kv.LeaseResult, more bool, _ error) {
	s := m.leases.state
	res := &kv.LeaseResult{}
	switch {
	case r.LeaseGrant != nil:
		l, err := s.Grant(*r.LeaseGrant, m.leases.at.Index)
		if err != nil {
			return nil, false, err
		}
		if err := m.storeLease(l); err != nil {
			return nil, false, err
		}
		res.ID, res.TTL = l.ID, l.TTL
	case r.LeaseRevoke != nil:
		id := r.LeaseRevoke.ID
		if !s.Exists(id) {
			return nil, false, kv.ErrLeaseNotFound
		}
		if more, err := m.endLease(id); more || err != nil {
			return nil, more, err
		}
		res.Ended = 1
	case r.LeaseCheckpoint != nil:
		list := r.LeaseCheckpoint.Checkpoints
		for ; m.progress.items < len(list); m.progress.items++ {
			c := list[m.progress.items]
			if m.batchFull() {
				return nil, true, nil
			}
			if l, changed := s.Checkpoint(c, m.leases.at.Index); changed {
				if err := m.storeLease(l); err != nil {
					return nil, false, err
				}
			}
		}
	case r.LeaseExpire != nil:
		list := r.LeaseExpire.Leases
		for ; m.progress.items < len(list); m.progress.items++ {
			ref := list[m.progress.items]
			if !s.Has(ref) {
				continue
			}
			if more, err := m.endLease(ref.ID); more || err != nil {
				return nil, more, err
			}
			m.progress.ended++
		}
	}
	if r.LeaseExpire != nil {
		res.Ended = m.progress.ended
	}
	res.Revision = m.store.Revision()
	return res, false, nil
}

func (m *Machine) storeLease(l lease.Lease) error {
	k, v := l.Record()
	return m.store.SetMeta(history.Meta{Bucket: leaseBucket, Key: k, Value: v})
}

// endLease deletes the keys of a lease, in order and as one revision, and the lease. It returns
// true if it has done only a part: the batch is full, or there are more keys than one revision can
// delete.
func (m *Machine) endLease(id int64) (more bool, err error) {
	if m.batchFull() {
		return true, nil
	}
	keys := m.leases.state.Keys(id)
	done, err := m.store.DeleteKeys(keys)
	if err != nil {
		return false, err
	}
	if done < len(keys) {
		m.leases.follow(m.store)
		return true, nil
	}
	if err := m.store.SetMeta(history.Meta{Bucket: leaseBucket, Key: lease.Key(id),
		Deleted: true}); err != nil {
		return false, err
	}
	m.leases.state.Remove(id)
	return false, nil
}

// leaseRequests is the memory of a decoder for requests about leases.
type leaseRequests struct {
	grant      kv.LeaseGrantRequest
	revoke     kv.LeaseRevokeRequest
	checkpoint kv.LeaseCheckpointRequest
	expire     kv.LeaseExpireRequest
}

func appendLease(b []byte, r *Request) []byte {
	switch {
	case r.LeaseGrant != nil:
		b = binary.AppendVarint(b, r.LeaseGrant.ID)
		return binary.AppendVarint(b, r.LeaseGrant.TTL)
	case r.LeaseRevoke != nil:
		return binary.AppendVarint(b, r.LeaseRevoke.ID)
	case r.LeaseCheckpoint != nil:
		b = binary.AppendUvarint(b, r.LeaseCheckpoint.Term)
		b = binary.AppendUvarint(b, uint64(len(r.LeaseCheckpoint.Checkpoints)))
		for _, c := range r.LeaseCheckpoint.Checkpoints {
			b = appendLeaseRef(b, c.LeaseRef)
			b = binary.AppendVarint(b, c.Remaining)
			b = binary.AppendUvarint(b, c.Since)
		}
		return b
	default:
		b = binary.AppendUvarint(b, r.LeaseExpire.Term)
		b = binary.AppendUvarint(b, uint64(len(r.LeaseExpire.Leases)))
		for _, ref := range r.LeaseExpire.Leases {
			b = appendLeaseRef(b, ref)
		}
		return b
	}
}

func appendLeaseRef(b []byte, r kv.LeaseRef) []byte {
	b = binary.AppendVarint(b, r.ID)
	return binary.AppendUvarint(b, r.Granted)
}

func (d *Decoder) readLease(kind Kind) {
	l := &d.leases
	switch kind {
	case KindLeaseGrant:
		l.grant = kv.LeaseGrantRequest{ID: d.varint(), TTL: d.varint()}
		d.req.LeaseGrant = &l.grant
	case KindLeaseRevoke:
		l.revoke = kv.LeaseRevokeRequest{ID: d.varint()}
		d.req.LeaseRevoke = &l.revoke
	case KindLeaseCheckpoint:
		l.checkpoint = kv.LeaseCheckpointRequest{Term: d.uvarint()}
		for range d.count() {
			l.checkpoint.Checkpoints = append(l.checkpoint.Checkpoints,
				kv.LeaseCheckpoint{LeaseRef: d.leaseRef(), Remaining: d.varint(),
					Since: d.uvarint()})
			if d.bad {
				return
			}
		}
		d.req.LeaseCheckpoint = &l.checkpoint
	case KindLeaseExpire:
		l.expire = kv.LeaseExpireRequest{Term: d.uvarint()}
		for range d.count() {
			l.expire.Leases = append(l.expire.Leases, d.leaseRef())
			if d.bad {
				return
			}
		}
		d.req.LeaseExpire = &l.expire
	}
}

func (d *Decoder) leaseRef() kv.LeaseRef {
	return kv.LeaseRef{ID: d.varint(), Granted: d.uvarint()}
}
