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

// buildName is the name of the store in the data directory before it is complete.
var buildName = datadir.RestoringName(datadir.HistoryName)

// batchBytes is about the size of the records in one batch of the store.
const batchBytes = 1 << 20

// maxRevision is the limit for revisions of the store.
const maxRevision = math.MaxInt64 >> 1

// Options select the backup and describe the new member.
type Options struct {
	FS vfs.FS
	// Source is a file, the data directory of an etcd member, or a checkpoint. SourceWAL is the raft log of the etcd
	// member, if it is not in Source.
	Source, SourceWAL string
	// Others are the data directories of other members of the same etcd cluster. The newest of all is restored.
	Others []string
	// SkipHash accepts a file without the hash that a member appends.
	SkipHash bool
	// SkipRejected restores the data directory of an etcd member without the requests in its raft log that exceed a limit
	// of this program.
	SkipRejected bool

	// DataDir is created, or must be empty. WALDir, if set, is the future directory of the raft log, which must be empty.
	DataDir, WALDir string
	// Name is the name of the member, Members are the names and peer URLs of the cluster. Token distinguishes clusters with
	// the same members.
	Name    string
	Members []cluster.Member
	Token   string

	// BumpRevision is added to the newest revision. With MarkCompacted everything up to that is compacted, so that no client
	// takes data of a later state for data of this one. Both or neither are set.
	BumpRevision  uint64
	MarkCompacted bool

	// State, if set, is the backup instead of Source.
	State State

	// Progress, if set, is called with the current step, its bytes done and its total bytes.
	Progress func(what string, done, total int64)
	// NoSync omits every sync.
	NoSync bool
}

// Summary describes the new data directory.
type Summary struct {
	ClusterID, MemberID uint64
	// Members are the members of the new cluster, with their ids.
	Members []cluster.Member
	// Source is the backup that was restored. Positions are the ends of the raft logs of the etcd members whose directories were given.
	Source    string
	Positions []Position
	// Index is the position of the raft log at which the backup was made.
	Index uint64
	// Revision is the newest revision now, Compact the compact revision, -1 for none.
	Revision, Compact int64
	Records           int64
	Leases            int
	Users, Roles      int
	AuthEnabled       bool
	// Replayed is how many entries of the raft log were not in the database, Torn how many bytes of a further one a crash
	// has left.
	Replayed int
	Torn     int64
	// Rejected are the requests of the raft log that are not restored because of SkipRejected.
	Rejected []Rejected
	// Alarms are the alarms of the backup. They are not restored: they are about the members of the old cluster.
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

// builder is a restore in progress.
type builder struct {
	ctx     context.Context
	o       *Options
	dirs    directories
	members *cluster.State
	res     Summary

	loader
	closed bool
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
	if b.o.State != nil {
		return b.buildState()
	}
	if len(b.o.Others) > 0 {
		list, best, err := newest(b.ctx, b.o)
		if err != nil {
			return err
		}
		b.o.Source, b.res.Positions = list[best].Source, list
	}
	src, err := open(b.ctx, b.o)
	if err != nil {
		return err
	}
	defer src.close()
	b.res.Source = b.o.Source
	if src.last.Source != "" && b.res.Positions == nil {
		b.res.Positions = []Position{src.last}
	}
	b.res.ClusterID = b.clusterID(src)
	if err := b.create(src.size); err != nil {
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

// create creates the store, for which size bytes are needed.
func (b *builder) create(size int64) (err error) {
	if free, err := b.o.FS.Free(b.o.DataDir); err == nil && free < size {
		return fmt.Errorf("%w: %s has room for %d bytes, and the backup has %d", kv.ErrNoSpace, b.o.DataDir, free, size)
	}
	ho := history.Options{FS: b.o.FS, Dir: b.dirs.build(), ClusterID: b.res.ClusterID, MemberID: b.res.MemberID, NoSync: b.o.NoSync}
	b.log, err = history.Create(ho, history.Applied{}, nil)
	return err
}

// clusterID returns an id that only members have that were restored from the same backup with the same options. A member
// that was not restored, or not completely, has another id, and can neither vote in the cluster nor lead it.
func (b *builder) clusterID(s *source) uint64 {
	last := s.db.Contents.Index
	if n := len(s.entries); n > 0 {
		last = s.entries[n-1].GetIndex()
	}
	return cluster.RestoredID(b.members.IDs(), last, uint64(max(s.db.Contents.Compact, 0)), b.o.BumpRevision)
}

// contents adds everything besides the records.
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
	b.res.Records = b.records
	b.res.Revision = max(b.last, b.res.Compact, 1)
	return b.log.Commit(history.Applied{})
}

// finish sets the position at which every member of a new cluster begins, and closes the store.
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

// abandon closes an incomplete store.
func (b *builder) abandon() {
	if b.log != nil && !b.closed {
		b.closed = true
		b.log.Retire()
		_ = b.log.Close()
	}
}
