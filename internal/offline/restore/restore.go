package restore

import (
	"context"
	"errors"
	"fmt"
	"math"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/offline/datadir"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
	"vigil/internal/vfs"
)

// buildName is what the store is called, in the data directory, before it is whole.
var buildName = datadir.RestoringName(datadir.HistoryName)

// batchBytes is about how many bytes of records are one batch of the store.
const batchBytes = 1 << 20

// maxRevision bounds the revisions of a store that is built.
const maxRevision = math.MaxInt64 >> 1

// Options say what to build and out of what.
type Options struct {
	FS vfs.FS
	// Source is a file, the data directory of an etcd member, or a checkpoint. SourceWAL is where the raft
	// log of the etcd member is, if not in Source.
	Source, SourceWAL string
	// SkipHash takes a file without the hash that a member puts behind it.
	SkipHash bool

	// DataDir is made, and must otherwise be empty. WALDir, if set, is where the member will have its raft
	// log: there must be nothing.
	DataDir, WALDir string
	// Name is that of the member, Members the cluster by name and peer URLs, and Token keeps apart clusters
	// that begin alike.
	Name    string
	Members []cluster.Member
	Token   string

	// BumpRevision is added to the newest revision. With MarkCompacted everything up to there is compacted,
	// so that no client takes what it has seen of a later state for a part of this one. Both or neither.
	BumpRevision  uint64
	MarkCompacted bool

	// Progress, if set, is told what is being done, how many bytes of it are done, and of how many.
	Progress func(what string, done, total int64)
	// NoSync leaves every sync out.
	NoSync bool
}

// Summary is what was built.
type Summary struct {
	ClusterID, MemberID uint64
	// Members are those of the new cluster, with their ids.
	Members []cluster.Member
	// Index is the position of the raft log at which the backup was made.
	Index uint64
	// Revision is the newest revision now, Compact the compact revision, -1 for none.
	Revision, Compact int64
	Records           int64
	Leases            int
	Users, Roles      int
	AuthEnabled       bool
	// Replayed is how many entries of the raft log had not reached the database, Torn how many bytes of
	// one more a crash has left.
	Replayed int
	Torn     int64
	// Alarms are those that the backup has and the new cluster has not: they are about the members of the
	// old one. A member raises its own.
	Alarms []kv.Alarm
}

// Run builds a data directory.
func Run(ctx context.Context, o Options) (Summary, error) {
	b, err := newBuilder(ctx, &o)
	if err != nil {
		return Summary{}, err
	}
	if err := b.dirs.make(); err != nil {
		return Summary{}, err
	}
	if err := b.build(); err != nil {
		b.abandon()
		return Summary{}, errors.Join(err, b.dirs.remove())
	}
	if err := b.dirs.publish(o.NoSync); err != nil {
		return Summary{}, errors.Join(err, b.dirs.remove())
	}
	return b.res, nil
}

// builder is a building under way.
type builder struct {
	ctx     context.Context
	o       *Options
	dirs    directories
	members *cluster.State
	res     Summary

	log     *history.Log
	closed  bool
	pending int
	last    int64 // the newest record's revision
}

func newBuilder(ctx context.Context, o *Options) (*builder, error) {
	if (o.BumpRevision > 0) != o.MarkCompacted {
		return nil, errors.New("--mark-compacted required if --bump-revision > 0")
	}
	if o.BumpRevision > maxRevision {
		return nil, fmt.Errorf("--bump-revision %d is more than %d", o.BumpRevision, int64(maxRevision))
	}
	members, err := cluster.Initial(o.Token, o.Members)
	if err != nil {
		return nil, fmt.Errorf("--initial-cluster: %w", err)
	}
	b := &builder{ctx: ctx, o: o, members: members, dirs: directories{fs: o.FS, data: o.DataDir, wal: o.WALDir}}
	b.res.Members = members.Members()
	for _, m := range members.Members() {
		if m.Name == o.Name {
			b.res.MemberID = m.ID
		}
	}
	if b.res.MemberID == 0 {
		return nil, fmt.Errorf("couldn't find local name %q in the initial cluster configuration: --initial-cluster must list the member --name", o.Name)
	}
	return b, nil
}

