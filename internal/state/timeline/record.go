package timeline

import (
	"encoding/binary"
	"fmt"

	"vigil/internal/kv"
	"vigil/internal/state/record"
)

// A record holds a block. The key is the time of the first mark as a big-endian u64. The value is a version byte, the
// revision of the first mark as uvarint, and for each later mark the differences of time and revision to the mark before,
// as uvarint. docs/formats/history.md describes it too.
const (
	recordVersion = byte(1)
	keySize       = 8
)

// Record is a stored block, or that it is deleted.
type Record struct {
	Key, Value []byte
	Deleted    bool
}

func (b *block) key() []byte { return binary.BigEndian.AppendUint64(nil, uint64(b.first().Time)) }

func (b *block) record() Record {
	v := make([]byte, 1, 8+4*len(b.marks))
	v[0] = recordVersion
	v = binary.AppendUvarint(v, uint64(b.first().Revision))
	for i := 1; i < len(b.marks); i++ {
		v = binary.AppendUvarint(v, uint64(b.marks[i].Time-b.marks[i-1].Time))
		v = binary.AppendUvarint(v, uint64(b.marks[i].Revision-b.marks[i-1].Revision))
	}
	return Record{Key: b.key(), Value: v}
}

// parse decodes a record. Invariant 1 is checked by the caller; no number overflows here.
func parse(r Record) (*block, error) {
	malformed := fmt.Errorf("%w %x of %x", errMalformed, r.Value, r.Key)
	if len(r.Key) != keySize || r.Deleted {
		return nil, malformed
	}
	d := record.NewReader(r.Value)
	if d.Byte() != recordVersion {
		return nil, malformed
	}
	ms, rev := binary.BigEndian.Uint64(r.Key), d.Uvarint()
	b := &block{}
	for {
		if ms > kv.MaxTime || rev > 1<<62 || len(b.marks) == BlockMarks {
			return nil, malformed
		}
		b.marks = append(b.marks, kv.TimeMark{Time: int64(ms), Revision: int64(rev)})
		if d.Complete() {
			return b, nil
		}
		t, n := d.Uvarint(), d.Uvarint()
		if t > kv.MaxTime || n > 1<<62 {
			return nil, malformed
		}
		ms, rev = ms+t, rev+n
		if d.Failed() {
			return nil, malformed
		}
	}
}
