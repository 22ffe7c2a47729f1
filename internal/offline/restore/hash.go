package restore

import (
	"context"
	"errors"
	"path/filepath"

	"vigil/internal/kv"
	"vigil/internal/offline/datadir"
	"vigil/internal/state/cluster"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
)

// HashKV returns the hash of the history in a backup up to a revision, 0 for the newest. It is
// equal to HashKV of a member with the same history. It builds a store in Options.DataDir, which
// must be empty and is emptied again; of the other options it uses only those about the source. Its
// errors are the errors of Run and of mvcc.Store.HashKV.
func HashKV(ctx context.Context, o Options, revision int64) (res kv.HashResult, err error) {
	o.Name, o.Members = "hash",
		[]cluster.Member{{Name: "hash", PeerURLs: []string{"http://localhost:2380"}}}
	o.BumpRevision, o.MarkCompacted, o.NoSync = 0, false, true
	if _, err := Run(ctx, o); err != nil {
		return res, err
	}
	dir := filepath.Join(o.DataDir, datadir.HistoryName)
	log, err := history.Open(history.Options{FS: o.FS, Dir: dir, NoSync: true})
	if err != nil {
		return res, err
	}
	store, err := mvcc.Open(log, mvcc.Options{})
	if err == nil {
		res, err = store.HashKV(ctx, revision)
		store.Close()
	}
	d := directories{fs: o.FS, data: o.DataDir}
	return res, errors.Join(err, log.Close(), o.FS.Rename(dir, d.build()), d.removeBuild())
}
