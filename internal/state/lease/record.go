package lease

import (
	"encoding/binary"
	"fmt"

	"vigil/internal/kv"
	"vigil/internal/state/record"
)

// The record of a lease: the key is the id as u64, big endian; the value is a version byte and the TTL, the remaining TTL
// and the index of the grant as varints. Version 2 also has the index since which the time counts; version 1 is for leases
// that count since their grant.
const (
	recordSinceGrant byte = 1
	recordSinceIndex byte = 2
)

// Record returns the record of a lease.
func (l *Lease) Record() (key, value []byte) {
	version := recordSinceGrant
	if l.Since != l.Granted {
		version = recordSinceIndex
	}
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 8+1+4*binary.MaxVarintLen64), uint64(l.ID))
	b = append(b, version)
	b = binary.AppendVarint(b, l.TTL)
	b = binary.AppendVarint(b, l.Remaining)
	b = binary.AppendUvarint(b, l.Granted)
	if version == recordSinceIndex {
		b = binary.AppendUvarint(b, l.Since)
	}
	return b[:8:8], b[8:]
}

// Key returns the key of the record of a lease.
func Key(id int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(id)) }

// ParseRecord reads a record. Its errors are kv.ErrCorrupt.
func ParseRecord(key, value []byte) (Lease, error) {
	bad := fmt.Errorf("lease: %w: record %x of %x", kv.ErrCorrupt, value, key)
	if len(key) != 8 || len(value) == 0 || value[0] < recordSinceGrant || value[0] > recordSinceIndex {
		return Lease{}, bad
	}
	l := Lease{LeaseRef: kv.LeaseRef{ID: int64(binary.BigEndian.Uint64(key))}}
	r := record.NewReader(value[1:])
	l.TTL, l.Remaining, l.Granted = r.Varint(), r.Varint(), r.Uvarint()
	l.Since = l.Granted
	if value[0] == recordSinceIndex {
		l.Since = r.Uvarint()
	}
	if !r.Complete() || l.ID == 0 || l.TTL < 0 || l.TTL > kv.MaxLeaseTTL || l.Remaining < 0 || l.Remaining > l.TTL {
		return Lease{}, bad
	}
	// One lease has one record.
	if _, again := l.Record(); string(again) != string(value) {
		return Lease{}, bad
	}
	return l, nil
}
