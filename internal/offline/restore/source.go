package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/offline/datadir"
	"vigil/internal/offline/restore/etcdwal"
	"vigil/internal/offline/snapshot"
	"vigil/internal/state/fsm"
	"vigil/internal/vfs"
)

// The paths in the data directory of an etcd member.
const (
	memberDir = "member"
	etcdDB    = "member/snap/db"
	etcdWAL   = "member/wal"
)

// source is an open backup.
type source struct {
	path    string
	file    vfs.File
	size    int64
	db      *snapshot.File
	entries []*raftpb.Entry
	// torn is the number of bytes of an incomplete entry at the end of the raft log.
	torn int64
	// last is the end of the raft log, of the directory of an etcd member.
	last Position
}

// openSource opens a backup, and checks everything but the records.
func openSource(ctx context.Context, o *Options) (*source, error) {
	st, err := o.FS.Stat(o.Source)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		return openFile(ctx, o, o.Source, o.SkipHash)
	}
	exists := func(name string) bool {
		_, err := o.FS.Stat(filepath.Join(o.Source, name))
		return err == nil
	}
	switch {
	case exists(memberDir):
		return openEtcd(ctx, o)
	case exists(datadir.HistoryName):
		return nil, fmt.Errorf("%s is the data directory of a Vigil member: copy it while the member is stopped, or take a snapshot with vigilctl snapshot save", o.Source)
	}
	return nil, fmt.Errorf("%s is a directory without %s: it is not the data directory of an etcd member", o.Source, etcdDB)
}

func openFile(ctx context.Context, o *Options, path string, skipHash bool) (*source, error) {
	f, err := o.FS.Open(path)
	if err != nil {
		return nil, err
	}
	s := &source{path: path, file: f}
	if s.size, err = f.Size(); err == nil {
		total := 2 * s.size
		if skipHash {
			total = s.size
		}
		s.db, err = snapshot.Open(interruptible{ctx, f}, s.size,
			snapshot.Options{SkipHash: skipHash,
				Progress: o.progress("reading "+filepath.Base(path), total)})
	}
	if err != nil {
		s.close()
		if errors.Is(err, snapshot.ErrNoHash) {
			err = fmt.Errorf("%w; it is needed for a file that was copied from a data directory, which has no hash", err)
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// interruptible is a file whose reads fail once a context is done.
type interruptible struct {
	ctx  context.Context
	file vfs.File
}

// ReadAt implements io.ReaderAt.
func (r interruptible) ReadAt(b []byte, off int64) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.file.ReadAt(b, off)
}

// openEtcd opens the database of an etcd member and reads the entries of its raft log that are not
// in it.
func openEtcd(ctx context.Context, o *Options) (*source, error) {
	path := filepath.Join(o.Source, etcdDB)
	if held, err := vfs.Locked(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	} else if held {
		return nil, fmt.Errorf("%s is in use: stop the etcd member, or take a snapshot of it with etcdctl snapshot save and restore that", path)
	}
	s, err := openFile(ctx, o, path, true)
	if err != nil {
		return nil, err
	}
	wal := cmp.Or(o.SourceWAL, filepath.Join(o.Source, etcdWAL))
	// A snapshot of another member that was accepted, and has not replaced the database yet, is the
	// newer database.
	accepted, err := etcdwal.Accepted(o.FS, wal, s.db.Contents.Index)
	if err == nil && accepted > 0 {
		old := s
		s, err = openAccepted(ctx, o, accepted, old.db.Contents.Index)
		old.close()
		if err != nil {
			return nil, err
		}
	}
	var log *etcdwal.Log
	if err == nil {
		log, err = etcdwal.Read(o.FS, wal, s.db.Contents.Index)
	}
	if err != nil {
		s.close()
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: the raft log holds entries that are not in the database; give its directory with --source-wal-dir", err)
		}
		return nil, err
	}
	s.entries, s.torn = log.Entries, log.Torn
	s.last = Position{Source: o.Source, ClusterID: log.ClusterID, Term: log.LastTerm,
		Index: log.LastIndex}
	if log.LastIndex == 0 {
		s.last.Term, s.last.Index = s.db.Contents.Term, s.db.Contents.Index
	}
	return s, nil
}

// openAccepted opens the database of a snapshot that the member had accepted when it ended.
func openAccepted(ctx context.Context, o *Options, index, have uint64) (*source, error) {
	path := filepath.Join(o.Source, memberDir, "snap", fmt.Sprintf("%016x.snap.db", index))
	s, err := openFile(ctx, o, path, true)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("the raft log has accepted a snapshot at index %d, the database is at %d, and %s is missing: restore from another member", index, have, path)
	case err != nil:
		return nil, err
	}
	// Its index may not include entries that change nothing.
	s.db.Contents.Index = max(s.db.Contents.Index, index)
	return s, nil
}

// loadInto adds all records of the backup to the new store, and returns the other contents and the
// compact revision.
func (s *source) loadInto(l *loader) (*fsm.Contents, int64, error) {
	st := &s.db.Contents
	if err := s.db.Records(l.addRecord); err != nil {
		if errors.Is(err, context.Canceled) {
			return nil, 0, err
		}
		return nil, 0, fmt.Errorf("%s: %w", s.path, err)
	}
	c := &fsm.Contents{Alarms: st.Alarms, Leases: st.Leases, Auth: st.Auth}
	for i := range c.Leases {
		c.Leases[i].Granted = datadir.First.Index
	}
	return c, st.Compact, nil
}

func (s *source) close() {
	if s.file != nil {
		_ = s.file.Close()
	}
}
