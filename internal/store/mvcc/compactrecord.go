package mvcc

import (
	"encoding/binary"
	"fmt"
	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc/index"
	"vigil/internal/store/mvcc/record"
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

// CheckRecord returns an error if Open would not accept a record, or no request can have made it.
func CheckRecord(rev kv.Rev, tombstone bool, data []byte) error {
	var r record.KeyValue
	switch err := r.Decode(data); {
	case err != nil:
		return fmt.Errorf("%w at revision %d.%d", err, rev.Main, rev.Sub)
	case rev.Main <= 0 || rev.Sub < 0 || rev.Sub > index.MaxSub || r.Mod != rev.Main:
		return fmt.Errorf("mvcc: record of revision %d at %d.%d", r.Mod, rev.Main, rev.Sub)
	case len(r.Key) == 0:
		return fmt.Errorf("mvcc: record of an empty key at revision %d.%d", rev.Main, rev.Sub)
	case !tombstone && (r.Version <= 0 || r.Create <= 0 || r.Create > r.Mod):
		return fmt.Errorf("mvcc: version %d made at %d, at revision %d.%d", r.Version, r.Create, rev.Main, rev.Sub)
	}
	return nil
}
