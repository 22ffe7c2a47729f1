package mvcc

import (
	"encoding/binary"
	"fmt"
	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc/index"
	"vigil/internal/store/mvcc/record"
)

// CompactRecord returns the meta record of a compact revision and its time, 0 if the time is not
// known.
func CompactRecord(revision, time int64) history.Meta {
	b := binary.AppendUvarint(binary.AppendVarint(nil, revision), uint64(time))
	return history.Meta{Bucket: MetaBucket, Key: []byte(compactKey), Value: b}
}

// CompactRevision returns the compact revision in meta records, -1 for none.
func CompactRevision(meta []history.Meta) (int64, error) {
	for _, m := range meta {
		if m.Bucket == MetaBucket && string(m.Key) == compactKey {
			revision, _, err := decodeCompact(m.Value)
			return revision, err
		}
	}
	return -1, nil
}

func decodeCompact(b []byte) (revision, time int64, err error) {
	revision, n := binary.Varint(b)
	ms, m := binary.Uvarint(b[max(n, 0):])
	if n <= 0 || m <= 0 || n+m != len(b) || revision < 0 || ms > kv.MaxTime {
		return 0, 0, fmt.Errorf("mvcc: the compact revision %x: %w", b, kv.ErrCorrupt)
	}
	return revision, int64(ms), nil
}

// CheckRecord returns an error if Open would reject a record, or if no request can have made it.
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
		return fmt.Errorf("mvcc: version %d made at %d, at revision %d.%d", r.Version, r.Create,
			rev.Main, rev.Sub)
	}
	return nil
}
