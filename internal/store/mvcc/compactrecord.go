package mvcc

import (
	"encoding/binary"
	"fmt"
	"vigil/internal/kv"
	"vigil/internal/store/history"
)

// CompactRecord returns the meta record of a compact revision.
func CompactRecord(revision int64) history.Meta {
	return history.Meta{Bucket: MetaBucket, Key: []byte(compactKey), Value: encodeCompact(revision)}
}

// CompactRevision returns the compact revision in meta records, -1 for none.
func CompactRevision(meta []history.Meta) (int64, error) {
	for _, m := range meta {
		if m.Bucket == MetaBucket && string(m.Key) == compactKey {
			return decodeCompact(m.Value)
		}
	}
	return -1, nil
}

func encodeCompact(rev int64) []byte { return binary.AppendVarint(nil, rev) }

func decodeCompact(b []byte) (int64, error) {
	rev, n := binary.Varint(b)
	if n <= 0 || n != len(b) || rev < 0 {
		return 0, fmt.Errorf("mvcc: the compact revision %x: %w", b, kv.ErrCorrupt)
	}
	return rev, nil
}
