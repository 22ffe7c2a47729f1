package mvcc

import (
	"fmt"
	"vigil/internal/kv"
)

// CheckRecord says whether a record that comes from elsewhere is one that Open accepts.
func CheckRecord(rev kv.Rev, tombstone bool, data []byte) error {
	var r record
	switch err := r.decode(data); {
	case err != nil:
		return fmt.Errorf("%w at revision %d.%d", err, rev.Main, rev.Sub)
	case rev.Main <= 0 || rev.Sub < 0 || rev.Sub > maxSub || r.mod != rev.Main:
		return fmt.Errorf("mvcc: record of revision %d at %d.%d", r.mod, rev.Main, rev.Sub)
	case !tombstone && (r.version <= 0 || r.create <= 0 || r.create > r.mod):
		return fmt.Errorf("mvcc: version %d made at %d, at revision %d.%d", r.version, r.create, rev.Main, rev.Sub)
	}
	return nil
}
