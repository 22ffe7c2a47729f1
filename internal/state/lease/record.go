package lease

import (
	"encoding/binary"
	"fmt"

	"vigil/internal/kv"
	"vigil/internal/state/record"
)

// The record of a lease: the key is the id as u64, big endian. The value is a version byte, the TTL
// and the remaining TTL as varints, and the indexes of the grant and of the entry from which the
// time counts as uvarints.
const recordVersion byte = 1

// Record returns the record of a lease.
func (l *Lease) Record() (key, value []byte) {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 8+1+4*binary.MaxVarintLen64), uint64(l.ID))
	b = append(b, recordVersion)
	b = binary.AppendVarint(b, l.TTL)
	b = binary.AppendVarint(b, l.Remaining)
	b = binary.AppendUvarint(b, l.Granted)
	b = binary.AppendUvarint(b, l.Since)
	return b[:8:8], b[8:]
}

// Key returns the key of the record of a lease.
func Key(id int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(id)) }

// ParseRecord reads a record. Its errors are kv.ErrCorrupt.
func ParseRecord(key, value []byte) (Lease, error) {
	bad := fmt.Errorf("lease: %w: record %x of %x", kv.ErrCorrupt, value, key)
	if len(key) != 8 || len(value) == 0 || value[0] != recordVersion {
		return Lease{}, bad
	}
	l := Lease{LeaseRef: kv.LeaseRef{ID: int64(binary.BigEndian.Uint64(key))}}
	r := record.NewReader(value[1:])
	l.TTL, l.Remaining, l.Granted, l.Since = r.Varint(), r.Varint(), r.Uvarint(), r.Uvarint()
	if !r.Complete() || l.ID == 0 || l.TTL < 0 || l.TTL > kv.MaxLeaseTTL || l.Remaining < 0 ||
		l.Remaining > l.TTL {
		return Lease{}, bad
	}
	return l, nil
}
