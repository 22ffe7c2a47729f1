package mvcc

import (
	"fmt"
	"vigil/internal/kv"
	"vigil/internal/store/mvcc/index"
	"vigil/internal/store/mvcc/record"
)

// CheckRecord returns an error if Open would not accept a record.
func CheckRecord(rev kv.Rev, tombstone bool, data []byte) error {
	var r record.KeyValue
	switch err := r.Decode(data); {
	case err != nil:
		return fmt.Errorf("%w at revision %d.%d", err, rev.Main, rev.Sub)
	case rev.Main <= 0 || rev.Sub < 0 || rev.Sub > index.MaxSub || r.Mod != rev.Main:
		return fmt.Errorf("mvcc: record of revision %d at %d.%d", r.Mod, rev.Main, rev.Sub)
	case !tombstone && (r.Version <= 0 || r.Create <= 0 || r.Create > r.Mod):
		return fmt.Errorf("mvcc: version %d made at %d, at revision %d.%d", r.Version, r.Create, rev.Main, rev.Sub)
	}
	return nil
}
