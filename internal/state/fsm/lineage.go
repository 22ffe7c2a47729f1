package fsm

import (
	"encoding/binary"
	"fmt"

	"vigil/internal/state/lineage"
	"vigil/internal/store/history"
)

// lineageBucket holds the records of package lineage.
const lineageBucket byte = 'i'

// Lineage returns the claims of terms, the open batch included. It is immutable.
func (m *Machine) Lineage() *lineage.State { return m.lineage }

func (m *Machine) loadLineage(log *history.Log) (err error) {
	var records []lineage.Record
	for k, v := range log.Meta(lineageBucket) {
		records = append(records, lineage.Record{Key: k, Value: v})
	}
	m.lineage, err = lineage.Load(records)
	return err
}

func lineageMeta(records []lineage.Record) []history.Meta {
	out := make([]history.Meta, len(records))
	for i, r := range records {
		out[i] = history.Meta{Bucket: lineageBucket, Key: r.Key, Value: r.Value, Deleted: r.Deleted}
	}
	return out
}

// followLineage notes where the log leaves a claimed term.
func (m *Machine) followLineage(term, index uint64) error {
	return m.setLineage(m.lineage.Follow(term, index))
}

// addClaim claims the term of the entry that is applied.
func (m *Machine) addClaim(c lineage.Claim) error { return m.setLineage(m.lineage.Claim(c)) }

// addArchive notes an archive.
func (m *Machine) addArchive(a lineage.Archive) error {
	next, records, err := m.lineage.Begin(a)
	if err != nil {
		return fmt.Errorf("fsm: %w", err)
	}
	return m.setLineage(next, records)
}

func (m *Machine) setLineage(next *lineage.State, records []lineage.Record) error {
	if next == m.lineage {
		return nil
	}
	if err := m.store.SetMeta(lineageMeta(records)...); err != nil {
		return err
	}
	m.lineage = next
	return nil
}

const flagRestart = 1

func appendClaim(b []byte, c *lineage.Claim) []byte {
	b = append(b, flag(flagRestart, c.Restart))
	b = binary.AppendUvarint(b, c.Term)
	return append(b, c.ID[:]...)
}

func (d *Decoder) readClaim() {
	d.claim = lineage.Claim{Restart: d.flags(flagRestart) != 0, Term: d.uvarint()}
	d.readExactly(d.claim.ID[:])
	d.req.Claim = &d.claim
}

func (d *Decoder) readArchive() {
	d.archive = lineage.Archive{}
	d.readExactly(d.archive.Place[:])
	d.readExactly(d.archive.ID[:])
	d.req.Archive = &d.archive
}

// readExactly fills b.
func (d *Decoder) readExactly(b []byte) {
	if len(d.b) < len(b) {
		d.fail()
		return
	}
	d.b = d.b[copy(b, d.b):]
}