// build fills the store.
func (b *builder) build() error {
	src, err := open(b.ctx, b.o)
	if err != nil {
		return err
	}
	defer src.close()
	if free, err := b.o.FS.Free(b.o.DataDir); err == nil && free < src.size {
		return fmt.Errorf("%w: %s has room for %d bytes, and the backup has %d", kv.ErrNoSpace, b.o.DataDir, free, src.size)
	}
	b.res.ClusterID = b.clusterID(src)
	ho := history.Options{FS: b.o.FS, Dir: b.dirs.build(), ClusterID: b.res.ClusterID, MemberID: b.res.MemberID, NoSync: b.o.NoSync}
	if b.log, err = history.Create(ho, history.Applied{}, nil); err != nil {
		return err
	}
	c, compact, err := src.read(b)
	if err != nil {
		return err
	}
	b.res.Compact = compact
	conf := &raftpb.ConfState{Voters: b.members.IDs()}
	c.Members, c.Conf = b.members, conf
	if err := b.contents(c); err != nil {
		return err
	}
	if len(src.entries) > 0 {
		if c, err = b.replay(src.entries); err != nil {
			return err
		}
	}
	b.res.Alarms = c.Alarms
	b.res.Leases, b.res.Users, b.res.Roles, b.res.AuthEnabled = len(c.Leases), len(c.Auth.Users()), len(c.Auth.Roles()), c.Auth.Enabled()
	return b.finish()
}

// clusterID is one that only members have that are restored from the same backup, in the same way. One that was not
// restored, or not to its end, begins with another id, and can neither vote among those nor lead them.
func (b *builder) clusterID(s *source) uint64 {
	last := s.db.Contents.Index
	if n := len(s.entries); n > 0 {
		last = s.entries[n-1].GetIndex()
	}
	return cluster.RestoredID(b.members.IDs(), last, uint64(max(s.db.Contents.Compact, 0)), b.o.BumpRevision)
}

// record takes a record of the backup.
func (b *builder) record(rev kv.Rev, tombstone bool, data []byte) error {
	if rev.Main > maxRevision {
		return fmt.Errorf("revision %d is more than %d", rev.Main, int64(maxRevision))
	}
	if err := mvcc.CheckRecord(rev, tombstone, data); err != nil {
		return err
	}
	if _, err := b.log.AppendKV(rev, tombstone, data); err != nil {
		return err
	}
	b.last = rev.Main
	b.res.Records++
	if b.pending += len(data) + 64; b.pending < batchBytes {
		return nil
	}
	b.pending = 0
	return b.log.Commit(history.Applied{})
}

// contents adds what is not records.
func (b *builder) contents(c *fsm.Contents) error {
	list := c.Records()
	if b.res.Compact > 0 {
		list = append(list, mvcc.CompactRecord(b.res.Compact))
	}
	for _, m := range list {
		if err := b.log.AppendMeta(m); err != nil {
			return err
		}
	}
	b.res.Revision = max(b.last, b.res.Compact, 1)
	return b.log.Commit(history.Applied{})
}

// finish gives the store the position that every member of a new cluster begins at, and closes it.
func (b *builder) finish() error {
	for _, a := range b.res.Alarms {
		if err := b.log.AppendMeta(fsm.ClearedAlarm(a)); err != nil {
			return err
		}
	}
	if b.o.MarkCompacted {
		if b.res.Revision += int64(b.o.BumpRevision); b.res.Revision > maxRevision {
			return fmt.Errorf("--bump-revision %d raises the revision to %d, which is more than %d", b.o.BumpRevision, b.res.Revision, int64(maxRevision))
		}
		b.res.Compact = b.res.Revision
		if err := b.log.AppendMeta(mvcc.CompactRecord(b.res.Compact)); err != nil {
			return err
		}
	}
	if err := b.log.Commit(datadir.First); err != nil {
		return err
	}
	b.closed = true
	return b.log.Close()
}

// abandon closes the store, whatever becomes of it.
func (b *builder) abandon() {
	if b.log != nil && !b.closed {
		b.closed = true
		b.log.Retire()
		_ = b.log.Close()
	}
}
