package fsm

import (
	"encoding/binary"
	"fmt"

	"vigil/internal/kv"
	"vigil/internal/state/timeline"
	"vigil/internal/store/history"
)

// timeBucket holds the records of package timeline.
const timeBucket byte = 't'

// Times returns when revisions were made, the open batch included. It is immutable.
func (m *Machine) Times() *timeline.State { return m.times }

func (m *Machine) loadTimes(log *history.Log) (err error) {
	var records []timeline.Record
	for k, v := range log.Meta(timeBucket) {
		records = append(records, timeline.Record{Key: k, Value: v})
	}
	m.times, err = timeline.Load(records)
	return err
}

func timeMeta(records []timeline.Record) []history.Meta {
	out := make([]history.Meta, len(records))
	for i, r := range records {
		out[i] = history.Meta{Bucket: timeBucket, Key: r.Key, Value: r.Value, Deleted: r.Deleted}
	}
	return out
}

func (m *Machine) addTimes(r *kv.TimeRequest) error {
	next, records, err := m.times.Add(r, m.store.Revision(), m.store.CompactRevision())
	if err != nil {
		return fmt.Errorf("fsm: %w", err)
	}
	if err := m.store.SetMeta(timeMeta(records)...); err != nil {
		return err
	}
	m.times = next
	return nil
}

func appendTimes(b []byte, r *kv.TimeRequest) []byte {
	b = append(b, flag(flagBack, r.Back))
	b = binary.AppendUvarint(b, r.Term)
	b = binary.AppendUvarint(b, uint64(len(r.Marks)))
	for _, m := range r.Marks {
		b = binary.AppendVarint(b, m.Time)
		b = binary.AppendVarint(b, m.Revision)
	}
	return b
}

func (d *Decoder) readTimes() {
	marks := d.times.Marks[:0]
	d.times = kv.TimeRequest{Back: d.flags(flagBack) != 0, Term: d.uvarint()}
	for range d.countOf(2) {
		marks = append(marks, kv.TimeMark{Time: d.varint(), Revision: d.varint()})
		if d.bad {
			return
		}
	}
	d.times.Marks = marks
	d.req.Time = &d.times
}
