package fsm

import (
	"encoding/binary"
	"fmt"
	"slices"

	"vigil/internal/kv"
	"vigil/internal/store/history"
)

// alarmBucket holds a record for each active alarm: the type as u32 and the member id as u64, both
// big endian, to a version byte. A cleared alarm is deleted.
const (
	alarmBucket  byte = 'a'
	alarmVersion byte = 1
	alarmKeySize      = 4 + 8
)

// maxAlarms bounds the alarms that are active at once. The API lets a client raise any number under
// any name; a cluster of a few members has a few.
const maxAlarms = 1 << 10

func alarmRecord(c kv.AlarmChange) history.Meta {
	k := binary.BigEndian.AppendUint32(nil, uint32(c.Alarm.Type))
	m := history.Meta{Bucket: alarmBucket, Key: binary.BigEndian.AppendUint64(k, c.Alarm.MemberID), Deleted: c.Clear}
	if !c.Clear {
		m.Value = []byte{alarmVersion}
	}
	return m
}

func parseAlarm(key, value []byte) (kv.Alarm, error) {
	if len(key) != alarmKeySize || len(value) != 1 || value[0] != alarmVersion {
		return kv.Alarm{}, fmt.Errorf("fsm: %w: alarm record %x of %x", kv.ErrCorrupt, value, key)
	}
	return kv.Alarm{
		Type:     kv.AlarmType(binary.BigEndian.Uint32(key)),
		MemberID: binary.BigEndian.Uint64(key[4:]),
	}, nil
}

// Alarms returns the active alarms, the open batch included, by type and member. The slice is never
// modified.
func (m *Machine) Alarms() []kv.Alarm { return m.alarms }

func (m *Machine) loadAlarms(log *history.Log) error {
	for k, v := range log.Meta(alarmBucket) {
		a, err := parseAlarm(k, v)
		if err != nil {
			return err
		}
		m.alarms = append(m.alarms, a)
	}
	slices.SortFunc(m.alarms, kv.Alarm.Compare)
	return nil
}

// changeAlarm raises or clears an alarm. It returns the alarm if it is active now that it was
// raised, or was active before it was cleared.
func (m *Machine) changeAlarm(c kv.AlarmChange) (*kv.Alarm, error) {
	i, active := slices.BinarySearchFunc(m.alarms, c.Alarm, kv.Alarm.Compare)
	switch {
	case c.Alarm.Type == kv.AlarmNone, c.Clear && !active:
		return nil, nil
	case !c.Clear && active:
		return &c.Alarm, nil
	case !c.Clear && len(m.alarms) >= maxAlarms:
		return nil, kv.ErrTooManyRequests
	}
	if err := m.store.SetMeta(alarmRecord(c)); err != nil {
		return nil, err
	}
	next := slices.Clone(m.alarms)
	if c.Clear {
		next = slices.Delete(next, i, i+1)
	} else {
		next = slices.Insert(next, i, c.Alarm)
	}
	m.alarms = next
	return &c.Alarm, nil
}

// refusal returns the error of a request that the active alarms forbid, nil if they do not.
//
// While any member is short of space nothing may be added. CORRUPT stops the member that it names: what
// that member proposes may rest on damaged data. One of member 0 says that members differ and nobody
// knows which of them is wrong; it stops none.
func (m *Machine) refusal(proposer uint64, r *Request) error {
	corrupt, noSpace := false, false
	for _, a := range m.alarms {
		corrupt = corrupt || a.Type == kv.AlarmCorrupt && a.MemberID == proposer
		noSpace = noSpace || a.Type == kv.AlarmNoSpace
	}
	switch {
	case corrupt && r.touchesKeys():
		return kv.ErrCorrupt
	case noSpace && r.Grows():
		return kv.ErrNoSpace
	}
	return nil
}

// touchesKeys says whether r reads or changes the key space, or grants a lease, which etcd refuses with
// it.
func (r *Request) touchesKeys() bool {
	return r.Put != nil || r.DeleteRange != nil || r.Txn != nil || r.Compact != nil ||
		r.LeaseGrant != nil || r.LeaseRevoke != nil || r.LeaseExpire != nil
}

// Grows says whether r may add to the key space or to the leases: a put, a grant, and a transaction with
// a put in any branch. Everything else goes on while there is no space.
func (r *Request) Grows() bool {
	return r.Put != nil || r.LeaseGrant != nil || r.Txn != nil && txnGrows(r.Txn)
}

// recordBytes is the most that a record takes in the store on top of key and value: a header, revisions, an
// entry in a table, and the header of a batch if it is alone in one.
const recordBytes = 128

// Cost returns about how many bytes r adds to the store, 0 if it does not grow. Of a transaction it is the
// branch that adds more.
func (r *Request) Cost() int64 {
	switch {
	case r.Put != nil:
		return putCost(r.Put)
	case r.LeaseGrant != nil:
		return recordBytes
	case r.Txn != nil:
		return txnCost(r.Txn)
	}
	return 0
}

func putCost(p *kv.PutRequest) int64 { return int64(len(p.Key)+len(p.Value)) + recordBytes }

func txnCost(t *kv.TxnRequest) (most int64) {
	for _, ops := range [...][]kv.Op{t.Success, t.Failure} {
		sum := int64(0)
		for i := range ops {
			switch op := &ops[i]; {
			case op.Put != nil:
				sum += putCost(op.Put)
			case op.Txn != nil:
				sum += txnCost(op.Txn)
			}
		}
		most = max(most, sum)
	}
	return most
}

func txnGrows(t *kv.TxnRequest) bool {
	grows := func(op kv.Op) bool { return op.Put != nil || op.Txn != nil && txnGrows(op.Txn) }
	return slices.ContainsFunc(t.Success, grows) || slices.ContainsFunc(t.Failure, grows)
}
