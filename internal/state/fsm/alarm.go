package fsm

import (
	"encoding/binary"
	"fmt"
	"slices"

	"vigil/internal/kv"
	"vigil/internal/store/history"
)

// alarmBucket holds a record for each active alarm. The key is the type as u32 and the member id as
// u64, both big endian; the value is a version byte. A cleared alarm is deleted.
const (
	alarmBucket  byte = 'a'
	alarmVersion byte = 1
	alarmKeySize      = 4 + 8
)

// maxAlarms is the limit for active alarms. The API lets a client raise any number of alarms; a
// cluster of a few members needs a few.
const maxAlarms = 1 << 10

func alarmRecord(c kv.AlarmChange) history.Meta {
	k := binary.BigEndian.AppendUint32(nil, uint32(c.Alarm.Type))
	m := history.Meta{Bucket: alarmBucket, Key: binary.BigEndian.AppendUint64(k, c.Alarm.MemberID),
		Deleted: c.Clear}
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

// clearAlarms clears the alarms of a member that is removed: nobody else knows when their cause is
// gone.
func (m *Machine) clearAlarms(member uint64) error {
	for _, a := range m.alarms {
		if a.MemberID == member {
			if _, err := m.changeAlarm(kv.AlarmChange{Alarm: a, Clear: true}); err != nil {
				return err
			}
		}
	}
	return nil
}

// changeAlarm raises or clears an alarm. It returns the alarm if it was raised and is active, or
// was active before it was cleared. It does not raise an alarm of a member that was removed.
func (m *Machine) changeAlarm(c kv.AlarmChange) (*kv.Alarm, error) {
	i, active := slices.BinarySearchFunc(m.alarms, c.Alarm, kv.Alarm.Compare)
	switch {
	case c.Alarm.Type == kv.AlarmNone, c.Clear && !active,
		!c.Clear && m.members.Removed(c.Alarm.MemberID):
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
